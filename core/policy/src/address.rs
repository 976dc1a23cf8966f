// SPDX-License-Identifier: Apache-2.0 OR MIT
//! MAC addresses and IP prefixes: parsing, printing, and the few questions a policy asks of them.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

/// An IPv4 or IPv6 prefix. Host bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// The error for a text that is no address of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseAddressError {
    text: String,
    wanted: &'static str,
}

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true for a group address, broadcast included: IEEE 802-2014 §8.2.2, I/G bit.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns true if all bits are zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl Prefix {
    /// Returns the prefix of `length` bits that holds `address`; `None` if it is longer than the
    /// address.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) if length <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
            _ => return None,
        };
        Some(Self { address, length })
    }

    /// Returns the prefix's first address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the prefix's length in bits, 0 to 32 or 128.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns true if `address` lies in the prefix. An IPv6 prefix holds no IPv4 address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self::new(address, self.length) == Some(self)
    }

    /// Returns true if all addresses of `other` lie in the prefix.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }
}

/// Six pairs of hexadecimal digits with colons between.
impl FromStr for MacAddr {
    type Err = ParseAddressError;
    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let error = || ParseAddressError {
            text: text.to_string(),
            wanted: "a MAC address, such as 02:00:00:00:01:01",
        };
        let mut octets = [0; 6];
        let mut pairs = text.split(':');
        for octet in &mut octets {
            let pair = pairs.next().ok_or_else(error)?;
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(error());
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| error())?;
        }
        if pairs.next().is_some() { Err(error()) } else { Ok(Self(octets)) }
    }
}

/// An address alone is a prefix of all its bits.
impl FromStr for Prefix {
    type Err = ParseAddressError;
    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let wanted = "an address or prefix, such as 10.0.0.0/8 or 2001:db8::/32";
        let error = || ParseAddressError { text: text.to_string(), wanted };
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => whole,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| error())?
            }
            Some(_) => return Err(error()),
        };
        Self::new(address, length).ok_or_else(error)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Display for ParseAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.text, self.wanted)
    }
}

impl core::error::Error for ParseAddressError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_written() {
        for text in ["02:00:00:00:01:ff", "00:00:00:00:00:00"] {
            assert_eq!(text.parse::<MacAddr>().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8:ffff::/20", "2001::/20"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "02:00", "02:00:00:00:01:0", "02:00:00:00:01:011", "02-00-00-00-01-01"] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
        for text in ["", "/", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::/129", "ten", "::/-1"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_holds_its_addresses_and_no_other() {
        let prefix: Prefix = "10.0.0.0/9".parse().unwrap();
        assert!(prefix.contains("10.127.255.255".parse().unwrap()));
        assert!(!prefix.contains("10.128.0.0".parse().unwrap()));
        assert!(!prefix.contains("::a00:0".parse().unwrap()));
        assert!("::/0".parse::<Prefix>().unwrap().contains("::1".parse().unwrap()));
    }
}
