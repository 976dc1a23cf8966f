// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bandwidth broker of a network of routers: end-to-end connections with a guaranteed rate.
//!
//! A request names two end nodes, a rate and, optionally, ports, a delay bound and a second rate
//! for the reverse direction. [`weir_network`] finds a path on which every link has room, and
//! admits the connection, or refuses it with the reason and the smallest change that would fit.
//! This crate translates names into that crate's numbers and back (`directory`, `requests`,
//! `refusal`).
//!
//! An admitted connection is a tunnel between two edge routers. The entry router steers the packets
//! of that source, destination and ports into a device of their own. A token bucket there holds the
//! rate, and the outer address follows fixed routes (`item`). End nodes need no change.
//!
//! **Rows before commands.** One transaction stores the connection, its path and the commands for
//! each node, before the first command is sent (`store`, `writer`). A broker that takes over the
//! lease after a crash finds the unfinished steps in the store and continues them (`state`). A
//! lease has a fencing number that grows with each holder; the store and the nodes refuse a holder
//! with an older number. Several brokers on one PostgreSQL all decide, one after the other, each on
//! everything that is stored (`follow`). Only the broker with the lease configures the nodes.
//!
//! **One queue for each node.** A node's queue (`node_queue`) holds the items that the node is to
//! have. It takes all pending changes, compares the wanted items with the actual ones, applies the
//! difference as one batch over a shell that stays open (`shell`), and reads the result back
//! (`linux`). Drift is repaired by the same steps.
//!
//! **Networks share links.** A physical link (`physical`) joins ports of two nodes, and networks
//! are admitted against it. The broker keeps each node configured (`node_keeper`). A Weir node gets
//! over its API (`weir_node`) a slice for each network, and a guaranteed vif for each link of the
//! network there. A Linux host without Weir gets over SSH (`linux_host`) the same as VLANs, bridges
//! and classes.
//!
//! **Networks share nodes.** A network's agreement sets the packet rate that it may have. Its
//! routers at Weir nodes are policed over all nodes together (`police`, `policing`).

mod admission;
mod agreement;
mod answer_counts;
mod app;
#[cfg(test)]
mod brokers;
mod bucket;
mod callers;
mod clock;
pub mod config;
mod config_values;
mod creation;
mod directory;
mod due_times;
mod edge_guard;
mod error;
mod execution;
mod failures;
mod follow;
mod history;
mod ids;
#[cfg(test)]
mod interface_tests;
mod ip6tnl;
mod item;
mod kept_nodes;
mod links;
mod linux;
mod linux_host;
mod linux_host_keeper;
mod linux_host_units;
mod marks;
mod message;
mod metrics;
mod network_views;
mod node_keeper;
mod node_queue;
mod node_starter;
pub mod openapi;
mod orders;
mod ospf6;
pub mod physical;
mod physical_check;
mod police;
mod policing;
#[cfg(test)]
mod postgres;
mod record;
mod refusal;
mod remembered_keys;
mod repair_log;
mod requests;
mod responses;
mod restoration;
mod routes;
mod run;
mod schedule;
mod server;
mod sha256;
mod share_change;
mod shell;
mod state;
mod store;
mod store_address;
#[cfg(test)]
mod test_config;
mod tokens;
mod traffic;
mod tunnel_numbers;
mod upkeep;
mod weir_node;
mod weir_node_keeper;
mod writer;
mod xml;
mod xsd;

pub use config::BrokerConfig;
pub use error::BrokerError;
pub use run::run;
