// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual time: the shipped switch between simulated sources, links and sinks.
//!
//! **Problem.** A promise such as "tenant A gets at least 30 Mb/s" depends on when packets arrive.
//! On a real machine their times change with every run. A failure cannot be repeated, and delays of
//! a busy machine cannot be told from delays of the scheduler.
//!
//! **Idea.** [`weir_switch::Switch`] reads no clock: time is an argument. So the code that ships
//! can run in a *discrete-event simulation* (Law, *Simulation Modeling and Analysis*, chapter 1).
//! A run is a loop:
//!
//! 1. The clock jumps to the earliest of: the next packet of a [`SimSource`], the next arrival
//!    over a [`SimLink`], the next instant that the switch asks for.
//! 2. Everything that is due is handed to the switch.
//! 3. Every frame that the switch releases leaves, over a link if the interface has one, and is
//!    reported as a [`Departure`], for a [`StreamSink`] to count.
//!
//! Only rates and delays take time. The processor is infinitely fast, so a result shows the
//! algorithms alone. [`SimNode::run_on`] adds the machine: its processors take the time of
//! [`HostTimes`].
//!
//! **Determinism.** There is no clock, no entropy, no thread and no hash table. Random sources
//! draw from a [`Seed`]. Two events of one instant keep the order in which they were scheduled:
//! [`EventQueue`] is stable. The same arguments give the same run, bit by bit.
//!
//! **Bounds.** The queue of events has a capacity, and so has each link. A run that does not
//! advance its clock within [`STEPS_AT_ONCE_MAX`] steps ends with [`SimError::Livelock`].
//!
//! **Shapers alone.** [`run_shaped`] passes a sender's packets through a [`Shaper`] without a
//! switch; the sender may react to the delays of its packets. [`ShaperAudit`] checks the laws of
//! the smooth window.
//!
//! **TCP.** The effect of a queue on a tenant depends on how TCP reacts. In a [`TcpNetwork`],
//! connections of a real TCP implementation cross a [`Bottleneck`], such as a scheduler or a
//! shaper. A [`RouterHost`] is a bottleneck as well: Xen's domain 0 between the wire and virtual
//! routers. A [`RouterChain`] is several bottlenecks in a line.
//!
//! **Packets that cost processor time.** In a [`ForwardingNetwork`], flows pass bottlenecks and
//! processors, which take time for each packet and each byte.
//!
//! Read [`SimNode`], then [`SimNode::run`]. [`DataPlane`] is the interface that the simulator and
//! the data planes on the wire have in common.

mod cycle_audit;
mod edf;
mod error;
mod event;
mod forwarding;
mod header_audit;
mod host;
mod link;
mod machine;
mod netback;
mod node;
mod observation;
mod plane;
mod pool;
mod probe;
mod router_chain;
mod router_host;
mod run;
mod seed;
mod shaped_sources;
mod shaper;
mod shaper_audit;
mod shaper_faults;
mod sink;
mod source;
mod tcp;
mod tuple_audit;

pub use cycle_audit::{CycleAudit, CycleVariety, audit_cycle};
pub use edf::{EdfJob, EdfOutcome, EdfServer, run_edf};
pub use error::SimError;
pub use event::EventQueue;
pub use forwarding::{
    ForwardingCounts, ForwardingFlow, ForwardingNetwork, ForwardingStation, ForwardingStop,
    PacketCost,
};
pub use header_audit::{
    AUDIT_SLICES, ExpectedFrame, HeaderAudit, audit_frame, audit_headers, audit_headers_of,
    audit_mac, audit_policy, audit_slices, audit_tells, expected,
};
pub use host::HostTimes;
pub use link::SimLink;
pub use machine::{
    CpuScheduler, CpusToDecide, CreditAccounting, CreditEdfScheduler, CreditScheduler, CreditShare,
    DomainWork, RealTimeClass, RtdsScheduler, RtdsServer, SimMachine, WakeCause, WorkCounts,
};
pub use netback::{
    BlockingDisk, NetbackConfig, NetbackCounts, NetbackFrame, NetbackModel, NetbackSender,
};
pub use node::{FrameTap, SimNode};
pub use observation::{Departure, Observation};
pub use plane::{Abilities, Ability, DataPlane};
pub use pool::MemoryPool;
pub use probe::{PROBE_BYTES, PROBE_TYPE, frame};
pub use router_chain::RouterChain;
pub use router_host::{RouterHost, RouterHostConfig, RouterHostCounts};
pub use run::STEPS_AT_ONCE_MAX;
pub use seed::Seed;
pub use shaped_sources::{HttpClients, VIDEO_PACKET, VideoSource};
pub use shaper::{
    BucketShaper, PacedShaper, ShapedPacket, ShapedSource, Shaper, XenBucket, run_shaped,
    watch_shaped,
};
pub use shaper_audit::{ShaperAudit, ShaperLaw, audit_random};
pub use shaper_faults::{FaultyShaper, ShaperFault};
pub use sink::{StreamSink, bytes_each_second, in_order, most_in_window};
pub use source::{ArrivalProcess, OfferedRate, SimSource, SizePattern, WhenFull};
pub use tcp::{
    Bottleneck, BulkSender, CongestionControl, Crossing, DiscardingReader, FifoLink, ProbeSource,
    ScheduledLink, ShapedLink, SimEndpoint, TcpApplication, TcpConnection, TcpNetwork, TcpPath,
    TcpSimError, TcpSocket, discard_received,
};
pub use tuple_audit::audit_tuples;
