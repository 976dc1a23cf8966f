// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as the text laid them out, from a result file alone.

use std::path::Path;

use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{PointSet, Points, Svg};
use weir_result::ResultFile;
use weir_tester::CpuLine;

use super::figures::{FigureView, IipFigure};
use super::loads::{FigureLoads, shown};
use crate::guests::ParallelInternet;
use crate::guests::sweep::MeasuredLoad;
use crate::iip::guest_model::points;

/// Writes the pictures of figures into `folder`, as SVG and as PNG.
pub fn write(figures: &[&IipFigure], result: &ResultFile, folder: &Path) -> Result<()> {
    for figure in figures {
        for (name, svg) in draw(figure, result)? {
            save_picture(folder, &name, &svg, 1.0)?;
        }
    }
    Ok(())
}

/// The pictures of a figure, each with the name of its file; none of what was not measured.
pub fn draw(figure: &IipFigure, result: &ResultFile) -> Result<Vec<(String, Svg)>> {
    let all = shown(figure, result);
    match figure.view {
        FigureView::Throughput => {
            let mut drawn = by_load(figure, &all, "mbps", MBPS, ("forwarded", "bit/s"), |one| {
                one.forwarded_kpps() * one.mbps / (3.0 * one.kpps) * 1e6
            })?;
            drawn.extend(by_load(figure, &all, "kpps", KPPS, ("forwarded", "packet/s"), |one| {
                one.forwarded_kpps() * 1e3 / 3.0
            })?);
            Ok(drawn)
        }
        FigureView::Latency | FigureView::Beside => {
            by_load(figure, &all, "mean", MBPS, ("mean time on the way", "s"), |one| {
                one.mean_ms() / 1e3
            })
        }
        FigureView::Processor => processors(figure, &all),
        FigureView::Fit => fit(figure, &all),
        FigureView::Coefficients => Ok(Vec::new()),
    }
}

/// A way to show the load on the horizontal axis: name, unit and value.
type LoadAxis = (&'static str, &'static str, fn(&MeasuredLoad) -> f64);

const MBPS: LoadAxis = ("offered, each stream", "bit/s", |one| one.mbps * 1e6);
const KPPS: LoadAxis = ("offered, each stream", "packet/s", |one| one.kpps * 1e3);

/// A picture for each sweep with a line a size; or, of one size, for all sweeps.
fn by_load(
    figure: &IipFigure,
    all: &[FigureLoads],
    part: &str,
    x: LoadAxis,
    y: (&str, &str),
    value: fn(&MeasuredLoad) -> f64,
) -> Result<Vec<(String, Svg)>> {
    let set = |name: String, of: &FigureLoads| {
        let points = of.loads.iter().map(|load| ((x.2)(load), value(load))).collect();
        PointSet::line(name, points)
    };
    let of_size = figure.view == FigureView::Beside || figure.sizes.len() == 1;
    let key = |of: &FigureLoads| if of_size { of.size.clone() } else { of.sweep.to_owned() };
    let mut keys: Vec<String> = all.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    let mut drawn = Vec::new();
    for wanted in keys {
        let own = all.iter().filter(|of| key(of) == wanted);
        // More lines than colours cannot be told apart; the table has all.
        let sets = own
            .filter(|of| of_size || of.size != LEFT_OUT)
            .map(|of| set(if of_size { of.sweep_name().to_owned() } else { of.size.clone() }, of));
        let what = if of_size { bytes(&wanted) } else { all_name(all, &wanted) };
        let title = format!("{}: {what}", figure.title);
        let svg = picture(title, [(x.0, x.1), y], sets.collect())?;
        drawn.push((format!("{}-{wanted}-{part}", figure.name), svg));
    }
    Ok(drawn)
}

fn processors(figure: &IipFigure, all: &[FigureLoads]) -> Result<Vec<(String, Svg)>> {
    let Some(of) = all.first() else { return Ok(Vec::new()) };
    let mut drawn = Vec::new();
    for (part, x) in [("mbps", MBPS), ("kpps", KPPS)] {
        let mut sets = Vec::new();
        for internet in ParallelInternet::ALL {
            for thread in 0..2 {
                let value = |load: &MeasuredLoad| {
                    load.tenants.get(internet.index()).map_or(0.0, |one| one.cpu[thread])
                };
                let points = of.loads.iter().map(|load| ((x.2)(load), value(load))).collect();
                sets.push(PointSet::line(format!("{} {}", internet.name(), thread + 1), points));
            }
        }
        let svg = picture(figure.title.to_owned(), [(x.0, x.1), ("processor", "%")], sets)?;
        drawn.push((format!("{}-{part}", figure.name), svg));
    }
    Ok(drawn)
}

/// The points of CAN's first thread, and their line as far as they reach.
fn fit(figure: &IipFigure, all: &[FigureLoads]) -> Result<Vec<(String, Svg)>> {
    let Some(of) = all.first() else { return Ok(Vec::new()) };
    let points = points(&of.to_fit(), ParallelInternet::Can);
    let Ok(line) = CpuLine::of(&points) else { return Ok(Vec::new()) };
    let at = |kpps: f64| (kpps * 1e3, line.slope().mul_add(kpps, line.offset()).max(0.0));
    let end = points.iter().map(|point| point.kpps).fold(0.0, f64::max);
    let measured = points.iter().map(|point| (point.kpps * 1e3, point.cpu_percent)).collect();
    let sets = vec![
        PointSet::scatter("measured, medians", measured),
        PointSet::line("line", vec![at(0.0), at(end)]),
    ];
    let title = format!("{} bytes: {}", of.size, figure.title);
    let svg = picture(title, [(KPPS.0, KPPS.1), ("processor", "%")], sets)?;
    Ok(vec![(figure.name.to_owned(), svg)])
}

fn picture(title: String, [x, y]: [(&str, &str); 2], sets: Vec<PointSet>) -> Result<Svg> {
    let [x, y] = [x, y].map(|(name, unit)| (name.to_owned(), unit.to_owned()));
    Ok(Points { title, x, y, diagonal: false, sets }.draw()?)
}

fn bytes(size: &str) -> String {
    if size == "random" { "87 to 1518 bytes".to_owned() } else { format!("{size} bytes") }
}

fn all_name(all: &[FigureLoads], sweep: &str) -> String {
    let found = all.iter().find(|of| of.sweep == sweep);
    found.map_or_else(String::new, |of| of.sweep_name().to_owned())
}

const LEFT_OUT: &str = "1280";
