//! NBD exports: their listeners, TLS and limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::control::socket::check_path;
use hemi_io::config::ConfigError;
use hemi_io::config::bounds::Bounds;
use hemi_io::config::legs::NBD_PORT;
use hemi_io::config::tls::TlsConfig;
use hemi_units::Size;

/// An address to listen on: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix stream socket at this path. A stale socket file there is replaced.
    Unix(PathBuf),
    /// A TCP address.
    Tcp {
        /// Host name or address (an IPv6 address has no brackets).
        host: String,
        /// The TCP port.
        port: u16,
    },
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Listen::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "tcp:[{host}]:{port}")
            }
            Listen::Tcp { host, port } => write!(formatter, "tcp:{host}:{port}"),
        }
    }
}

/// The reason why an address to listen on was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is not an address to listen on: {reason}")]
pub struct ListenError {
    address: String,
    reason: String,
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(address: &str) -> Result<Listen, ListenError> {
        let fail = |reason: String| ListenError { address: address.to_owned(), reason };
        if let Some(path) = address.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(fail("the path is empty; write unix:PATH".into()));
            }
            check_path(Path::new(path)).map_err(fail)?;
            return Ok(Listen::Unix(path.into()));
        }
        let Some(rest) = address.strip_prefix("tcp:") else {
            return Err(fail("write unix:PATH or tcp:HOST[:PORT]".into()));
        };
        let (host, port) = host_and_port(rest, Some(NBD_PORT)).map_err(fail)?;
        Ok(Listen::Tcp { host, port })
    }
}

/// Splits `HOST:PORT` or `[IPV6]:PORT`. An empty host means all addresses.
///
/// # Errors
///
/// Text that names the problem.
pub fn host_and_port(text: &str, default: Option<u16>) -> Result<(String, u16), String> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or("the `[` is not closed")?;
        // An address such as fe80::1%eth0 names the interface, too.
        let address = host.split_once('%').map_or(host, |(address, _)| address);
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("`{host}` is not an IPv6 address; only those take brackets"));
        }
        if !(after.is_empty() || after.starts_with(':')) {
            return Err(format!("`{after}` follows the `]`; write [{host}]:PORT"));
        }
        (host, after.strip_prefix(':'))
    } else {
        match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err("an IPv6 address needs brackets: [::1]:PORT".into());
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.contains(['[', ']']) {
        return Err(format!("`{host}` is not a host; write HOST or [IPV6]"));
    }
    let port = match (port, default) {
        (Some(port), _) => {
            port.parse().map_err(|_| format!("`{port}` is not a port (0 to 65535)"))?
        }
        (None, Some(default)) => default,
        (None, None) => return Err("the port is missing; write HOST:PORT".into()),
    };
    let host = if host.is_empty() { "::" } else { host };
    Ok((host.to_owned(), port))
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Limits on the clients of one export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct ExportLimits {
    /// Maximum number of open connections. Further ones are closed at once, or wait if one is
    /// leaving. Default: 64.
    pub connections_max: u32,
    /// Largest payload of one request. Default: 32 MiB, the most that NBD clients send by default.
    pub request_bytes_max: Size,
    /// Payload in flight per connection. Beyond it, the socket is not read. Default: 64 MiB.
    pub in_flight_bytes_max: Size,
    /// Requests in flight per connection. Beyond it, the socket is not read. Default: 256.
    pub in_flight_requests_max: u32,
}

impl Default for ExportLimits {
    fn default() -> ExportLimits {
        ExportLimits {
            connections_max: 64,
            request_bytes_max: Size::mib(32),
            in_flight_bytes_max: Size::mib(64),
            in_flight_requests_max: 256,
        }
    }
}

/// One export: a listener, and the volume as offered there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct ExportConfig {
    /// The address of the NBD listener.
    pub nbd: Listen,
    /// Name by which clients ask for the export. The empty name always works, too. Default: the
    /// volume's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True if writes are refused. Default: false.
    #[serde(default)]
    pub read_only: bool,
    /// TLS of the export. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// Limits on its clients.
    #[serde(default)]
    pub limits: ExportLimits,
}

impl ExportConfig {
    /// Returns an export with default options.
    pub fn new(nbd: Listen) -> ExportConfig {
        ExportConfig {
            nbd,
            name: None,
            read_only: false,
            tls: None,
            limits: ExportLimits::default(),
        }
    }

    pub(super) fn bounds(&self, prefix: &str, bounds: &mut Bounds) {
        let defaults = ExportLimits::default();
        let limits = &self.limits;
        let key = |name: &str| format!("{prefix}.limits.{name}");
        bounds.count(
            &key("connections_max"),
            limits.connections_max,
            defaults.connections_max,
            1..=4096,
        );
        bounds.size(
            &key("request_bytes_max"),
            limits.request_bytes_max,
            defaults.request_bytes_max,
            Size::mib(1)..=Size::mib(64),
        );
        bounds.size(
            &key("in_flight_bytes_max"),
            limits.in_flight_bytes_max,
            defaults.in_flight_bytes_max,
            Size::mib(1)..=Size::gib(4),
        );
        bounds.count(
            &key("in_flight_requests_max"),
            limits.in_flight_requests_max,
            defaults.in_flight_requests_max,
            1..=4096,
        );
    }

    pub(super) fn faults(&self, prefix: &str, faults: &mut Vec<ConfigError>) {
        /// The NBD protocol limits every string to this length.
        const NBD_STRING_MAX: usize = 4096;
        if self.limits.in_flight_bytes_max < self.limits.request_bytes_max {
            faults.push(ConfigError::conflict(
                format!("{prefix}.limits.in_flight_bytes_max"),
                format!(
                    "{} is less than request_bytes_max ({}), so that the largest request could \
                     never start; raise it or lower request_bytes_max",
                    self.limits.in_flight_bytes_max, self.limits.request_bytes_max
                ),
            ));
        }
        if let Some(tls) = &self.tls {
            tls.faults(prefix, faults);
        }
        if self.name.as_ref().is_some_and(|name| name.len() > NBD_STRING_MAX) {
            faults.push(ConfigError::conflict(
                format!("{prefix}.name"),
                format!("an export name has at most {NBD_STRING_MAX} bytes"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["unix:/run/a.sock", "tcp:localhost:10809", "tcp:[::1]:5"] {
            assert_eq!(text.parse::<Listen>().map(|listen| listen.to_string()), Ok(text.into()));
        }
        assert_eq!(
            "tcp::10809".parse(),
            Ok(Listen::Tcp { host: "::".into(), port: 10809 }),
            "an empty host is every address"
        );
        assert_eq!(
            "tcp:h".parse(),
            Ok(Listen::Tcp { host: "h".into(), port: NBD_PORT }),
            "the port has a default"
        );
    }

    #[test]
    fn bad_addresses_say_what_is_right() {
        let long = format!("unix:/{}", "x".repeat(107));
        for (text, part) in [
            ("", "write unix:PATH or tcp:"),
            ("/run/a.sock", "write unix:PATH or tcp:"),
            ("unix:", "path is empty"),
            (long.as_str(), "has 108 bytes; a unix socket's path has at most 107"),
            ("tcp:h:port", "`port` is not a port"),
            ("tcp:::1", "needs brackets"),
            ("tcp:[::1", "not closed"),
            ("tcp:[::1]10809", "`10809` follows the `]`"),
            ("tcp:[host]:10809", "`host` is not an IPv6 address"),
            ("tcp:[[::1]:10809", "`[::1` is not an IPv6 address"),
            ("tcp:h]:10809", "`h]` is not a host"),
        ] {
            let error = text.parse::<Listen>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
