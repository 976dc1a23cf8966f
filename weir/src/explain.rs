// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir explain`: why a vif gets what it gets.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use weir_api_types::explain::{ExplainSide, ExplainView};
use weir_client::escaped;
use weir_units::Nanos;

use crate::node::NodeName;
use crate::report::rate;
use weir_platform::failure::Failure;
use weir_platform::output;

/// Say why a vif gets what it gets now, who has the rest, and what would give it more.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The vif
    vif: String,
    #[command(flatten)]
    node: NodeName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let path = format!("/v1/explain?vif={}", escaped(&self.vif));
        let explained: Vec<ExplainView> = self.node.client()?.get(&path)?;
        if self.json {
            output::print_json(&explained)?;
        } else {
            explained.iter().try_for_each(|one| output::print(&page(one)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn page(of: &ExplainView) -> String {
    let mut page = format!("vif {}, slice {}, port {}\n", of.vif, of.slice, of.port);
    for (direction, side) in [("send", &of.send), ("receive", &of.receive)] {
        let _written = writeln!(page, "{direction}: {}: {}", side.limiter, side.because);
        if side.limiter != "idle" {
            more(&mut page, side);
        }
    }
    page
}

fn more(page: &mut String, side: &ExplainSide) {
    let curves = &side.curves;
    let limits = [
        ("limit", curves.rate_bps),
        ("router's limit", curves.router_rate_bps),
        ("slice's limit", curves.slice_rate_bps),
    ];
    let mut lines = vec![
        format!("asks {}, gets {}", rate(side.offered_bps), rate(side.got_bps)),
        format!(
            "guarantee {}, priority {}, slice's {}",
            rate(curves.min_rate_bps),
            curves.priority,
            curves.slice_priority
        ),
    ];
    let limits = limits.iter().filter_map(|(name, bps)| Some(format!("{name} {}", rate((*bps)?))));
    lines.extend(limits);
    lines.extend(curves.max_pps.map(|pps| format!("limit {pps} packets/s")));
    let (packets, most) = (side.queued_packets, side.queue_packets);
    let flows = side.flows_active.map(|flows| format!(", {flows} flows"));
    lines.push(format!("queue {packets} of {most} packets{}", flows.unwrap_or_default()));
    let smooth = side.smooth_ns.map(|delay| format!("smooth from {}", Nanos::new(delay)));
    lines.extend(smooth);
    if side.marked_packets > 0 {
        lines.push(format!("marked {} packets: congestion experienced", side.marked_packets));
    }
    for (reason, packets) in &side.dropped_packets {
        lines.push(format!("dropped {packets} packets: {reason}"));
    }
    for other in &side.others {
        let (name, slice) = (&other.vif, &other.slice);
        let guarantee = rate(other.min_rate_bps);
        lines.push(format!("{name} of {slice} has {}, guarantee {guarantee}", rate(other.got_bps)));
    }
    if side.more_others > 0 {
        lines.push(format!("{} more have something", side.more_others));
    }
    lines.extend(side.remedies.iter().map(|remedy| format!("more: {remedy}")));
    for line in lines {
        let _written = writeln!(page, "  {line}");
    }
}
