// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One record of service, and its bytes in the store. Numbers are unsigned LEB128: groups of seven
//! bits, the least significant first, the last without its top bit. A text follows its length.

use weir_policy::{Policy, Vif};
use weir_units::Nanos;

use super::service::{Service, WorstSecond};
use weir_api_types::status::Amount;

/// The service of one vif or slice in a second or a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// The number of its first second in this store. Records are ordered by it, since the clock may
    /// be set.
    pub first: u64,
    /// The number of its last second.
    pub last: u64,
    /// Its beginning, milliseconds since 1970: the end of the record before it.
    pub from_unix_ms: u64,
    /// Its end, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Its length on the monotonic clock.
    pub time: Nanos,
    /// The vif or slice.
    pub subject: ReportSubject,
    /// Send, receive.
    pub sides: [Service; 2],
    /// The frames that the kernel had redirected until then, for the next process.
    pub kernel: KernelAmounts,
}

/// The frames redirected in the kernel since the node took the device: send, receive.
pub type KernelAmounts = [Amount; 2];

/// A slice, or a vif of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReportSubject {
    /// The slice.
    pub slice: String,
    /// The vif; `None` for the slice as a whole.
    pub vif: Option<String>,
}

impl ReportSubject {
    /// Returns the subject of a vif of a policy.
    #[must_use]
    pub fn of_vif(policy: &Policy, vif: &Vif) -> Self {
        Self { slice: policy[vif.slice].name.clone(), vif: Some(vif.name.clone()) }
    }
}

impl ServiceRecord {
    /// Adds a later record of the same subject.
    pub fn add(&mut self, later: &Self) {
        self.last = later.last;
        self.at_unix_ms = later.at_unix_ms;
        self.time = self.time.saturating_add(later.time);
        self.sides.iter_mut().zip(&later.sides).for_each(|(sum, side)| sum.add(side));
        self.kernel = later.kernel;
    }

