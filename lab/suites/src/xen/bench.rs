// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests under load, with a meter and a cap each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weir_control::control_loop::{ControlLoop, LoopConfig, Sampler, SamplerConfig};
use weir_control::{Controller, Meter, MeterError, Reading, Sample};
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::StateDir;
use weir_platform::cap::{XlCap, check_period};
use weir_platform::journal::{self, Journal};
use weir_platform::meter::{LinkMeter, Side};
use weir_units::{CpuShare, Instant};

use super::discover::XenHost;
use super::load::{self, SentPackets};
use super::spec::{GuestLoad, XenSpec, refused};

/// Guests under load.
pub(super) struct GuestBench<'a> {
    pub(super) xen: &'a XenHost,
    pub(super) guests: Vec<XenGuest<'a>>,
    links: LinkMeter,
    /// The time of the next reading.
    due_ns: u64,
}

/// The control loop of a guest, by its cap alone.
pub(super) type GuestLoop = ControlLoop<GuestMeter, Box<dyn Controller + Send>, XlCap>;

/// A guest and its control loop.
pub(super) struct XenGuest<'a> {
    pub(super) name: &'a str,
    pub(super) control: GuestLoop,
    /// The guest's place in the meter of links.
    place: usize,
    sent: &'a SentPackets,
    /// Makes samples when no controller decides.
    sampler: Sampler,
}

/// The meter of a guest: the reading that the bench took of all guests in this period.
pub(super) struct GuestMeter(Option<Reading>);

impl Meter for GuestMeter {
    fn read(&mut self, _: Instant) -> Result<Reading, MeterError> {
        let why = || "its devices are gone".to_owned();
        self.0.ok_or_else(|| MeterError::Unreadable { why: why(), router_answers: false })
    }
}

impl XenGuest<'_> {
    /// Replaces the loop by a new one, without a controller and with an empty log.
    pub(super) fn renew(&mut self) -> Result<(), ExperimentError> {
        let detached = || refused(format!("guest {}: its loop has no actuator", self.name));
        let (meter, actuator) = self.control.detach().ok_or_else(detached)?;
        self.control = ControlLoop::new(CONFIG);
        self.control.attach(now(), meter, actuator);
        Ok(())
    }

    /// Has the loop decide by the reading at `now`. Errors are in the loop's log.
    pub(super) fn step(&mut self, now: Instant, reading: Option<Reading>) {
        if let Some(meter) = self.control.meter_mut() {
            meter.0 = reading;
        }
        let _logged = self.control.sample(now);
        let _logged = self.execute();
    }

    /// Executes what is pending in the loop.
    pub(super) fn execute(&mut self) -> Result<(), ExperimentError> {
        let no_limit = |_| Err("nothing limits what enters a guest");
        self.control.execute(now(), no_limit).map(drop).map_err(refused)
    }
}

