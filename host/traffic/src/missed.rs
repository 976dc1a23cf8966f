// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that reached the receiving device and found no room in its ring. The device under test
//! forwarded them, so the tester lost them.

use serde::Deserialize;
use weir_platform::inspect;
use weir_platform::run::{Command, Host, json};

use super::error::TrafficError;

/// Counts the frames that a receiving device misses.
pub(super) struct MissedFrames {
    netns: Option<String>,
    device: String,
    /// True if the device has a hardware ring. A virtual device has none and misses no frames.
    counts: bool,
}

#[derive(Deserialize)]
struct LinkCounters {
    #[serde(default)]
    stats64: BothWays,
}

#[derive(Default, Deserialize)]
struct BothWays {
    #[serde(default)]
    rx: ReceiveErrors,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "names of iproute2")]
struct ReceiveErrors {
    missed_errors: u64,
    fifo_errors: u64,
    over_errors: u64,
}

impl ReceiveErrors {
    /// Returns the missed frames. Some drivers count one frame in several of these counters.
    fn missed(&self) -> u64 {
        self.missed_errors.max(self.fifo_errors).max(self.over_errors)
    }
}

impl MissedFrames {
    pub(super) fn new(netns: Option<&str>, device: &str) -> Result<Self, TrafficError> {
        let link = inspect::link_in(&Host::default(), netns, device)?;
        let counts = link.linkinfo.and_then(|info| info.info_kind).is_none();
        Ok(Self { netns: netns.map(ToOwned::to_owned), device: device.to_owned(), counts })
    }

    /// Returns the number of frames that the device has missed since it exists.
    pub(super) fn total(&self) -> Result<u64, TrafficError> {
        if !self.counts {
            return Ok(0);
        }
        let command = Command::new("ip", ["-s", "-s", "-j", "link", "show", "dev", &self.device])
            .maybe_in_namespace(self.netns.as_deref());
        let failed = |error: weir_platform::run::RunError| TrafficError::Device(error.to_string());
        let links: Vec<LinkCounters> = json(&Host::default(), &command).map_err(failed)?;
        Ok(links.first().map_or(0, |link| link.stats64.rx.missed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_several_counters_have_is_one() {
        let text = r#"[{"ifindex":1,"ifname":"eth0","stats64":{"rx":{"bytes":8,"packets":2,
            "errors":9,"dropped":7,"over_errors":0,"multicast":0,"length_errors":0,
            "crc_errors":0,"frame_errors":0,"fifo_errors":5,"missed_errors":6},"tx":{}}}]"#;
        let links: Vec<LinkCounters> = serde_json::from_str(text).unwrap();
        assert_eq!(links[0].stats64.rx.missed(), 6);
        let bare: Vec<LinkCounters> = serde_json::from_str("[{}]").unwrap();
        assert_eq!(bare[0].stats64.rx.missed(), 0);
    }
}
