// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The order of a hundred requests on one node (row 4). They are sent 1 ms apart, so that the order
//! in which they came is known, while the broker takes many of them at once.
//!
//! Compared with it are the order in which the node got the entries, since the kernel numbers
//! devices as they are made, and that of the answers. A caller that is late by some milliseconds
//! shows nothing: requests that were sent closer together are not compared. Answers of one batch
//! are read by callers as these are woken, so that for them it counts how early one comes.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, parsed};

/// The events of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOrder {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
    /// The tunnel's number at its entry, which the broker gives as it admits connections.
    pub(super) number: u64,
    /// The device's number at the node.
    pub(super) device: u64,
}

/// Numbers of inversions.
#[derive(Clone, Debug, Default)]
pub(super) struct Inversions {
    /// By request, the seconds by which it was answered before one that was sent earlier.
    early: Vec<f64>,
    /// Devices made before that of a request that was sent earlier.
    devices: u64,
    /// Devices made before that of a smaller number.
    numbers: u64,
}

impl Inversions {
    /// Counts those among the requests of a round.
    pub(super) fn add(&mut self, all: &[RequestOrder]) {
        let mut by_number = all.to_vec();
        by_number.sort_unstable_by_key(|of| of.number);
        let later = by_number.windows(2).filter(|pair| pair[1].device < pair[0].device);
        self.numbers += later.count() as u64;
        for later in all {
            let earlier = all.iter().filter(|of| of.sent + APART <= later.sent);
            self.devices += u64::from(earlier.clone().any(|of| later.device < of.device));
            let last = earlier.map(|of| of.answered).max().unwrap_or(later.answered);
            self.early.push(last.saturating_duration_since(later.answered).as_secs_f64());
        }
    }

    /// Claims that there are none.
    pub(super) fn claim(self, rec: &mut Recording<'_>) -> Result {
        let Self { early, devices, numbers } = self;
        let text = format!("devices made before that of a request sent {APART_MS} ms earlier");
        rec.none("order/devices", text, devices)?;
        let early = Series::unordered("s", early);
        let text = "an answer before that of an earlier request, by how long";
        rec.claim_samples("order/answers", text, early, Rule::Max, Bound::at_most(EARLY_MOST))?;
        rec.none("order/numbers", "devices not made in the order of their numbers", numbers)
    }
}

/// Reads the numbers of a router's devices, by name.
pub(super) fn device_numbers(lab: &BrokerLab, router: &str) -> Result<BTreeMap<String, u64>> {
    let links: Vec<Value> = parsed(&lab.run(router, Command::line("ip -j link show"))?)?;
    let number =
        |link: &Value| Some((link["ifname"].as_str()?.to_owned(), link["ifindex"].as_u64()?));
    Ok(links.iter().filter_map(number).collect())
}

/// Requests sent closer together may overtake each other on their way to the broker.
const APART: Duration = Duration::from_millis(APART_MS);
const APART_MS: u64 = 10;

/// Seconds by which an answer may come before that of an earlier request.
const EARLY_MOST: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a broker that takes each batch in reverse is found, though it numbers tunnels as it
    /// makes devices; callers that are late by less than the distance are not.
    #[test]
    fn a_batch_in_reverse_is_out_of_order() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let request = |sent, answered, number| RequestOrder {
            sent: at(sent),
            answered: at(answered),
            number,
            device: number + 100,
        };
        let judge = |all: &[RequestOrder]| {
            let mut found = Inversions::default();
            found.add(all);
            let early = found.early.into_iter().fold(0.0, f64::max);
            (found.devices, found.numbers, (early * 1e3).round())
        };
        let in_order: Vec<_> = (0..50).map(|of| request(of, 60 + of / 25 * 40, of)).collect();
        assert_eq!(judge(&in_order), (0, 0, 0.0));
        let late_callers = [request(0, 70, 2), request(1, 69, 1), request(30, 66, 3)];
        assert_eq!(judge(&late_callers), (0, 0, 4.0));
        let reversed: Vec<_> = (0..50).map(|of| request(of, 60, 50 - of)).collect();
        assert_eq!(judge(&reversed), (40, 0, 0.0));
        let late_answer = [request(0, 90, 1), request(20, 60, 2)];
        assert_eq!(judge(&late_answer), (0, 0, 30.0));
    }
}
