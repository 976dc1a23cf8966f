// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that the worker executes between two of its turns, and their replies.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_policy::Policy;
use weir_ports::LentChunks;
use weir_units::{Instant, PacketRate};

use crate::capture::{CaptureError, CaptureRequest, Capturing};
use crate::device::{AttachedDevice, DetachedDevice};
use crate::error::ReconfigurationError;
use crate::routers::RouterCount;
use crate::status::NodeStatus;

/// A command, and where its reply goes.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Takes over another policy and the devices opened for it.
    Reconfigure(Box<Reconfiguration>, SyncSender<ReconfigurationReply>),
    /// Returns the chunks of closed devices to the pool.
    Reclaim {
        /// The chunks that the devices had been lent.
        chunks: Vec<LentChunks>,
        /// Frames that the kernel's program dropped at the devices after they were detached.
        dropped_late: u64,
    },
    /// Reads counters, queues and lateness.
    Status(SyncSender<NodeStatus>),
    /// Copies a vif's frames.
    Capture(CaptureRequest, SyncSender<Result<Capturing, CaptureError>>),
    /// Counts the packets of the vifs of these routers.
    CountRouters(Arc<[String]>, SyncSender<(Instant, Vec<Option<RouterCount>>)>),
    /// Limits the packets a second that enter these routers; `None` lifts a limit.
    LimitRouters(Vec<(String, Option<PacketRate>)>, SyncSender<()>),
    /// Ends the worker, which hands its devices back.
    Stop,
    /// Ends the worker, which leaves the data plane in the kernel for the next process.
    Leave,
}

/// Another policy, and the devices that were opened for it.
#[derive(Debug)]
pub struct Reconfiguration {
    /// The policy.
    pub policy: Policy,
    /// The devices of the policy that were not in use.
    pub opened: Vec<AttachedDevice>,
}

/// The reply to a reconfiguration.
#[derive(Debug)]
pub struct ReconfigurationReply {
    /// An error means that the old policy holds.
    pub outcome: Result<(), ReconfigurationError>,
    /// The devices that are no longer in use, to be closed.
    pub detached: Vec<DetachedDevice>,
}
