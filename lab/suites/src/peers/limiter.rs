// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One limit of Linux on the uplink: TBF, or HTB with one class.

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

/// A rate limit and its burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerLimit {
    /// Layer-2 bytes without FCS count.
    pub(crate) rate: BitRate,
    /// Bytes that may exceed it at once.
    pub(crate) burst: ByteCount,
    /// Bytes that may wait.
    pub(crate) queue: ByteCount,
}

/// The program that enforces the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limiter {
    /// Linux TBF: a token bucket.
    Tbf,
    /// Linux HTB: the same in a hierarchy, here of one class over a FIFO.
    Htb,
}

impl Limiter {
    /// Puts it on the uplink.
    pub(crate) fn up(self, star: &StarTopology, limit: PeerLimit) -> Result {
        let command = Command::batch("tc", self.lines(limit)).in_namespace(&star.namespace("sw"));
        Host::default().run(&command)?;
        Ok(())
    }

    fn lines(self, limit: PeerLimit) -> Vec<String> {
        let (rate, burst, queue) = (limit.rate.as_bps(), limit.burst.get(), limit.queue.get());
        let device = format!("dev {UPLINK}");
        match self {
            Self::Tbf => vec![format!(
                "qdisc replace {device} root handle 1: tbf rate {rate}bit burst {burst} \
                 limit {queue}"
            )],
            Self::Htb => vec![
                format!("qdisc replace {device} root handle 1: htb default 1"),
                format!(
                    "class add {device} parent 1: classid 1:1 htb rate {rate}bit burst {burst} \
                     cburst {burst} quantum 1514"
                ),
                format!("qdisc add {device} parent 1:1 handle 10: bfifo limit {queue}"),
            ],
        }
    }
}
