// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of routers that are held: of their host, their controllers and their counters.
//!
//! They are cloned into the status of several routers, so errors of the host are shared.

use std::sync::Arc;

use weir_control::realtime::AdmissionBound;
use weir_control::{CapError, CapRangeError, DesignError, FixedMapError, ModelError};
use weir_dataplane::Refusal;
use weir_platform::HostError;
use weir_units::CpuShare;

/// The reason why a router cannot be taken, controlled, limited or released.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RouterError {
    /// The node is ending.
    #[error("the node is ending")]
    Ending,
    /// A change of the host failed, or the journal cannot be opened.
    #[error("{0}")]
    Host(Arc<HostError>),
    /// A change of the host failed, and those before it are not all undone.
    #[error("{error}; {left}")]
    HalfTaken {
        /// The failure.
        error: Arc<HostError>,
        /// The changes that are left.
        left: Leftovers,
    },
    /// Changes of the host are not undone.
    #[error("{0}")]
    Left(Leftovers),
    /// No quota has this period.
    #[error("xtc.period: {0}")]
    Quota(Arc<HostError>),
    /// The actuator is too slow for this period.
    #[error("xtc.period: {0}")]
    Period(CapError),
    /// No cap satisfies both the actuator and the policy.
    #[error("xtc.cap_min and cap_max: {error}; the actuator's are {least} to {most}")]
    NoCap {
        /// The empty range.
        error: CapRangeError,
        /// The least cap of the actuator.
        least: CpuShare,
        /// The largest cap of the actuator.
        most: CpuShare,
    },
    /// The controller needs a model, and the policy has none.
    #[error("xtc.model: is missing")]
    NoModel,
    /// The model is not possible.
    #[error("xtc.model: {0}")]
    Model(ModelError),
    /// No controller has this response.
    #[error("xtc.settling, overshoot: {0}")]
    Response(DesignError),
    /// The map of caps is not possible.
    #[error("xtc.map: {0}")]
    Map(FixedMapError),
    /// Its real-time class does not fit beside the others.
    #[error("realtime: {0}")]
    Class(AdmissionBound),
    /// There is no such processor.
    #[error("realtime.core: there is no processor {0}")]
    NoCore(u32),
    /// The processor is not exclusive.
    #[error("realtime.core: processor {0} was shared when this node started: it could run there")]
    SharedCore(u32),
    /// A thread of the router may run elsewhere than its class.
    #[error("realtime.core: thread {thread} may run elsewhere than on processor {core}")]
    NotOnCore {
        /// The thread.
        thread: u32,
        /// The processor of its class.
        core: u32,
    },
    /// A thread of the router is bound to an exclusive processor, and its class is not.
    #[error("realtime.core: is missing: thread {thread} is bound to processor {core}")]
    BoundToCore {
        /// The thread.
        thread: u32,
        /// Its processor, on which this node could not run when it started.
        core: u32,
    },
    /// A thread could not be given its budget.
    #[error("{0}")]
    Budget(CapError),
    /// Packets cannot be limited without a switch.
    #[error("there is no switch to limit packets")]
    NoSwitch,
    /// The worker refused a limit, or did not answer.
    #[error("{0}")]
    Worker(Refusal),
}

impl From<HostError> for RouterError {
    fn from(error: HostError) -> Self {
        Self::Host(Arc::new(error))
    }
}

/// Changes of the host that are not undone. They stay in the journal.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Leftovers {
    /// Changes that could not be undone.
    #[error("not undone: {}", .0.join("; "))]
    Failed(Vec<String>),
    /// The journal could not be read or written.
    #[error("{0}")]
    Journal(Arc<HostError>),
}

/// A router whose new policy cannot be followed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("router {router:?}.{error}")]
pub struct UnfitRouter {
    /// Its name.
    pub router: String,
    /// The key, the value and the bound.
    pub error: RouterError,
}

/// The errors of an end after which caps or limits may still be in force.
#[derive(Clone, Debug, thiserror::Error)]
#[error("routers: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UncleanEnd(pub Vec<RouterError>);

/// The reason why the counters of a router cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CounterError {
    /// There was no pass over the counters yet.
    #[error("nothing was read yet")]
    NotYet,
    /// The router is not among those that are followed.
    #[error("not counted")]
    NotFollowed,
    /// A device of the router is missing.
    #[error("device {0}: not there")]
    DeviceMissing(String),
    /// A vif of the router waits for its device.
    #[error("a vif of it waits for its device")]
    VifWaits,
    /// The kernel's counters cannot be read.
    #[error("{0}")]
    Kernel(Arc<HostError>),
    /// The worker refused, or did not answer.
    #[error("{0}")]
    Worker(Refusal),
}

impl From<HostError> for CounterError {
    fn from(error: HostError) -> Self {
        Self::Kernel(Arc::new(error))
    }
}
