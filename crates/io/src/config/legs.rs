//! The device of a leg: its spec string on the command line and its table in a configuration file.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use hemi_nbd::uri::{Address, NbdUri, UriError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use super::ConfigError;
use hemi_units::{Size, Time};

/// Default stripe unit: the smallest region size, at which a drain splits its I/O anyway.
pub const STRIPE_CHUNK_DEFAULT: Size = Size::kib(64);
/// Smallest stripe unit: the largest common logical block of devices.
pub const STRIPE_CHUNK_MIN: Size = Size::kib(4);
/// Largest stripe unit.
pub const STRIPE_CHUNK_MAX: Size = Size::mib(64);
/// Maximum number of devices in one stripe.
pub const STRIPE_WIDTH_MAX: usize = 16;
/// NBD's registered port.
pub const NBD_PORT: u16 = hemi_nbd::uri::DEFAULT_PORT;

/// The place of a leg's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LegSpec {
    /// A regular file or a block device.
    Path(PathBuf),
    /// Several files or block devices, striped.
    Stripe {
        /// The devices in stripe order, which must never change.
        paths: Vec<PathBuf>,
        /// Stripe unit: a power of two from [`STRIPE_CHUNK_MIN`] to [`STRIPE_CHUNK_MAX`].
        chunk: Size,
    },
    /// A regular file or a block device whose first byte is the volume's first, with hemi's
    /// metadata at its end.
    End(PathBuf),
    /// A regular file or a block device whose first byte is the volume's first, and another
    /// one for hemi's metadata.
    External {
        /// The one with the data, then the one with the metadata.
        paths: [PathBuf; 2],
    },
    /// An NBD export over TCP.
    NbdTcp {
        /// Host name or address (an IPv6 address has no brackets).
        host: String,
        /// The TCP port.
        port: u16,
        /// Export name; empty is the server's default export.
        export: String,
        /// The TLS part of the URI, if its scheme is `nbds://`.
        tls: Option<UriTls>,
    },
    /// An NBD export over a unix socket.
    NbdUnix {
        /// Path of the socket.
        socket: PathBuf,
        /// Export name; empty is the server's default export.
        export: String,
        /// The TLS part of the URI, if its scheme is `nbds+unix://`.
        tls: Option<UriTls>,
    },
}

/// The TLS parameters of an `nbds` URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriTls {
    /// `tls-certificates`: a directory with `ca-cert.pem`, and with `client-cert.pem` and `client-key.pem` if
    /// hemi has a certificate of its own.
    pub certificates: Option<PathBuf>,
    /// `tls-hostname`: the name that the server's certificate must carry, if not the host's.
    pub hostname: Option<String>,
}

/// TLS to a remote leg's server (PEM files).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct LegTls {
    /// Authorities that may sign the server's certificate. Default: those that the machine trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// hemi's own certificate chain, for servers that ask for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// The private key of `cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must carry. Default: the URI's host, or `localhost` for a unix
    /// socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

impl LegTls {
    /// Combines the URI's parameters with the table's, which take precedence.
    pub fn merged(uri: &UriTls, table: Option<&LegTls>) -> LegTls {
        let mut merged = LegTls::default();
        if let Some(folder) = &uri.certificates {
            merged.ca = Some(folder.join("ca-cert.pem"));
            let (cert, key) = (folder.join("client-cert.pem"), folder.join("client-key.pem"));
            if cert.exists() {
                (merged.cert, merged.key) = (Some(cert), Some(key));
            }
        }
        merged.hostname.clone_from(&uri.hostname);
        if let Some(table) = table {
            merged.ca = table.ca.clone().or(merged.ca);
            if table.cert.is_some() {
                (merged.cert, merged.key) = (table.cert.clone(), table.key.clone());
            }
            merged.hostname = table.hostname.clone().or(merged.hostname);
        }
        merged
    }
}

