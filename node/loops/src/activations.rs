// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches when a router's threads are activated, so that a class can be proposed.

use std::path::Path;
use std::time::Duration;

use weir_platform::HostError;
use weir_platform::cap::{cgroup, napi};
use weir_platform::meter::{WatchedActivations, watch};
use weir_platform::process::{self, Identity};
use weir_policy::{Router, ThreadSource};

use crate::host::{napi_devices, process_of};

/// The activations of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterActivations {
    /// The number of its threads.
    pub threads: u32,
    /// Their activations together.
    pub watched: WatchedActivations,
}

/// Watches a router's threads for `span`, and waits for that long. It changes nothing of the host.
///
/// # Errors
/// Nothing names its threads, they are not there or not of this kernel, or the kernel refuses.
pub fn watch_activations(router: &Router, span: Duration) -> Result<RouterActivations, HostError> {
    let threads = threads_of(router)?;
    let watched = watch(&threads, span)?;
    Ok(RouterActivations { threads: u32::try_from(threads.len()).unwrap_or(u32::MAX), watched })
}

fn threads_of(router: &Router) -> Result<Vec<Identity>, HostError> {
    let name = &router.name;
    let refused = |what: &str| HostError::Refused(format!("router {name}: {what}"));
    let source = router.thread_source().ok_or_else(|| {
        refused("neither realtime nor xtc names its process, group or interfaces")
    })?;
    let found = match source {
        ThreadSource::Process(process) => process::threads_of(process_of(process)?),
        ThreadSource::Group(group) => cgroup::threads_in(Path::new(group))?,
        ThreadSource::Interfaces { namespace, interfaces } => {
            let devices = napi_devices(namespace, interfaces);
            let each: Result<Vec<_>, _> = devices.map(|device| napi::threads_of(&device)).collect();
            each?.concat()
        }
        ThreadSource::Domain(_) => {
            return Err(refused("the activations of a guest of Xen are the hypervisor's to see"));
        }
    };
    match found.is_empty() {
        true => Err(refused("it has no threads")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use weir_policy::{RealtimeKind, RouterRealtime, SliceId};
    use weir_units::{CpuShare, Nanos};

    use super::*;

    #[test]
    fn the_threads_of_a_router_are_those_that_the_policy_names() {
        let mut router = Router::new("r", SliceId(0));
        let said = |router: &Router| threads_of(router).unwrap_err().to_string();
        assert!(said(&router).contains("neither realtime nor xtc names"));
        let (deadline, cpu) = (Nanos::from_millis(5), CpuShare::from_percent(20));
        let mut class = RouterRealtime::new(RealtimeKind::Periodic, deadline, cpu);
        class.process = Some(std::process::id().to_string());
        router.realtime = Some(class.clone());
        let own = Identity::own().unwrap();
        assert!(threads_of(&router).unwrap().contains(&own));
        class.process = None;
        class.domain = Some("guest".to_owned());
        router.realtime = Some(class);
        assert!(said(&router).contains("guest of Xen"));
    }
}
