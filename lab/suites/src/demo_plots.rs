// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pictures of the demonstration, from its result alone.

use std::path::Path;

use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars, Lines, Panel, PlotLine};
use weir_result::ResultFile;

use crate::demo::{LINK_MBPS, SETTLE_SECONDS, TENANTS};

/// Draws throughput over time and as bars, as SVG and PNG, into `folder`.
pub fn draw(result: &ResultFile, folder: &Path) -> Result {
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
    save_picture(folder, "throughput", &lines.draw()?, PNG_SCALE)?;
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
    save_picture(folder, "tenants", &bars.draw()?, PNG_SCALE)
}

fn samples(result: &ResultFile, middle: &str, tenant: &str) -> Vec<f64> {
    let series = result.series().get(&format!("{middle}/{tenant}/got"));
    let mut samples = series.map_or_else(Vec::new, |series| series.samples.clone());
    samples.resize(samples.len().max(SETTLE_SECONDS), 0.0);
    samples
}

/// Keys in the result and names for people.
const MIDDLES: [(&str, &str); 2] = [("bridge", "plain bridge"), ("weir", "Weir")];

/// Sharp on a dense screen.
const PNG_SCALE: f32 = 2.0;
