//! Addresses that requests must not reach: this machine, its local links, and metadata services of clouds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which addresses a connection may be opened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressPolicy {
    /// All except this machine, link-local addresses, and services that hand out a machine's credentials.
    #[default]
    NonLocal,
    /// All addresses.
    Any,
}

/// Metadata services of clouds that do not use the link-local address.
const METADATA: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

impl AddressPolicy {
    /// Returns whether a connection to this address is allowed.
    pub fn allows(self, address: IpAddr) -> bool {
        self == Self::Any || !is_local(address)
    }
}

fn is_local(address: IpAddr) -> bool {
    match address {
        _ if METADATA.contains(&address) => true,
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || v4.octets()[0] == 0
        }
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_local(IpAddr::V4(v4)),
            None => {
                v6.is_loopback() || v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local()
            }
        },
    }
}

/// Returns the IPv4 address inside an IPv6 one: mapped, compatible, translated (64:ff9b::/96) or tunnelled (2002::/16).
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = v6.segments();
    let joined = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] if (high, low) != (0, 0) && (high, low) != (0, 1) => {
            Some(joined(high, low))
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(joined(high, low)),
        [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_forbidden_in_any_notation() {
        for local in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "255.255.255.255",
            "224.0.0.1",
            "100.100.100.200",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "fd00:ec2::254",
        ] {
            let address: IpAddr = local.parse().unwrap();
            assert!(!AddressPolicy::NonLocal.allows(address), "{local}");
            assert!(AddressPolicy::Any.allows(address));
        }
        for remote in [
            "10.0.0.7",
            "192.168.1.1",
            "8.8.8.8",
            "2001:db8::1",
            "fd12::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(
                AddressPolicy::NonLocal.allows(remote.parse().unwrap()),
                "{remote}"
            );
        }
    }
}
