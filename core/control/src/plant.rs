// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated router under a cap, to try controllers on without one.
//!
//! It forwards what its CPU budget is worth, up to what is offered, with a soft knee between the
//! two, as the text's Table 1 has it. What makes real routers hard is there too: budgets handed out
//! in whole slices, work that no packet pays for, a process that takes a part of the assigned CPU,
//! a rate that lags behind its cap, noise. The same seed gives the same run.

use weir_units::{CpuShare, Nanos, PacketRate};

use crate::Sample;
use crate::noise::Noise;
use crate::number::{float, whole};

/// The properties of a router. Each may change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plant {
    /// Packets offered a second.
    pub offered: PacketRate,
    /// CPU time of one packet.
    pub cost: Nanos,
    /// CPU that it needs before it forwards its first packet.
    pub overhead: CpuShare,
    /// Part of the *assigned* CPU that another process takes, in parts per million.
    pub stolen_ppm: u32,
    /// True if the meter of CPU time counts that process too.
    pub stolen_metered: bool,
    /// The step in which caps are enforced; values between are rounded down.
    pub grain: CpuShare,
    /// The part of the last sample's capacity that is left in this one, in parts per million: the
    /// text's a.
    pub lag_ppm: u32,
    /// Half the width of the noise on the capacity, in parts per million of it.
    pub noise_ppm: u32,
    /// The sharpness of the knee where the cap reaches the demand, from 1, soft, to some 50, sharp.
    pub knee: u32,
}

impl Plant {
    /// The text's Table 1 to within 2 kp/s: 64-byte UDP, 100 kp/s offered, 3.3 kp/s each per cent
    /// of a processor, and its a = 0.0915. Without noise.
    pub const LIKE_TABLE_1: Self = Self {
        offered: PacketRate::from_pps(100_000),
        cost: Nanos::new(3050),
        overhead: CpuShare::ZERO,
        stolen_ppm: 0,
        stolen_metered: true,
        grain: CpuShare::from_ppm(1),
        lag_ppm: 91_500,
        noise_ppm: 0,
        knee: 5,
    };

    /// Returns the rate of a router with this capacity and this offered rate, in packets a second.
    fn forwarded(&self, capacity: f64, offered: f64) -> f64 {
        if offered <= 0.0 || capacity <= 0.0 {
            return 0.0;
        }
        let (knee, part) = (f64::from(self.knee.clamp(1, 1000)), capacity / offered);
        // part ÷ (1 + part^knee)^(1 ÷ knee), written for the larger of 1 and part: no overflow.
        let (more, less) = if part > 1.0 { (part, 1.0) } else { (1.0, part) };
        let soft = libm::pow(1.0 + libm::pow(less / more, knee), -1.0 / knee);
        offered * soft * part / more
    }

    /// Returns the part of a cap that is left for packets, as a fraction of a processor.
    fn budget(&self, cap: CpuShare) -> f64 {
        let assigned = self.enforced(cap);
        let stolen = assigned * f64::from(self.stolen_ppm.min(1_000_000)) / 1e6;
        (assigned - stolen - f64::from(self.overhead.as_ppm()) / 1e6).max(0.0)
    }

    /// Returns a cap as it is enforced, as a fraction of a processor.
    fn enforced(&self, cap: CpuShare) -> f64 {
        f64::from(cap.as_ppm() - cap.as_ppm() % self.grain.as_ppm().max(1)) / 1e6
    }
}

/// A simulated router.
#[derive(Clone, Debug)]
pub struct SimulatedRouter {
    /// Its properties from the next sample on.
    pub plant: Plant,
    noise: Noise,
    /// The capacity of the sample before, in packets a second; `None` before the first.
    capacity: Option<f64>,
}

impl SimulatedRouter {
    /// Makes a router that has not run yet, with the seed of its noise.
    #[must_use]
    pub fn new(plant: Plant, seed: u64) -> Self {
        Self { plant, noise: Noise::new(seed), capacity: None }
    }

