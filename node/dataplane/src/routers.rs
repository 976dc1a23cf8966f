// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the packets of each router: the sum over its vifs, read some ten times a second for up to
//! a thousand routers. The vifs of each router are therefore looked up once for each policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_policy::{Direction, RouterId};
use weir_switch::{IfaceId, Switch};

/// The packets of all vifs of a router, counted since each vif exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCount {
    /// Packets that it sent, dropped ones included.
    pub forwarded: u64,
    /// Packets that were sent to it, early drops included.
    pub offered: u64,
}

/// The vifs of routers, looked up once for each policy and list of names.
#[derive(Debug, Default)]
pub(crate) struct RouterCounters {
    by_name: Option<BTreeMap<String, (RouterId, Vec<IfaceId>)>>,
    /// The names that were requested last.
    asked: Option<Arc<[String]>>,
    /// The interfaces of each of them; `None` for a router without a vif that has a device.
    places: Vec<Option<Vec<IfaceId>>>,
}

impl RouterCounters {
    /// Forgets what was looked up, since the policy has changed.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Counts the packets of these routers. One without a vif that has a device has no count.
    pub(crate) fn count(
        &mut self,
        names: &Arc<[String]>,
        switch: &Switch,
    ) -> Vec<Option<RouterCount>> {
        if self.asked.as_ref().is_none_or(|asked| !Arc::ptr_eq(asked, names)) {
            let known = self.known(switch);
            let vifs = |name: &String| {
                known.get(name).map(|(_, vifs)| vifs.clone()).filter(|vifs| !vifs.is_empty())
            };
            let places = names.iter().map(vifs).collect();
            (self.asked, self.places) = (Some(Arc::clone(names)), places);
        }
        let packets = |vif: &IfaceId, direction| {
            switch.counters(*vif, direction).map_or(0, |counters| counters.received.packets)
        };
        let count = |vifs: &Vec<IfaceId>| {
            let sum = |direction| {
                vifs.iter().fold(0_u64, |sum, vif| sum.wrapping_add(packets(vif, direction)))
            };
            RouterCount { forwarded: sum(Direction::Send), offered: sum(Direction::Receive) }
        };
        self.places.iter().map(|vifs| vifs.as_ref().map(count)).collect()
    }

    /// Returns the router of that name.
    pub(crate) fn of_name(&mut self, name: &str, switch: &Switch) -> Option<RouterId> {
        self.known(switch).get(name).map(|(router, _)| *router)
    }

    fn known(&mut self, switch: &Switch) -> &BTreeMap<String, (RouterId, Vec<IfaceId>)> {
        self.by_name.get_or_insert_with(|| {
            let policy = switch.policy();
            let mut known: BTreeMap<_, _> = policy
                .routers()
                .map(|(id, router)| (router.name.clone(), (id, Vec::new())))
                .collect();
            for (id, vif) in policy.vifs() {
                let name = vif.router.map(|router| &policy[router].name);
                if let Some((_, vifs)) = name.and_then(|name| known.get_mut(name)) {
                    vifs.push(switch.vif_iface(id));
                }
            }
            known
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Policy, Port, Router, Slice, Vif, VifId};
    use weir_ports::Pool;
    use weir_switch::{Reason, Tally};
    use weir_units::{BitRate, Instant};

    #[test]
    fn vifs_of_a_router_are_counted_together_and_anew_by_another_policy() {
        let mut policy = Policy::new("edge");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("gold"));
        let [first, second] =
            ["vr1", "vr2"].map(|name| policy.add_router(Router::new(name, slice)));
        policy.add_vif(Vif::new("alone", slice, port));
        for name in ["a", "b"] {
            policy.add_vif(Vif { router: Some(first), ..Vif::new(name, slice, port) });
        }
        let mut switch = Switch::new(&policy, Instant::ZERO).unwrap();
        let drop = |switch: &mut Switch, vif, direction, packets| {
            let frames = Tally { packets, bytes: 0 };
            switch.account_early_drop(
                Instant::ZERO,
                VifId(vif),
                direction,
                Reason::NoCredit,
                frames,
            );
        };
        for vif in 0..3 {
            drop(&mut switch, vif, Direction::Receive, 10_u64.pow(vif));
        }
        drop(&mut switch, 2, Direction::Send, 7);
        // Redirected packets count as forwarded.
        let redirected = Tally { packets: 5, bytes: 5 };
        switch.account_redirected(switch.vif_iface(VifId(2)), Direction::Send, redirected);
        let names: Arc<[String]> = ["vr1", "vr2", "none"].map(str::to_owned).into();
        let mut routers = RouterCounters::default();
        let counted = RouterCount { forwarded: 12, offered: 110 };
        for _ in 0..2 {
            assert_eq!(routers.count(&names, &switch), [Some(counted), None, None]);
        }
        assert_eq!(routers.of_name("vr2", &switch), Some(second));
        policy.vifs[1].router = Some(second);
        switch.apply(Instant::ZERO, &policy, &mut Pool::new(64, 2048).unwrap()).unwrap();
        routers.forget();
        let counts = routers.count(&names, &switch);
        assert_eq!(
            counts.first().copied().flatten(),
            Some(RouterCount { offered: 100, ..counted })
        );
        assert_eq!(counts.get(1).copied().flatten().map(|count| count.offered), Some(10));
    }
}
