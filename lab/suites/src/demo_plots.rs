// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pictures of the demonstration, from its result alone.

use std::path::Path;

use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars, Lines, Panel, PlotError, PlotLine, Svg};
use weir_result::ResultFile;

use crate::demo::{LINK_MBPS, SETTLE_SECONDS, TENANTS};

/// Draws throughput over time and as bars, as SVG and PNG, into `folder`.
pub fn draw(result: &ResultFile, folder: &Path) -> Result {
    std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
    let title = format!("Three tenants on a link of {LINK_MBPS} Mb/s, one flooding it");
    let panel = |(key, title): (&str, &str)| Panel {
        title: title.to_owned(),
        lines: TENANTS
            .iter()
            .map(|tenant| {
                PlotLine::new(tenant.name, samples(result, key, tenant.name))
                    .guaranteed(float(tenant.guaranteed_mbps * 1_000_000))
            })
            .collect(),
    };
    let panels = MIDDLES.map(panel).into();
    let lines = Lines { title: title.clone(), unit: "bit/s".into(), interval_s: 1.0, panels };
    write(folder, "throughput", lines.draw())?;
    let group = |tenant: &crate::demo::Tenant| BarGroup {
        name: tenant.name.to_owned(),
        guarantee: Some(float(tenant.guaranteed_mbps * 1_000_000)),
        bars: MIDDLES
            .map(|(key, title)| {
                let settled = samples(result, key, tenant.name).split_off(SETTLE_SECONDS);
                Bar { name: title.to_owned(), value: weir_experiment::mean(&settled) }
            })
            .into(),
    };
    let groups = TENANTS.iter().map(group).collect();
    let bars = Bars { title, unit: "bit/s".into(), groups };
    write(folder, "tenants", bars.draw())
}

fn samples(result: &ResultFile, middle: &str, tenant: &str) -> Vec<f64> {
    let series = result.series().get(&format!("{middle}/{tenant}/got"));
    let mut samples = series.map_or_else(Vec::new, |series| series.samples.clone());
    samples.resize(samples.len().max(SETTLE_SECONDS), 0.0);
    samples
}

fn write(folder: &Path, name: &str, drawn: Result<Svg, PlotError>) -> Result {
    let svg = drawn?;
    let save = |extension: &str, bytes: &[u8]| {
        let path = folder.join(format!("{name}.{extension}"));
        std::fs::write(&path, bytes).map_err(|error| ExperimentError::io(&path, error))
    };
    save("svg", svg.as_str().as_bytes())?;
    save("png", &svg.to_png(PNG_SCALE)?)
}

/// Keys in the result and names for people.
const MIDDLES: [(&str, &str); 2] = [("bridge", "plain bridge"), ("weir", "Weir")];

/// Sharp on a dense screen.
const PNG_SCALE: f32 = 2.0;
