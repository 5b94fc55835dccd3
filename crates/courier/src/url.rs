//! Addresses of the web, as far as they are needed here.

use std::fmt;
use std::str::FromStr;

use crate::CourierError;

/// `http(s)://host[:port]/path?query`, without user, password and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Path and query; begins with a slash.
    pub path: String,
}

/// The longest that is taken.
const LONGEST: usize = 2_000;

impl FromStr for Url {
    type Err = CourierError;

    fn from_str(text: &str) -> Result<Self, CourierError> {
        let wrong = |what: &str| {
            CourierError::Invalid(format!("{what}; expected https://host/path or http://host/path"))
        };
        if text.len() > LONGEST || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong("an address has at most 2000 visible ASCII characters"));
        }
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            (None, None) => return Err(wrong("the address does not begin with https:// or http://")),
        };
        if rest.contains('#') {
            return Err(wrong("the address has a #"));
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(at);
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(|| wrong("a bracket is missing"))?;
                let known: Result<std::net::Ipv6Addr, _> = host.parse();
                known.map_err(|_| wrong("between brackets is no address"))?;
                (host, after.strip_prefix(':').or(after.is_empty().then_some("")))
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, Some("")),
            },
        };
        let port = match port {
            None => return Err(wrong("after the host comes a port or a path")),
            Some("") => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => port.parse().map_err(|_| wrong("the port is none"))?,
        };
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_fine) || port == 0 {
            return Err(wrong("the host is none"));
        }
        Ok(Self {
            tls,
            host: host.to_ascii_lowercase(),
            port,
            path,
        })
    }
}

impl Url {
    /// Host and port, as a request names them.
    pub fn place(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Whether it names this machine.
    pub fn is_loopback(&self) -> bool {
        let address: Result<std::net::IpAddr, _> = self.host.parse();
        self.host == "localhost" || address.is_ok_and(|a| a.is_loopback())
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.place(), self.path)
    }
}

/// A value as it stands in a query or a form.
pub fn query_value(value: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let one = |b: u8| match is_plain(b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    };
    value.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port, path) in [
            ("https://a.example/x?y=1", "a.example", 443, "/x?y=1"),
            ("http://A.example", "a.example", 80, "/"),
            ("http://127.0.0.1:8080/", "127.0.0.1", 8080, "/"),
            ("https://[::1]:9/a", "::1", 9, "/a"),
            ("https://h?x", "h", 443, "/?x"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(
                (url.host.as_str(), url.port, url.path.as_str()),
                (host, port, path)
            );
            assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
        }
        for wrong in [
            "",
            "ftp://h/",
            "https://",
            "https://h:0/",
            "https://h:70000/",
            "https://user:password@h/",
            "https://user@h/",
            "https://h/a b",
            "https://h/\r\nX: y",
            "https://h/#x",
            "https://[::1/",
            "https://[h]/",
            "https://[::1]x/",
            "javascript:alert(1)",
        ] {
            assert!(wrong.parse::<Url>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_taken_holds_a_line_break(text in ".{0,40}") {
            if let Ok(url) = format!("https://{text}").parse::<Url>() {
                prop_assert!(!url.to_string().contains(['\r', '\n', ' ']));
                prop_assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
            }
        }
    }
}
