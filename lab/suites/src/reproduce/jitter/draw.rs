// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pictures of an experiment, from its result alone: how long packets waited, and the bandwidth of
//! each 2 s.

use std::path::Path;

use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{Curve, Distribution, Lines, Panel, PlotLine, Svg};
use weir_result::ResultFile;

use super::results::{ShaperResult, WINDOW_S};
use crate::jitter::scenario::ShapedScenario;
use crate::jitter::shaped::ShaperContender;

/// Writes the pictures of an experiment into `folder`, as SVG and as PNG.
pub fn write(
    name: &str,
    scenario: &ShapedScenario,
    result: &ResultFile,
    folder: &Path,
) -> Result<()> {
    let drawn = draw(name, scenario, result)?;
    drawn
        .iter()
        .try_for_each(|(part, svg)| save_picture(folder, &format!("{name}-{part}"), svg, 1.0))
}

/// The pictures of an experiment, each with what its file is called beside the experiment's name.
pub fn draw(
    name: &str,
    scenario: &ShapedScenario,
    result: &ResultFile,
) -> Result<Vec<(&'static str, Svg)>> {
    let of = |shaper| Some((title(shaper), ShaperResult::of(result, name, shaper)?));
    let shown: Vec<(&str, ShaperResult<'_>)> =
        ShaperContender::ALL.into_iter().filter_map(of).collect();
    let curve = |(name, of): &(&str, ShaperResult<'_>)| Curve {
        name: (*name).to_owned(),
        samples: of.delay.iter().map(|ms| ms / 1e3).collect(),
    };
    let delays = Distribution {
        title: scenario.title.clone(),
        quantity: "delay in the shaper".to_owned(),
        unit: "s".to_owned(),
        curves: shown.iter().map(curve).collect(),
    };
    let panel = |(name, of): &(&str, ShaperResult<'_>)| Panel {
        title: (*name).to_owned(),
        lines: vec![PlotLine::new("", of.rates()).guaranteed(float(scenario.rate.as_bps()))],
    };
    let bandwidth = Lines {
        title: scenario.title.clone(),
        unit: "bit/s".to_owned(),
        interval_s: WINDOW_S,
        panels: shown.iter().map(panel).collect(),
    };
    Ok(vec![("delay", delays.draw()?), ("bandwidth", bandwidth.draw()?)])
}

/// The name of a shaper for people.
pub(super) const fn title(shaper: ShaperContender) -> &'static str {
    match shaper {
        ShaperContender::Smooth => "Weir, smooth",
        ShaperContender::Xen => "Xen's bucket",
        ShaperContender::Pid => "text's PID",
        ShaperContender::Bucket => "token bucket",
        ShaperContender::Paced => "Weir, pace",
    }
}