    /// Runs for `span` under a cap and a limit at ingress, if there is one, and returns the sample
    /// of its meters.
    pub fn run(&mut self, cap: CpuShare, limit: Option<PacketRate>, span: Nanos) -> Sample {
        let plant = self.plant;
        let seconds = float(span.as_nanos()) / 1e9;
        let offered = float(plant.offered.as_pps());
        let admitted = limit.map_or(offered, |limit| offered.min(float(limit.as_pps())));
        let cost = float(plant.cost.as_nanos().max(1)) / 1e9;
        let rest = plant.budget(cap) / cost;
        let lag = f64::from(plant.lag_ppm.min(999_999)) / 1e6;
        let capacity = self.capacity.map_or(rest, |before| lag * before + (1.0 - lag) * rest);
        // Unused capacity above the admitted rate leaves nothing behind.
        self.capacity = Some(capacity.min(admitted));
        // The slices of the cap make the noise: a router that the cap does not bind has none.
        let noise = f64::from(plant.noise_ppm) / 1e6 * self.noise.centred();
        let rate = plant.forwarded(capacity * (1.0 + noise), admitted);
        let assigned = plant.enforced(cap);
        let stolen = assigned * f64::from(plant.stolen_ppm.min(1_000_000)) / 1e6;
        let stolen = if plant.stolen_metered { stolen } else { 0.0 };
        let own = f64::from(plant.overhead.as_ppm()) / 1e6 + rate * cost;
        Sample {
            span,
            packets: whole(rate * seconds),
            offered: Some(whole(offered * seconds)),
            cpu: Some(Nanos::new(whole((own + stolen).min(assigned) * seconds * 1e9))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// Table 1 of the text.
    const TABLE_1: [(u32, u64); 10] = [
        (5, 16),
        (10, 32),
        (15, 50),
        (20, 65),
        (25, 77),
        (30, 85),
        (35, 91),
        (40, 94),
        (45, 96),
        (50, 98),
    ];

    #[test]
    fn it_looks_like_table_1() {
        for (cap, rate) in TABLE_1 {
            let mut router = SimulatedRouter::new(Plant::LIKE_TABLE_1, 1);
            let sample = router.run(CpuShare::from_percent(cap), None, SECOND);
            let off = sample.rate().as_pps().abs_diff(rate * 1000);
            assert!(off <= 2000, "{cap} %: {} for {rate} kp/s", sample.rate());
        }
    }

    #[test]
    fn a_limit_a_thief_and_slices_do_what_they_say() {
        let plant = Plant { lag_ppm: 0, knee: 50, ..Plant::LIKE_TABLE_1 };
        let rate = |plant: Plant, limit: Option<u64>| {
            let limit = limit.map(PacketRate::from_pps);
            SimulatedRouter::new(plant, 1).run(CpuShare::from_percent(10), limit, SECOND).packets
        };
        assert_eq!(rate(plant, None), 32_787);
        assert_eq!(rate(plant, Some(10_000)), 10_000);
        assert_eq!(rate(Plant { stolen_ppm: 150_000, ..plant }, None), 27_869);
        assert_eq!(rate(Plant { overhead: CpuShare::from_percent(1), ..plant }, None), 29_508);
        let coarse = Plant { grain: CpuShare::from_percent(4), ..plant };
        assert_eq!(rate(coarse, None), 26_230);
    }

    #[test]
    fn the_same_seed_gives_the_same_run_and_noise_is_as_wide_as_said() {
        let plant = Plant { noise_ppm: 50_000, ..Plant::LIKE_TABLE_1 };
        let (mut one, mut other) = (SimulatedRouter::new(plant, 3), SimulatedRouter::new(plant, 3));
        let cap = CpuShare::from_percent(10);
        let rest = SimulatedRouter::new(Plant::LIKE_TABLE_1, 3).run(cap, None, SECOND).packets;
        let mut widest = 0;
        for _ in 0..1000 {
            let sample = one.run(cap, None, SECOND);
            assert_eq!(sample, other.run(cap, None, SECOND));
            widest = widest.max(sample.packets.abs_diff(rest));
        }
        assert!((1590..=1640).contains(&widest), "5 % of 32.8 kp/s: {widest}");
    }
}
