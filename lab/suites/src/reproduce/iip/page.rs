// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that puts the text's words and numbers beside the measured ones, from a result file
//! alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weir_experiment::median;
use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};
use weir_tester::CpuLine;

use super::draw::draw;
use super::figures::{FIGURES, FigureView, IipFigure};
use super::loads::{FigureLoads, shown};
use crate::guests::ParallelInternet;
use crate::guests::sweep::MeasuredLoad;
use crate::iip::guest_model::{GuestModel, SizeLoads, points};
use crate::iip::table1::{TableLine, lines};
use crate::reproduce::generated::{PageFiles, command_and_day, heading, machine, no_results};

/// Writes the page and its pictures below `root`, the project's folder.
pub fn write(root: &Path, result: Option<&ResultFile>) -> Result<PathBuf> {
    let result = result.ok_or_else(|| no_results("a result of all figures"))?;
    let files = PageFiles::make(root, "iip")?;
    let origin = &result.origin();
    let made = format!("{}: {}.", command_and_day(origin), machine(origin));
    let mut text = format!("{HEAD}{END}\n{}", wrapped(&made, "", ""));
    for figure in &FIGURES {
        let drawn = draw(figure, result)?;
        for (name, svg) in &drawn {
            files.save_picture(name, svg)?;
        }
        text += &section(figure, result, drawn.iter().map(|(name, _)| name.as_str()));
    }
    files.save_page(&text)
}

fn section<'n>(
    figure: &IipFigure,
    result: &ResultFile,
    pictures: impl Iterator<Item = &'n str>,
) -> String {
    let number = heading(figure.name).map_or_else(String::new, |number| format!("{number}: "));
    let title = figure.title;
    let mut text = format!("\n## {number}{title}\n\n{}\n", wrapped(figure.text, "> ", "> "));
    for picture in pictures {
        let _ = writeln!(text, "![{title}](../img/iip/{picture}.svg)");
    }
    text.push('\n');
    text + &table(figure, result)
}

/// Returns the numbers of a figure.
pub fn table(figure: &IipFigure, result: &ResultFile) -> String {
    let all = shown(figure, result);
    match figure.view {
        FigureView::Throughput | FigureView::Latency | FigureView::Beside => delays(&all),
        FigureView::Processor => all.first().map_or_else(String::new, processors),
        FigureView::Fit | FigureView::Coefficients => {
            coefficients(&all).unwrap_or_else(|error| format!("Not fitted: {error}.\n"))
        }
    }
}

/// Returns delays at the least load, at the greatest that was forwarded, and past it.
fn delays(all: &[FigureLoads]) -> String {
    let mut text = "\
| through | bytes | least load, kpps | ms | throughput, kpps | Mbit/s | ms | greatest load, kpps | \
missing | ms |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"
    .to_owned();
    let ms = |load: &MeasuredLoad| format!("{:.3} · {:.3}", load.median_ms(), load.mean_ms());
    for of in all {
        let [Some(first), Some(last)] = [of.loads.first(), of.loads.last()] else { continue };
        let found = of.throughput().map_or_else(
            || "below | | ".to_owned(),
            |load| format!("{:.1} | {:.0} | {}", 3.0 * load.kpps, 3.0 * load.mbps, ms(load)),
        );
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {} | {found} | {:.1} | {:.1} % | {} |",
            of.sweep_name(),
            of.size,
            3.0 * first.kpps,
            ms(first),
            3.0 * last.kpps,
            100.0 * last.missing(),
            ms(last),
        );
    }
    text += "\nRates are of the three streams together; ms: median · mean time on the way. \
             Throughput: the\ngreatest load up to which at most 1 % is missing.\n";
    text + &all.iter().filter_map(unsaturated).collect::<String>()
}

