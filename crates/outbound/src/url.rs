//! HTTP URLs.

use std::fmt;
use std::str::FromStr;

use crate::OutboundError;

/// A URL of the form `http(s)://host[:port]/path?query`, without user, password and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether the scheme is `https`.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port number.
    pub port: u16,
    /// Path and query, starting with a slash.
    pub path: String,
}

/// Maximum length of a URL.
const MAX_LENGTH: usize = 2_000;

impl FromStr for Url {
    type Err = OutboundError;

    fn from_str(text: &str) -> Result<Self, OutboundError> {
        let invalid = |reason: &str| {
            OutboundError::Invalid(format!(
                "invalid URL: {reason}; expected https://host/path or http://host/path"
            ))
        };
        if text.len() > MAX_LENGTH || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(invalid("must be at most 2000 visible ASCII characters"));
        }
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            (None, None) => return Err(invalid("must start with https:// or http://")),
        };
        if rest.contains('#') {
            return Err(invalid("must not contain a fragment (#)"));
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(|| invalid("missing `]`"))?;
                let parsed: Result<std::net::Ipv6Addr, _> = host.parse();
                parsed.map_err(|_| invalid("the address in brackets is not IPv6"))?;
                (host, after.strip_prefix(':').or(after.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let port = match port {
            None => return Err(invalid("expected `:port` or a path after the host")),
            Some("") => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid("the port must be a number from 1 to 65535"))?,
        };
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || host.len() > 253 || !host.chars().all(is_allowed) {
            return Err(invalid(
                "the host must be a name or an address, without user and password",
            ));
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
    /// Returns host and port as in the `Host` header; the default port is left out.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Returns whether the host is a loopback address or `localhost`.
    pub fn is_loopback(&self) -> bool {
        let address: Result<std::net::IpAddr, _> = self.host.parse();
        self.host == "localhost" || address.is_ok_and(|a| a.is_loopback())
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// Percent-encodes a value for a query string or a form.
pub fn percent_encode(value: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let encode = |b: u8| match is_plain(b) {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    };
    value.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn valid_urls_survive_a_round_trip_and_others_are_rejected() {
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
        fn accepted_urls_contain_no_line_break_or_blank(text in ".{0,40}") {
            if let Ok(url) = format!("https://{text}").parse::<Url>() {
                prop_assert!(!url.to_string().contains(['\r', '\n', ' ']));
                prop_assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
            }
        }
    }
}
