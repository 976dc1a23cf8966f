// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The resources of a node that slices share, and amounts of them.

use core::fmt;

use weir_units::{BitRate, CpuShare, Nanos};

/// A resource of a node that slices share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The rate that leaves by the node's link, in bits on the wire a second.
    Send,
    /// The rate that comes by the node's link, in bits on the wire a second.
    Receive,
    /// Processor time, in millionths of a processor.
    Cpu,
    /// Time of the sending cycle, in nanoseconds: the sum of all phases.
    Cycle,
    /// Packets, in millionths of what the node's CPU model was measured with: the sum over slices
    /// of each one's rate by the largest measured rate of its frame size. A node with a model has a
    /// million. Beyond that the model is a guess, however little each slice sends.
    Packets,
}

/// An amount of each resource, in its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceAmounts(pub [u64; Resource::ALL.len()]);

impl Resource {
    /// All, in the order of [`ResourceAmounts`].
    pub const ALL: [Self; 5] = [Self::Send, Self::Receive, Self::Cpu, Self::Cycle, Self::Packets];

    /// Its name in plans: `send`, `receive`, `cpu`, `cycle`, `packets`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Cpu => "cpu",
            Self::Cycle => "cycle",
            Self::Packets => "packets",
        }
    }

    /// Returns `amount` of the resource as text, with its unit: `150Mbit`, `12.5%`, `130us`;
    /// packets in percent of the measured rates.
    #[must_use]
    pub fn text(self, amount: u64) -> String {
        match self {
            Self::Send | Self::Receive => BitRate::from_bps(amount).to_string(),
            Self::Cpu | Self::Packets => match u32::try_from(amount) {
                Ok(ppm) => CpuShare::from_ppm(ppm).to_string(),
                Err(_) => format!("{}%", amount / 10_000),
            },
            Self::Cycle => Nanos::new(amount).to_string(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ResourceAmounts {
    /// Returns the amount of one resource.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Tells whether `self` fits into `room`, in each resource.
    #[must_use]
    pub fn fits(&self, room: &Self) -> bool {
        self.0.iter().zip(&room.0).all(|(need, has)| need <= has)
    }

    /// Returns the sum in each resource, saturating.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*more);
        }
        self
    }

    /// Returns the difference in each resource, not below zero.
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        for (rest, less) in self.0.iter_mut().zip(&other.0) {
            *rest = rest.saturating_sub(*less);
        }
        self
    }

    /// Returns `self` as shares of `whole`; 0 where the whole has nothing.
    pub(crate) fn shares(&self, whole: &Self) -> [f64; Resource::ALL.len()] {
        let mut shares = [0.0; Resource::ALL.len()];
        for ((share, part), all) in shares.iter_mut().zip(self.0).zip(whole.0) {
            if all > 0 {
                *share = float(part) / float(all);
            }
        }
        shares
    }

    /// Returns the sum of the shares of `whole`: one number for how large an amount is.
    pub(crate) fn size(&self, whole: &Self) -> f64 {
        self.shares(whole).iter().sum()
    }
}

/// Returns a count as a float; exact up to 2⁵³, which all bounds of a request stay below.
#[expect(clippy::cast_precision_loss, reason = "amounts and prices stay below 2^53")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

/// Returns the whole part of a float that is not negative; saturating, 0 for what is no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what callers expect"
)]
pub(crate) const fn whole(value: f64) -> u64 {
    value as u64
}