impl LegSpec {
    /// Returns true if the leg is reached over a network or a socket, so that fencing applies.
    pub fn is_remote(&self) -> bool {
        matches!(self, LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. })
    }

    /// Returns the TLS parameters of its URI, if it is reached through TLS.
    pub fn tls(&self) -> Option<&UriTls> {
        match self {
            LegSpec::NbdTcp { tls, .. } | LegSpec::NbdUnix { tls, .. } => tls.as_ref(),
            LegSpec::Path(_)
            | LegSpec::Stripe { .. }
            | LegSpec::End(_)
            | LegSpec::External { .. } => None,
        }
    }

    /// Returns the local files or devices of the leg; empty for a remote one.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            LegSpec::Path(path) | LegSpec::End(path) => std::slice::from_ref(path),
            LegSpec::Stripe { paths, .. } => paths,
            LegSpec::External { paths } => paths,
            LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. } => &[],
        }
    }

    /// Returns true if the leg's data begins at the first byte of its file or device and its metadata is
    /// elsewhere.
    pub fn is_apart(&self) -> bool {
        matches!(self, LegSpec::End(_) | LegSpec::External { .. })
    }

    /// Returns the same leg with absolute paths, for a process in another directory.
    ///
    /// # Errors
    /// Fails if the current directory is unknown.
    pub fn absolute(&self) -> io::Result<LegSpec> {
        let full = |path: &PathBuf| std::path::absolute(path);
        let secure = |tls: &Option<UriTls>| -> io::Result<Option<UriTls>> {
            let Some(UriTls { certificates, hostname }) = tls else { return Ok(None) };
            let certificates = certificates.as_ref().map(full).transpose()?;
            Ok(Some(UriTls { certificates, hostname: hostname.clone() }))
        };
        Ok(match self {
            LegSpec::Path(path) => LegSpec::Path(full(path)?),
            LegSpec::Stripe { paths, chunk } => {
                let paths = paths.iter().map(full).collect::<io::Result<_>>()?;
                LegSpec::Stripe { paths, chunk: *chunk }
            }
            LegSpec::End(path) => LegSpec::End(full(path)?),
            LegSpec::External { paths: [data, metadata] } => {
                LegSpec::External { paths: [full(data)?, full(metadata)?] }
            }
            LegSpec::NbdUnix { socket, export, tls } => LegSpec::NbdUnix {
                socket: full(socket)?,
                export: export.clone(),
                tls: secure(tls)?,
            },
            LegSpec::NbdTcp { host, port, export, tls } => LegSpec::NbdTcp {
                host: host.clone(),
                port: *port,
                export: export.clone(),
                tls: secure(tls)?,
            },
        })
    }
}

impl fmt::Display for LegSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LegSpec::Path(path) => match path.to_str() {
                // A path that looks like another kind of spec needs the prefix to be parsed as a path again.
                Some(text) if has_scheme(text) => write!(formatter, "file:{text}"),
                _ => write!(formatter, "{}", path.display()),
            },
            LegSpec::Stripe { paths, chunk } => {
                formatter.write_str("stripe:")?;
                for path in paths {
                    write!(formatter, "{},", path.display())?;
                }
                write!(formatter, "chunk={chunk}")
            }
            LegSpec::End(path) => write!(formatter, "end:{}", path.display()),
            LegSpec::External { paths: [data, metadata] } => {
                let (data, metadata) = (data.display(), metadata.display());
                write!(formatter, "external:{data}{METADATA_KEY}{metadata}")
            }
            LegSpec::NbdTcp { host, port, export, tls } => {
                let address = Address::Tcp { host: host.clone(), port: *port };
                uri(address, export, tls.as_ref()).fmt(formatter)
            }
            LegSpec::NbdUnix { socket, export, tls } => {
                let address = Address::Unix { path: socket.display().to_string() };
                uri(address, export, tls.as_ref()).fmt(formatter)
            }
        }
    }
}

/// The reason why a leg spec was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leg `{spec}`: {reason}")]
pub struct LegSpecError {
    /// The spec as given.
    pub spec: String,
    /// The problem, and what would be right.
    pub reason: String,
}

impl FromStr for LegSpec {
    type Err = LegSpecError;