    /// Appends its bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        number(out, self.last);
        number(out, self.last.saturating_sub(self.first));
        number(out, self.at_unix_ms);
        number(out, self.at_unix_ms.saturating_sub(self.from_unix_ms));
        number(out, self.time.as_nanos());
        text(out, &self.subject.slice);
        // One more than the length of the name: zero stands for a slice.
        match &self.subject.vif {
            None => number(out, 0),
            Some(vif) => {
                number(out, vif.len() as u64 + 1);
                out.extend_from_slice(vif.as_bytes());
            }
        }
        for (side, kernel) in self.sides.iter().zip(self.kernel) {
            number(out, side.guaranteed_bytes);
            for amount in [side.offered, side.above_limit, side.got, kernel] {
                number(out, amount.packets);
                number(out, amount.bytes);
            }
            number(out, side.below.as_nanos());
            let worst = side.worst.unwrap_or_default();
            number(out, worst.time.as_nanos());
            if side.worst.is_some() {
                number(out, self.at_unix_ms.saturating_sub(worst.at_unix_ms));
                number(out, worst.got_bytes);
                number(out, worst.owed_bytes);
            }
        }
    }

    /// Reads what [`Self::write`] wrote; `None` if it is not whole, or there is more.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let rest = &mut &*bytes;
        let last = take_number(rest)?;
        let first = last.saturating_sub(take_number(rest)?);
        let at_unix_ms = take_number(rest)?;
        let from_unix_ms = at_unix_ms.saturating_sub(take_number(rest)?);
        let time = Nanos::new(take_number(rest)?);
        let length = take_number(rest)?;
        let slice = take_text(rest, length)?;
        let vif = match take_number(rest)? {
            0 => None,
            more => Some(take_text(rest, more - 1)?),
        };
        let (mut sides, mut kernel) = ([Service::default(); 2], KernelAmounts::default());
        for (side, kernel) in sides.iter_mut().zip(&mut kernel) {
            side.guaranteed_bytes = take_number(rest)?;
            for amount in [&mut side.offered, &mut side.above_limit, &mut side.got, kernel] {
                amount.packets = take_number(rest)?;
                amount.bytes = take_number(rest)?;
            }
            side.below = Nanos::new(take_number(rest)?);
            let time = Nanos::new(take_number(rest)?);
            if time != Nanos::ZERO {
                let at_unix_ms = at_unix_ms.saturating_sub(take_number(rest)?);
                let (got_bytes, owed_bytes) = (take_number(rest)?, take_number(rest)?);
                side.worst = Some(WorstSecond { at_unix_ms, time, got_bytes, owed_bytes });
            }
        }
        let subject = ReportSubject { slice, vif };
        rest.is_empty().then_some(Self {
            first,
            last,
            from_unix_ms,
            at_unix_ms,
            time,
            subject,
            sides,
            kernel,
        })
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, others) = rest.split_first()?;
        *rest = others;
        let group = u64::from(first & 0x7f);
        if group.checked_shl(shift)? >> shift != group {
            return None;
        }
        value |= group << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_text(rest: &mut &[u8], length: u64) -> Option<String> {
    let length = usize::try_from(length).ok()?;
    let (text, others) = rest.split_at_checked(length)?;
    *rest = others;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(vif: Option<&str>, value: u64) -> ServiceRecord {
        let amount = Amount { packets: value, bytes: value / 2 };
        let at_unix_ms = 1_700_000_000_000;
        let worst = WorstSecond {
            at_unix_ms,
            time: Nanos::from_secs(1),
            got_bytes: value,
            owed_bytes: value,
        };
        let side = Service {
            guaranteed_bytes: value,
            offered: amount,
            above_limit: amount,
            got: amount,
            below: Nanos::new(value),
            worst: (value > 0).then_some(worst),
        };
        ServiceRecord {
            first: 70_000,
            last: 70_000,
            from_unix_ms: at_unix_ms - 1_000,
            at_unix_ms,
            time: Nanos::from_secs(1),
            subject: ReportSubject { slice: "gold".into(), vif: vif.map(str::to_owned) },
            sides: [side, Service::default()],
            kernel: [amount, Amount::default()],
        }
    }

    #[test]
    fn what_is_written_reads_back_and_nothing_cut_or_longer_does() {
        for value in [0, 1, 127, 128, 1_000_000, u64::MAX] {
            for vif in [None, Some(""), Some("gold.0")] {
                let record = record(vif, value);
                let mut bytes = Vec::new();
                record.write(&mut bytes);
                assert_eq!(ServiceRecord::read(&bytes).as_ref(), Some(&record));
                for cut in 0..bytes.len() {
                    assert_eq!(ServiceRecord::read(&bytes[..cut]), None, "cut at {cut}");
                }
                bytes.push(0);
                assert_eq!(ServiceRecord::read(&bytes), None, "one more byte");
            }
        }
    }

    /// Four tenants of one vif each, all with a guarantee that is asked for both ways: what
    /// docs/report.md and the reference of `[report]` say of the default size.
    #[test]
    fn the_default_size_lasts_as_long_as_the_page_says() {
        let amount = Amount { packets: 8_000, bytes: 12_000_000 };
        let at_unix_ms = 1_700_000_000_000;
        let side = Service {
            guaranteed_bytes: 12_500_000,
            offered: amount,
            above_limit: Amount::default(),
            got: amount,
            below: Nanos::ZERO,
            worst: Some(WorstSecond {
                at_unix_ms,
                time: Nanos::from_secs(1),
                got_bytes: 12_000_000,
                owed_bytes: 12_000_000,
            }),
        };
        let length = |vif: Option<&str>| {
            let mut bytes = Vec::new();
            ServiceRecord { sides: [side; 2], kernel: KernelAmounts::default(), ..record(vif, 0) }
                .write(&mut bytes);
            bytes.len() as u64 + 8
        };
        let second = 4 * (length(None) + length(Some("gold.0")));
        assert!((85..=115).contains(&(second / 8)), "{} bytes a record", second / 8);
        let quarter = weir_policy::Report::default().bytes.get() / 4;
        let (hours, days) = (3 * quarter / second / 3_600, quarter / second / 60 / 24);
        assert_eq!((hours, days), (16, 14));
    }
}
