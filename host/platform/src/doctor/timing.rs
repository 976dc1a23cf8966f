// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds what a host can promise to threads that must be on time.
//!
//! A deadline budget that runs out is noticed at the next tick, or at once where the kernel has a
//! timer for it (HRTICK). A thread that becomes able to run waits for the kernel to let go of the
//! processor (preemption), and for ordinary threads where the kernel serves them by a deadline of
//! their own (`dl_server`).
//!
//! Source: Linux, Documentation/scheduler/sched-deadline.rst, and
//! Documentation/scheduler/sched-debug.rst (debugfs).

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;
use weir_units::CpuShare;

use crate::cap::PERCENT_GRANTED;

/// The timing of a host's scheduler. `None`: the kernel does not say, as without debugfs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimingFacts {
    /// Ticks a second.
    pub hz: Option<u32>,
    /// True if a timer ends a deadline budget, not the next tick.
    pub hrtick: Option<bool>,
    /// The preemption model: `none`, `voluntary`, `full`, `lazy` or `rt`.
    pub preempt: Option<String>,
    /// The share of each processor that real-time threads may have, in millionths.
    pub deadline_limit_ppm: Option<u32>,
    /// The share of a processor that the kernel keeps for ordinary threads by a deadline of their
    /// own, in millionths; 0: none.
    pub dl_server_ppm: Option<u32>,
}

impl TimingFacts {
    /// Reads the facts.
    #[must_use]
    pub fn read() -> Self {
        Self::of(&|path| fs::read_to_string(path).ok(), tick_ns())
    }

    /// Reads the facts by `read`, which returns the text of a file.
    fn of(read: &dyn Fn(&Path) -> Option<String>, tick_ns: Option<u64>) -> Self {
        let kernel = |name: &str| read(&Path::new("/proc/sys/kernel").join(name));
        let number = |text: Option<String>| text?.trim().parse::<i64>().ok();
        let runtime = number(kernel("sched_rt_runtime_us"));
        let period = number(kernel("sched_rt_period_us"));
        let debug = |name: &str| read(&Path::new("/sys/kernel/debug/sched").join(name));
        let server = |name: &str| number(debug(&format!("fair_server/cpu0/{name}")));
        let features = debug("features");
        let has = |name: &str| {
            features.as_deref().and_then(|text| {
                let mut words = text.split_whitespace();
                words.find_map(|word| match word.strip_prefix("NO_").unwrap_or(word) == name {
                    true => Some(!word.starts_with("NO_")),
                    false => None,
                })
            })
        };
        Self {
            hz: tick_ns.and_then(|ns| u32::try_from(NANOS.checked_div(ns)?).ok()),
            hrtick: has("HRTICK_DL"),
            preempt: preempt(debug("preempt"), read(Path::new("/sys/kernel/realtime"))),
            deadline_limit_ppm: match runtime {
                // No limit.
                Some(-1) => Some(CpuShare::ONE.as_ppm()),
                _ => part(runtime, period),
            },
            dl_server_ppm: part(server("runtime"), server("period")),
        }
    }

    /// Returns the share of each processor that routers may have together by deadline budgets: the
    /// limit less what the kernel keeps for ordinary threads, at most [`PERCENT_GRANTED`]. What the
    /// kernel does not say is taken as its default, 95 % and 5 points.
    #[must_use]
    pub fn granted(&self) -> CpuShare {
        let known = |ppm: Option<u32>, percent| {
            ppm.map_or_else(|| CpuShare::from_percent(percent), CpuShare::from_ppm)
        };
        let limit = known(self.deadline_limit_ppm, LIMIT_PERCENT);
        let kept = known(self.dl_server_ppm, SERVER_PERCENT).as_ppm();
        let left = CpuShare::from_ppm(limit.as_ppm().saturating_sub(kept));
        left.min(CpuShare::from_percent(PERCENT_GRANTED))
    }
}

/// Returns the model in parentheses of `none voluntary (full) lazy`; `rt` where the kernel is one.
fn preempt(models: Option<String>, realtime: Option<String>) -> Option<String> {
    if realtime.is_some_and(|text| text.trim() == "1") {
        return Some("rt".to_owned());
    }
    let models = models?;
    models.split_whitespace().find_map(|word| {
        word.strip_prefix('(').and_then(|word| word.strip_suffix(')')).map(str::to_owned)
    })
}

