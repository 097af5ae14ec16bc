//! NBD URIs: `nbd://`, `nbds://`, `nbd+unix://`, `nbds+unix://`.
//!
//! Source: the NBD URI specification, `doc/uri.md` of the reference implementation.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::limits::STRING_BYTES_MAX;

/// Default port of `nbd://` and `nbds://`.
pub const DEFAULT_PORT: u16 = 10809;

/// The address at which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host name or address (IPv6 without brackets) and a port.
    Tcp {
        /// Host.
        host: String,
        /// Port.
        port: u16,
    },
    /// The path of a unix socket.
    Unix {
        /// Path.
        path: String,
    },
}

/// A parsed NBD URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The address at which the server listens.
    pub address: Address,
    /// True to use TLS.
    pub tls: bool,
    /// The export's name, or empty for the server's default.
    pub export: String,
    /// `tls-certificates`: directory with `ca-cert.pem`, `client-cert.pem`, `client-key.pem`.
    pub tls_certificates: Option<String>,
    /// `tls-hostname`: the name in the server's certificate, if it is not the host.
    pub tls_hostname: Option<String>,
}

/// The reason why a text is not a usable NBD URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The scheme is another one.
    #[error("{uri:?} begins with none of nbd://, nbds://, nbd+unix://, nbds+unix://")]
    Scheme {
        /// The text.
        uri: String,
    },
    /// A `%` escape is broken, or produces invalid UTF-8 or a NUL.
    #[error("{part:?} has a broken percent escape; write % itself as %25")]
    Escape {
        /// The part that contains it.
        part: String,
    },
    /// There is no host.
    #[error("{uri:?} names no host; write nbd://HOST[:PORT]/EXPORT")]
    NoHost {
        /// The text.
        uri: String,
    },
    /// The port is not valid, or brackets do not match.
    #[error("{authority:?} is not HOST, HOST:PORT or [IPV6]:PORT with a port from 1 to 65535")]
    Authority {
        /// The part between `//` and `/`.
        authority: String,
    },
    /// There is a user name.
    #[error("{authority:?} names a user, which hemi does not use")]
    User {
        /// The part between `//` and `/`.
        authority: String,
    },
    /// `nbd+unix://` has a host.
    #[error("{uri:?} names a host; write nbd+unix:///EXPORT?socket=PATH (three slashes)")]
    UnixHost {
        /// The text.
        uri: String,
    },
    /// `nbd+unix://` has no socket.
    #[error("{uri:?} names no socket; write nbd+unix:///EXPORT?socket=PATH")]
    NoSocket {
        /// The text.
        uri: String,
    },
    /// A query parameter has no meaning here.
    #[error(
        "{uri:?} has the parameter {name:?}; known are socket (with nbd+unix), tls-certificates and tls-hostname (with nbds)"
    )]
    Parameter {
        /// The text.
        uri: String,
        /// The parameter.
        name: String,
    },
    /// There is a fragment.
    #[error("{uri:?} has a fragment (#…), which an NBD URI cannot have; write # itself as %23")]
    Fragment {
        /// The text.
        uri: String,
    },
    /// The export's name is too long.
    #[error("the export name of {bytes} bytes is longer than {STRING_BYTES_MAX}")]
    LongExport {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl NbdUri {
    /// Returns true if a text is meant to be an NBD URI, well-formed or not.
    pub fn is_nbd(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Parses a URI.
    ///
    /// # Errors
    /// Returns the error in the text and its correction.
    pub fn parse(text: &str) -> Result<NbdUri, UriError> {
        let uri = || text.to_string();
        let (unix, tls, rest) = scheme(text).ok_or_else(|| UriError::Scheme { uri: uri() })?;
        if rest.contains('#') {
            return Err(UriError::Fragment { uri: uri() });
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let export = unescape(export)?;
        if export.len() > STRING_BYTES_MAX {
            return Err(UriError::LongExport { bytes: export.len() });
        }
        let (mut socket, mut tls_certificates, mut tls_hostname) = (None, None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let target = match name {
                "socket" if unix => &mut socket,
                "tls-certificates" if tls => &mut tls_certificates,
                "tls-hostname" if tls => &mut tls_hostname,
                _ => return Err(UriError::Parameter { uri: uri(), name: name.to_string() }),
            };
            *target = Some(unescape(value)?);
        }
        let address = if unix {
            if !authority.is_empty() {
                return Err(UriError::UnixHost { uri: uri() });
            }
            let path = socket.filter(|path| !path.is_empty());
            Address::Unix { path: path.ok_or_else(|| UriError::NoSocket { uri: uri() })? }
        } else {
            if authority.is_empty() {
                return Err(UriError::NoHost { uri: uri() });
            }
            parse_authority(authority)?
        };
        Ok(NbdUri { address, tls, export, tls_certificates, tls_hostname })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        let mut parameters = Vec::new();
        match &self.address {
            Address::Tcp { host, port } => {
                write!(f, "nbd{tls}://")?;
                if host.contains(':') {
                    write!(f, "[{host}]")?;
                } else {
                    write!(f, "{}", Escaped(host))?;
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
            }
            Address::Unix { path } => {
                write!(f, "nbd{tls}+unix://")?;
                parameters.push(("socket", path));
            }
        }
        write!(f, "/{}", Escaped(&self.export))?;
        parameters.extend(self.tls_certificates.iter().map(|value| ("tls-certificates", value)));
        parameters.extend(self.tls_hostname.iter().map(|value| ("tls-hostname", value)));
        for (index, (name, value)) in parameters.into_iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={}", Escaped(value))?;
        }
        Ok(())
    }
}

impl core::str::FromStr for NbdUri {
    type Err = UriError;
    fn from_str(text: &str) -> Result<NbdUri, UriError> {
        NbdUri::parse(text)
    }
}

/// Returns two flags, for a unix socket and for TLS, and the text after the `://`.
fn scheme(text: &str) -> Option<(bool, bool, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let schemes = [
        ("nbd", false, false),
        ("nbds", false, true),
        ("nbd+unix", true, false),
        ("nbds+unix", true, true),
    ];
    let known = schemes.into_iter().find(|(name, _, _)| scheme.eq_ignore_ascii_case(name));
    known.map(|(_, unix, tls)| (unix, tls, rest))
}

fn parse_authority(authority: &str) -> Result<Address, UriError> {
    let bad = || UriError::Authority { authority: authority.to_string() };
    if authority.contains('@') {
        return Err(UriError::User { authority: authority.to_string() });
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            let is_address = host.parse::<core::net::Ipv6Addr>().is_ok();
            if !is_address || !(port.is_empty() || port.starts_with(':')) {
                return Err(bad());
            }
            (host.to_string(), port.strip_prefix(':'))
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            (unescape(host)?, port)
        }
    };
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
            digits.parse().ok().filter(|&port| port != 0).ok_or_else(bad)?
        }
        Some(_) => return Err(bad()),
    };
    // This includes percent escapes: no host has such characters, and they could not be shown
    // as written.
    let no_name = |c: char| matches!(c, ':' | '/' | '@' | '[' | ']' | '?' | '#') || c.is_control();
    if host.is_empty() || (host.contains(no_name) && !authority.starts_with('[')) {
        return Err(bad());
    }
    Ok(Address::Tcp { host, port })
}

