// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPU reservations: a thread is pinned to a processor and gets a scheduling class (SCHED_FIFO,
//! SCHED_DEADLINE, a nice value). The kernel's grant is read back, and given up on drop.

use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::thread;

use serde::Serialize;
use weir_units::Nanos;

use crate::error::HostError;
use crate::proc_stat::Stat;
use crate::process::{self, Identity};

/// A scheduling class of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingClass {
    /// Shares the processor with other normal threads, by weight.
    Normal {
        /// From -20 (most) to 19.
        nice: i32,
    },
    /// Like [`Self::Normal`] with nice 0, but it never preempts another thread when it wakes up
    /// (SCHED_BATCH). It then finds all work that has arrived meanwhile.
    Batch,
    /// Runs before all normal threads, for as long as it wants. Meant for threads that sleep: the
    /// kernel's real-time throttling stops a thread that spins for 5 % of each second.
    Fifo {
        /// 1 to 99.
        priority: u32,
    },
    /// Runs before all others for `runtime` in each `period`, within `deadline` of its start.
    Deadline {
        /// At least 1024 ns.
        runtime: Nanos,
        /// From `runtime` to `period`.
        deadline: Nanos,
        /// At most about 4 s.
        period: Nanos,
    },
}

/// The processor and class that a thread requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuRequest {
    /// The only processor it runs on; `None`: any. The kernel refuses a pinned deadline thread
    /// unless its cpuset has one processor and `sched_load_balance` is 0 at the root.
    pub cpu: Option<u32>,
    /// Its class.
    pub class: SchedulingClass,
}

/// The processors and class that a thread has, read from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGrant {
    /// The processors it may run on.
    pub cpus: Vec<u32>,
    /// Its class.
    pub class: SchedulingClass,
}

/// A division of the processors that a process may use, between the worker and all other threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuDivision {
    /// The worker's processor: the last one, since most machines send interrupts to the first.
    pub worker: u32,
    /// The processors of all other threads: the remaining ones, or the only one.
    pub others: Vec<u32>,
}

/// A reservation of the calling thread. It cannot be moved to another thread.
#[derive(Debug)]
pub struct CpuReservation {
    granted: CpuGrant,
    before: CpuGrant,
    thread: PhantomData<*const ()>,
}

impl CpuReservation {
    /// Gives the calling thread its processor and class until the value is dropped. Threads and
    /// processes that it starts inherit the processor, but no privileged class: of classes they
    /// inherit only SCHED_BATCH and a nice value that is not negative.
    ///
    /// # Errors
    /// The kernel refused the request, which the text names. The thread is then as it was.
    pub fn take(request: CpuRequest) -> Result<Self, HostError> {
        let before = granted()?;
        let granted = match set(request) {
            Ok(()) => granted(),
            Err(error) => Err(error),
        };
        match granted {
            Ok(granted) => Ok(Self { granted, before, thread: PhantomData }),
            Err(error) => {
                restore(&before);
                Err(error)
            }
        }
    }

    /// Returns what the kernel granted.
    pub const fn granted(&self) -> &CpuGrant {
        &self.granted
    }
}

impl Drop for CpuReservation {
    fn drop(&mut self) {
        restore(&self.before);
    }
}

/// Returns the grant that the kernel would make, by trying it on a thread that then ends.
///
/// # Errors
/// The errors of [`CpuReservation::take`].
pub fn probe(request: CpuRequest) -> Result<CpuGrant, HostError> {
    thread::scope(|scope| {
        let tried = scope.spawn(move || Ok(CpuReservation::take(request)?.granted().clone()));
        tried.join().unwrap_or_else(|_| Err(HostError::Refused("the probe panicked".to_owned())))
    })
}

/// Returns the processors and the class of the calling thread.
///
/// # Errors
/// A system call failed.
pub fn granted() -> Result<CpuGrant, HostError> {
    let class = class_of(THIS)
        .map_err(|error| HostError::io("read the scheduling class of", "this thread", error))?;
    Ok(CpuGrant { cpus: affinity(THIS)?, class })
}

/// Returns the class of another thread.
///
/// # Errors
/// There is no such thread (ESRCH), or the system call failed.
pub fn class_of_thread(thread: Identity) -> Result<SchedulingClass, HostError> {
    let class = pid_of(thread).and_then(class_of);
    class.map_err(|error| of_thread("read the scheduling class of", thread, error))
}

