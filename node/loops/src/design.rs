// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds a controller from the policy of a router.

use weir_control::{
    CapRange, Combined, CombinedConfig, Controller, DeadZone, Design, FeedForward,
    FeedForwardConfig, FixedCap, FixedMap, Gains, Guard, Model, Pi, PiConfig, Poles, Response,
    SelfTuning, SelfTuningConfig,
};
use weir_policy::{ControllerKind, Decimal, RouterXtc};
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::error::RouterError;

/// Returns the caps that both the actuator and the policy allow.
///
/// # Errors
/// There are none.
pub(crate) fn range(xtc: &RouterXtc, actuator: CapRange) -> Result<CapRange, RouterError> {
    let least = xtc.cap_min.map_or_else(|| actuator.least(), |least| least.max(actuator.least()));
    let most = xtc.cap_max.map_or_else(|| actuator.most(), |most| most.min(actuator.most()));
    CapRange::new(least..=most, actuator.grain()).map_err(|error| {
        let (least, most) = (actuator.least(), actuator.most());
        RouterError::NoCap { error, least, most }
    })
}

/// Checks that a controller of this policy can be built for caps of that range.
///
/// # Errors
/// The key, the value and the bound.
pub(crate) fn check(xtc: &RouterXtc, actuator: CapRange) -> Result<(), RouterError> {
    let range = range(xtc, actuator)?;
    controller(xtc, range, range.most()).map(drop)
}

/// Builds the controller of a router, starting from the cap in force.
///
/// # Errors
/// A model, a map or a response is not possible: the key and the reason.
pub(crate) fn controller(
    xtc: &RouterXtc,
    range: CapRange,
    start: CpuShare,
) -> Result<Box<dyn Controller + Send>, RouterError> {
    let set_point = xtc.set_point.unwrap_or(PacketRate::from_pps(1));
    let zone = |default| {
        xtc.dead_zone.map_or(default, |part| DeadZone::from_ppm(part.saturating_mul(1000)))
    };
    let pi = |gains| PiConfig { gains, range, dead_zone: zone(DeadZone::OFF) };
    Ok(match xtc.controller {
        ControllerKind::Combined => {
            Box::new(Combined::new(CombinedConfig::new(range), set_point, start))
        }
        ControllerKind::FeedForward => {
            let config = FeedForwardConfig::new(range);
            let config = FeedForwardConfig { dead_zone: zone(config.dead_zone), ..config };
            Box::new(FeedForward::new(config, set_point, start))
        }
        ControllerKind::Pi => {
            let gains = Gains::place(model(xtc)?, poles(xtc)?);
            Box::new(Pi::new(pi(gains), set_point, start))
        }
        ControllerKind::DeadBeat => {
            Box::new(Pi::new(pi(Gains::dead_beat(model(xtc)?)), set_point, start))
        }
        ControllerKind::SelfTuning => {
            let (first, poles) = (model(xtc)?, poles(xtc)?);
            let config = SelfTuningConfig {
                pi: pi(Gains::place(first, poles)),
                design: Design::Poles(poles),
                first,
                guard: Guard::DEFAULT,
            };
            Box::new(SelfTuning::new(config, set_point, start))
        }
        ControllerKind::Fixed => {
            let map = FixedMap::new(xtc.map.clone()).map_err(RouterError::Map)?;
            Box::new(FixedCap::new(map, range, set_point))
        }
    })
}

fn model(xtc: &RouterXtc) -> Result<Model, RouterError> {
    let model = xtc.model.ok_or(RouterError::NoModel)?;
    Model::new(float(model.a), float(model.b)).map_err(RouterError::Model)
}

fn poles(xtc: &RouterXtc) -> Result<Poles, RouterError> {
    // The period does not matter here, since the response is counted in samples.
    let period = Nanos::from_secs(1);
    let settling = Nanos::from_secs(xtc.settling.into());
    let overshoot = f64::from(xtc.overshoot) / 1000.0;
    let response = Response { settling, period, overshoot };
    Poles::from_response(response).map_err(RouterError::Response)
}

/// Converts a decimal of a policy; exact, since those are below 2⁵³ millionths.
#[expect(clippy::cast_precision_loss, reason = "a model has six digits, not sixteen")]
fn float(value: Decimal) -> f64 {
    value.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use weir_policy::ActuatorKind;

    use super::*;

    #[test]
    fn a_least_cap_narrows_the_range_and_never_leaves_it() {
        let actuator = CapRange::WHOLE;
        let least = |cap| {
            let base = RouterXtc::new(PacketRate::from_pps(1), ActuatorKind::Cgroup);
            let xtc = RouterXtc { cap_min: Some(cap), ..base };
            range(&xtc, actuator).ok().map(|range| range.least())
        };
        assert_eq!(least(CpuShare::from_percent(3)), Some(CpuShare::from_percent(3)));
        assert_eq!(least(CpuShare::ZERO), Some(actuator.least()));
        assert_eq!(least(CpuShare::from_percent(400)), None, "more than the largest");
    }
}
