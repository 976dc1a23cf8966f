// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several routers that a running node holds at parts of what they forward together without it:
//! Figs 15 to 18, Table 2.
//!
//! All routers are processes on one processor, as the text's are guests whose packets one driver
//! domain carries.

use weir_experiment::prelude::*;

use crate::routers::{
    HeldLab, HoldingMeans, MTU_TCP, Plan, ProbePath, RouterKind, RouterLoad, SAMPLING, Shape,
    Traffic, probing, shares,
};

/// Routers beside each other.
#[derive(Debug)]
pub(super) struct Shares {
    /// One lab for each.
    pub(super) settings: &'static [Setting],
    /// Whether each router is probed.
    pub(super) probed: bool,
}

/// Who sends what through them, and in what parts they are held.
#[derive(Debug)]
pub(super) struct Setting {
    /// Its name, as in identifiers.
    pub(super) key: &'static str,
    /// What each router gets to forward.
    pub(super) loads: &'static [Sent],
    /// What the text calls it, and its set-points.
    pub(super) configurations: &'static [(&'static str, &'static [u32])],
}

/// What a router gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// UDP, as much as there is time for.
    Flood,
    /// TCP over so many connections.
    Tcp(u32),
}

impl Shares {
    pub(super) fn seconds(&self, quick: bool) -> u64 {
        let (repetitions, seconds) = runs(quick);
        let each = |setting: &Setting| {
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
            let kinds = vec![kind; setting.loads.len()];
            let (name, shape) = ("xtc-figure".to_owned(), Shape::Beside);
            let plan = Plan { name, shape, kinds, mtu: MTU_TCP, sampling: SAMPLING };
            let mut lab = HeldLab::up(plan)?;
            let loads = setting.loads.iter().map(|sent| match sent {
                Sent::Flood => RouterLoad::Udp(None),
                Sent::Tcp(connections) => RouterLoad::Tcp(*connections),
            });
            let traffic = Traffic::new(loads.enumerate().collect());
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
        lab: &mut HeldLab,
        setting: &Setting,
        quick: bool,
    ) -> Result<Vec<Seen>, ExperimentError> {
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
        lab: &mut HeldLab,
        configuration: &'static str,
        means: HoldingMeans,
        wanted: Vec<f64>,
        count: usize,
        quick: bool,
    ) -> Result<Seen, ExperimentError> {
        let (repetitions, seconds) = runs(quick);
        let samples = usize::try_from(seconds * 1_000_000_000 / SAMPLING.as_nanos());
        let samples = samples.unwrap_or(usize::MAX);
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
        Ok(Seen { configuration, means, wanted, rates, times_s })
    }
}

/// What was seen of all routers of a setting, held in one way.
struct Seen {
    configuration: &'static str,
    means: HoldingMeans,
    /// Packets a second of each router; none without set-points.
    wanted: Vec<f64>,
    /// Of each router, in each repetition.
    rates: Vec<Vec<f64>>,
    /// Of each router's probes.
    times_s: Vec<Vec<f64>>,
}

impl Seen {
    fn keep(&self, trial: &mut Recording<'_>, setting: &Setting) -> Result<(), ExperimentError> {
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

/// Before the names of all series of routers held in one way.
pub(super) fn prefix(setting: &str, configuration: &str, means: HoldingMeans) -> String {
    match means {
        HoldingMeans::Without => format!("{setting}/without/"),
        HoldingMeans::Cap | HoldingMeans::Weir => {
            format!("{setting}/{configuration}/{}/", means.key())
        }
    }
}

/// Repetitions, and the length of each in seconds.
const fn runs(quick: bool) -> (usize, u64) {
    if quick { (2, 3) } else { (10, 10) }
}

/// Two seconds, in which TCP finds its rate.
const SETTLE: usize = 20;
const SETTLE_S: u64 = SETTLE as u64 * SAMPLING.as_nanos() / Nanos::from_secs(1).as_nanos();

/// Bringing it up, with its node.
const BESIDE_LAB_S: u64 = 6;