/// Gives another thread a class. Its identity is compared first, so that a later thread with the
/// same id is left alone.
///
/// # Errors
/// The thread does not exist any more (ESRCH), or the kernel refused: EBUSY if a deadline budget
/// does not fit beside the others, EPERM without the right or for a pinned thread. The thread keeps
/// its class then.
pub fn set_class_of_thread(thread: Identity, class: SchedulingClass) -> io::Result<()> {
    let thread = pid_of(thread)?;
    match class {
        SchedulingClass::Deadline { .. } => set_class(thread, class),
        _ => change_class(thread, class_of(thread)?, class, flags_of(class)),
    }
}

/// Takes deadline and real-time priority from a thread; its earlier nice value applies again. Does
/// nothing if the thread is gone or has neither.
///
/// # Errors
/// The kernel refused it.
pub(crate) fn make_ordinary(thread: Identity) -> Result<(), HostError> {
    let Ok(pid) = pid_of(thread) else { return Ok(()) };
    let before = match class_of(pid) {
        Ok(SchedulingClass::Normal { .. } | SchedulingClass::Batch) | Err(_) => return Ok(()),
        Ok(before) => before,
    };
    let nice = Stat::of(thread.pid).map_or(0, |stat| stat.nice);
    // Its own children inherit its nice value, as they did before.
    match change_class(pid, before, SchedulingClass::Normal { nice }, NO_FLAGS) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(of_thread("make ordinary", thread, error))
        }
        _ => Ok(()),
    }
}

/// Takes the deadline budgets from all threads of a process; does nothing if it is gone. A thread
/// with another real-time class keeps it, since the process itself has asked for that.
///
/// # Errors
/// The kernel refused it.
pub(crate) fn make_process_ordinary(process: Identity) -> Result<(), HostError> {
    for thread in process::threads_of(process) {
        if matches!(class_of_thread(thread), Ok(SchedulingClass::Deadline { .. })) {
            make_ordinary(thread)?;
        }
    }
    Ok(())
}

fn of_thread(action: &'static str, thread: Identity, error: io::Error) -> HostError {
    HostError::io(action, format!("thread {}", thread.pid), error)
}

fn pid_of(thread: Identity) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(thread.pid) {
        Ok(pid) if thread.is_alive() => Ok(pid),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn class_of(thread: libc::pid_t) -> io::Result<SchedulingClass> {
    let mut attr = Attr::default();
    // SAFETY: sched_getattr writes at most the given size to the structure of that size.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attr, ATTR_BYTES, 0) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match attr.policy {
        SCHED_BATCH if attr.nice == 0 => SchedulingClass::Batch,
        SCHED_FIFO | SCHED_RR => SchedulingClass::Fifo { priority: attr.priority },
        SCHED_DEADLINE => SchedulingClass::Deadline {
            runtime: Nanos::new(attr.runtime_ns),
            deadline: Nanos::new(attr.deadline_ns),
            period: Nanos::new(attr.period_ns),
        },
        _ => SchedulingClass::Normal { nice: attr.nice },
    })
}

/// Returns the division of the processors that the process may use. If they cannot be read, it has
/// only the first one.
#[must_use]
pub fn division() -> CpuDivision {
    divide(of_process())
}

/// Returns the number of processors that the process may use, at least 1.
#[must_use]
pub fn count() -> u32 {
    u32::try_from(of_process().len()).unwrap_or(u32::MAX).max(1)
}

/// Returns true if the machine has this processor, even if it is offline.
#[must_use]
pub fn exists(cpu: u32) -> bool {
    Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists()
}

/// Returns the processors that a thread may use, in order; `None`: it is gone.
#[must_use]
pub fn processors_of(thread: Identity) -> Option<Vec<u32>> {
    let cpus = affinity(libc::pid_t::try_from(thread.pid).ok()?).ok()?;
    // Checked last: if the thread is still alive now, its number was not another thread's.
    thread.is_alive().then_some(cpus)
}

/// Returns the processors of the process's first thread, which takes no [`CpuReservation`]; the
/// calling thread may be bound to one processor. Empty if they cannot be read.
#[must_use]
pub fn of_process() -> Vec<u32> {
    let first = libc::pid_t::try_from(std::process::id());
    first.ok().and_then(|thread| affinity(thread).ok()).unwrap_or_default()
}

