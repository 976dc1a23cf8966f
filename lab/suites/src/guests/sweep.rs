// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sweeps: for each size the loads from low to high, several times, guests that start anew before
//! each run. All samples are kept, run by run; [`loads`] reads them back as medians.

use weir_experiment::prelude::*;
use weir_experiment::{mean, median};
use weir_result::ResultFile;

use super::internet::ParallelInternet;
use super::lab::GuestLab;
use super::scenario::{GuestScenario, GuestSweep, size_key};
use super::trial::{GuestMeasurer, GuestTrial, InternetsLoad, TenantTrial};

/// A load of a size, medians of its runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MeasuredLoad {
    /// Each stream's, Mbit/s of frames with FCS.
    pub(crate) mbps: f64,
    /// Each stream's, thousand packets a second.
    pub(crate) kpps: f64,
    /// By [`ParallelInternet::index`].
    pub(crate) tenants: Vec<MeasuredTenant>,
}

/// The part of one parallel internet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeasuredTenant {
    /// Thousand packets a second that arrived.
    pub(crate) forwarded_kpps: f64,
    /// Part of the intended packets that did not arrive.
    pub(crate) missing: f64,
    /// Median time on the way, ms.
    pub(crate) median_ms: f64,
    /// Mean time on the way, ms.
    pub(crate) mean_ms: f64,
    /// Processor time of the guest's first and second thread, percent of one processor.
    pub(crate) cpu: [f64; 2],
    /// Wake-ups of both threads, thousands a second.
    pub(crate) wakeups_k: f64,
}

impl MeasuredLoad {
    /// Thousand packets a second that arrived of all three.
    pub(crate) fn forwarded_kpps(&self) -> f64 {
        self.tenants.iter().map(|tenant| tenant.forwarded_kpps).sum()
    }

    /// The part of all packets that did not arrive.
    pub(crate) fn missing(&self) -> f64 {
        mean(&self.tenants.iter().map(|tenant| tenant.missing).collect::<Vec<f64>>())
    }

    /// Mean of the tenants' mean times on the way, ms.
    pub(crate) fn mean_ms(&self) -> f64 {
        mean(&self.tenants.iter().map(|tenant| tenant.mean_ms).collect::<Vec<f64>>())
    }

    /// Mean of the tenants' median times on the way, ms.
    pub(crate) fn median_ms(&self) -> f64 {
        mean(&self.tenants.iter().map(|tenant| tenant.median_ms).collect::<Vec<f64>>())
    }

    /// True if hardly a packet was lost: a model of what packets cost ends here.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.missing() <= FORWARDED_LOSS
    }
}

/// Makes a sweep and keeps its series.
pub(crate) fn run(rec: &mut Recording<'_>, scenario: &GuestScenario, sweep: &GuestSweep) -> Result {
    let mut lab = GuestLab::up("iip-guests", sweep.middle())?;
    let mut measurer = GuestMeasurer::new(&lab)?;
    for size in &sweep.sizes {
        let (mut loads, mut trials) = (Vec::new(), Vec::new());
        for pps in scenario.loads(size) {
            let load = InternetsLoad { sizes: size.clone(), pps, duration: scenario.trial };
            for _ in 0..scenario.repeats(sweep) {
                lab.restart_guests()?;
                loads.push(load.clone());
                trials.push(measurer.trial(&lab, &load)?);
            }
        }
        let place = format!("{}/{}", sweep.name, size_key(size));
        keep(rec, &place, &loads, &trials)?;
        for load in self::loads(&rec.result, &rec.name(&place)) {
            rec.say(&told(&place, &load));
        }
    }
    drop(measurer);
    lab.down()
}

fn told(place: &str, load: &MeasuredLoad) -> String {
    let cpu =
        load.tenants.iter().map(|tenant| format!("{:.1}+{:.1}", tenant.cpu[0], tenant.cpu[1]));
    format!(
        "{place}: 3 times {:.1} Mbit/s, {:.1} kpps: {:.2} % missing, median {:.3} ms, mean {:.3} \
         ms, CPU {} %",
        load.mbps,
        load.kpps,
        100.0 * load.missing(),
        load.median_ms(),
        load.mean_ms(),
        cpu.collect::<Vec<String>>().join(", "),
    )
}

