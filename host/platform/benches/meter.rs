// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures reading the counters of 1000 routers of two interfaces each, and the CPU time of each.
//! Row `xtc.10` asks for 10 such passes a second in at most 5 % of one core with everything else;
//! so one pass has at most 5 ms, of which the bound here takes two.
#![allow(clippy::unwrap_used)]

use std::time::Instant as Clock;

use weir_platform::meter::{CpuMeter, CpuSource, LinkMeter, Side};
use weir_platform::netns;
use weir_platform::process::{Identity, is_root};
use weir_platform::run::{Command, Host, Platform};
use weir_units::Instant;

const ROUTERS: usize = 1000;
const PASSES: u64 = 50;

fn main() {
    if !is_root() {
        println!("SKIPPED meter: needs root for a network namespace");
        return;
    }
    netns::in_new(|| {
        let lines: Vec<String> =
            (0..ROUTERS).map(|n| format!("link add a{n} type veth peer name b{n}")).collect();
        let batch = Command::batch("ip", &lines).limit(std::time::Duration::from_secs(120));
        Host::default().run(&batch).unwrap();
        let netlink = series(LinkMeter::open().unwrap());
        report("meter: 2000 interfaces of 1000 routers, netlink", &netlink, Some(0.002));
        let text = series(LinkMeter::open_text().unwrap());
        report("meter: 2000 interfaces of 1000 routers, /proc/net/dev", &text, None);
        let own = CpuSource::Process(Identity::own().unwrap());
        let mut meters: Vec<CpuMeter> = (0..ROUTERS).map(|_| CpuMeter::new([own])).collect();
        let cpu = timed(|_| {
            for meter in &mut meters {
                std::hint::black_box(meter.read().unwrap());
            }
        });
        report("meter: CPU time of 1000 processes", &cpu, None);
    })
    .unwrap();
}

fn series(mut meter: LinkMeter) -> Vec<f64> {
    for n in 0..ROUTERS {
        let name = |end| format!("{end}{n}");
        meter.add(&[(name('a'), Side::Host), (name('b'), Side::Router)]).unwrap();
    }
    meter.read(Instant::ZERO).unwrap();
    timed(|pass| {
        meter.read(Instant::from_nanos(pass * 100_000_000)).unwrap();
        for router in 0..ROUTERS {
            assert!(std::hint::black_box(meter.reading(router)).is_some());
        }
    })
}

fn timed(mut pass: impl FnMut(u64)) -> Vec<f64> {
    (1..=PASSES)
        .map(|number| {
            let started = Clock::now();
            pass(number);
            started.elapsed().as_secs_f64()
        })
        .collect()
}

fn report(name: &str, seconds: &[f64], at_most: Option<f64>) {
    let samples: Vec<String> = seconds.iter().map(|one| format!("{one:.7}")).collect();
    let bound = at_most.map_or_else(String::new, |bound| format!(", \"at_most\": {bound}"));
    let samples = samples.join(", ");
    println!("{{\"series\": \"{name}\", \"unit\": \"s\", \"samples\": [{samples}]{bound}}}");
}
