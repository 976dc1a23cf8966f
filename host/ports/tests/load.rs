// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loading the data-plane program while signals arrive.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::private_network;
use libbpf_rs::query::ProgInfoIter;
use weir_ports::{PlaneLimits, XdpPlane};

/// Goal: no load fails, however many signals come. The kernel gives up a verification, which takes
/// some ten milliseconds, when a signal is pending; here one is sent to the loading thread every
/// 0.2 ms. `WEIR_LOADS` is the count of loads, 25 by default and 1000 for the acceptance row.
#[test]
fn loading_succeeds_while_signals_arrive() {
    const TEST: &str = "loading_succeeds_while_signals_arrive";
    if !private_network(TEST) {
        return;
    }
    let loads = std::env::var("WEIR_LOADS").map_or(25, |count| count.parse().unwrap());
    count_signals();
    let limits = PlaneLimits { gates: 8, devices: 4, sockets: 4, stations: 16 };
    // SAFETY: no arguments; the thread is this one, which outlives the scope below.
    let loader = unsafe { libc::pthread_self() };
    let done = AtomicBool::new(false);
    let failures: Vec<String> = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the loading thread waits for this one, so that its handle is valid.
                unsafe { libc::pthread_kill(loader, libc::SIGUSR2) };
                thread::sleep(Duration::from_micros(200));
            }
        });
        let failures = (0..loads).filter_map(|_| XdpPlane::load(limits).err());
        let failures = failures.map(|error| error.to_string()).collect();
        done.store(true, Ordering::Relaxed);
        failures
    });
    assert!(failures.is_empty(), "{} of {loads} failed: {failures:?}", failures.len());
    // Signals that are pending at the same time are delivered as one.
    let delivered = DELIVERED.load(Ordering::Relaxed);
    assert!(delivered >= loads, "{delivered} signals were delivered during {loads} loads");
    println!("{loads} loads, {delivered} signals delivered");
}

/// Goal: the verifier walks a tenth of what it allows at most. Kernels differ in what they walk,
/// and refuse a program above a million instructions; the walk is most of a node's start.
#[test]
fn the_verifier_is_far_from_its_limit() {
    const TEST: &str = "the_verifier_is_far_from_its_limit";
    if !private_network(TEST) {
        return;
    }
    let before: Vec<u32> = ProgInfoIter::default().map(|info| info.id).collect();
    let _plane =
        XdpPlane::load(PlaneLimits { gates: 8, devices: 4, sockets: 4, stations: 16 }).unwrap();
    for name in ["weir_xdp", "weir_stand_in"] {
        let walked: Vec<u32> = ProgInfoIter::default()
            .filter(|info| !before.contains(&info.id) && info.name.to_str() == Some(name))
            .map(|info| info.verified_insns)
            .collect();
        assert!(!walked.is_empty(), "{name} is not loaded");
        assert!(walked.iter().all(|walked| *walked <= 100_000), "{name}: {walked:?} instructions");
    }
}

/// Counts deliveries of SIGUSR2; system calls that it interrupts are not restarted.
fn count_signals() {
    extern "C" fn count(_signal: libc::c_int) {
        DELIVERED.fetch_add(1, Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: zero is a value of the struct, which lives until the call returns; the handler adds
    // to an atomic number, which is safe in a signal.
    let set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}

static DELIVERED: AtomicU64 = AtomicU64::new(0);
