// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir explain`: why a vif gets what it gets.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use weir_api_types::error::ErrorCode;
use weir_api_types::explain::{ExplainSide, ExplainView};
use weir_api_types::realtime::AdviceView;
use weir_client::{Client, ClientError, escaped};
use weir_units::Nanos;

use crate::node::NodeName;
use crate::realtime;
use crate::report::rate;
use weir_platform::failure::Failure;
use weir_platform::output;

/// Say why a vif gets what it gets now, who has the rest, and what would give it more; or observe
/// when a router's threads are activated, and propose a real-time class. It changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The vif or router
    name: String,
    /// Explain the router of that name, also where a vif has it
    #[arg(long)]
    router: bool,
    #[command(flatten)]
    node: NodeName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let client = self.node.client()?;
        let path = format!("/v1/explain?vif={}", escaped(&self.name));
        let explained = match self.router {
            true => None,
            false => match client.get::<Vec<ExplainView>>(&path) {
                Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotFound => None,
                other => Some(other?),
            },
        };
        let Some(explained) = explained else { return self.advise(&client) };
        if self.json {
            output::print_json(&explained)?;
        } else {
            explained.iter().try_for_each(|one| output::print(&page(one)))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Explain {
    /// Prints the advice for a router.
    fn advise(&self, client: &Client) -> Result<ExitCode, Failure> {
        let path = format!("/v1/realtime/{}/advice", escaped(&self.name));
        let advice: AdviceView = match client.get(&path) {
            Err(ClientError::Refused(refusal))
                if refusal.code == ErrorCode::NotFound && !self.router =>
            {
                return Err(format!("there is no vif and no router {:?}", self.name).into());
            }
            other => other?,
        };
        if self.json {
            output::print_json(&advice)?;
        } else {
            output::print(&realtime::page(&advice))?;
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
