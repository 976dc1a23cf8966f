// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as the text laid them out, from result files alone.

use std::path::Path;

use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars, PointSet, Points, Svg};
use weir_result::ResultFile;

use super::Flow;
use super::figures::{Figure, Made};
use super::page::{Held, picture, together};
use super::shares::{Shares, prefix};
use super::sweep::{Metric, Sweep};
use super::training::Curve;
use crate::reproduce::figure::save;
use crate::routers::HoldingMeans;

/// Writes the pictures of a figure into `folder`, as SVG and as PNG.
pub fn write(figure: &Figure, result: &ResultFile, folder: &Path) -> Result<(), ExperimentError> {
    std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
    for (part, svg) in draw(figure, result)? {
        save(&folder.join(picture(figure, &part, "svg")), svg.as_str().as_bytes())?;
        save(&folder.join(picture(figure, &part, "png")), &svg.to_png(1.0)?)?;
    }
    Ok(())
}

/// The pictures of a figure, each with what its file is called beside the figure's name.
pub fn draw(figure: &Figure, result: &ResultFile) -> Result<Vec<(String, Svg)>, ExperimentError> {
    match &figure.made {
        Made::Curve(curve) => by_cap(figure, curve, result),
        Made::Residuals => residuals(figure, result),
        Made::Sweep(sweep) => by_set_point(figure, sweep, result),
        Made::Shares(shares) => by_router(figure, shares, result),
        Made::Chain => super::chain::draw(figure.title, result),
    }
}

fn by_cap(
    figure: &Figure,
    curve: &Curve,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let set = |percent: &u64| {
        let of = |name: &str| samples(result, &format!("{}/{name}", Flow::Udp(*percent).key()));
        let caps = of("cap").iter().map(|cap| cap * 100.0);
        let points = caps.zip(of("mean").iter().copied()).collect();
        let name = Flow::Udp(*percent).name();
        PointSet { name, points, halves: of("half-interval").to_vec(), joined: true }
    };
    let sets = curve.flows.iter().map(set).filter(|set| !set.points.is_empty()).collect();
    let (x, y) = (axis("cap", "%"), axis("forwarded", "packet/s"));
    let title = figure.title.to_owned();
    let points = Points { title, x, y, diagonal: false, sets };
    Ok(vec![(String::new(), points.draw()?)])
}

fn residuals(figure: &Figure, result: &ResultFile) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let names = [("own", "a step, on its own data"), ("unseen", "free run, on a run not seen")];
    let set = |(key, name): (&str, &str)| {
        let of = |what: &str| samples(result, &format!("{key}/{what}")).iter().map(|v| v.max(0.0));
        let points = of("actual").zip(of("estimated")).collect();
        PointSet { name: name.to_owned(), points, halves: vec![], joined: false }
    };
    let (x, y) = (axis("measured", "packet/s"), axis("estimated", "packet/s"));
    let sets = names.map(set).into_iter().filter(|set| !set.points.is_empty()).collect();
    let points = Points { title: figure.title.to_owned(), x, y, diagonal: true, sets };
    Ok(vec![(String::new(), points.draw()?)])
}

fn by_set_point(
    figure: &Figure,
    sweep: &Sweep,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let mut drawn = Vec::new();
    for flow in sweep.flows {
        for metric in sweep.shows {
            let set = |contender: &crate::routers::Contender| {
                let runs = Held::all(result, *flow, *contender, sweep);
                let point = |held: &Held<'_>| Some((held.set_point, held.metric(*metric)?));
                let points = runs.iter().filter_map(point).collect();
                PointSet { name: contender.name(), points, halves: vec![], joined: true }
            };
            let sets: Vec<_> = sweep.contenders.iter().map(set).collect();
            let sets: Vec<_> = sets.into_iter().filter(|set| !set.points.is_empty()).collect();
            if sets.is_empty() {
                continue;
            }
            let (name, unit) = metric.axis();
            let diagonal = unit == "packet/s";
            let title = format!("{}: {}", figure.title, flow.name());
            let (x, y) = (axis("set-point", "packet/s"), axis(name, unit));
            let points = Points { title, x, y, diagonal, sets };
            drawn.push((format!("{}-{}", flow.key(), metric.key()), points.draw()?));
        }
    }
    Ok(drawn)
}

fn by_router(
    figure: &Figure,
    shares: &Shares,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let bars = |bars: Vec<(HoldingMeans, f64)>| {
        let bar =
            |(means, value): (HoldingMeans, f64)| Bar { name: means.name().to_owned(), value };
        bars.into_iter().map(bar).collect::<Vec<Bar>>()
    };
    if shares.settings.len() > 1 {
        let group = |setting: &super::shares::Setting| {
            let configuration = setting.configurations.first().map_or("", |(name, _)| name);
            let of =
                |means| Some((means, together(result, setting, configuration, means)?.balance));
            let found = HoldingMeans::ALL.into_iter().filter_map(of).collect();
            BarGroup { name: setting.key.to_owned(), guarantee: None, bars: bars(found) }
        };
        let groups = shares.settings.iter().map(group).collect();
        let (title, unit) = (figure.title.to_owned(), "1".to_owned());
        return Ok(vec![(String::new(), Bars { title, unit, groups }.draw()?)]);
    }
    let mut drawn = Vec::new();
    for setting in shares.settings {
        for (configuration, _) in setting.configurations {
            let (what, unit) = if shares.probed { ("rtt", "s") } else { ("rate", "packet/s") };
            let group = |router: usize| {
                let of = |means, what: &str| {
                    let prefix = prefix(setting.key, configuration, means);
                    let seen = samples(result, &format!("{prefix}{what}/{}", router + 1));
                    (!seen.is_empty()).then(|| weir_experiment::mean(seen))
                };
                let found = HoldingMeans::ALL.into_iter().filter_map(|m| Some((m, of(m, what)?)));
                let guarantee = of(HoldingMeans::Weir, "set-point").filter(|_| !shares.probed);
                let name = format!("vr{}", router + 1);
                BarGroup { name, guarantee, bars: bars(found.collect()) }
            };
            let groups = (0..setting.loads.len()).map(group).collect();
            let title = format!("{}: {configuration}", figure.title);
            let file = configuration.replace(':', "-").to_lowercase();
            drawn.push((file, Bars { title, unit: unit.to_owned(), groups }.draw()?));
        }
    }
    Ok(drawn)
}

impl Metric {
    const fn axis(self) -> (&'static str, &'static str) {
        match self {
            Self::Achieved => ("forwarded", "packet/s"),
            Self::Deviation => ("relative RMSE", "1"),
            Self::Disturbed => ("forwarded beside the disturbance", "packet/s"),
            Self::RoundTrip => ("mean round-trip time", "s"),
            Self::Lost => ("probes lost", "1"),
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Achieved => "rate",
            Self::Deviation => "rmse",
            Self::Disturbed => "disturbed",
            Self::RoundTrip => "rtt",
            Self::Lost => "loss",
        }
    }
}

pub(super) fn samples<'r>(result: &'r ResultFile, name: &str) -> &'r [f64] {
    result.series().get(name).map_or(&[], |series| &series.samples)
}

pub(super) fn axis(name: &str, unit: &str) -> (String, String) {
    (name.to_owned(), unit.to_owned())
}
