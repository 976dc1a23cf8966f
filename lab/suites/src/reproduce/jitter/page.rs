// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page that puts the text's words beside what was seen, from result files alone.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};

use super::MadeExperiment;
use super::draw::{draw, title};
use super::results::ShaperResult;
use super::timely::MadeTimely;
use crate::jitter::scenario::ShapedScenario;
use crate::jitter::shaped::ShaperContender;
use crate::reproduce::generated::{PageFiles, command_and_day, commit, no_results};

/// Writes the page and its pictures below `root`, the project's folder.
pub fn write(root: &Path, timely: &[MadeTimely], made: &[MadeExperiment]) -> Result<PathBuf> {
    if timely.is_empty() && made.is_empty() {
        return Err(no_results("a result; make one experiment first"));
    }
    let files = PageFiles::make(root, "jitter")?;
    let mut text = HEAD.to_owned();
    for (experiment, result) in timely {
        let drawn = experiment.draw(result)?;
        drawn.iter().try_for_each(|(name, svg)| files.save_picture(name, svg))?;
        let names: Vec<&str> = drawn.iter().map(|(name, _)| name.as_str()).collect();
        text += &experiment.section(result, &names)?;
    }
    for (name, scenario, result) in made {
        let drawn = draw(name, scenario, result)?;
        for (part, svg) in &drawn {
            files.save_picture(&format!("{name}-{part}"), svg)?;
        }
        let parts: Vec<&str> = drawn.iter().map(|(part, _)| *part).collect();
        text += &section(name, scenario, result, &parts);
    }
    files.save_page(&text)
}

fn section(name: &str, scenario: &ShapedScenario, result: &ResultFile, parts: &[&str]) -> String {
    let heading = &scenario.title;
    let mut text = format!("\n## {heading}\n\n{}\n", wrapped(&scenario.text, "> ", "> "));
    for part in parts {
        let _ = writeln!(text, "![{heading}: {part}](../img/jitter/{name}-{part}.svg)");
    }
    text.push('\n');
    text += &table(name, scenario, result);
    let origin = &result.origin();
    let made = format!("{}, virtual time, {}.", command_and_day(origin), commit(origin));
    text.push('\n');
    text + &wrapped(&made, "", "")
}

/// Returns the numbers of an experiment.
pub fn table(name: &str, scenario: &ShapedScenario, result: &ResultFile) -> String {
    let mut text = COLUMNS.to_owned();
    let allocation = float(scenario.rate.as_bps());
    for shaper in ShaperContender::ALL {
        let Some(of) = ShaperResult::of(result, name, shaper) else { continue };
        let rates = of.rates();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min) / allocation;
        let most = rates.iter().copied().fold(0.0, f64::max) / allocation;
        let (first, median, last) = (of.delay_at(1), of.delay_at(50), of.delay_at(99));
        let _ = writeln!(
            text,
            "| {} | {first:.1} | {median:.1} | {last:.1} | {:.1} | {:.3} | {least:.3} | {most:.3} \
             | {:.0} |",
            title(shaper),
            last - first,
            of.rate() / allocation,
            of.refused,
        );
    }
    text
}

const COLUMNS: &str = "\
| shaper | p1, ms | median, ms | p99, ms | p99 − p1, ms | rate | least 2 s | most 2 s | refused |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
";

const HEAD: &str = "\
# The experiments of the Jitter text, made again

Text: *Jitter*, a talk about network jitter between virtual machines: a scheduler of the processor
with real-time classes, and a shaper that smooths delay, in Xen 4.1.0 and Linux 2.6.32.13, on two
quad-core Xeons. It shows curves and no numbers; its settings are 2 Mb/s, a window 3 ms wide and an
interval of 1 s.

**The scheduler.** A machine is a process in a network namespace, and the shipped node gives it its
class ([realtime.md](../realtime.md)). *Shares alone* is Linux's fair class with the weights 60, 20
and 20; *real-time class* is `realtime` with 60 % of a core. Neighbours never wait. A machine under
shares alone has one core with two of them; one in the class cannot be pinned, so that every core
has two. A ping is a datagram that the machine itself sends back, where the kernel would answer that
of ICMP for it; its round trip begins when it leaves and ends when the kernel has the answer. iperf
is TCP to a sink that discards what comes. RTP is a datagram at even times, and its error how much
the time between two departures is off. This page shows one run, of a virtual machine whose host
takes its processors away now and then, and judges nothing: rows 1 to 4 of `weir-lab verify jitter`
hold such runs against bounds ([verify.md](../verify.md)). It is a Linux host and not Xen 4.1: what
*shares alone* does here is the work of Linux's scheduler, not of Xen's, whose own the simulator has
([simulator.md](../simulator.md)).

**The shaper.** The same senders run in virtual time, so that the numbers are exact and the same on
every machine. Video has 25 frames a second, one of twelve three times as long as the others; a web
client opens a connection, asks for the file, and does so again once it has it; bulk is TCP of
smoltcp. **Xen's bucket** is that of netback in Linux 2.6.32: a credit each 50 ms, handed out at
ticks of 4 ms. **Token bucket** holds 50 ms and is refilled all the time, as Linux's TBF. **Weir,
pace** has no burst. **Text's PID** is the text's window, moved by the error of the credit in each
interval; **Weir, smooth** is `shaper = \"smooth\"` ([smooth.md](../algorithms/smooth.md)). Delays
and windows of the first 6 s are left out, in which the windows find their place. Rates are parts of
2 Mb/s: in all, and of the least and the greatest 2 s, the text's micro-view. Where video offers
85 %, no more can leave.

This page is generated: `weir-lab reproduce jitter all`, then `weir-lab reproduce jitter report`.
";

#[cfg(test)]
mod tests {
    use weir_result::{Origin, Series};

    use super::*;

    /// By hand: 100 delays of 1 to 100 ms; 250 000 and 500 000 bytes of the 500 000 of each 2 s.
    #[test]
    fn the_numbers_follow_from_the_series() {
        let mut result = ResultFile::new(Origin::default());
        let mut add = |part: &str, unit: &str, samples: Vec<f64>| {
            let name = format!("rtp-100/smooth/{part}");
            result.add_series(&name, Series::unordered(unit, samples)).unwrap();
        };
        add("delay", "ms", (1..=100).map(f64::from).collect());
        add("left", "B", vec![250_000.0, 500_000.0]);
        add("refused", "1", vec![3.0]);
        let scenario = ShapedScenario::named("rtp-100").unwrap();
        let table = table("rtp-100", &scenario, &result);
        let row = "| Weir, smooth | 1.0 | 50.0 | 99.0 | 98.0 | 0.750 | 0.500 | 1.000 | 3 |";
        assert!(table.contains(row) && table.lines().count() == 3, "{table}");
        assert_eq!(draw("rtp-100", &scenario, &result).unwrap().len(), 2);
    }
}