fn part(of: Option<i64>, whole: Option<i64>) -> Option<u32> {
    let (of, whole) = (u64::try_from(of?).ok()?, u64::try_from(whole?).ok()?);
    u32::try_from((of * u64::from(CpuShare::ONE.as_ppm())).checked_div(whole)?).ok()
}

/// The coarse clock moves with the tick, so that its resolution is the tick's length.
fn tick_ns() -> Option<u64> {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_getres writes one timespec, which is ours.
    let answer = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    (answer == 0).then(|| u64::try_from(resolution.tv_nsec).ok()).flatten()
}

/// `HZ 250, HRTICK off, preempt full, deadline threads up to 95% of a processor, dl_server 5%`
impl fmt::Display for TimingFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not_known = || "not known (debugfs)".to_owned();
        let share = |ppm: u32| CpuShare::from_ppm(ppm).to_string();
        let hz = self.hz.map_or_else(not_known, |hz| hz.to_string());
        let hrtick = self.hrtick.map_or_else(not_known, |on| on_off(on).to_owned());
        let preempt = self.preempt.clone().unwrap_or_else(not_known);
        let limit = self.deadline_limit_ppm.map_or_else(not_known, share);
        let server = self.dl_server_ppm.map_or_else(not_known, share);
        write!(
            f,
            "HZ {hz}, HRTICK {hrtick}, preempt {preempt}, deadline threads up to {limit} of each \
             processor, dl_server {server}"
        )
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The kernel's default limit of deadline threads, in percent of each processor.
pub(super) const LIMIT_PERCENT: u32 = 95;
/// The kernel's default of what it keeps for ordinary threads, in points.
const SERVER_PERCENT: u32 = 5;
const NANOS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the bound of admission is what this host's kernel grants.
    #[test]
    fn what_the_kernel_grants_is_its_limit_less_what_it_keeps() {
        let granted = |limit, server| {
            let (deadline_limit_ppm, dl_server_ppm) = (Some(limit), server);
            TimingFacts { deadline_limit_ppm, dl_server_ppm, ..<_>::default() }.granted()
        };
        let percent = CpuShare::from_percent;
        assert_eq!(granted(950_000, Some(50_000)), percent(90));
        assert_eq!(granted(1_000_000, Some(0)), percent(90), "never more");
        assert_eq!(granted(950_000, Some(100_000)), percent(85));
        assert_eq!(granted(500_000, None), percent(45), "5 points unless it says");
        assert_eq!(granted(0, None), CpuShare::ZERO);
        assert_eq!(TimingFacts::default().granted(), percent(90));
    }

    /// The form of each file as the documents of the kernel show it.
    #[test]
    fn what_the_kernel_says_is_read() {
        let read = |path: &Path| {
            let text = match path.to_str().unwrap() {
                "/proc/sys/kernel/sched_rt_runtime_us" => "950000\n",
                "/proc/sys/kernel/sched_rt_period_us" => "1000000\n",
                "/sys/kernel/debug/sched/features" => "PLACE_LAG NO_HRTICK NO_HRTICK_DL TTWU\n",
                "/sys/kernel/debug/sched/preempt" => "none voluntary (full) lazy\n",
                "/sys/kernel/debug/sched/fair_server/cpu0/runtime" => "50000000\n",
                "/sys/kernel/debug/sched/fair_server/cpu0/period" => "1000000000\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let facts = TimingFacts::of(&read, Some(4_000_000));
        assert_eq!(
            facts.to_string(),
            "HZ 250, HRTICK off, preempt full, deadline threads up to 95% of each processor, \
             dl_server 5%"
        );
        let nothing = TimingFacts::of(&|_| None, None);
        assert_eq!(nothing, TimingFacts::default());
        assert!(TimingFacts::read().hz.is_some_and(|hz| (24..=2000).contains(&hz)));
        let realtime = preempt(None, Some("1\n".to_owned()));
        assert_eq!(realtime.as_deref(), Some("rt"));
    }
}