fn divide(mut cpus: Vec<u32>) -> CpuDivision {
    cpus.sort_unstable();
    let worker = cpus.pop().unwrap_or(0);
    let others = if cpus.is_empty() { vec![worker] } else { cpus };
    CpuDivision { worker, others }
}

fn set(request: CpuRequest) -> Result<(), HostError> {
    if let Some(cpu) = request.cpu {
        set_affinity(&[cpu]).map_err(|error| {
            HostError::Refused(format!("processor {cpu}: this thread cannot be pinned: {error}"))
        })?;
    }
    set_class(THIS, request.class).map_err(|error| {
        let pinned =
            matches!((request.cpu, request.class), (Some(_), SchedulingClass::Deadline { .. }));
        let hint = if pinned { " (a pinned thread needs a cpuset of its own)" } else { "" };
        HostError::Refused(format!("{}: not granted: {error}{hint}", text(request.class)))
    })
}

/// Restores class and processors, the class first: the kernel does not change the affinity of a
/// deadline thread.
fn restore(before: &CpuGrant) {
    // The kernel has no reason to refuse the thread's earlier class. If it does, the thread keeps
    // its reservation, which is no worse.
    let _ = set_class(THIS, before.class);
    let _ = set_affinity(&before.cpus);
}

/// Changes the class of a thread that may be asleep, and works around a leak of the kernel. When a
/// sleeping thread loses its deadline class, its budget is never freed (`switched_from_dl` of 6.18
/// frees it only for a queued thread), so that in the end no budget is granted any more. The budget
/// is therefore first made so small that the kernel counts it as none. Between the two calls the
/// thread hardly runs.
fn change_class(
    thread: libc::pid_t,
    before: SchedulingClass,
    class: SchedulingClass,
    flags: u64,
) -> io::Result<()> {
    if !matches!(before, SchedulingClass::Deadline { .. }) {
        return set_class_flagged(thread, class, flags);
    }
    // If the kernel refuses that, for example because its longest period is set lower, the class is
    // changed nevertheless: a leaked budget is better than a thread that stays capped.
    let _ = set_class(thread, LEAST_BUDGET);
    set_class_flagged(thread, class, flags).inspect_err(|_| {
        // The class has not changed. Set the old budget again; it is free unless another thread
        // has just taken it.
        let _ = set_class(thread, before);
    })
}

/// The shortest runtime (`1 << DL_SCALE`) in nearly the longest period
/// (`kernel.sched_deadline_period_max_us`, 4.19 s): less than the kernel's unit, 1 / 2^20.
const LEAST_BUDGET: SchedulingClass = SchedulingClass::Deadline {
    runtime: Nanos::new(LEAST_NS),
    deadline: Nanos::new(LONGEST_NS),
    period: Nanos::new(LONGEST_NS),
};
const LEAST_NS: u64 = 1024;
const LONGEST_NS: u64 = 4_000_000_000;
const _: () = assert!((LEAST_NS << 20) / LONGEST_NS == 0, "the kernel would count it");

fn set_class(thread: libc::pid_t, class: SchedulingClass) -> io::Result<()> {
    set_class_flagged(thread, class, flags_of(class))
}

/// Returns the flags by which the children of a thread with a privileged class do not inherit it.
const fn flags_of(class: SchedulingClass) -> u64 {
    match class {
        SchedulingClass::Normal { nice } if nice >= 0 => NO_FLAGS,
        SchedulingClass::Batch => NO_FLAGS,
        SchedulingClass::Normal { .. }
        | SchedulingClass::Fifo { .. }
        | SchedulingClass::Deadline { .. } => SCHED_FLAG_RESET_ON_FORK,
    }
}

