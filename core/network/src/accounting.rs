// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a requested rate to a limiter's rate and to what arcs are charged.
//!
//! Each packet grows by the outer header of 40 bytes: for small packets that is a large part of the
//! rate. A limiter counts packets with that header, so that an arc never carries more than was
//! reserved, whatever the size of packets is. It passes a little more or less than its rate. It is
//! therefore set above the request, so that the application gets what it asked for even where the
//! limiter passes too little, and an arc is charged what leaves a limiter that passes too much.

use serde::{Deserialize, Serialize};
use weir_units::{BitRate, mul_add_div};

use crate::connection::{AdmittedFlow, RateBasis, RoutedPath};
use crate::error::NetworkError;

/// Bytes that the tunnel's IPv6 header adds to each packet.
pub const TUNNEL_OVERHEAD: u16 = 40;
/// Bytes of the Ethernet header, which rates count.
const LINK_HEADER: u64 = 14;
/// The largest packet that a tunnel carries whole, on links of 1500 bytes.
pub const TUNNEL_MTU: u16 = 1460;
/// The smallest packet: an IPv6 header alone.
pub const PACKET_MIN: u16 = 40;
/// The highest requested rate, 10 Tbit/s: what follows from it fits into 64 bits by far.
pub const REQUEST_RATE_MAX: BitRate = BitRate::from_bps(10_000_000_000_000);

/// The way in which rates are accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelAccounting {
    /// The limiter's error to either side, in parts per million, at most 100 000.
    pub limiter_error_ppm: u32,
}

impl Default for TunnelAccounting {
    /// 0.2 %: the application gets 0 to 0.41 % more than it asked for.
    fn default() -> Self {
        Self { limiter_error_ppm: 2_000 }
    }
}

/// The rates that follow from a requested rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountedRate {
    /// The limiter's rate, in layer-2 bits of outer packets.
    pub limit: BitRate,
    /// The charge of each arc, likewise.
    pub reserved: BitRate,
}

impl AccountedRate {
    /// A flow of this rate on a path.
    #[must_use]
    pub const fn on(self, path: RoutedPath) -> AdmittedFlow {
        AdmittedFlow { path, limit: self.limit, reserved: self.reserved }
    }
}

impl TunnelAccounting {
    /// Checks its bound.
    ///
    /// # Errors
    ///
    /// Names the error, if it is above 10 %.
    pub const fn validate(&self) -> Result<(), NetworkError> {
        if self.limiter_error_ppm <= 100_000 {
            return Ok(());
        }
        Err(NetworkError::OutOfRange {
            thing: "limiter's error in ppm",
            value: self.limiter_error_ppm as u64,
            least: 0,
            most: 100_000,
        })
    }

    /// Accounts a requested rate. Rounds up, so that neither the application nor an arc is short.
    #[must_use]
    pub fn account(&self, asked: BitRate, basis: RateBasis) -> AccountedRate {
        let error = u64::from(self.limiter_error_ppm.min(100_000));
        let outer = match basis {
            RateBasis::Outer => asked.as_bps(),
            RateBasis::Inner { smallest_packet } => {
                let frame = u64::from(smallest_packet.max(PACKET_MIN)) + LINK_HEADER;
                scale_ceil(asked.as_bps(), frame + u64::from(TUNNEL_OVERHEAD), frame)
            }
        };
        let limit = scale_ceil(outer, 1_000_000, 1_000_000 - error);
        let reserved = scale_ceil(limit, 1_000_000 + error, 1_000_000);
        AccountedRate { limit: BitRate::from_bps(limit), reserved: BitRate::from_bps(reserved) }
    }
}

fn scale_ceil(rate: u64, by: u64, of: u64) -> u64 {
    let (whole, rest) = mul_add_div(rate, by, 0, of);
    whole.saturating_add(u64::from(rest > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_cost_their_headers() {
        let accounting = TunnelAccounting { limiter_error_ppm: 0 };
        let asked = BitRate::from_mbps(100);
        let outer = accounting.account(asked, RateBasis::Outer);
        assert_eq!(outer.reserved, asked);
        // Frames of 80 bytes become frames of 120, for the limiter and for the arcs.
        let inner = accounting.account(asked, RateBasis::Inner { smallest_packet: 66 });
        assert_eq!((inner.limit, inner.reserved), (BitRate::from_mbps(150), inner.limit));
    }

    #[test]
    fn the_limiter_error_is_counted_for_the_application_and_for_the_arc() {
        let accounting = TunnelAccounting { limiter_error_ppm: 50_000 };
        let rate = accounting.account(BitRate::from_bps(950_000), RateBasis::Outer);
        assert_eq!((rate.limit.as_bps(), rate.reserved.as_bps()), (1_000_000, 1_050_000));
        assert!(accounting.validate().is_ok());
        let error = TunnelAccounting { limiter_error_ppm: 100_001 }.validate().unwrap_err();
        assert_eq!(error.to_string(), "limiter's error in ppm: 100001, in 0 to 100000");
    }
}
