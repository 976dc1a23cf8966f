// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the control of routers: values that are valid alone and do not fit each other.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_units::PacketRate;

use crate::decimal::{Decimal, ONE};
use crate::finding::Finding;
use crate::format::quoted;
use crate::xtc::{ActuatorKind, ControllerKind, RouterXtc, XtcState};
use crate::{Policy, Router};

/// Adds the problems of the control of routers.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    findings.extend(check_log(policy));
    let mut devices: BTreeMap<&str, &str> = BTreeMap::new();
    for (index, router) in policy.routers.iter().enumerate() {
        let Some(xtc) = &router.xtc else { continue };
        let mut wrong = |key: &str, message: String| {
            findings.push(Finding::new("router", index, format!("xtc.{key}"), message));
        };
        check_rates(policy, router, xtc, &mut wrong);
        check_controller(xtc, &mut wrong);
        check_actuator(xtc, &mut wrong);
        let id = u32::try_from(index).ok().map(crate::RouterId);
        let has_vif = policy.vifs.iter().any(|vif| vif.router.is_some() && vif.router == id);
        check_counted(xtc, has_vif, &mut wrong);
        for (number, interface) in xtc.interfaces.iter().enumerate() {
            if let Some(owner) = devices.insert(&interface.device, &router.name) {
                let message = format!(
                    "{} is already a device of router {}",
                    quoted(&interface.device),
                    quoted(owner)
                );
                wrong(&format!("interface.{number}.device"), message);
            }
        }
    }
    if policy.xtc.police {
        findings.extend(check_police(policy));
    }
}

/// Checks the guarantees of routers against the node's capacity: the set-points of those that have
/// one, the minimums of the others.
fn check_police(policy: &Policy) -> Option<Finding> {
    let finding = |message: String| Finding::new("xtc", 0, "police", message);
    let Some(capacity) = policy.node.capacity else {
        return Some(finding("needs node.capacity, which is what is shared".to_string()));
    };
    let mut sum = PacketRate::ZERO;
    for router in &policy.routers {
        let Some(xtc) = &router.xtc else { continue };
        let promised = xtc.set_point.map_or(router.receive.min_pps, |set_point| match xtc.state {
            XtcState::Off => router.receive.min_pps,
            XtcState::Active | XtcState::Paused => set_point,
        });
        sum = PacketRate::from_pps(sum.as_pps().saturating_add(promised.as_pps()));
    }
    let most = PacketRate::from_pps(policy.node.overbooking.of_floor(capacity.as_pps()));
    (sum > most).then(|| {
        finding(format!(
            "set_point, or receive.min_pps, of all routers add up to {sum}, at most {most} fit"
        ))
    })
}

/// Checks that all logs fit in memory: each router keeps its own.
fn check_log(policy: &Policy) -> Option<Finding> {
    let routers = policy.routers.iter().filter(|router| router.xtc.is_some()).count() as u64;
    let (log, all) = (policy.xtc.log, routers.saturating_mul(policy.xtc.log.into()));
    let most = LOG_ALL_MAX / routers.max(1);
    (all > LOG_ALL_MAX).then(|| {
        let message = format!(
            "{log} decisions of each of {routers} routers are {all}, at most {LOG_ALL_MAX} are \
             kept: at most {most} of each"
        );
        Finding::new("xtc", 0, "log", message)
    })
}

fn check_rates(
    policy: &Policy,
    router: &Router,
    xtc: &RouterXtc,
    wrong: &mut dyn FnMut(&str, String),
) {
    let Some(set_point) = xtc.set_point else {
        if xtc.state != XtcState::Off && !policy.xtc.police {
            wrong("set_point", format!("is missing while state is \"{}\"", xtc.state.name()));
        }
        return;
    };
    let (least, limit) = (router.receive.min_pps, router.receive.max_pps);
    for fault in set_point_faults(set_point, least, limit, policy.xtc.rate_most) {
        wrong("set_point", fault);
    }
}

/// Says which bounds a set-point breaks, each with both rates. `least` and `limit` are the router's
/// `receive.min_pps` and `receive.max_pps`, `most` is `xtc.rate_most`.
pub fn set_point_faults(
    set_point: PacketRate,
    least: PacketRate,
    limit: Option<PacketRate>,
    most: PacketRate,
) -> impl Iterator<Item = String> {
    let limits = [("xtc.rate_most", Some(most)), ("receive.max_pps", limit)];
    let above = limits.into_iter().filter_map(move |(key, bound)| {
        let bound = bound.filter(|bound| set_point > *bound)?;
        Some(format!("{set_point} is more than {key}, {bound}"))
    });
    let below =
        (set_point < least).then(|| format!("{set_point} is less than receive.min_pps, {least}"));
    above.chain(below)
}

