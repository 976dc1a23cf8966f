// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bandwidth broker of a network of routers: end-to-end connections with a guaranteed rate.
//!
//! A request names two end nodes, a rate and, if it likes, ports, a largest delay and a second rate
//! for the way back. [`weir_network`] finds a path on which every link has room, and admits the
//! connection or refuses it with the reason and the smallest change that would fit; here the names
//! become its numbers and back (`directory`, `requests`, `refusal`).
//!
//! An admitted connection is a tunnel between two edge routers: the entry router steers the
//! packets of that source, destination and ports into a device of their own, a token bucket there
//! holds the rate, and the outer address follows fixed routes (`item`). Nothing is asked of end
//! nodes.
//!
//! **Rows before commands.** One transaction of the store has the connection, its path
//! and the commands for each node, before the first of them leaves (`store`, `writer`).
//! Whoever takes the lease after a crash finds there what was under way, and goes on (`state`). A
//! lease has a fencing number that grows with each holder; the store and the nodes refuse an older
//! one. Several brokers on one PostgreSQL all decide, one after the other, each on all that is
//! stored (`follow`); the one with the lease configures the nodes.
//!
//! **One queue a node.** A node's queue (`node_queue`) holds the items that the node is to have.
//! It takes whatever waits, compares wanted with actual, applies the difference as one batch over
//! one kept shell (`shell`) and reads back (`linux`). Drift is repaired by the same steps.
//!
//! **Networks share links.** A physical link (`physical`) is between ports of two nodes, and
//! networks are admitted against it. Each node is kept (`node_keeper`): a Weir node over its
//! interface (`weir_node`), which has a slice for each network and a guaranteed vif for each of its
//! links there; a Linux host without Weir over SSH (`linux_host`), which has the same as VLANs,
//! bridges and classes.
//!
//! **Networks share nodes.** A network's agreement says which packet rate it may have. Its routers
//! at Weir nodes are policed over all nodes (`police`, `policing`).

mod admission;
mod agreement;
mod answer_counts;
mod app;
#[cfg(test)]
mod brokers;
mod bucket;
mod clock;
pub mod config;
mod config_values;
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