    fn from_str(spec: &str) -> Result<LegSpec, LegSpecError> {
        let parsed = if spec.is_empty() {
            Err("it is empty; name a file, a block device, stripe:PATH,PATH or nbd://HOST/".into())
        } else if let Some(rest) = spec.strip_prefix("file:") {
            plain_path(rest)
        } else if let Some(rest) = spec.strip_prefix("stripe:") {
            stripe(rest)
        } else if let Some(rest) = spec.strip_prefix("end:") {
            path(rest).map(LegSpec::End)
        } else if let Some(rest) = spec.strip_prefix("external:") {
            external(rest)
        } else if NBD_SCHEMES.iter().any(|scheme| spec.starts_with(scheme)) {
            nbd(spec)
        } else if let Some((scheme, _)) = spec.split_once("://") {
            Err(format!(
                "`{scheme}://` is not supported; use a path, stripe:PATH,PATH, end:PATH, \
                 external:PATH,metadata=PATH, nbd://HOST[:PORT]/[EXPORT] \
                 or nbd+unix:///[EXPORT]?socket=PATH, with TLS nbds:// or nbds+unix:// (for other protocols, export the drive by NBD)"
            ))
        } else {
            plain_path(spec)
        };
        parsed.map_err(|reason| LegSpecError { spec: spec.to_owned(), reason })
    }
}

/// The text before the second path of an `external:` spec.
const METADATA_KEY: &str = ",metadata=";

/// Schemes of NBD exports.
const NBD_SCHEMES: [&str; 4] = ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];

fn has_scheme(text: &str) -> bool {
    ["file:", "stripe:", "end:", "external:"].iter().any(|prefix| text.starts_with(prefix))
        || text.contains("://")
}

fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the path is empty".into()),
        _ if text.contains('\0') => Err("the path holds a NUL byte".into()),
        _ => Ok(PathBuf::from(text)),
    }
}

fn plain_path(text: &str) -> Result<LegSpec, String> {
    path(text).map(LegSpec::Path)
}

fn external(text: &str) -> Result<LegSpec, String> {
    let Some((data, metadata)) = text.split_once(METADATA_KEY) else {
        return Err("it names no place for the metadata; write external:PATH,metadata=PATH".into());
    };
    let paths = [path(data)?, path(metadata)?];
    if paths[0] == paths[1] {
        return Err(format!(
            "{} cannot hold the data and the metadata; end:PATH has the metadata at the end",
            paths[0].display()
        ));
    }
    Ok(LegSpec::External { paths })
}

fn stripe(text: &str) -> Result<LegSpec, String> {
    let mut paths = Vec::new();
    let mut chunk = STRIPE_CHUNK_DEFAULT;
    for part in text.split(',') {
        if let Some(size) = part.strip_prefix("chunk=") {
            chunk = size.parse().map_err(|error| format!("chunk: {error}"))?;
        } else if part.is_empty() {
            return Err("a path is empty; write stripe:PATH,PATH[,chunk=64K]".into());
        } else {
            paths.push(PathBuf::from(part));
        }
    }
    if !(2..=STRIPE_WIDTH_MAX).contains(&paths.len()) {
        return Err(format!(
            "a stripe is made of 2 to {STRIPE_WIDTH_MAX} devices, not {}",
            paths.len()
        ));
    }
    if let Some(twice) = (1..paths.len()).find(|&later| paths[..later].contains(&paths[later])) {
        return Err(format!("{} is named twice", paths[twice].display()));
    }
    if !chunk.0.is_power_of_two() || chunk < STRIPE_CHUNK_MIN || chunk > STRIPE_CHUNK_MAX {
        return Err(format!(
            "chunk={chunk} must be a power of two from {STRIPE_CHUNK_MIN} to {STRIPE_CHUNK_MAX}"
        ));
    }
    Ok(LegSpec::Stripe { paths, chunk })
}

fn nbd(uri: &str) -> Result<LegSpec, String> {
    let NbdUri { address, export, tls, tls_certificates, tls_hostname } =
        uri.parse().map_err(|error: UriError| error.to_string())?;
    let certificates = tls_certificates.map(PathBuf::from);
    let tls = tls.then_some(UriTls { certificates, hostname: tls_hostname });
    Ok(match address {
        Address::Tcp { host, port } => LegSpec::NbdTcp { host, port, export, tls },
        Address::Unix { path } => LegSpec::NbdUnix { socket: PathBuf::from(path), export, tls },
    })
}

