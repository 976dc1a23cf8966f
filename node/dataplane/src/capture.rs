// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures: a copy of a vif's frames as pcapng, for as long as somebody reads it.
//!
//! The switch copies frames into a bounded ring. Every few milliseconds the worker takes them out
//! and hands them to the reader in blocks, over a bounded channel. A reader that is too slow loses
//! whole blocks, which the statistics of pcapng count. It never slows the worker.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_policy::{Direction, Filter, FilterAction, Policy, Slice, VifId};
use weir_ports::PortError;
use weir_switch::{CaptureConfig, CaptureCounters, Switch, pcapng};

use crate::clock;

/// The frames to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// The name of the vif.
    pub vif: String,
    /// Bytes kept of each frame, at most [`CaptureConfig::SNAPLEN_MAX`].
    pub snaplen: u16,
    /// Only frames from the vif (`send`) or towards it (`receive`).
    #[serde(default)]
    pub direction: Option<String>,
    /// Only frames with this MAC address.
    #[serde(default)]
    pub mac: Option<String>,
    /// Only frames with this VLAN on the vif's side.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Only frames from this address or network.
    #[serde(default)]
    pub src: Option<String>,
    /// Only frames to this address or network.
    #[serde(default)]
    pub dst: Option<String>,
    /// Only this TCP or UDP port.
    #[serde(default)]
    pub port: Option<u16>,
}

/// A capture that has begun.
#[derive(Debug)]
pub struct Capturing {
    /// Blocks of pcapng, the file's header first.
    pub blocks: Receiver<Vec<u8>>,
    /// A note for the caller: how the capture changes the path of the vif's frames.
    pub note: Option<String>,
}

/// Why a capture does not begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The number of bytes to keep of each frame is out of bounds.
    #[error("snaplen is {0}; it must be 1 to {max}", max = CaptureConfig::SNAPLEN_MAX)]
    Snaplen(u16),
    /// There is no such VLAN.
    #[error("vlan is {0}; it must be 1 to {max}", max = Slice::VLAN_MAX)]
    Vlan(u16),
    /// There is no such direction.
    #[error("direction {0:?}: it is send or receive")]
    Direction(String),
    /// An address cannot be read.
    #[error("{key} {text:?}: {error}")]
    Address {
        /// The key of the request.
        key: &'static str,
        /// Its value.
        text: String,
        /// The error of its parser.
        error: String,
    },
    /// The policy has no vif of that name.
    #[error("vif {0:?}: the policy has none of that name")]
    UnknownVif(String),
    /// The vif is captured already.
    #[error("vif {0}: somebody captures there already")]
    Captured(String),
    /// The most captures run already.
    #[error("{CAPTURES_MAX} captures run, which is the most")]
    TooMany,
    /// The kernel's tables could not be changed, so that the vif's frames reach the worker.
    #[error("{0}")]
    Port(#[from] PortError),
}

/// The captures that are being read, at most [`CAPTURES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Captures {
    active: Vec<ActiveCapture>,
}

#[derive(Debug)]
struct ActiveCapture {
    vif: VifId,
    name: String,
    blocks: SyncSender<Vec<u8>>,
    origin_ns: u64,
    /// Frames that the reader was too slow for.
    lost: u64,
}

impl CaptureRequest {
    /// Requests every frame of `vif`, whole.
    #[must_use]
    pub fn new(vif: &str) -> Self {
        Self {
            vif: vif.to_owned(),
            snaplen: CaptureConfig::default().snaplen,
            direction: None,
            mac: None,
            vlan: None,
            src: None,
            dst: None,
            port: None,
        }
    }

    /// Makes the switch's configuration: one rule accepts the frames that match the request, a
    /// second one drops all others.
    fn config(&self) -> Result<CaptureConfig, CaptureError> {
        if !(1..=CaptureConfig::SNAPLEN_MAX).contains(&self.snaplen) {
            return Err(CaptureError::Snaplen(self.snaplen));
        }
        let mut rule = Filter::new(FilterAction::Accept);
        rule.direction = match self.direction.as_deref() {
            None => None,
            Some(name) => Some(
                Direction::ALL
                    .into_iter()
                    .find(|direction| direction.name() == name)
                    .ok_or_else(|| CaptureError::Direction(name.to_owned()))?,
            ),
        };
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=Slice::VLAN_MAX).contains(vlan)) {
            return Err(CaptureError::Vlan(vlan));
        }
        rule.mac = parsed("mac", self.mac.as_deref())?;
        rule.src = parsed("src", self.src.as_deref())?;
        rule.dst = parsed("dst", self.dst.as_deref())?;
        (rule.vlan, rule.port) = (self.vlan, self.port);
        let all = rule == Filter::new(FilterAction::Accept);
        let filter = if all { Vec::new() } else { vec![rule, Filter::new(FilterAction::Drop)] };
        Ok(CaptureConfig { snaplen: self.snaplen, filter, ..CaptureConfig::default() })
    }
}