fn keep(
    rec: &mut Recording<'_>,
    place: &str,
    loads: &[InternetsLoad],
    trials: &[GuestTrial],
) -> Result {
    let mbps = |load: &InternetsLoad| float(load.pps) * 8.0 * load.sizes.mean() / 1e6;
    let offered: [(&str, &str, Vec<f64>); 2] = [
        (MBPS, "Mbit/s", loads.iter().map(mbps).collect()),
        (KPPS, "1000/s", loads.iter().map(|load| float(load.pps) / 1e3).collect()),
    ];
    for (name, unit, samples) in offered {
        rec.keep(&format!("{place}/{name}"), Series::unordered(unit, samples))?;
    }
    for internet in ParallelInternet::ALL {
        for (name, unit, value) in QUANTITIES {
            let of = |trial: &GuestTrial| {
                trial.tenants.get(internet.index()).map_or(0.0, |one| value(one, trial.seconds))
            };
            let samples = trials.iter().map(of).collect();
            let name = format!("{place}/{}/{name}", internet.key());
            rec.keep(&name, Series::unordered(unit, samples))?;
        }
    }
    Ok(())
}

/// The loads of a size, in their order; none where there are no series. `place` is the full name
/// before the series' own.
pub(crate) fn loads(result: &ResultFile, place: &str) -> Vec<MeasuredLoad> {
    let of = |name: &str| {
        let series = result.series().get(&format!("{place}/{name}"));
        series.map_or(&[][..], |series| &series.samples)
    };
    let (all, kpps) = (of(MBPS), of(KPPS));
    let mut loads: Vec<f64> = all.to_vec();
    loads.dedup();
    let at = |load: &f64| {
        let runs: Vec<usize> =
            (0..all.len()).filter(|at| all.get(*at).is_some_and(|one| one == load)).collect();
        let middle = |samples: &[f64]| {
            let own = runs.iter().filter_map(|at| samples.get(*at)).copied();
            median(&own.collect::<Vec<f64>>())
        };
        let tenant = |internet: ParallelInternet| {
            let value = |name: &str| middle(of(&format!("{}/{name}", internet.key())));
            MeasuredTenant {
                forwarded_kpps: value("forwarded"),
                missing: value("missing"),
                median_ms: value("median"),
                mean_ms: value("mean"),
                cpu: [value("cpu-1"), value("cpu-2")],
                wakeups_k: value("wakeups"),
            }
        };
        let tenants = ParallelInternet::ALL.map(tenant).to_vec();
        MeasuredLoad { mbps: *load, kpps: middle(kpps), tenants }
    };
    loads.iter().map(at).collect()
}

fn per_second(count: u64, seconds: f64) -> f64 {
    float(count) / seconds.max(f64::MIN_POSITIVE)
}

fn cpu_percent(tenant: &TenantTrial, thread: usize, seconds: f64) -> f64 {
    per_second(tenant.threads.get(thread).map_or(0, |thread| thread.cpu_ns), seconds) / 1e7
}

/// The series of a tenant: name, unit, and the value in a trial of so many seconds.
type TenantQuantity = (&'static str, &'static str, fn(&TenantTrial, f64) -> f64);

const QUANTITIES: [TenantQuantity; 7] = [
    ("forwarded", "1000/s", |one, s| per_second(one.outcome.forwarded, s) / 1e3),
    ("missing", "1", |one, _| one.outcome.loss_ratio()),
    ("median", "ms", |one, _| float(one.delays.quantile_ns(1, 2)) / 1e6),
    ("mean", "ms", |one, _| per_second(one.delays.sum_ns, float(one.delays.count)) / 1e6),
    ("cpu-1", "%", |one, s| cpu_percent(one, 0, s)),
    ("cpu-2", "%", |one, s| cpu_percent(one, 1, s)),
    ("wakeups", "1000/s", |one, s| {
        per_second(one.threads.iter().map(|thread| thread.wakeups).sum(), s) / 1e3
    }),
];
const MBPS: &str = "mbps";
const KPPS: &str = "kpps";
/// A machine that its host stops for some ms loses a few packets at any load.
const FORWARDED_LOSS: f64 = 0.01;

#[cfg(test)]
mod tests {
    use weir_result::Origin;

    use super::*;

    #[test]
    fn loads_are_read_back_as_medians_of_their_runs() {
        let mut result = ResultFile::new(Origin::default());
        let mut add = |name: &str, samples: Vec<f64>| {
            result.add_series(&format!("a/128/{name}"), Series::unordered("1", samples)).unwrap();
        };
        add(MBPS, vec![10.0, 10.0, 10.0, 20.0, 20.0, 20.0]);
        add(KPPS, vec![1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        add("can/cpu-1", vec![5.0, 90.0, 6.0, 9.0, 8.0, 7.0]);
        add("can/missing", vec![0.0, 0.9, 0.0, 0.3, 0.3, 0.3]);
        let loads = loads(&result, "a/128");
        let cpu: Vec<f64> = loads.iter().map(|load| load.tenants[1].cpu[0]).collect();
        assert_eq!((cpu, loads[1].kpps), (vec![6.0, 8.0], 2.0));
        assert_eq!([loads[0].is_forwarded(), loads[1].is_forwarded()], [true, false]);
        assert!(super::loads(&result, "b/128").is_empty());
    }
}
