// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several routers that a running node holds at parts of the rate that they forward together when
//! not held: Figs 15 to 18, Table 2.
//!
//! All routers are processes on one processor, as one driver domain carries the packets of all
//! guests of the text.

use weir_experiment::prelude::*;

use crate::routers::{
    HoldingMeans, Plan, ProbePath, RouterKind, RouterLab, RouterLoad, RouterTraffic, SAMPLING,
    probing, shares,
};

/// Routers beside each other on one processor.
#[derive(Debug)]
pub(super) struct SharedRouters {
    /// The settings, each on a lab of its own.
    pub(super) settings: &'static [ShareSetting],
    /// True if each router is probed.
    pub(super) probed: bool,
}

/// The loads of the routers, and the parts in which they are held.
#[derive(Debug)]
pub(super) struct ShareSetting {
    /// The setting's name in identifiers.
    pub(super) key: &'static str,
    /// The load of each router.
    pub(super) loads: &'static [RouterLoad],
    /// The text's name of each configuration, and its set-points.
    pub(super) configurations: &'static [(&'static str, &'static [u32])],
}

impl SharedRouters {
    pub(super) fn seconds(&self, quick: bool) -> u64 {
        let (repetitions, seconds) = runs(quick);
        let each = |setting: &ShareSetting| {
            let windows = setting.loads.len() as u64 * u64::from(self.probed) + 1;
            let runs = 1 + 2 * setting.configurations.len() as u64;
            BESIDE_LAB_S + runs * (SETTLE_S + windows * repetitions as u64 * seconds)
        };
        self.settings.iter().map(each).sum()
    }

    pub(super) fn run(
        &self,
        trial: &mut Recording<'_>,
        kind: RouterKind,
    ) -> Result<(), ExperimentError> {
        for setting in self.settings {
            trial.say(&format!("{} {} routers, {}", setting.loads.len(), kind.name(), setting.key));
            let mut lab = RouterLab::up(Plan::beside("xtc-figure", kind, setting.loads.len()))?;
            let traffic = RouterTraffic::new(setting.loads.iter().copied().enumerate().collect());
            let quick = trial.quick;
            let (seen, _) = traffic.beside(&mut lab, |lab| self.measure(lab, setting, quick))?;
            for one in &seen {
                one.keep(trial, setting)?;
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        lab: &mut RouterLab,
        setting: &ShareSetting,
        quick: bool,
    ) -> Result<Vec<ShareSamples>, ExperimentError> {
        lab.watch_all(SETTLE)?;
        let count = setting.loads.len();
        let without = self.windows(lab, "", HoldingMeans::Without, vec![], count, quick)?;
        let all: f64 = without.rates.iter().map(|rates| weir_experiment::mean(rates)).sum();
        let mut seen = vec![without];
        for (configuration, parts) in setting.configurations {
            let wanted = shares(all, parts);
            for means in HoldingMeans::HELD {
                means.controller().map_or(Ok(()), |by| lab.hold_all(by, &wanted))?;
                lab.watch_all(SETTLE)?;
                let of = self.windows(lab, configuration, means, wanted.clone(), count, quick)?;
                seen.push(of);
            }
        }
        Ok(seen)
    }

    fn windows(
        &self,
        lab: &mut RouterLab,
        configuration: &'static str,
        means: HoldingMeans,
        wanted: Vec<f64>,
        count: usize,
        quick: bool,
    ) -> Result<ShareSamples, ExperimentError> {
        let (repetitions, seconds) = runs(quick);
        let samples = lab.plan().samples(seconds);
        let (mut rates, mut times_s) = (vec![Vec::new(); count], Vec::new());
        for _ in 0..repetitions {
            for (rates, rate) in rates.iter_mut().zip(lab.rates(samples)?) {
                rates.push(rate);
            }
        }
        if self.probed {
            for router in 0..count {
                let (_, probed) =
                    probing(lab, router, ProbePath::Own, |lab| lab.watch_all(samples))?;
                times_s.push(probed.times_s);
            }
        }
        Ok(ShareSamples { configuration, means, wanted, rates, times_s })
    }
}

/// Samples of all routers of a setting, held in one way.
struct ShareSamples {
    configuration: &'static str,
    means: HoldingMeans,
    /// The set-point of each router in packets a second; empty without set-points.
    wanted: Vec<f64>,
    /// The rate of each router, in each repetition.
    rates: Vec<Vec<f64>>,
    /// The round trips of each router's probes.
    times_s: Vec<Vec<f64>>,
}

impl ShareSamples {
    fn keep(
        &self,
        trial: &mut Recording<'_>,
        setting: &ShareSetting,
    ) -> Result<(), ExperimentError> {
        let id = |part: String| prefix(setting.key, self.configuration, self.means) + &part;
        for (router, rates) in self.rates.iter().enumerate() {
            let series = Series::unordered("packet/s", rates.clone());
            trial.keep(&id(format!("rate/{}", router + 1)), series)?;
        }
        for (router, wanted) in self.wanted.iter().enumerate() {
            let series = Series::unordered("packet/s", vec![*wanted]);
            trial.keep(&id(format!("set-point/{}", router + 1)), series)?;
        }
        for (router, times_s) in self.times_s.iter().enumerate() {
            let series = Series::unordered("s", times_s.clone());
            trial.keep(&id(format!("rtt/{}", router + 1)), series)?;
        }
        Ok(())
    }
}

/// Returns the beginning of the names of all series of routers held in one way.
pub(super) fn prefix(setting: &str, configuration: &str, means: HoldingMeans) -> String {
    match means {
        HoldingMeans::Without => format!("{setting}/without/"),
        HoldingMeans::Cap | HoldingMeans::Weir => {
            format!("{setting}/{configuration}/{}/", means.key())
        }
    }
}

/// Returns the number of repetitions, and the length of each in seconds.
const fn runs(quick: bool) -> (usize, u64) {
    if quick { (2, 3) } else { (10, 10) }
}

/// The samples of two seconds, in which TCP finds its rate.
const SETTLE: usize = 20;
const SETTLE_S: u64 = SETTLE as u64 * SAMPLING.as_nanos() / Nanos::from_secs(1).as_nanos();

/// The time to bring up a lab with its node.
const BESIDE_LAB_S: u64 = 6;