fn check_controller(xtc: &RouterXtc, wrong: &mut dyn FnMut(&str, String)) {
    use ControllerKind::{Combined, DeadBeat, FeedForward, Fixed, Pi, SelfTuning};
    let name = xtc.controller.name();
    match (xtc.controller, &xtc.model) {
        (Pi | DeadBeat | SelfTuning, None) => {
            wrong("model", format!("is missing: controller \"{name}\" needs one"));
        }
        (Combined | FeedForward | Fixed | Pi | DeadBeat | SelfTuning, Some(model)) => {
            let (a, b) = (model.a, model.b);
            if a.0.unsigned_abs() >= ONE.unsigned_abs() {
                wrong("model.a", format!("{a} must be above -1 and below 1"));
            }
            if !(B_LEAST..=B_MOST).contains(&b.0) {
                let (least, most) = (Decimal(B_LEAST), Decimal(B_MOST));
                wrong("model.b", format!("{b} must be {least} to {most}"));
            }
        }
        (Combined | FeedForward | Fixed, None) => {}
    }
    if xtc.controller == Fixed && xtc.map.is_empty() {
        wrong("map", "is missing: controller \"fixed\" needs one".to_string());
    }
    let fault = xtc.map.windows(2).position(|pair| match pair {
        [(before, _), (after, _)] => before >= after,
        _ => false,
    });
    if let Some(at) = fault {
        wrong(&format!("map.{}.rate", at + 1), "is not above the one before it".to_string());
    }
    if xtc.overshoot >= 1000 {
        wrong("overshoot", "1 must be below 1".to_string());
    }
    if let (Some(least), Some(most)) = (xtc.cap_min, xtc.cap_max)
        && least > most
    {
        wrong("cap_min", format!("{least} is more than cap_max, {most}"));
    }
}

fn check_actuator(xtc: &RouterXtc, wrong: &mut dyn FnMut(&str, String)) {
    let kind = xtc.actuator;
    let named = [
        ("process", &xtc.process, ActuatorKind::Cgroup),
        ("group", &xtc.group, ActuatorKind::Cgroup),
        ("namespace", &xtc.namespace, ActuatorKind::Napi),
        ("domain", &xtc.domain, ActuatorKind::Xl),
    ];
    for (key, _, owner) in
        named.into_iter().filter(|(_, value, owner)| value.is_some() && *owner != kind)
    {
        let (owner, name) = (owner.name(), kind.name());
        wrong(key, format!("belongs to actuator \"{owner}\", this is \"{name}\""));
    }
    match kind {
        ActuatorKind::Cgroup if xtc.process.is_some() == xtc.group.is_some() => {
            wrong("actuator", "\"cgroup\" needs either process or group".to_string());
        }
        ActuatorKind::Xl if xtc.domain.is_none() => {
            wrong("actuator", "\"xl\" needs domain".to_string());
        }
        ActuatorKind::Napi if xtc.interfaces.iter().all(|one| one.inside.is_none()) => {
            wrong("actuator", "\"napi\" needs an interface with inside".to_string());
        }
        ActuatorKind::None if xtc.controller != ControllerKind::Combined => {
            let name = xtc.controller.name();
            wrong("actuator", format!("\"none\" caps nothing, which controller \"{name}\" needs"));
        }
        _ => {}
    }
}

fn check_counted(xtc: &RouterXtc, has_vif: bool, wrong: &mut dyn FnMut(&str, String)) {
    if xtc.controller == ControllerKind::Combined && !has_vif {
        let message = "\"combined\" needs a vif of this router: the switch limits what comes";
        wrong("controller", message.to_string());
    } else if !has_vif && xtc.interfaces.is_empty() {
        wrong("interface", "is missing, and the router has no vif: nothing is counted".to_string());
    }
    if has_vif && xtc.actuator != ActuatorKind::Napi && !xtc.interfaces.is_empty() {
        wrong("interface", "is for nothing: the router's vifs are what is counted".to_string());
    }
}

/// Decisions of all routers together. Each takes some 200 bytes, so that this is half a gigabyte;
/// 8192 routers, the most of a policy, fit with the default of each.
const LOG_ALL_MAX: u64 = 2_500_000;

/// The number as a float, which the controllers take.
const B_LEAST: i64 = 1_000;
const B_MOST: i64 = 1_000_000 * ONE;
