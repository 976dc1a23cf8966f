// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time that processors may take to wake up while a policy is in force.

use weir_units::Nanos;

use crate::model::Policy;
use crate::realtime::RouterRealtime;

impl Policy {
    /// Returns the time that the kernel may take to wake a processor while the policy is in force;
    /// `None`: any. Classes with a guarantee and phases of microseconds are promises about time,
    /// which a processor in an idle state would break.
    #[must_use]
    pub fn wake_latency(&self) -> Option<Nanos> {
        let classes = || self.routers.iter().filter_map(|router| router.realtime.as_ref());
        let is_timed = self.ports.iter().any(|port| port.cycle.is_some())
            || classes().any(RouterRealtime::is_guaranteed);
        self.node.wake_latency.or_else(|| is_timed.then_some(Nanos::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Port, PortCycle, RealtimeKind, Router, Slice};
    use weir_units::{BitRate, CpuShare};

    #[test]
    fn promises_about_time_keep_processors_awake() {
        let mut policy = Policy::new("node");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("gold"));
        let router = policy.add_router(Router::new("r", slice));
        assert_eq!(policy.wake_latency(), None);
        let class =
            |kind| RouterRealtime::new(kind, Nanos::from_millis(5), CpuShare::from_percent(20));
        policy[router].realtime = Some(class(RealtimeKind::Normal));
        assert_eq!(policy.wake_latency(), None, "a weight promises no time");
        policy[router].realtime = Some(class(RealtimeKind::Periodic));
        assert_eq!(policy.wake_latency(), Some(Nanos::ZERO));
        policy[router].realtime = None;
        policy[port].cycle = Some(PortCycle { length: Nanos::from_millis(1), borrow: false });
        assert_eq!(policy.wake_latency(), Some(Nanos::ZERO));
        policy.node.wake_latency = Some(Nanos::from_micros(10));
        assert_eq!(policy.wake_latency(), Some(Nanos::from_micros(10)), "what is asked for");
    }
}