impl Captures {
    /// Starts a capture. The receiver yields its blocks, the file's header first.
    ///
    /// # Errors
    /// There is no such vif, it is captured already, or a bound is reached.
    pub(crate) fn start(
        &mut self,
        switch: &mut Switch,
        request: &CaptureRequest,
    ) -> Result<Receiver<Vec<u8>>, CaptureError> {
        let config = request.config()?;
        let unknown = || CaptureError::UnknownVif(request.vif.clone());
        let vif = vif_of(switch.policy(), &request.vif).ok_or_else(unknown)?;
        if self.active.iter().any(|active| active.vif == vif) {
            return Err(CaptureError::Captured(request.vif.clone()));
        }
        if self.active.len() >= CAPTURES_MAX {
            return Err(CaptureError::TooMany);
        }
        let (blocks, reader) = sync_channel(BLOCKS_MAX);
        let mut header = Vec::new();
        pcapng::section(&mut header, "weir");
        pcapng::interface(&mut header, &request.vif, config.snaplen);
        switch.capture_start(vif, &config);
        // The channel is empty and has room.
        let _sent = blocks.try_send(header);
        let name = request.vif.clone();
        self.active.push(ActiveCapture { vif, name, blocks, origin_ns: origin_ns(), lost: 0 });
        Ok(reader)
    }

    /// Lists the vifs that are captured.
    pub(crate) fn vifs(&self) -> BTreeSet<VifId> {
        self.active.iter().map(|active| active.vif).collect()
    }

    /// Follows a policy that the switch has taken over: vifs may have new ids, and captures of
    /// removed vifs end.
    pub(crate) fn follow(&mut self, policy: &Policy) {
        self.active.retain_mut(|active| match vif_of(policy, &active.name) {
            Some(vif) => {
                active.vif = vif;
                true
            }
            None => false,
        });
    }

    /// Hands on what the switch has copied since the last call, and ends captures without a reader.
    pub(crate) fn drain(&mut self, switch: &mut Switch) {
        self.active.retain_mut(|active| {
            let goes_on = active.drain(switch);
            if !goes_on {
                switch.capture_stop(active.vif);
            }
            goes_on
        });
    }
}

impl ActiveCapture {
    /// Hands on one block. Tells whether the capture still has a reader.
    fn drain(&mut self, switch: &mut Switch) -> bool {
        let (mut block, mut frames) = (Vec::new(), 0);
        let counters = switch.capture_read(self.vif, |captured| {
            pcapng::packet(&mut block, 0, self.origin_ns, &captured);
            frames += 1;
        });
        let Some(CaptureCounters { seen, lost }) = counters else { return false };
        if frames > 0 {
            let counters = CaptureCounters { seen, lost: lost + self.lost };
            let now_ns = self.origin_ns.saturating_add(clock::now().as_nanos());
            pcapng::statistics(&mut block, 0, now_ns, counters);
        }
        // An empty block asks whether the reader is still there.
        match self.blocks.try_send(block) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += frames;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

fn vif_of(policy: &Policy, name: &str) -> Option<VifId> {
    policy.vifs().find(|(_, vif)| vif.name == name).map(|(id, _)| id)
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, CaptureError> {
    let parse = |text: &str| {
        text.parse().map_err(|error: T::Err| CaptureError::Address {
            key,
            text: text.to_owned(),
            error: error.to_string(),
        })
    };
    text.map(parse).transpose()
}

/// Returns the nanoseconds from 1970 to the origin of the node's clock.
fn origin_ns() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
    wall.saturating_sub(clock::now().as_nanos())
}

/// The most blocks of pcapng that wait for the reader: 2.5 s, at one in 10 ms.
const BLOCKS_MAX: usize = 256;

/// The most captures at a time. Each costs a copy of every frame, and some megabytes.
const CAPTURES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_bounds_are_refused_with_value_and_bound() {
        let with = |vlan, snaplen| CaptureRequest { vlan, snaplen, ..CaptureRequest::new("a") };
        let refused = |request: CaptureRequest| request.config().unwrap_err().to_string();
        assert_eq!(refused(with(Some(5000), 60)), "vlan is 5000; it must be 1 to 4094");
        assert_eq!(refused(with(Some(0), 60)), "vlan is 0; it must be 1 to 4094");
        assert!(refused(with(None, 0)).starts_with("snaplen is 0; it must be 1 to "));
        assert!(with(Some(4094), 60).config().is_ok());
    }
}