/// Returns a remark on a size whose loads lost packets where greater ones lost hardly any: the
/// throughput in the table then says when a run first lost some, not what is forwarded.
fn unsaturated(of: &FigureLoads) -> Option<String> {
    let first = of.loads.iter().find(|load| !load.is_forwarded())?;
    let last = of.loads.last().filter(|last| last.missing() <= HARDLY_ANY)?;
    if last.kpps <= first.kpps {
        return None;
    }
    let text = format!(
        "{}, {}: more than 1 % is missing of {:.1} kpps, and {:.1} % of {:.1}. It is not \
         saturated, and its throughput here does not compare with the others'.",
        of.sweep_name(),
        of.size,
        3.0 * first.kpps,
        100.0 * last.missing(),
        3.0 * last.kpps,
    );
    let text = text[..1].to_uppercase() + &text[1..];
    Some(format!("\n{}", wrapped(&text, "", "")))
}

fn processors(of: &FigureLoads) -> String {
    let mut text = "\
| Mbit/s | kpps | missing | IPv6 QoS | CAN | DSS |
|---:|---:|---:|---:|---:|---:|
"
    .to_owned();
    let guest = |load: &MeasuredLoad, internet: ParallelInternet| {
        let cpu = load.tenants.get(internet.index()).map_or([0.0; 2], |one| one.cpu);
        format!("{:.1} + {:.1}", cpu[0], cpu[1])
    };
    for load in &of.loads {
        let [qos, can, dss] = ParallelInternet::ALL.map(|internet| guest(load, internet));
        let _ = writeln!(
            text,
            "| {:.0} | {:.1} | {:.1} % | {qos} | {can} | {dss} |",
            load.mbps,
            load.kpps,
            100.0 * load.missing(),
        );
    }
    text + "\nRates are of each stream. Processor time is in percent of one processor: the thread \
            that receives\nand works + the thread that sends.\n"
}

/// Returns the text's line of each size and guest beside ours, then the surfaces.
fn coefficients(all: &[FigureLoads]) -> Result<String> {
    let fitted: Vec<SizeLoads> = all.iter().map(FigureLoads::to_fit).collect();
    let (known, mut compared, mut worse) = (lines()?, 0, 0);
    let mut text = "\
| bytes | guest | text: a | b | R² | here: a, 10 Mbit/s | a, kpps | b | R² |
|---:|---|---:|---:|---:|---:|---:|---:|---:|
"
    .to_owned();
    for (index, size) in fitted.iter().enumerate() {
        for internet in ParallelInternet::ALL {
            let points = points(size, internet);
            // The text's smallest size has no room for our headers.
            let bytes = if index == 0 && fitted.len() > 1 { TEXT_LEAST } else { size.bytes };
            let own = |line: &&TableLine| {
                (line.bytes - bytes).abs() < 0.5 && line.tenant == internet.key()
            };
            let said = known.iter().find(own);
            let told = said.map_or_else(
                || "– | – | –".to_owned(),
                |line| format!("{:.3} | {:.2} | {:.3}", line.a, line.b, line.r_square),
            );
            let line = CpuLine::of(&points);
            if let (Some(said), Ok(line)) = (said, &line) {
                compared += 1;
                worse += u32::from(line.fit().r_square < said.r_square);
            }
            let ours = line.map_or_else(
                |error| format!("– | – | – | {error}"),
                |line| {
                    // The number of thousands of packets a second in a step of 10 Mbit/s.
                    let step = 10e3 / (8.0 * size.bytes);
                    let [a, b] = [line.slope(), line.offset()];
                    format!("{:.3} | {a:.3} | {b:.2} | {:.3}", a * step, line.fit().r_square)
                },
            );
            let _ = writeln!(text, "| {} | {} | {told} | {ours} |", size.bytes, internet.name());
        }
    }
    if compared > 1 {
        let _ = writeln!(text, "\nOf {compared} lines {worse} fit worse than the text's, by R².");
    }
    if fitted.len() > 1 {
        text.push_str(SURFACE);
        for internet in ParallelInternet::ALL {
            let model = GuestModel::of(&fitted, internet)?;
            let [plain, bent, batched] = &model.surfaces;
            let [b, packet, byte] = plain.fit().coefficients[..] else { continue };
            let held_out = model.held_out.map(|errors| errors.map(|of| median(&of)));
            let _ = writeln!(
                text,
                "| {} | {b:.2} | {packet:.4} | {:.3} | {:.3} | {:.3} | {:.3} | {} |",
                internet.name(),
                1e3 * byte,
                plain.fit().r_square,
                bent.fit().r_square,
                batched.fit().r_square,
                held_out.map_or_else(|| "–".to_owned(), |[a, b]| format!("{a:.2} · {b:.2}")),
            );
        }
    }
    Ok(text
        + "\nThe text's x is read in steps of 10 Mbit/s ([verify.md](../verify.md), row 12). \
               Points are loads of\nwhich at most 1 % is missing.\n")
}

