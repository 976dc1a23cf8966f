// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwards everything between two devices over AF_XDP and says how much: the cost of the ports
//! alone. `forward IN OUT SECONDS [MAC]`; with a destination address its frames take the redirected
//! path, through six buckets.

use std::io;
use std::process::ExitCode;

use weir_ports::{
    BucketLimit, DeviceRole, FramePort, GateId, PlaneLimits, Pool, PortError, Redirect, Route,
    XdpConfig, XdpPlane, XdpPort, now,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos, PacketRate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(input), Some(output)) = (arguments.first(), arguments.get(1)) else {
        eprintln!("usage: forward IN OUT [SECONDS [MAC]]");
        return ExitCode::from(2);
    };
    let seconds = arguments.get(2).and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    match forward(input, output, seconds, arguments.get(3).map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn forward(
    input: &str,
    output: &str,
    seconds: u64,
    mac: Option<&str>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut pool = Pool::new(16_384, 2048)?;
    let limits = PlaneLimits { gates: 2, devices: 2, sockets: 64, stations: 1 };
    let mut plane = XdpPlane::load(limits)?;
    let open = |device: &str, gate, plane: &mut XdpPlane, pool: &mut Pool| {
        let config = XdpConfig::sized(device, DeviceRole::Vif(gate), 1024, 2048);
        XdpPort::open(&config, plane, pool)
    };
    let mut from = open(input, GateId(0), &mut plane, &mut pool)?;
    let mut to = open(output, GateId(1), &mut plane, &mut pool)?;
    if let Some(mac) = mac {
        redirect(&mut plane, to.device_index(), mac)?;
    }
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
            let redirected = plane.redirect_counters(GateId(0)).redirected.packets;
            let sum = to.statistics().transmitted.packets + redirected;
            let early = plane.gates().counters(GateId(0)).dropped.packets;
            println!("{:.3} Mpps forwarded, {early} dropped early", rate(sum - before));
            before = sum;
            second += Nanos::from_secs(1);
        }
    }
    println!("{:?}\n{:?}", from.statistics(), to.statistics());
    Ok(())
}

/// Frames for that address leave by the bridge's port without user space, far below their limits.
fn redirect(plane: &mut XdpPlane, bridge: u32, mac: &str) -> Result<(), PortError> {
    let mut address = [0; 6];
    for (place, text) in address.iter_mut().zip(mac.split(':')) {
        *place = u8::from_str_radix(text, 16).unwrap_or(0);
    }
    let packets = BucketLimit::Packets { rate: PacketRate::from_pps(1 << 30), burst: 1 << 20 };
    let rate = BitRate::from_mbps(1_000_000);
    let bits = BucketLimit::Bits { rate, burst: ByteCount::new(1 << 30) };
    let mut buckets = [None; 6];
    for (place, limit) in buckets.iter_mut().zip([packets, bits].into_iter().cycle()) {
        *place = Some(plane.new_bucket(limit)?);
    }
    let route = Route::Remote { device: bridge, slice: 0 };
    plane.set_route(bridge, 0, address, route)?;
    let path = Redirect { bridge, buckets, ..Redirect::default() };
    plane.set_redirect(GateId(0), Some(&path))
}

#[allow(clippy::cast_precision_loss)]
fn rate(packets: u64) -> f64 {
    packets as f64 / 1e6
}