fn set_class_flagged(thread: libc::pid_t, class: SchedulingClass, flags: u64) -> io::Result<()> {
    let mut attr = Attr { size: ATTR_BYTES, flags, ..Attr::default() };
    match class {
        SchedulingClass::Normal { nice } => attr.nice = nice,
        SchedulingClass::Batch => attr.policy = SCHED_BATCH,
        SchedulingClass::Fifo { priority } => {
            attr.policy = SCHED_FIFO;
            attr.priority = priority;
        }
        SchedulingClass::Deadline { runtime, deadline, period } => {
            attr.policy = SCHED_DEADLINE;
            attr.runtime_ns = runtime.as_nanos();
            attr.deadline_ns = deadline.as_nanos();
            attr.period_ns = period.as_nanos();
        }
    }
    // SAFETY: sched_setattr reads the structure, whose size is its first field.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw mut attr, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn affinity(thread: libc::pid_t) -> Result<Vec<u32>, HostError> {
    let mut words = [0_u64; AFFINITY_WORDS];
    // SAFETY: the kernel writes at most as many bytes as the array has; the rest stays zero.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&words), words.as_mut_ptr())
    };
    if answer < 0 {
        return Err(HostError::last_os("read the processors of", "a thread"));
    }
    let cpus = (0_u32..).zip(words.iter().flat_map(|word| (0..64).map(move |bit| word >> bit & 1)));
    Ok(cpus.filter(|(_, bit)| *bit == 1).map(|(cpu, _)| cpu).collect())
}

fn set_affinity(cpus: &[u32]) -> io::Result<()> {
    let mut words = [0_u64; AFFINITY_WORDS];
    for cpu in cpus {
        let word = usize::try_from(cpu / 64).ok().and_then(|index| words.get_mut(index));
        *word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))? |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads as many bytes as the array has.
    let answer = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&words), words.as_ptr())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn text(class: SchedulingClass) -> String {
    match class {
        SchedulingClass::Normal { nice } => format!("nice {nice}"),
        SchedulingClass::Batch => "SCHED_BATCH".to_owned(),
        SchedulingClass::Fifo { priority } => format!("SCHED_FIFO {priority}"),
        SchedulingClass::Deadline { runtime, deadline, period } => {
            format!("SCHED_DEADLINE runtime {runtime} deadline {deadline} period {period}")
        }
    }
}

impl Serialize for CpuGrant {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cpus: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
        serializer.serialize_str(&format!("{} on {}", text(self.class), cpus.join(",")))
    }
}

