// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node in simulated time: the worker, the live policy and their files as `weir node run` has
//! them, on ports in memory. The caller is the clock, so that a day takes as long as its packets.
//!
//! Threads, devices and the interface for programs are left out, since they cannot follow a
//! simulated clock. It is not in `weir-sim`, since it runs this crate's files and the worker, and a
//! pure crate cannot depend on them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_platform::StateDir;
use weir_policy::{Edit, Kind, Policy};
use weir_ports::{AnyPort, FramePort, MemoryPort, Pool, Waiter};
use weir_switch::{Frame, FramePool};
use weir_units::{Instant, Nanos};

use crate::changes::PolicyChange;
use crate::control::{ChangeRequest, Refusal, RefusalKind};
use crate::error::NodeError;
use crate::host_state::ready_for;
use crate::live_policy::LivePolicy;
use weir_api_types::status::NodeStatus;
use weir_dataplane::command::Reconfiguration;
use weir_dataplane::device::AttachedDevice;
use weir_dataplane::opener::{self, Opener};
use weir_dataplane::ports::NodePorts;
use weir_dataplane::worker::Worker;

/// A node whose devices are in memory and whose time is an argument.
#[derive(Debug)]
pub struct Rehearsal {
    worker: Worker,
    waiter: Waiter,
    live: LivePolicy,
    config: PathBuf,
    /// The far ends of its devices: ports, then vifs.
    ends: Vec<MemoryPort>,
    batch: Vec<Frame>,
    now: Instant,
}

impl Rehearsal {
    /// Starts the node of the policy file `config`, whose text is `text`, at the time `start`. A
    /// vif of kind `memory` waits while its queue is full. Any other vif is a sender that cannot
    /// wait, as most are: frames that do not fit are dropped and counted.
    ///
    /// # Errors
    /// The text is no sound policy; overlay or record cannot be read; the kernel does not load the
    /// data plane, which is loaded although no device is on it.
    pub fn start(
        text: &str,
        config: &Path,
        state: &StateDir,
        start: Instant,
    ) -> Result<Self, NodeError> {
        let (mut live, _dropped) = LivePolicy::open(text, config, state)?;
        let _note = live.take_over_old_files();
        let policy = Policy::clone(&live.in_force().policy);
        let mut pool = Pool::new(policy.node.frames, policy.node.frame_size.bytes())?;
        let (mut opener, plane) = Opener::new(&policy, &pool, None, &Arc::default())?;
        let (opened, ends) = devices(&policy, &mut opener)?;
        let ports = NodePorts::new(&policy, plane, opened, &mut pool)?;
        let mut worker = Worker::at(start, policy, ports, pool)?;
        let waiter = worker.waiter()?;
        worker.begin(start)?;
        let batch = Vec::with_capacity(RING);
        Ok(Self { worker, waiter, live, config: config.to_owned(), ends, batch, now: start })
    }

    /// Puts a frame on the device of interface `iface`, from outside. Returns true if there was
    /// room.
    pub fn offer(&mut self, iface: usize, bytes: &[u8]) -> bool {
        let Some(end) = self.ends.get_mut(iface) else { return false };
        let pool = self.worker.pool();
        if end.transmit_room(pool) == 0 {
            return false;
        }
        let Some(frame) = pool.copy_in(bytes) else { return false };
        if let Err(refused) = end.transmit(pool, frame) {
            pool.free(refused.id);
            return false;
        }
        // A flush in memory leaves nothing behind and does not fail.
        end.flush(pool).is_ok()
    }

    /// Takes the frames that came out of the device of interface `iface`. Returns their number.
    pub fn take(&mut self, iface: usize) -> u64 {
        let Some(end) = self.ends.get_mut(iface) else { return 0 };
        let (pool, mut taken) = (self.worker.pool(), 0);
        loop {
            self.batch.clear();
            if end.receive(pool, RING, &mut self.batch) == 0 {
                return taken;
            }
            taken += self.batch.len() as u64;
            self.batch.iter().for_each(|frame| pool.free(frame.id));
        }
    }

    /// Has the worker do its turns until `end`, each when it is due.
    pub fn run_until(&mut self, end: Instant) {
        while self.now < end {
            let turn = self.worker.turn(self.now);
            let next = if turn.moved > 0 { self.now + TURN } else { turn.next };
            self.now = next.max(self.now + TURN).min(end);
        }
    }

    /// Makes all of `edits` or none, as a request would.
    ///
    /// # Errors
    /// The edits are refused; nothing has changed then.
    pub fn change(
        &mut self,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
    ) -> Result<PolicyChange, Refusal> {
        let Self { worker, waiter, live, now, .. } = self;
        live.change(request, edits, &mut |policy| apply(worker, waiter, *now, policy))
    }

    /// Undoes a change, as a request would.
    ///
    /// # Errors
    /// There is no such change, or one of its keys was changed since.
    pub fn undo(
        &mut self,
        request: &ChangeRequest<'_>,
        id: Option<u64>,
    ) -> Result<PolicyChange, Refusal> {
        let Self { worker, waiter, live, now, .. } = self;
        live.undo(request, id, &mut |policy| apply(worker, waiter, *now, policy))
    }

    /// Takes over another text of the policy file.
    ///
    /// # Errors
    /// The file is refused; nothing has changed then.
    pub fn reload(&mut self, who: &str, text: &str) -> Result<(), Refusal> {
        let Self { worker, waiter, live, config, now, .. } = self;
        live.reload(who, text, config, &mut |policy| apply(worker, waiter, *now, policy)).map(drop)
    }

    /// Returns counters, queues and lateness now.
    pub fn status(&mut self) -> NodeStatus {
        self.worker.status(self.now)
    }

    /// Returns the policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.live.in_force().policy
    }

    /// Returns the simulated time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }
}

/// Checks and takes over a policy as a running node does.
fn apply(
    worker: &mut Worker,
    waiter: &mut Waiter,
    now: Instant,
    policy: &Policy,
) -> Result<(), Refusal> {
    let refused = |why: String| Refusal::new(RefusalKind::Refused, why);
    let policy = ready_for(worker.policy(), policy.clone()).map_err(|e| refused(e.to_string()))?;
    let wanted = Reconfiguration { policy, opened: Vec::new() };
    worker.reconfigure(now, wanted, waiter).outcome.map_err(|error| refused(error.to_string()))
}

/// Makes devices in memory in the order of the policy, and their far ends.
fn devices(
    policy: &Policy,
    opener: &mut Opener,
) -> Result<(Vec<AttachedDevice>, Vec<MemoryPort>), NodeError> {
    let ports = policy.ports.iter().map(|port| (&port.name, &port.device, port.kind, true));
    let vifs = policy.vifs.iter().map(|vif| (&vif.name, &vif.device, vif.kind, false));
    let (mut opened, mut ends) = (Vec::new(), Vec::new());
    for (name, device, kind, is_port) in ports.chain(vifs) {
        let gates = opener.take_gates(device, is_port)?;
        let (near, far) = MemoryPort::pair([device, "far end"], RING);
        let mut attached = opener::attached(name, device, kind, gates, AnyPort::Memory(near), None);
        attached.holds_back = kind == Kind::Memory;
        opened.push(attached);
        ends.push(far);
    }
    Ok((opened, ends))
}

/// The most frames that wait in a device: a quarter of the ring of a network card.
const RING: usize = 256;

/// The shortest turn: a microsecond moves a frame or two.
const TURN: Nanos = Nanos::from_micros(1);
