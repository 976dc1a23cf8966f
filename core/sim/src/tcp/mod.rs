// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP in virtual time: real protocol machines around one bottleneck.
//!
//! **Problem.** What a queue or a shaper does to a tenant depends on how TCP answers it: a window
//! that opens until something is lost or marked. A source with a fixed rate does not answer.
//!
//! **Idea.** smoltcp is TCP as a state machine with time as an argument, as all of Weir's core is.
//! Each connection has two endpoints, a client and a server. What a client sends crosses the
//! [`Bottleneck`] and then takes half of the round trip; what its server sends back takes the other
//! half. Congestion control is smoltcp's Reno or CUBIC (RFC 5681, RFC 9438); it has no SACK and no
//! ECN, so nothing is marked here.
//!
//! ```text
//!  client ──► bottleneck ──► half a round trip ──► server
//!     ▲                                               │
//!     └───────────────── half a round trip ◄──────────┘
//! ```
//!
//! **Applications** say what the endpoints do with their sockets: [`BulkSender`] and
//! [`DiscardingReader`] are two, and [`TcpApplication`] makes others, such as a closed loop of
//! requests.
//!
//! **Bottlenecks**: a [`FifoLink`], one of Weir's schedulers ([`ScheduledLink`]), or a shaper alone
//! ([`ShapedLink`]).
//!
//! **Probes** ([`ProbeSource`]) are packets that cross the bottleneck at set times and wait for
//! nothing: their delay is what a call or a game would see.
//!
//! **Determinism**: no clock, no entropy, no thread. The same arguments give the same run.
//!
//! Read [`TcpNetwork`], then [`Bottleneck`].

mod application;
mod bottleneck;
mod endpoint;
mod network;
mod scheduled;
mod shaped;

pub use application::{BulkSender, DiscardingReader, TcpApplication, discard_received};
pub use bottleneck::{Bottleneck, Crossing, FifoLink};
pub use endpoint::{CongestionControl, SimEndpoint};
pub use network::{ProbeSource, TcpConnection, TcpNetwork, TcpPath, TcpSimError};
pub use scheduled::ScheduledLink;
pub use shaped::ShapedLink;
pub use smoltcp::socket::tcp::Socket as TcpSocket;