/// `struct sched_attr` of linux/sched/types.h, first version.
#[repr(C)]
#[derive(Default)]
struct Attr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The id of the calling thread in the scheduler's system calls.
const THIS: libc::pid_t = 0;
const ATTR_BYTES: u32 = 48;
const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);
const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_BATCH: u32 = 3;
const SCHED_DEADLINE: u32 = 6;
/// Children get an ordinary class. Without it a deadline thread could not start a thread or a
/// command.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;
const NO_FLAGS: u64 = 0;
/// 8192 processors, the most that Linux is built for.
const AFFINITY_WORDS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;

    fn skipped(test: &str) {
        println!("SKIPPED {test}: needs root");
    }

    /// A container's processors need not be the first ones, nor consecutive.
    #[test]
    fn the_worker_has_the_last_of_the_processors_that_are_ours() {
        let division = |cpus: &[u32]| {
            let CpuDivision { worker, others } = divide(cpus.to_vec());
            (worker, others)
        };
        assert_eq!(division(&[2, 7, 3]), (7, vec![2, 3]));
        assert_eq!(division(&[5]), (5, vec![5]));
        assert_eq!(division(&[]), (0, vec![0]));
        let own = granted().unwrap().cpus;
        assert!(own.contains(&super::division().worker));
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_put_and_is_free_afterwards() {
        let before = granted().unwrap();
        let cpu = *before.cpus.last().unwrap();
        let pinned = CpuRequest { cpu: Some(cpu), class: SchedulingClass::Normal { nice: 5 } };
        let batch =
            CpuReservation::take(CpuRequest { cpu: None, class: SchedulingClass::Batch }).unwrap();
        assert_eq!(batch.granted().class, SchedulingClass::Batch);
        drop(batch);
        assert_eq!(granted().unwrap(), before);
        if let Ok(taken) = CpuReservation::take(pinned) {
            assert_eq!(taken.granted().cpus, [cpu]);
            assert_eq!(taken.granted().class, SchedulingClass::Normal { nice: 5 });
            drop(taken);
        }
        if is_root() {
            assert_eq!(granted().unwrap(), before);
        } else {
            skipped(
                "a_pinned_thread_runs_where_it_was_put_and_is_free_afterwards (nice given back)",
            );
        }
    }

    #[test]
    fn the_processors_of_a_thread_are_those_that_it_may_use() {
        let cpu = super::division().worker;
        let bound = thread::spawn(move || {
            let _cpu =
                CpuReservation::take(CpuRequest { cpu: Some(cpu), class: SchedulingClass::Batch });
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let number = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            processors_of(Identity::of(number).unwrap())
        });
        assert_eq!(bound.join().unwrap(), Some(vec![cpu]));
        let own = Identity::own().unwrap();
        assert_eq!(processors_of(Identity { start_ticks: own.start_ticks + 1, ..own }), None);
        assert!(super::exists(super::division().worker) && !super::exists(8191));
    }

    #[test]
    fn a_pinned_thread_divides_the_processors_of_its_process() {
        let before = (super::division(), super::count());
        let cpu = Some(before.0.worker);
        std::thread::spawn(move || {
            let normal = SchedulingClass::Normal { nice: 0 };
            let _pinned = CpuReservation::take(CpuRequest { cpu, class: normal }).unwrap();
            assert_eq!((super::division(), super::count()), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_processor_that_is_none_is_refused_by_number() {
        let before = granted().unwrap();
        let request = CpuRequest { cpu: Some(100_000), class: SchedulingClass::Normal { nice: 0 } };
        let error = CpuReservation::take(request).unwrap_err().to_string();
        assert!(error.starts_with("processor 100000: "), "{error}");
        assert_eq!(granted().unwrap(), before);
    }

    #[test]
    fn real_time_classes_are_read_back_and_impossible_ones_refused() {
        if !is_root() {
            skipped("real_time_classes_are_read_back_and_impossible_ones_refused");
            return;
        }
        let request = |class| CpuRequest { cpu: None, class };
        let fifo = SchedulingClass::Fifo { priority: 10 };
        assert_eq!(probe(request(fifo)).unwrap().class, fifo);
        let [runtime, deadline, period] = [1, 10, 10].map(Nanos::from_millis);
        let deadline_class = SchedulingClass::Deadline { runtime, deadline, period };
        assert_eq!(probe(request(deadline_class)).unwrap().class, deadline_class);
        let inverted = SchedulingClass::Deadline { runtime: period, deadline: runtime, period };
        let error = probe(request(inverted)).unwrap_err().to_string();
        assert!(error.starts_with("SCHED_DEADLINE runtime 10ms deadline 1ms"), "{error}");
    }

    /// Goal: the budget of a sleeping thread is free again after its class is taken away. A kernel
    /// that leaks budgets has none left after some twenty of them for each processor.
    #[test]
    fn a_budget_that_was_taken_away_is_free_again() {
        const TEST: &str = "a_budget_that_was_taken_away_is_free_again";
        let [runtime, period] = [2, 20].map(Nanos::from_millis);
        let class = SchedulingClass::Deadline { runtime, deadline: period, period };
        if !is_root() {
            return skipped(TEST);
        }
        if let Err(error) = probe(CpuRequest { cpu: None, class }) {
            return println!("SKIPPED {TEST}: {error}");
        }
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let thread = Identity::of(sleeper.id());
        let budgets = 40 * thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // The loop ends with the first budget that is not granted.
        let given = (0..budgets).try_for_each(|_| {
            let thread = thread.ok_or(io::ErrorKind::NotFound)?;
            // The thread sleeps with its budget until after the kernel would have freed it.
            set_class_of_thread(thread, class)?;
            thread::sleep(std::time::Duration::from_millis(2));
            make_ordinary(thread).map_err(io::Error::other)
        });
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        given.unwrap();
    }

    #[test]
    fn a_thread_with_a_reservation_starts_ordinary_children() {
        if !is_root() {
            skipped("a_thread_with_a_reservation_starts_ordinary_children");
            return;
        }
        let child = thread::spawn(|| {
            let fifo = CpuRequest { cpu: None, class: SchedulingClass::Fifo { priority: 1 } };
            let _taken = CpuReservation::take(fifo).unwrap();
            thread::spawn(|| granted().unwrap().class).join().unwrap()
        });
        assert_eq!(child.join().unwrap(), SchedulingClass::Normal { nice: 0 });
    }
}
