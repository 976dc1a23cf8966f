// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of a run on a real Xen, and its files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use weir_experiment::prelude::*;
use weir_platform::HostError;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct XenSpec {
    /// The guests, and where packets that each of them is to forward go to.
    pub loads: Vec<GuestLoad>,
    /// The folder of decision logs and pictures.
    pub folder: PathBuf,
}

/// A guest, and the address of packets that it is to forward: `fc1=198.18.1.1:9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLoad {
    /// The guest's name.
    pub guest: String,
    /// The route to it leads through the guest.
    pub to: SocketAddr,
}

impl FromStr for GuestLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').filter(|(guest, _)| !guest.is_empty());
        let wrong = || format!("'{text}' is no GUEST=ADDRESS:PORT");
        let (guest, to) = parts.ok_or_else(wrong)?;
        Ok(Self { guest: guest.to_owned(), to: to.parse().map_err(|_| wrong())? })
    }
}

/// Writes a file of the result's folder.
pub(super) fn write(spec: &XenSpec, name: &str, content: &str) -> Result<(), ExperimentError> {
    let path = spec.folder.join(name);
    let made = std::fs::create_dir_all(&spec.folder);
    made.and_then(|()| std::fs::write(&path, content)).map_err(|e| ExperimentError::io(&path, e))
}

/// Makes an error of a text.
pub(super) fn refused(what: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Host(HostError::Refused(what.to_string()))
}

/// The row whose cases these are.
pub(super) const ROW: &str = "xtc.14";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_names_guest_and_address() {
        let load: GuestLoad = "fc1=198.18.1.1:9".parse().unwrap();
        assert_eq!((load.guest.as_str(), load.to.port()), ("fc1", 9));
        for bad in ["fc1", "=198.18.1.1:9", "fc1=198.18.1.1", "fc1=x:9"] {
            let error = bad.parse::<GuestLoad>().unwrap_err();
            assert_eq!(error, format!("'{bad}' is no GUEST=ADDRESS:PORT"));
        }
    }
}
