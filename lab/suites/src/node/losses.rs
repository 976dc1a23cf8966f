// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The losses of a flow by place: each counter on its path names its drops, and packets that no
//! counter names are reported as unexplained.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_api_types::status::DirectionStatus;
use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

/// Drops of the switch node's devices, by device: at receipt, at sending.
#[derive(Clone, Debug, Default)]
pub(super) struct DeviceDrops(BTreeMap<String, [u64; 2]>);

/// A flow of which no packet may be lost, by the sink that counts it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedFlow {
    /// The beginning of the names of its claims.
    pub(super) name: &'static str,
    pub(super) receiver: usize,
    pub(super) stream: u16,
    /// The vif that sends it; none: it comes from the port.
    pub(super) from: Option<&'static str>,
    /// The vif that receives it; none: it leaves by the port.
    pub(super) to: Option<&'static str>,
}

impl DeviceDrops {
    /// Reads the drops so far.
    pub(super) fn read(rig: &Testbed) -> Result<Self> {
        let text = rig.ask("sw", Command::new("ip", ["-j", "-s", "link", "show"]))?;
        let links: Vec<Value> = serde_json::from_str(&text)
            .map_err(|error| ExperimentError::Node(error.to_string()))?;
        let of = |link: &Value| {
            let dropped = |side: &str| link["stats64"][side]["dropped"].as_u64().unwrap_or(0);
            Some((link["ifname"].as_str()?.to_owned(), [dropped("rx"), dropped("tx")]))
        };
        Ok(Self(links.iter().filter_map(of).collect()))
    }

    /// Returns the drops since `before`; of a device that was made since, none.
    pub(super) fn since(mut self, before: &Self) -> Self {
        for (device, drops) in &mut self.0 {
            let was = before.0.get(device).copied().unwrap_or_default();
            *drops = [0, 1].map(|side| drops[side].saturating_sub(was[side]));
        }
        self
    }

    fn of(&self, device: &str, side: usize) -> u64 {
        self.0.get(device).map_or(0, |drops| drops[side])
    }
}

impl TracedFlow {
    /// Keeps what was sent as `ID/sent` and what arrived as `ID/arrived`, and claims that nothing
    /// was lost (`ID/lost`) and nothing came late or twice (`ID/order`).
    pub(super) fn claim_whole(
        &self,
        rec: &mut Recording<'_>,
        id: &str,
        outcome: &TrafficRecord,
    ) -> Result {
        let names = ["sent", "arrived"].map(|part| format!("{id}/{part}"));
        let counts =
            [outcome.packets_sent(self.stream), outcome.packets(self.receiver, self.stream)];
        for (name, count) in names.iter().zip(counts) {
            rec.keep(name, Series::count("packet", count))?;
        }
        let (what, none) = ("packets that did not arrive", Bound::equal(0.0));
        rec.claim(format!("{id}/lost"), what, Rule::Difference, none, &names)?;
        let order = outcome.order(self.receiver, self.stream);
        let wrong = Series::count("packet", order.reordered + order.duplicated + order.stale);
        let what = "packets late or doubled";
        rec.claim_samples(format!("{id}/order"), what, wrong, Rule::Sum, none)
    }

    /// Keeps, by place, what was lost, and claims that every lost packet is named. The counters are
    /// those of a node that was started for the run and of vifs with this flow alone, and so are
    /// the devices' (`dropped`): but for the port's as it sends, where all meet, which names
    /// nothing.
    pub(super) fn claim_named(
        &self,
        rec: &mut Recording<'_>,
        outcome: &TrafficRecord,
        dropped: &DeviceDrops,
    ) -> Result {
        let name = self.name;
        let mut named: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |what: String, count: u64| *named.entry(what).or_default() += count;
        let [came_by, left_by] = [self.from, self.to].map(|vif| vif.unwrap_or(UPLINK));
        add(format!("device-{came_by}-received"), dropped.of(came_by, 0));
        if self.to.is_some() {
            add(format!("device-{left_by}-sent"), dropped.of(left_by, 1));
        } else {
            let count = Series::count("packet", dropped.of(left_by, 1));
            rec.keep(&format!("{name}/port-dropped"), count)?;
        }
        let vif = |name: Option<&str>| outcome.status.as_ref()?.vif(name?);
        let sides: [(_, Option<&DirectionStatus>); 2] = [
            ("send", vif(self.from).map(|vif| &vif.send)),
            ("receive", vif(self.to).map(|vif| &vif.receive)),
        ];
        for (what, counted) in sides.into_iter().filter_map(|(what, side)| Some((what, side?))) {
            for (reason, amount) in counted.dropped.iter().chain(&counted.dropped_after_by) {
                // A sender counts once more what its receiver refused.
                if reason != "refused_by_receiver" {
                    add(format!("{what}-{reason}"), amount.packets);
                }
            }
            add(format!("{what}-backlog"), counted.backlog.packets);
        }
        for (reason, count) in named.iter().filter(|(_, count)| **count > 0) {
            rec.keep(&format!("{name}/lost-at/{reason}"), Series::count("packet", *count))?;
        }
        let sent = outcome.packets_sent(self.stream);
        let lost = sent.saturating_sub(outcome.packets(self.receiver, self.stream));
        let all = named.values().sum::<u64>();
        // What two counters name could hide what none does.
        let twice = Series::count("packet", all.saturating_sub(lost));
        rec.keep(&format!("{name}/named-twice"), twice)?;
        let unnamed = Series::count("packet", lost.saturating_sub(all));
        let (id, what) = (format!("{name}/named"), "packets lost that no counter names");
        rec.claim_samples(id, what, unnamed, Rule::Sum, Bound::equal(0.0))
    }
}
