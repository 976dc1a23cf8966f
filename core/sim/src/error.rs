// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a simulation cannot go on.

use weir_switch::SwitchError;
use weir_units::Instant;

/// A simulation that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The switch does not take the policy.
    #[error("the switch refuses the policy: {0}")]
    Switch(#[from] SwitchError),
    /// All frames of the pool are in use.
    #[error("the pool has {chunks} frames, and all are in use")]
    PoolEmpty {
        /// Frames of the pool.
        chunks: u32,
    },
    /// A frame does not fit into a chunk of the pool, or has no room for its stamp.
    #[error("a frame has {bytes} bytes, may have {least} to {most}")]
    FrameSize {
        /// Bytes of the frame.
        bytes: u16,
        /// Least length.
        least: u16,
        /// Greatest length.
        most: u16,
    },
    /// The queue of events is full.
    #[error("{capacity} events are scheduled, which is the bound")]
    EventsFull {
        /// The bound.
        capacity: usize,
    },
    /// The clock stands still although events are handled.
    #[error("{steps} steps at {at} did not advance the clock")]
    Livelock {
        /// The instant.
        at: Instant,
        /// Steps that were made.
        steps: u32,
    },
    /// A source sends from an interface that does not exist.
    #[error("source {source_index} sends from interface {iface}, the policy has {interfaces}")]
    NoInterface {
        /// The source, by position.
        source_index: usize,
        /// Its interface.
        iface: u32,
        /// Interfaces of the policy.
        interfaces: usize,
    },
    /// A flow goes through a router that is none, or there is none, or more than processors.
    #[error("{routers} routers: 1 to {most} may be there, and each flow goes through one of them")]
    NoRouter {
        /// Routers of the host.
        routers: usize,
        /// The most that there may be.
        most: usize,
    },
    /// A flow stops at a station that is not there.
    #[error("a flow stops at station {station}, there are {stations}")]
    NoStation {
        /// The station, by position.
        station: usize,
        /// Stations of the network.
        stations: usize,
    },
}
