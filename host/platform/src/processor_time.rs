// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU time as the kernel counts it in `/proc/stat`: by its tick, 250 times a second and processor,
//! so that two seconds are exact to some 1 %.

use std::fs;
use std::time::Instant;

use crate::error::HostError;

/// The counters of all processors at an instant.
#[derive(Clone, Debug)]
pub struct CpuTime {
    at: Instant,
    cpus: Vec<Ticks>,
}

/// The time of one processor by kind, in ticks since boot.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    idle: u64,
    soft_interrupt: u64,
    /// Taken by the machine's host; not part of `all`.
    stolen: u64,
    all: u64,
}

/// The load of the processors between two instants, in processors.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    /// All of them, soft interrupts included.
    pub all: f64,
    /// One of them outside soft interrupts: what its processes did in their own name.
    pub own: f64,
}

/// The load of one processor between two instants, in percent of that time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorLoad {
    /// The time that it worked, soft interrupts included.
    pub busy_percent: f64,
    /// The time in soft interrupts.
    pub softirq_percent: f64,
    /// The time that the machine's host took.
    pub stolen_percent: f64,
}

impl CpuTime {
    /// Reads the counters.
    pub fn now() -> Result<Self, HostError> {
        let text = fs::read_to_string(STAT).map_err(|error| HostError::io("read", STAT, error))?;
        Ok(Self { at: Instant::now(), cpus: text.lines().filter_map(ticks).collect() })
    }

    /// Returns the load since `earlier`; `own` is that of processor `cpu`.
    pub fn since(&self, earlier: &Self, cpu: usize) -> Busy {
        let between = |now: &Ticks, then: &Ticks| Ticks {
            idle: now.idle.saturating_sub(then.idle),
            soft_interrupt: now.soft_interrupt.saturating_sub(then.soft_interrupt),
            stolen: now.stolen.saturating_sub(then.stolen),
            all: now.all.saturating_sub(then.all),
        };
        let spent: Vec<Ticks> =
            self.cpus.iter().zip(&earlier.cpus).map(|(now, then)| between(now, then)).collect();
        let total: u64 = spent.iter().map(|ticks| ticks.all).sum();
        let seconds = (self.at - earlier.at).as_secs_f64();
        // A tick's length follows from the elapsed time, whatever the kernel's unit is.
        let tick = float(spent.len() as u64) * seconds / float(total.max(1));
        let processors = |ticks: u64| float(ticks) * tick / seconds;
        let busy = spent.iter().map(|ticks| ticks.all - ticks.idle.min(ticks.all)).sum();
        let own = spent.get(cpu).map_or(0, |ticks| {
            ticks.all.saturating_sub(ticks.idle).saturating_sub(ticks.soft_interrupt)
        });
        Busy { all: processors(busy), own: processors(own) }
    }

    /// Returns the load of each processor since `earlier`, by number.
    pub fn each_since(&self, earlier: &Self) -> Vec<ProcessorLoad> {
        let pairs = self.cpus.iter().zip(&earlier.cpus);
        let percent = |part: u64, all: u64| 100.0 * float(part) / float(all.max(1));
        pairs
            .map(|(now, then)| {
                let stolen = now.stolen.saturating_sub(then.stolen);
                let all = now.all.saturating_sub(then.all) + stolen;
                let idle = now.idle.saturating_sub(then.idle);
                let soft = now.soft_interrupt.saturating_sub(then.soft_interrupt);
                ProcessorLoad {
                    busy_percent: percent(all.saturating_sub(idle).saturating_sub(stolen), all),
                    softirq_percent: percent(soft, all),
                    stolen_percent: percent(stolen, all),
                }
            })
            .collect()
    }

