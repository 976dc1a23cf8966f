// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node's own switch between ports in memory, in virtual time: exact, on any machine.

use weir_policy::{Direction, Policy, VifId};
use weir_ports::{Pool, PortError};
use weir_switch::{Frame, FramePool, IfaceId, Switch, Transmit};
use weir_units::Instant;

use crate::ExperimentError;
use crate::star::StarTopology;

/// A vif that offers frames of one length at one pace.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The vif.
    pub vif: VifId,
    /// Bytes a frame, at least 60.
    pub frame_bytes: u16,
    /// Bits a second of these bytes.
    pub rate_bps: u64,
    /// Waits when its queue is full, as a guest's ring does, instead of losing the frame.
    waits: bool,
    offered: u64,
    held_back: bool,
}

/// A frame that left by the port.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// When, ns.
    pub at_ns: u64,
    /// Its source, by position.
    pub source: usize,
    /// When it was offered, ns.
    pub offered_ns: u64,
    /// Its length.
    pub bytes: u64,
}

/// The switch, its frames, its time.
#[derive(Debug)]
pub struct InMemory {
    /// The switch.
    pub switch: Switch,
    pool: Pool,
    now: Instant,
}

impl Source {
    /// A source whose frames are dropped when its queue is full.
    pub const fn new(vif: VifId, frame_bytes: u16, rate_bps: u64) -> Self {
        Self { vif, frame_bytes, rate_bps, waits: false, offered: 0, held_back: false }
    }

    /// The same source, but one that waits when its queue is full.
    pub const fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    /// When the next frame is offered. Exact: no error gathers.
    fn due(&self) -> Instant {
        if self.held_back {
            return Instant::FAR_FUTURE;
        }
        let bits = u128::from(self.offered) * u128::from(self.frame_bytes) * 8;
        let nanos = bits * 1_000_000_000 / u128::from(self.rate_bps.max(1));
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl InMemory {
    /// A switch for `policy`, whose port leads to the wire of a [`StarTopology`].
    pub fn new(policy: &Policy) -> Result<Self, ExperimentError> {
        let switch = Switch::new(policy, Instant::ZERO)
            .map_err(|error| ExperimentError::Node(error.to_string()))?;
        let pool = Pool::new(policy.node.frames, policy.node.frame_size.bytes())?;
        let mut made = Self { switch, pool, now: Instant::ZERO };
        // The switch learns where the wire's end is.
        let mut hello = [0; 60];
        hello[..6].copy_from_slice(&StarTopology::mac(0).0);
        hello[6..12].copy_from_slice(&StarTopology::wire_mac().0);
        let frame = made.pool.copy_in(&hello).ok_or_else(no_frame)?;
        made.switch.receive(made.now, PORT, frame, &mut made.pool);
        made.drain();
        Ok(made)
    }

    /// The switch and its frames, for a caller with a loop of its own.
    pub fn into_parts(self) -> (Switch, Pool) {
        (self.switch, self.pool)
    }

    /// Lets the sources offer until `end_ns`, taking each frame at the instant it may leave.
    pub fn run(
        &mut self,
        sources: &mut [Source],
        end_ns: u64,
    ) -> Result<Vec<Departure>, ExperimentError> {
        let mut departures = Vec::new();
        loop {
            let offered = sources.iter().map(Source::due).min().unwrap_or(Instant::FAR_FUTURE);
            let event = self.switch.next_event().unwrap_or(Instant::FAR_FUTURE);
            self.now = offered.min(event).max(self.now);
            if self.now.as_nanos() >= end_ns {
                return Ok(departures);
            }
            for (index, source) in sources.iter_mut().enumerate() {
                source.held_back = false;
                while source.due() <= self.now {
                    self.offer(index, source)?;
                }
            }
            while let Transmit::Frame(frame) = self.switch.transmit(self.now, PORT, &mut self.pool)
            {
                departures.push(self.departure(frame));
                self.pool.free(frame.id);
            }
        }
    }

    fn offer(&mut self, index: usize, source: &mut Source) -> Result<(), ExperimentError> {
        if source.waits && self.switch.credit(self.now, source.vif, Direction::Send) == 0 {
            source.held_back = true;
            return Ok(());
        }
        source.offered += 1;
        let frame = self.pool.frame(source.frame_bytes).ok_or_else(no_frame)?;
        let bytes = self.pool.data(frame);
        bytes[..6].copy_from_slice(&StarTopology::wire_mac().0);
        bytes[6..12].copy_from_slice(&StarTopology::mac(source.vif.0 as usize).0);
        bytes[12..14].copy_from_slice(&EXPERIMENTAL);
        bytes[14..22].copy_from_slice(&(index as u64).to_be_bytes());
        bytes[22..30].copy_from_slice(&self.now.as_nanos().to_be_bytes());
        let iface = self.switch.vif_iface(source.vif);
        self.switch.receive(self.now, iface, frame, &mut self.pool);
        Ok(())
    }

    fn departure(&mut self, frame: Frame) -> Departure {
        let at_ns = self.now.as_nanos();
        let bytes = self.pool.data(frame);
        let number = |at: usize| bytes[at..at + 8].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let source = usize::try_from(number(14)).unwrap_or(usize::MAX);
        Departure { at_ns, source, offered_ns: number(22), bytes: u64::from(frame.len) }
    }

    /// Frees what waits at the vifs.
    fn drain(&mut self) {
        self.switch.advance(self.now, &mut self.pool);
        while let Some(iface) = self.switch.next_ready(IfaceId(0)) {
            if let Transmit::Frame(frame) = self.switch.transmit(self.now, iface, &mut self.pool) {
                self.pool.free(frame.id);
            }
        }
    }
}

/// Bits of one source in each whole second.
pub fn bits_each_second(departures: &[Departure], source: usize, seconds: usize) -> Vec<f64> {
    let mut bits = vec![0.0; seconds];
    for departure in departures.iter().filter(|departure| departure.source == source) {
        let second = usize::try_from(departure.at_ns / 1_000_000_000).unwrap_or(usize::MAX);
        if let Some(sum) = bits.get_mut(second) {
            *sum += crate::float(departure.bytes * 8);
        }
    }
    bits
}

fn no_frame() -> ExperimentError {
    ExperimentError::Port(PortError::bound("pool", "it has fewer frames than its queues may hold"))
}

/// The port is the first interface.
const PORT: IfaceId = IfaceId(0);

/// Local experimental EtherType (IEEE 802).
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
