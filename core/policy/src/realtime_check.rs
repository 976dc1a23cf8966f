// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the real-time classes of routers: values that are valid alone and do not fit each other.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_units::{CpuShare, Nanos};

use crate::finding::Finding;
use crate::realtime::{RouterRealtime, ThreadSource, interfaces};
use crate::xtc::{ActuatorKind, RouterXtc};
use crate::{Policy, Router};

impl Router {
    /// Returns the source of the threads that its class is for, as `realtime` or else `xtc` names
    /// it; `None` if neither does.
    #[must_use]
    pub fn thread_source(&self) -> Option<ThreadSource<'_>> {
        let own = self.realtime.as_ref().and_then(|class| class.sources().next());
        own.or_else(|| self.xtc.as_ref().and_then(source_of_xtc))
    }
}

fn source_of_xtc(xtc: &RouterXtc) -> Option<ThreadSource<'_>> {
    match xtc.actuator {
        ActuatorKind::Cgroup => {
            let process = xtc.process.as_deref().map(ThreadSource::Process);
            process.or_else(|| xtc.group.as_deref().map(ThreadSource::Group))
        }
        ActuatorKind::Napi => interfaces(xtc.namespace.as_deref(), &xtc.interfaces),
        ActuatorKind::Xl => xtc.domain.as_deref().map(ThreadSource::Domain),
        ActuatorKind::None => None,
    }
}

/// Adds the problems of the classes of routers.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    for (index, router) in policy.routers.iter().enumerate() {
        let Some(class) = &router.realtime else { continue };
        let mut wrong = |key: &str, message: String| {
            let dot = if key.is_empty() { "" } else { "." };
            let key = format!("realtime{dot}{key}");
            findings.push(Finding::new("router", index, key, message));
        };
        if class.is_guaranteed() {
            check_times(class, &mut wrong);
        }
        check_source(router, class, &mut wrong);
    }
}

fn check_times(class: &RouterRealtime, wrong: &mut dyn FnMut(&str, String)) {
    let RouterRealtime { deadline, period, cpu, .. } = class;
    if *deadline == Nanos::ZERO || *cpu == CpuShare::ZERO {
        // That they are missing was reported already.
        return;
    }
    if deadline > period {
        wrong("deadline", format!("{deadline} is more than the period, {period}"));
    }
    let work = cpu.time_in_floor(*period);
    if work > *deadline {
        wrong("cpu", format!("{cpu} of {period} is {work}, more than the deadline, {deadline}"));
    }
    let least = if class.domain.is_some() { WORK_MIN_GUEST } else { WORK_MIN };
    if work < least {
        wrong("cpu", format!("{cpu} of {period} is {work}, less than {least}"));
    }
}

fn check_source(router: &Router, class: &RouterRealtime, wrong: &mut dyn FnMut(&str, String)) {
    let own = class.sources().count();
    let of_xtc = router.xtc.as_ref().and_then(source_of_xtc);
    if class.namespace.is_some() && class.interfaces.is_empty() {
        wrong("namespace", "belongs to interface, which is missing".to_string());
    }
    if own > 1 {
        wrong("", "must name one of process, group, domain and interface".to_string());
    } else if own == 1 && of_xtc.is_some() {
        wrong("", "names what xtc names already".to_string());
    } else if own == 0 && of_xtc.is_none() {
        let message = "needs process, group, domain, or an interface with inside";
        wrong("", message.to_string());
    }
    let source = router.thread_source();
    let can_be_bound = matches!(source, Some(ThreadSource::Process(_) | ThreadSource::Group(_)));
    if class.core.is_some() && source.is_some() && !can_be_bound {
        wrong("core", "belongs to process or group".to_string());
    } else if class.core.is_some() && of_xtc.is_some() {
        wrong("core", "beside xtc: caps are of the processors that all share".to_string());
    }
    if class.is_guaranteed() {
        if matches!(of_xtc, Some(ThreadSource::Domain(_))) {
            let message = "beside xtc with actuator \"xl\": that caps under Xen's credit and \
                           credit2, and a class needs rtds";
            wrong("type", message.to_string());
        }
        if matches!(of_xtc, Some(ThreadSource::Group(_))) {
            let message = "beside a control group that xtc caps: name its process there";
            wrong("type", message.to_string());
        }
        return;
    }
    if of_xtc.is_some() {
        let message = "\"normal\" beside xtc is for nothing: the cap of xtc sets the weight";
        wrong("type", message.to_string());
    } else if own == 1 && class.process.is_none() && class.domain.is_none() {
        let message = "\"normal\" needs process or domain: only these can be given a weight";
        wrong("type", message.to_string());
    }
}

/// A thread with a smaller budget could do nothing but start.
const WORK_MIN: Nanos = Nanos::from_micros(5);

/// Xen's RTDS takes no smaller budget.
const WORK_MIN_GUEST: Nanos = Nanos::from_micros(10);