impl<'a> GuestBench<'a> {
    /// Runs `body` while packets are offered to all guests; then everything is as it was.
    pub(super) fn with(
        xen: &XenHost,
        spec: &XenSpec,
        body: impl FnOnce(&mut GuestBench<'_>) -> Result<(), ExperimentError>,
    ) -> Result<(), ExperimentError> {
        weir_traffic::stop_on_signals()?;
        let (mut journal, _stale) =
            journal::open_clean(&StateDir::from_env(), JOURNAL, Duration::ZERO)?;
        let sent: Vec<SentPackets> = spec.loads.iter().map(|_| SentPackets::default()).collect();
        let stop = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            let send = |(load, sent)| {
                let (load, stop): (&GuestLoad, _) = (load, &stop);
                scope.spawn(move || load::send(load.to, sent, stop))
            };
            let senders: Vec<_> = spec.loads.iter().zip(&sent).map(send).collect();
            let outcome = GuestBench::new(xen, &sent, &mut journal).and_then(|mut bench| {
                let done = body(&mut bench);
                let released = bench.release();
                done.and(released)
            });
            stop.store(true, Ordering::Relaxed);
            let ended: Result<Vec<()>, ExperimentError> = senders
                .into_iter()
                .map(|sender| sender.join().unwrap_or_else(|_| Err(refused("a sender panicked"))))
                .collect();
            outcome.and_then(|()| ended.map(drop))
        });
        let report = journal.undo_all(&*xen.on)?;
        outcome?;
        match report.failed.first() {
            None => Ok(()),
            Some(first) => Err(refused(format!("not undone: {first}"))),
        }
    }

    fn new(
        xen: &'a XenHost,
        sent: &'a [SentPackets],
        journal: &mut Journal,
    ) -> Result<Self, ExperimentError> {
        let mut links = LinkMeter::open()?;
        let mut guests = Vec::new();
        for (guest, sent) in xen.guests.iter().zip(sent) {
            let devices: Vec<_> = guest.vifs.iter().map(|vif| (vif.clone(), Side::Host)).collect();
            let place = links.add(&devices)?;
            let cap = XlCap::new(Arc::clone(&xen.on), journal, &guest.name)?;
            check_period(&cap, PERIOD).map_err(refused)?;
            let mut control = GuestLoop::new(CONFIG);
            control.attach(now(), GuestMeter(None), cap);
            let sampler = Sampler::new(CONFIG.sampler);
            guests.push(XenGuest { name: &guest.name, control, place, sent, sampler });
        }
        Ok(Self { xen, guests, links, due_ns: 0 })
    }

    /// Makes the next reading due now, instead of a period after the last one.
    pub(super) fn restart(&mut self) {
        self.due_ns = clock::monotonic_ns();
    }

    /// Waits until a period has passed since the last time, and reads the counters of all guests.
    pub(super) fn read(&mut self) -> Result<(Instant, Vec<Option<Reading>>), ExperimentError> {
        clock::sleep_until(self.due_ns)?;
        let now = now();
        self.due_ns = now.as_nanos().saturating_add(PERIOD.as_nanos());
        self.links.read(now)?;
        let reading = |guest: &XenGuest<'_>| {
            let reading = self.links.reading(guest.place)?;
            // Packets dropped before the device are missing from the device's counters.
            Some(Reading { offered: Some(guest.sent.packets()), ..reading })
        };
        Ok((now, self.guests.iter().map(reading).collect()))
    }

    /// Takes that many samples of each guest, one after the other, from now on.
    pub(super) fn samples(&mut self, count: usize) -> Result<Vec<Vec<Sample>>, ExperimentError> {
        let mut samples = vec![Vec::new(); self.guests.len()];
        self.guests.iter_mut().for_each(|guest| guest.sampler.forget());
        self.restart();
        for turn in 0..=count {
            let (now, readings) = self.read()?;
            for ((guest, reading), seen) in self.guests.iter_mut().zip(readings).zip(&mut samples) {
                let name = guest.name;
                let gone = || refused(format!("guest {name}: its devices are gone"));
                match guest.sampler.sample(now, reading.ok_or_else(gone)?) {
                    Ok(sample) => seen.push(sample),
                    Err(_) if turn == 0 => {}
                    Err(fault) => return Err(refused(format!("guest {name}: {fault}"))),
                }
            }
        }
        Ok(samples)
    }

    /// Sets the cap of each guest.
    pub(super) fn cap(&mut self, caps: &[CpuShare]) -> Result<(), ExperimentError> {
        self.guests.iter_mut().zip(caps).try_for_each(|(guest, cap)| {
            guest.control.set_manually(*cap);
            guest.execute()
        })
    }

    /// Takes the cap of each guest away.
    pub(super) fn release(&mut self) -> Result<(), ExperimentError> {
        let release = |guest: &mut XenGuest<'_>| {
            guest.control.deactivate(now());
            guest.execute()
        };
        // Release all guests, whichever fails.
        let released: Vec<Result<(), ExperimentError>> =
            self.guests.iter_mut().map(release).collect();
        released.into_iter().collect()
    }
}

pub(super) fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_ns())
}

/// The text's period (§6).
pub(super) const PERIOD: Nanos = Nanos::from_secs(1);

/// An emulated processor forwards far less than the bound.
const CONFIG: LoopConfig = LoopConfig {
    sampler: SamplerConfig { period: PERIOD, rate_most: PacketRate::from_pps(1_000_000) },
    release_after: Nanos::from_secs(10),
    log: 1000,
    dry_run: false,
};

const JOURNAL: &str = "xen";
