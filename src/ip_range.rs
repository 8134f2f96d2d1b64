//! Ranges of IP addresses, as configurations name them.

use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all that begin with the same bits: `10.0.0.0/8`, `2001:db8::/32`, `127.0.0.1` (RFC 4632, RFC 4291).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    address: IpAddr,
    /// How many of the address's first bits count.
    bits: u32,
}

/// Neither an IP address nor a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a range of them, such as 10.0.0.0/8")]
pub struct NotAnIpRange;

impl IpRange {
    /// Whether an address lies in it. An IPv4 address that is written as IPv6 (`::ffff:10.0.0.1`) is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.leading_zeros() >= self.bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl FromStr for IpRange {
    type Err = NotAnIpRange;

    fn from_str(text: &str) -> Result<Self, NotAnIpRange> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotAnIpRange)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // A sign would be read too.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| NotAnIpRange)?
            }
            Some(_) => return Err(NotAnIpRange),
            None => most,
        };
        if bits > most {
            return Err(NotAnIpRange);
        }
        Ok(Self { address, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_ranges_whose_first_bits_it_has() {
        for (range, address, lies_in_it) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "a00::1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("192.168.1.128/25", "192.168.1.127", false),
            ("192.168.1.128/25", "192.168.1.128", true),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::1", "::1", true),
        ] {
            let found = range.parse::<IpRange>().unwrap().contains(address.parse().unwrap());
            assert_eq!(found, lies_in_it, "{address} in {range}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "::/129",
            "a.example",
            "*",
            "1.2.3.4:80",
        ] {
            assert_eq!(text.parse::<IpRange>(), Err(NotAnIpRange), "{text}");
        }
    }
}