    /// Seconds since `earlier`.
    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }

    /// Returns the seconds that the machine's host took from processor `cpu` since `earlier`, to a
    /// tick; 0 where it does not say.
    pub fn stolen_since(&self, earlier: &Self, cpu: usize) -> f64 {
        let stolen = |all: &Self| all.cpus.get(cpu).map_or(0, |ticks| ticks.stolen);
        let ticks = stolen(self).saturating_sub(stolen(earlier));
        float(ticks) / USER_HZ
    }

    /// Returns the stolen seconds of the processor that lost most.
    pub fn most_stolen_since(&self, earlier: &Self) -> f64 {
        let each = (0..self.cpus.len()).map(|cpu| self.stolen_since(earlier, cpu));
        each.fold(0.0, f64::max)
    }
}

/// A line `cpuN user nice system idle iowait irq softirq steal …`; none for other lines. Stolen
/// time was nobody's here: it is not counted.
fn ticks(line: &str) -> Option<Ticks> {
    let (name, fields) = line.split_once(' ')?;
    name.strip_prefix("cpu")?.parse::<u32>().ok()?;
    let fields: Vec<u64> = fields.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, wait, interrupt, soft_interrupt, ref rest @ ..] = fields[..]
    else {
        return None;
    };
    // Older kernels do not say.
    let stolen = rest.first().copied().unwrap_or(0);
    let idle = idle + wait;
    let all = user + nice + system + idle + interrupt + soft_interrupt;
    Some(Ticks { idle, soft_interrupt, stolen, all })
}

/// A count of ticks; exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "ticks since boot stay below 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

const STAT: &str = "/proc/stat";

/// Ticks a second of what the kernel tells programs: a constant of its interface on all processors
/// that it runs on today (`sysconf(_SC_CLK_TCK)`, asm-generic/param.h).
const USER_HZ: f64 = 100.0;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn busy_time_is_split_by_processor_and_soft_interrupts() {
        let read = |text: &str, at| CpuTime { at, cpus: text.lines().filter_map(ticks).collect() };
        let start = Instant::now();
        let then = read("cpu  1 1 1 1 1 1 1 1\ncpu0 0 0 0 0 0 0 0 0\ncpu1 5 0 0 5 0 0 0 0", start);
        let text = "cpu0 10 0 50 20 0 0 20 0 0 0\ncpu1 5 0 0 55 50 0 0 0 0 0\nintr 7";
        let busy = read(text, start + Duration::from_secs(1)).since(&then, 0);
        assert!((busy.all - 0.8).abs() < 1e-9, "{busy:?}");
        assert!((busy.own - 0.6).abs() < 1e-9, "{busy:?}");
    }

    #[test]
    fn each_processor_has_its_own_load() {
        let at = Instant::now();
        let read = |text: &str| CpuTime { at, cpus: text.lines().filter_map(ticks).collect() };
        let then = read("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0");
        let now = read("cpu0 20 0 10 40 0 0 20 10\ncpu1 0 0 0 100 0 0 0 0");
        let [first, second] = now.each_since(&then)[..] else { panic!("two processors") };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(first.busy_percent, 50.0) && near(first.softirq_percent, 20.0), "{first:?}");
        assert!(near(first.stolen_percent, 10.0) && near(second.busy_percent, 0.0));
    }

    #[test]
    fn stolen_time_is_of_one_processor() {
        let at = Instant::now();
        let read = |text: &str| CpuTime { at, cpus: text.lines().filter_map(ticks).collect() };
        let then = read("cpu  1 1 1 1 1 1 1 9\ncpu0 0 0 0 0 0 0 0 5\ncpu1 0 0 0 0 0 0 0");
        let now = read("cpu  1 1 1 1 1 1 1 99\ncpu0 0 0 0 0 0 0 0 7 0 0\ncpu1 0 0 0 0 0 0 0");
        assert!((now.stolen_since(&then, 0) - 0.02).abs() < 1e-9);
        assert_eq!([now.stolen_since(&then, 1), now.stolen_since(&then, 9)], [0.0, 0.0]);
        assert!((now.most_stolen_since(&then) - 0.02).abs() < 1e-9);
    }
}
