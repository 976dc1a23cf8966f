// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwards everything between two devices over AF_XDP and says how much: the cost of the ports
//! alone. `forward IN OUT SECONDS`.

use std::io;
use std::process::ExitCode;

use weir_ports::{DataPlane, GateId, PlaneLimits, Pool, Port, Role, XdpConfig, XdpPort, now};
use weir_units::{Instant, Nanos};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, seconds] = &arguments[..] else {
        eprintln!("usage: forward IN OUT SECONDS");
        return ExitCode::from(2);
    };
    let seconds = seconds.parse().unwrap_or(5);
    match forward(input, output, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn forward(input: &str, output: &str, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let mut pool = Pool::new(16_384, 2048)?;
    let limits = PlaneLimits { gates: 2, devices: 2, sockets: 64, stations: 1 };
    let mut plane = DataPlane::load(limits)?;
    let open = |device: &str, gate, plane: &mut DataPlane, pool: &mut Pool| {
        let config = XdpConfig { transmit_limit: 2048, ..XdpConfig::new(device, Role::Vif(gate)) };
        XdpPort::open(&config, plane, pool)
    };
    let mut from = open(input, GateId(0), &mut plane, &mut pool)?;
    let mut to = open(output, GateId(1), &mut plane, &mut pool)?;
    plane.gates().grant(GateId(0), 1024);
    let mut frames = Vec::with_capacity(64);
    let mut second: Instant = now() + Nanos::from_secs(1);
    let end = now() + Nanos::from_secs(seconds);
    let mut before = 0;
    while now() < end {
        for _ in 0..64 {
            let room = to.transmit_room(&mut pool);
            from.receive(&mut pool, room, &mut frames);
            plane.gates().grant(GateId(0), 1024);
            for frame in frames.drain(..) {
                to.transmit(&mut pool, frame).map_err(|_| io::Error::other("no room"))?;
            }
            to.flush(&mut pool)?;
        }
        if now() >= second {
            let sum = to.statistics().transmitted.packets;
            let early = plane.gates().counters(GateId(0)).dropped.packets;
            println!("{:.3} Mpps forwarded, {early} dropped early", rate(sum - before));
            before = sum;
            second += Nanos::from_secs(1);
        }
    }
    println!("{:?}\n{:?}", from.statistics(), to.statistics());
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn rate(packets: u64) -> f64 {
    packets as f64 / 1e6
}