const TEXT_LEAST: f64 = 79.0;
/// A part of lost packets that a saturated node exceeds by far.
const HARDLY_ANY: f64 = 0.02;

const SURFACE: &str = "
One surface a guest: CPU = b + kpps · (α + β · bytes); then with counted wake-ups as a term; then
with wake-ups that follow from the load, c · k / (1 + k · d). Only this one and the first are
forecasts; what they miss by of sizes that they were not fitted to comes last.

| guest | b | α | 1000 β | R² | counted wake-ups | wake-ups by load | held-out sizes, median |
|---|---:|---:|---:|---:|---:|---:|---:|
";

const HEAD: &str = "\
# The figures of the IIP text, made again

Text: G. Rzym, K. Wajda, *Performance Tests of Xen-based Node for Future Internet IIP Initiative*.
There a Spirent tester sends three streams of 10 to 330 Mbit/s at once through a Xen host with
three virtual machines, each with two processors of its own; a run takes 110 s.

Here three guests are processes of two threads in namespaces of their own. Behind a running node
with a slice for each parallel internet they take IPv6, do the work of their internet, and hand it
back; the node sends in phases of 100 µs each at 1 Gb/s. Node and guests share one of two
processors, generator and kernel have the other, so that rates are lower than the text's and
saturate earlier: what can be compared is shapes and ratios. A run takes 1 s, and guests start anew
before it. Numbers are medians of three runs, of ten for random sizes, and single runs of the
machine alone, without phases, and for routing and translation. Processor time is that of the
guests' threads; what the kernel does for them elsewhere is not in it. Loads end at 50 kpps of each
stream. Queues hold 32 frames, so that delays past saturation are short, and a pause of a processor
costs frames.
";

const END: &str = "
A guest takes as many frames at once as wait for it. As the processor fills up, batches grow and a
packet becomes cheaper: the load over packets bends before the first frame is lost, most of all with
small frames, and one line fits it worse. Wake-ups as a further term explain nearly all of the bend.

Sizes are with FCS and header. **The text's 79 bytes are 87 here**: a frame of IPv6 and UDP with
the header of 3 bytes and the tester's own 18 has no fewer.

This page is generated: `weir-lab reproduce iip all`, then `weir-lab reproduce iip report`.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::sweep::MeasuredTenant;

    fn loads(sweep: &'static str, missing: &[f64]) -> FigureLoads {
        let load = |(number, missing): (u32, &f64)| MeasuredLoad {
            mbps: 32.0 * f64::from(number),
            kpps: 5.0 * f64::from(number),
            tenants: vec![MeasuredTenant { missing: *missing, ..MeasuredTenant::default() }; 3],
        };
        let loads = (1..).zip(missing).map(load).collect();
        FigureLoads { sweep, size: "random".to_owned(), loads }
    }

    /// Goal: the table does not say at once that hardly anything of the greatest load is missing,
    /// and that the throughput is a tenth of it, without a word.
    #[test]
    fn a_throughput_that_a_stray_loss_cut_is_told() {
        let cut = loads("no-phases", &[0.0, 0.013, 0.002, 0.012]);
        let text = delays(&[cut]);
        let remark = "The node, no phases, random: more than 1 % is missing of 30.0 kpps, and \
                      1.2 % of 60.0.";
        assert!(text.replace('\n', " ").contains(remark), "{text}");
        for usual in [&[0.0, 0.002, 0.004][..], &[0.0, 0.013, 0.2], &[0.0, 0.0, 0.012]] {
            assert!(!delays(&[loads("fixed", usual)]).contains("not saturated"), "{usual:?}");
        }
    }
}
