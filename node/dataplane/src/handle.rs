// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way to the worker for every other thread: a bounded queue of commands, each with its reply.
//!
//! The worker takes one command between two turns, some microseconds apart. A caller is refused at
//! once while [`COMMANDS_MAX`] commands are pending, and waits for a reply no longer than
//! [`REPLY_TIMEOUT`]. A change of policy is the exception: once it is queued, its caller waits
//! without a timeout, since until the reply the applied policy is unknown.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use weir_ports::LentChunks;
use weir_units::{Instant, PacketRate};

use crate::capture::{CaptureError, CaptureRequest, Capturing};
use crate::command::{Reconfiguration, ReconfigurationReply, WorkerCommand};
use crate::refusal::{Refusal, RefusalKind};
use crate::routers::RouterCount;
use crate::status::NodeStatus;

/// Sends commands to the worker. Its clones share one queue.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    commands: SyncSender<WorkerCommand>,
}

impl WorkerHandle {
    /// Makes the queue: the handle for callers, and the end that
    /// [`Worker::run`](crate::worker::Worker::run) reads.
    #[must_use]
    pub fn new() -> (Self, Receiver<WorkerCommand>) {
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        (Self { commands }, inbox)
    }

    /// Reads counters, queues and lateness.
    ///
    /// # Errors
    /// The worker is busy or has ended.
    pub fn status(&self) -> Result<NodeStatus, Refusal> {
        self.ask(WorkerCommand::Status)
    }

    /// Begins to copy a vif's frames.
    ///
    /// # Errors
    /// The worker is busy or has ended, or there is nothing to capture.
    pub fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal> {
        let refused = |error: CaptureError| Refusal::new(RefusalKind::Refused, error.to_string());
        self.ask(|reply| WorkerCommand::Capture(request, reply))?.map_err(refused)
    }

    /// Counts the packets of these routers, and says when. A router without a vif that has a device
    /// has no count.
    ///
    /// # Errors
    /// The worker is busy or has ended.
    pub fn count_routers(
        &self,
        names: Arc<[String]>,
    ) -> Result<(Instant, Vec<Option<RouterCount>>), Refusal> {
        self.ask(|reply| WorkerCommand::CountRouters(names, reply))
    }

    /// Limits the packets a second that enter these routers; `None` lifts a limit.
    ///
    /// # Errors
    /// The worker is busy or has ended.
    pub fn limit_routers(&self, limits: Vec<(String, Option<PacketRate>)>) -> Result<(), Refusal> {
        self.ask(|reply| WorkerCommand::LimitRouters(limits, reply))
    }

    /// Has the worker take over another policy and the devices opened for it.
    ///
    /// # Errors
    /// The worker is busy or has ended. A reconfiguration that it never received comes back with
    /// the refusal.
    pub fn reconfigure(
        &self,
        wanted: Box<Reconfiguration>,
    ) -> Result<ReconfigurationReply, (Refusal, Option<Box<Reconfiguration>>)> {
        let (reply, answer) = sync_channel(1);
        match self.commands.try_send(WorkerCommand::Reconfigure(wanted, reply)) {
            Ok(()) => answer.recv().map_err(|_| (ending(), None)),
            Err(TrySendError::Full(WorkerCommand::Reconfigure(wanted, _))) => {
                Err((busy(), Some(wanted)))
            }
            Err(TrySendError::Disconnected(WorkerCommand::Reconfigure(wanted, _))) => {
                Err((ending(), Some(wanted)))
            }
            // A command comes back as it was sent.
            Err(_) => Err((ending(), None)),
        }
    }

    /// Returns the chunks of closed devices to the pool. `dropped_late` counts frames that the
    /// kernel's program dropped at the devices after they were detached.
    pub fn reclaim(&self, chunks: Vec<LentChunks>, dropped_late: u64) {
        // If the worker has ended, it has no pool any more.
        let _ended = self.commands.send(WorkerCommand::Reclaim { chunks, dropped_late });
    }

    /// Ends the worker, which hands its devices back.
    pub fn stop(&self) {
        // If it has ended already, that is what is wanted.
        let _ended = self.commands.send(WorkerCommand::Stop);
    }

    /// Ends the worker, which leaves the data plane to the next process.
    pub fn leave(&self) {
        let _ended = self.commands.send(WorkerCommand::Leave);
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> WorkerCommand) -> Result<T, Refusal> {
        let (reply, answer) = sync_channel(1);
        self.commands.try_send(command(reply)).map_err(|error| match error {
            TrySendError::Full(_) => busy(),
            TrySendError::Disconnected(_) => ending(),
        })?;
        answer.recv_timeout(REPLY_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Disconnected => ending(),
            RecvTimeoutError::Timeout => {
                let text =
                    format!("the worker did not answer within {} s", REPLY_TIMEOUT.as_secs());
                Refusal::new(RefusalKind::Busy, text)
            }
        })
    }
}

fn busy() -> Refusal {
    let text = format!("the node is busy: {COMMANDS_MAX} requests wait for its worker");
    Refusal::new(RefusalKind::Busy, text)
}

fn ending() -> Refusal {
    Refusal::new(RefusalKind::NotRunning, "the node is ending")
}

/// Commands that may be pending. The worker takes one a turn, some microseconds each.
const COMMANDS_MAX: usize = 64;

/// A turn takes microseconds, and taking over a large policy a second.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::Policy;

    fn wanted() -> Box<Reconfiguration> {
        Box::new(Reconfiguration { policy: Policy::new("edge"), opened: Vec::new() })
    }

    /// Opened devices come back if the worker cannot take them: none is leaked.
    #[test]
    fn what_the_worker_never_received_comes_back() {
        let (commands, inbox) = sync_channel(1);
        let handle = WorkerHandle { commands };
        handle.stop();
        let (refusal, back) = handle.reconfigure(wanted()).unwrap_err();
        assert_eq!((refusal.kind, back.is_some()), (RefusalKind::Busy, true));
        drop(inbox);
        let (refusal, back) = handle.reconfigure(wanted()).unwrap_err();
        assert_eq!((refusal.kind, back.is_some()), (RefusalKind::NotRunning, true));
    }

    /// A reply that comes after the timeout of questions is the reply all the same.
    #[test]
    fn a_late_reply_counts() {
        let (handle, inbox) = WorkerHandle::new();
        let worker = std::thread::spawn(move || {
            let Ok(WorkerCommand::Reconfigure(_, reply)) = inbox.recv() else { return };
            std::thread::sleep(Duration::from_millis(50));
            let _gone = reply.send(ReconfigurationReply { outcome: Ok(()), detached: Vec::new() });
        });
        assert!(handle.reconfigure(wanted()).unwrap().outcome.is_ok());
        worker.join().unwrap();
    }
}
