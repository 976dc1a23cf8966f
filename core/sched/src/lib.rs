// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers, shapers and queues as pure state machines: no clock, no I/O, no allocation per
//! packet.
//!
//! A [`Scheduler`] owns a bounded queue for each of its classes. The caller pushes packets in with
//! [`Scheduler::enqueue`] and, whenever the link can take one, pulls the next with
//! [`Scheduler::dequeue`]. Time is an argument; it may stand still, and where it goes back the
//! latest instant seen is used instead.
//!
//! **The run loop: after every call that may change the answer of `dequeue`, pull until the answer
//! is not a packet; then sleep until the instant that this answer names, or until something is
//! enqueued.**
//!
//! The feature `prefetch`, on by default, loads the memory that packets will need into the cache
//! ahead of time. Without the feature nothing needs `std`.
#![no_std]

extern crate alloc;

mod any;
mod bits;
mod codel;
mod cyclic;
mod discipline;
mod drr;
mod fifo;
mod flat;
mod flow_pool;
mod flow_queue;
mod heap;
mod hfsc;
mod limit;
mod link_clock;
pub mod load;
mod minimum;
mod paced;
mod packets;
mod pause;
mod prefetch;
mod queue;
mod ring;
mod scheduler;
mod slab;
mod smooth;
mod smooth_control;
mod strict;
mod token_bucket;
mod wfq;
mod wrr;

pub use any::{AnyScheduler, SchedulerAlgorithm, UnknownScheduler};
pub use codel::{CodelState, CodelVerdict};
pub use cyclic::{CycleConfig, Cyclic, Phase, PhaseCounters};
pub use discipline::{Discipline, Pick};
pub use drr::{DeficitRounds, DeficitTurn, Drr};
pub use fifo::{ArrivalOrder, Fifo};
pub use flat::Flat;
pub use hfsc::Hfsc;
pub use link_clock::LinkClock;
pub use minimum::MINIMUM_CATCH_UP;
pub use paced::Paced;
pub use prefetch::PREFETCHES;
pub use queue::{ClassQueues, Popped};
pub use scheduler::{
    Backlog, ClassConfig, ClassCounters, ClassId, CodelConfig, ConfigError, Dequeue, DropReason,
    FlowCounters, FlowQueueConfig, LinkConfig, Packet, QueueConfig, Scheduler, WaitReason,
};
pub use slab::Slab;
pub use smooth::SmoothShaper;
pub use smooth_control::{
    IntervalMeasures, LinearPid, LogarithmicControl, SmoothConfig, WindowControl,
};
pub use strict::{HighestFirst, StrictPriority};
pub use token_bucket::TokenBucket;
pub use wfq::{FairShares, Wfq};
pub use wrr::{PacketRounds, Wrr};