/// Returns the URI of an export.
fn uri(address: Address, export: &str, tls: Option<&UriTls>) -> NbdUri {
    let certificates = tls.and_then(|tls| tls.certificates.as_ref());
    NbdUri {
        address,
        tls: tls.is_some(),
        export: export.to_owned(),
        tls_certificates: certificates.map(|folder| folder.display().to_string()),
        tls_hostname: tls.and_then(|tls| tls.hostname.clone()),
    }
}

impl Serialize for LegSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LegSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LegSpec, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// One leg of the volume as configured.
///
/// A file gives either the spec string alone or a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegConfig {
    /// The place of its bytes.
    pub path: LegSpec,
    /// Its name in status, logs and metrics. Default: the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Remote legs only: the time after the loss of a session during which its writes may still land.
    /// Default: [`crate::leg::nbd::QUARANTINE_DEFAULT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Time>,
    /// Remote legs only: the number of connections if the export lets them share one cache
    /// (`CAN_MULTI_CONN`), 1 to [`crate::leg::nbd::CONNECTIONS_MAX`]. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u8>,
    /// Local legs only: true to bypass the page cache (O_DIRECT). Default: true.
    pub direct: bool,
    /// Legs with an `nbds` URI only: TLS parameters. They take precedence over those of the URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<LegTls>,
}

impl LegConfig {
    /// Returns a leg with default options.
    pub fn new(path: LegSpec) -> LegConfig {
        LegConfig { path, name: None, quarantine: None, connections: None, direct: true, tls: None }
    }

    /// Checks that its options suit its kind. `prefix` is its name in errors.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Faults`], naming the options.
    pub fn check(&self, prefix: &str) -> Result<(), ConfigError> {
        let mut faults = Vec::new();
        self.faults(prefix, &mut faults);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        if faults.is_empty() { Ok(()) } else { Err(ConfigError::Faults(faults)) }
    }

    /// Adds the faults of options that do not suit its kind. `prefix` is its name in errors.
    pub fn faults(&self, prefix: &str, faults: &mut Vec<ConfigError>) {
        const MOST: u8 = crate::leg::nbd::CONNECTIONS_MAX;
        let LegConfig { path, quarantine, connections, direct, .. } = self;
        let mut refuse = |name: &str, reason: String| {
            faults.push(ConfigError::conflict(format!("{prefix}.{name}"), reason));
        };
        if let Some(tls) = &self.tls {
            if path.tls().is_none() {
                let reason =
                    format!("{path} is not reached through TLS; write nbds:// or nbds+unix://");
                refuse("tls", reason);
            }
            if tls.cert.is_some() != tls.key.is_some() {
                refuse("tls", "cert and key go together; name both or neither".into());
            }
        }
        if path.is_remote() {
            if !direct {
                let reason = format!("{path} is remote; only a local leg can do without O_DIRECT");
                refuse("direct", reason);
            }
            if let Some(count) = connections.filter(|count| !(1..=MOST).contains(count)) {
                let reason = format!("{count} is out of range; 1 to {MOST} are possible");
                refuse("connections", reason);
            }
            return;
        }
        if quarantine.is_some() {
            let reason = format!("{path} is local; only a remote leg has a quarantine time");
            refuse("quarantine", reason);
        }
        if connections.is_some() {
            let reason = format!("{path} is local; only a remote leg has connections");
            refuse("connections", reason);
        }
    }

    /// Returns its name, or its spec if it has none.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.to_string())
    }
}