fn unescape(part: &str) -> Result<String, UriError> {
    let broken = || UriError::Escape { part: part.to_string() };
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || {
                    let digit = rest.next().map(char::from).and_then(|digit| digit.to_digit(16));
                    digit.ok_or_else(broken)
                };
                // The escape has two hexadecimal digits.
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    let text = String::from_utf8(bytes).map_err(|_| broken())?;
    if text.contains('\0') { Err(broken()) } else { Ok(text) }
}

/// A text that is displayed with all but the harmless characters escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::format;

    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    #[test]
    fn the_four_schemes() {
        let cases = [
            ("nbd://host", tcp("host", 10809), false, ""),
            ("nbd://host:99/disk", tcp("host", 99), false, "disk"),
            ("NBDS://127.0.0.1/a%20b", tcp("127.0.0.1", 10809), true, "a b"),
            ("nbd://[::1]:10809//x", tcp("::1", 10809), false, "/x"),
            ("nbd+unix:///?socket=/tmp/s", Address::Unix { path: "/tmp/s".into() }, false, ""),
            (
                "nbds+unix:///e?socket=%2Ftmp%2Fs%26t",
                Address::Unix { path: "/tmp/s&t".into() },
                true,
                "e",
            ),
        ];
        for (text, address, tls, export) in cases {
            let uri = NbdUri::parse(text).unwrap();
            assert_eq!(
                (uri.address, uri.tls, uri.export.as_str()),
                (address, tls, export),
                "{text}"
            );
        }
        let uri = NbdUri::parse("nbds://h/?tls-certificates=/etc/c&tls-hostname=n").unwrap();
        assert_eq!(uri.tls_certificates.as_deref(), Some("/etc/c"));
        assert_eq!(uri.tls_hostname.as_deref(), Some("n"));
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            ("http://host/", "begins with none of nbd://"),
            ("nbd:unix:/x", "begins with none of nbd://"),
            ("nbd:///x", "names no host"),
            ("nbd://:10/x", "is not HOST, HOST:PORT"),
            ("nbd://h:0/", "is not HOST, HOST:PORT"),
            ("nbd://h:65536/", "is not HOST, HOST:PORT"),
            ("nbd://h:+1/", "is not HOST, HOST:PORT"),
            ("nbd://::1/", "is not HOST, HOST:PORT"),
            ("nbd://[::1/", "is not HOST, HOST:PORT"),
            ("nbd://[::1]x/", "is not HOST, HOST:PORT"),
            ("nbd://[nonsense]/", "is not HOST, HOST:PORT"),
            ("nbd://%2fd://", "is not HOST, HOST:PORT"),
            ("nbd://u%40h/", "is not HOST, HOST:PORT"),
            ("nbd://u@h/", "names a user"),
            ("nbd+unix:///x", "names no socket"),
            ("nbd+unix:///x?socket=", "names no socket"),
            ("nbd+unix://x?socket=/s", "names a host"),
            ("nbd://h/?socket=/s", "has the parameter \"socket\""),
            ("nbd+unix:///?sokcet=/s", "has the parameter \"sokcet\""),
            ("nbd://h/%zz", "broken percent escape"),
            ("nbd://h/%4", "broken percent escape"),
            ("nbd://h/%00", "broken percent escape"),
            ("nbd://h/%ff", "broken percent escape"),
            ("nbd://h/a#b", "has a fragment"),
        ];
        for (text, part) in cases {
            let message = NbdUri::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
        let long = format!("nbd://h/{}", "x".repeat(4097));
        assert_eq!(NbdUri::parse(&long), Err(UriError::LongExport { bytes: 4097 }));
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(
            tls: bool,
            unix: bool,
            name in "[a-z0-9.-]{1,20}",
            path in "/\\PC{0,30}",
            export in "\\PC{0,30}",
            port in 1_u16..,
        ) {
            let address =
                if unix { Address::Unix { path } } else { Address::Tcp { host: name, port } };
            let uri =
                NbdUri { address, tls, export, tls_certificates: None, tls_hostname: None };
            let text = uri.to_string();
            prop_assert_eq!(NbdUri::parse(&text), Ok(uri));
        }

        #[test]
        fn never_panics(text in "(nbds?(\\+unix)?://)?\\PC{0,60}") {
            let _ = NbdUri::parse(&text);
        }
    }
}
