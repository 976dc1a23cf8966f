// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the configuration below the virtual networks: nodes, and physical links between
//! their ports.
//!
//! A physical host runs a Weir node, or is reached over SSH and has what its kernel has. A port of
//! the node is its end of a physical link. The virtual routers of all networks are guests there; a
//! network's link on a physical link has a vif at either node, in the network's VLAN, which is
//! guaranteed the network's share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weir_units::BitRate;

use crate::config_values::{rate, reservable, some_rate};

/// A node that carries networks: a Weir node, which the broker configures over its interface as an
/// administrator, or a Linux host without Weir, which it gives commands over SSH.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Unique among nodes.
    pub name: String,
    /// `https://HOST:PORT` of a Weir node, or the path of its Unix socket.
    pub api: Option<String>,
    /// PEM file of the authorities that may sign its certificate; without it, the system's.
    pub ca: Option<PathBuf>,
    /// File of an administrator's token; not needed by root on a Unix socket.
    pub token_file: Option<PathBuf>,
    /// Address of the SSH server of a host without Weir.
    pub ssh: Option<SocketAddr>,
    /// Its host key, as `ssh-keyscan` prints it: algorithm and key.
    pub host_key: Option<String>,
    /// The user there; `root` without it.
    pub user: Option<String>,
}

/// The way to a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeAccess<'c> {
    /// The interface of a Weir node.
    Interface {
        /// Its address.
        api: &'c str,
        /// File of the authorities that may sign its certificate.
        ca: Option<&'c Path>,
        /// File of the token.
        token_file: Option<&'c Path>,
    },
    /// The shell of a Linux host.
    Shell(SshServer),
}

/// An SSH server whose key is known.
#[derive(Clone, Debug)]
pub(crate) struct SshServer {
    /// The router's or node's name.
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) host_key: String,
    pub(crate) user: String,
}

impl NodeConfig {
    /// Returns the way to it.
    ///
    /// # Errors
    /// It has keys of both ways, or of neither.
    pub(crate) fn access(&self) -> Result<NodeAccess<'_>, String> {
        let of_shell = [
            ("ssh", self.ssh.is_some()),
            ("host_key", self.host_key.is_some()),
            ("user", self.user.is_some()),
        ];
        let of_interface = [
            ("api", self.api.is_some()),
            ("ca", self.ca.is_some()),
            ("token_file", self.token_file.is_some()),
        ];
        let named = |keys: &[(&'static str, bool)]| keys.iter().find(|(_, given)| *given).copied();
        let wrong = |what: String| Err(format!("node \"{}\": {what}", self.name));
        match (&self.api, &self.ssh, &self.host_key) {
            (Some(api), None, _) => match named(&of_shell) {
                None => {
                    let (ca, token_file) = (self.ca.as_deref(), self.token_file.as_deref());
                    Ok(NodeAccess::Interface { api, ca, token_file })
                }
                Some((key, _)) => wrong(format!("{key} is for a node with ssh")),
            },
            (None, Some(address), Some(host_key)) => match named(&of_interface) {
                None => {
                    let user = self.user.clone().unwrap_or_else(|| "root".to_owned());
                    let (name, host_key) = (self.name.clone(), host_key.clone());
                    Ok(NodeAccess::Shell(SshServer { name, address: *address, host_key, user }))
                }
                Some((key, _)) => wrong(format!("{key} is for a node with api")),
            },
            (None, Some(_), None) => wrong("ssh needs host_key".to_owned()),
            (Some(_), Some(_), _) => wrong("api or ssh, not both".to_owned()),
            (None, None, _) => wrong("needs api, or ssh and host_key".to_owned()),
        }
    }
}

/// A physical link between ports of two nodes, with the same rate in each direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalLinkConfig {
    /// Unique among physical links.
    pub name: String,
    /// One end.
    pub a: PortEnd,
    /// The other end.
    pub b: PortEnd,
    /// Its rate, at most that of both ports.
    #[serde(deserialize_with = "rate")]
    pub rate: BitRate,
    /// The part of it that networks may be promised together; without it nine tenths. What is left
    /// is room for management and routing.
    #[serde(default, deserialize_with = "some_rate")]
    pub reservable: Option<BitRate>,
}

/// One end of a physical link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortEnd {
    /// The node.
    pub node: String,
    /// Its port, by its name in the node's policy; of a host without Weir, the device.
    pub port: String,
}

impl PhysicalLinkConfig {
    /// Returns the rate that networks may be promised together.
    #[must_use]
    pub fn reservable(&self) -> BitRate {
        reservable(self.rate, self.reservable)
    }

    /// Returns both ends.
    pub(crate) const fn ends(&self) -> [&PortEnd; 2] {
        [&self.a, &self.b]
    }
}