impl<'de> Deserialize<'de> for LegConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LegConfig, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            path: LegSpec,
            name: Option<String>,
            quarantine: Option<Time>,
            connections: Option<u8>,
            #[serde(default = "yes")]
            direct: bool,
            tls: Option<LegTls>,
        }
        fn yes() -> bool {
            true
        }
        struct SpecOrTable;
        impl<'de> Visitor<'de> for SpecOrTable {
            type Value = LegConfig;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a leg: a path, `stripe:…`, `end:…`, `external:…`, `nbd://…`, or a table with `path`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<LegConfig, E> {
                text.parse().map(LegConfig::new).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LegConfig, A::Error> {
                let Table { path, name, quarantine, connections, direct, tls } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(LegConfig { path, name, quarantine, connections, direct, tls })
            }
        }
        deserializer.deserialize_any(SpecOrTable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<LegSpec, String> {
        text.parse::<LegSpec>().map_err(|error| error.to_string())
    }

    #[test]
    fn specs_come_back_as_they_went() {
        for text in [
            "/dev/sdb",
            "leg0.img",
            "file:stripe:odd",
            "file:end:odd",
            "end:/dev/sdb",
            "end:leg,0.img",
            "external:/dev/sdb,metadata=/var/lib/hemi/sdb.meta",
            "external:/dev/disk/a,b,metadata=m=1",
            "stripe:/a,/b,chunk=64KiB",
            "stripe:/a,/b,/c,chunk=1MiB",
            "nbd://host/",
            "nbd://host:1234/export",
            "nbd://[fe80::1]:1234/a%20b",
            "nbd+unix:///?socket=/run/x.sock",
            "nbds://host:1234/export?tls-certificates=/etc/pki&tls-hostname=other",
            "nbds+unix:///?socket=/run/x.sock",
            "nbd+unix:///disk/0?socket=/run/with%20space",
        ] {
            let spec = parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn paths_are_made_whole() {
        let here = std::env::current_dir().expect("a test has a directory");
        let here = here.display();
        let whole = |text: &str| {
            let spec = parse(text).expect("a spec").absolute().expect("paths can be made whole");
            spec.to_string()
        };
        assert_eq!(whole("a.img"), format!("{here}/a.img"));
        assert_eq!(whole("stripe:a,/b,chunk=64KiB"), format!("stripe:{here}/a,/b,chunk=64KiB"));
        assert_eq!(whole("end:a"), format!("end:{here}/a"));
        assert_eq!(
            whole("external:/dev/sdb,metadata=m"),
            format!("external:/dev/sdb,metadata={here}/m")
        );
        assert_eq!(whole("nbd+unix:///x?socket=s"), format!("nbd+unix:///x?socket={here}/s"));
        assert_eq!(whole("nbd://h/x"), "nbd://h/x");
    }

    #[test]
    fn defaults_fill_in() {
        assert_eq!(
            parse("stripe:/a,/b"),
            Ok(LegSpec::Stripe { paths: vec!["/a".into(), "/b".into()], chunk: Size::kib(64) })
        );
        assert_eq!(
            parse("nbd://host"),
            Ok(LegSpec::NbdTcp {
                host: "host".into(),
                port: 10809,
                export: String::new(),
                tls: None
            })
        );
    }

    #[test]
    fn bad_specs_name_the_value_and_the_way_out() {
        for (text, part) in [
            ("", "empty"),
            ("file:", "empty"),
            ("stripe:/a", "2 to 16 devices, not 1"),
            ("stripe:/a,/a", "/a is named twice"),
            ("stripe:/a,,/b", "empty"),
            ("stripe:/a,/b,chunk=3K", "power of two"),
            ("stripe:/a,/b,chunk=huge", "not a size"),
            ("nbd://", "names no host"),
            ("nbd://h:0/", "port from 1 to 65535"),
            ("nbd://h:99999/", "port from 1 to 65535"),
            ("nbd://[::1/", "[IPV6]:PORT"),
            ("nbd://h/%zz", "broken percent escape"),
            ("nbd+unix:///", "names no socket"),
            ("nbd+unix:///?socket=", "names no socket"),
            ("nbd+unix://host/?socket=/x", "names a host"),
            ("end:", "empty"),
            ("external:/dev/sdb", "external:PATH,metadata=PATH"),
            ("external:,metadata=/m", "empty"),
            ("external:/dev/sdb,metadata=", "empty"),
            ("external:/a,metadata=/a", "end:PATH"),
            ("iscsi://target/1", "`iscsi://` is not supported"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
            assert!(error.contains(&format!("leg `{text}`")), "{text}: {error}");
        }
    }
}
