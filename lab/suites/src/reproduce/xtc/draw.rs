// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures as the text laid them out, from result files alone.

use std::path::Path;

use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars, PointSet, Svg};
use weir_result::ResultFile;

use super::figures::{Figure, FigureKind};
use super::flow::FigureFlow;
use super::picture::points;
use super::results::{SweepResult, samples, together};
use super::shares::{ShareSetting, SharedRouters, prefix};
use super::sweep::{Metric, SetPointSweep};
use super::training::CapCurve;
use crate::routers::{Contender, HoldingMeans};

/// Writes the pictures of a figure into `folder`, as SVG and as PNG.
pub fn write(figure: &Figure, result: &ResultFile, folder: &Path) -> Result<(), ExperimentError> {
    let drawn = draw(figure, result)?;
    drawn.iter().try_for_each(|(part, svg)| save_picture(folder, &figure.picture(part), svg, 1.0))
}

/// Returns the pictures of a figure, each with the part of its file's name behind the figure's
/// name.
pub fn draw(figure: &Figure, result: &ResultFile) -> Result<Vec<(String, Svg)>, ExperimentError> {
    match &figure.made {
        FigureKind::Curve(curve) => by_cap(figure, curve, result),
        FigureKind::Residuals => residuals(figure, result),
        FigureKind::Sweep(sweep) => by_set_point(figure, sweep, result),
        FigureKind::Shares(shares) => by_router(figure, shares, result),
        FigureKind::Chain => super::chain::draw(figure.title, result),
    }
}

fn by_cap(
    figure: &Figure,
    curve: &CapCurve,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let set = |percent: &u64| {
        let of =
            |name: &str| samples(result, &format!("{}/{name}", FigureFlow::Udp(*percent).key()));
        let caps = of("cap").iter().map(|cap| cap * 100.0);
        let points = caps.zip(of("mean").iter().copied()).collect();
        let halves = of("half-interval").to_vec();
        PointSet::line(FigureFlow::Udp(*percent).name(), points).within(halves)
    };
    let axes = [("cap", "%"), ("forwarded", "packet/s")];
    let svg = points(figure.title.to_owned(), axes, curve.flows.iter().map(set))?;
    Ok(svg.map(|svg| (String::new(), svg)).into_iter().collect())
}

fn residuals(figure: &Figure, result: &ResultFile) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let names = [("own", "a step, on its own data"), ("unseen", "free run, on a run not seen")];
    let set = |(key, name): (&str, &str)| {
        let of = |what: &str| samples(result, &format!("{key}/{what}")).iter().map(|v| v.max(0.0));
        PointSet::scatter(name, of("actual").zip(of("estimated")).collect())
    };
    let axes = [("measured", "packet/s"), ("estimated", "packet/s")];
    let svg = points(figure.title.to_owned(), axes, names.map(set))?;
    Ok(svg.map(|svg| (String::new(), svg)).into_iter().collect())
}

fn by_set_point(
    figure: &Figure,
    sweep: &SetPointSweep,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let mut drawn = Vec::new();
    for flow in sweep.flows {
        for metric in sweep.shows {
            let set = |contender: &Contender| {
                let runs = SweepResult::all(result, *flow, *contender, sweep);
                let point = |held: &SweepResult<'_>| Some((held.set_point, held.metric(*metric)?));
                let points = runs.iter().filter_map(point).collect();
                PointSet::line(contender.name(), points)
            };
            let title = format!("{}: {}", figure.title, flow.name());
            let axes = [("set-point", "packet/s"), metric.axis()];
            let name = format!("{}-{}", flow.key(), metric.key());
            let svg = points(title, axes, sweep.contenders.iter().map(set))?;
            drawn.extend(svg.map(|svg| (name, svg)));
        }
    }
    Ok(drawn)
}

fn by_router(
    figure: &Figure,
    shares: &SharedRouters,
    result: &ResultFile,
) -> Result<Vec<(String, Svg)>, ExperimentError> {
    let bars = |bars: Vec<(HoldingMeans, f64)>| {
        let bar =
            |(means, value): (HoldingMeans, f64)| Bar { name: means.name().to_owned(), value };
        bars.into_iter().map(bar).collect::<Vec<Bar>>()
    };
    if shares.settings.len() > 1 {
        let group = |setting: &ShareSetting| {
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
