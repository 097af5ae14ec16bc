//! The configuration of one served volume, from `CONFIG.toml` and the command line.
//!
//! Every option has a type and a default, and every number a range. The ranges are one list
//! ([`Config::bounds`]), shared by the check, its error text and `docs/configuration.md` (a test compares
//! them). Unknown keys are errors, and an error in a file shows its place.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub mod device;
pub mod engine;
pub mod exports;
mod faults;
pub mod live;
pub mod place;
pub mod scan;
pub mod smart;
pub mod vhost;

use crate::control::socket::check_path;
use device::DeviceKind;
use engine::EngineConfig;
use exports::{ExportConfig, host_and_port};
use hemi_engine::identifiers::LEGS_MAX;
use hemi_engine::settings::{FlushCopies, Policy, Settings};
use hemi_io::config::ConfigError;
use hemi_io::config::bounds::Bounds;
use hemi_io::config::legs::LegConfig;
use place::Place;
use scan::ScanConfig;
use smart::SmartPolling;

use hemi_units::{Size, Time};
use vhost::VhostConfig;

/// Maximum number of exports of one volume, and of sockets for virtual machines.
pub const EXPORTS_MAX: usize = 16;

/// The HTTP listener's address: `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress {
    /// Host name or address (an IPv6 address has no brackets).
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl std::fmt::Display for HttpAddress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl std::str::FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpAddress, String> {
        let (host, port) = host_and_port(text, None)
            .map_err(|reason| format!("`{text}` is not HOST:PORT: {reason}"))?;
        Ok(HttpAddress { host, port })
    }
}

impl Serialize for HttpAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HttpAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// All options of `hemi serve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The name that the volume must have, as a guard against serving the wrong legs. Default: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Path of the control socket. Default: `<run directory>/<volume>.sock`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Address of the HTTP listener for the dashboard, metrics and health. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpAddress>,
    /// File with the token that changes over HTTP require. Default: none, and no changes are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_token_file: Option<PathBuf>,
    /// True if other machines may reach the HTTP listener. Reading then requires the token, too.
    pub http_public: bool,
    /// The driver that makes the volume a block device of this machine. Default: none.
    pub device: DeviceKind,
    /// Memory for payload: requests in flight and private copies of debts.
    pub buffer_budget: Size,
    /// True if faults may be injected through the control socket.
    pub allow_inject: bool,
    /// Time limit for draining on a stop. After it the volume closes with debts recorded.
    pub drain_on_stop: Time,
    /// Time that a start waits for absent legs without which the volume cannot be served.
    pub wait_for_legs: Time,
    /// True if a start goes on without a leg that is still missing then, although it may hold newer data.
    pub start_degraded: bool,
    /// The ledger's place. `auto` is the run directory, if that is on tmpfs and outlives hemi's container.
    pub ledger: Place,
    /// The place of state kept over restarts, such as the history. `auto` is the usual state directory.
    pub state: Place,
    /// Interval at which the drives' health is read.
    pub smart: SmartPolling,
    /// The volume whose legs are found by scanning devices. Default: no scan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanConfig>,
    /// The legs in any order, since each knows its slot. With `scan`, only those that it cannot find.
    pub legs: Vec<LegConfig>,
    /// The exports. Default: one NBD export on `unix:<run directory>/<volume>.nbd`.
    pub exports: Vec<ExportConfig>,
    /// Sockets through which virtual machines use the volume as a disk. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vhost: Vec<VhostConfig>,
    /// The engine's settings.
    pub engine: EngineConfig,
    /// The absolute path of the file that it was read from; `None` if it came from the command line alone.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            volume: None,
            control: None,
            http: None,
            http_token_file: None,
            http_public: false,
            device: DeviceKind::None,
            buffer_budget: Size::mib(256),
            allow_inject: false,
            drain_on_stop: Time::seconds(30),
            wait_for_legs: Time(0),
            start_degraded: false,
            ledger: Place::default(),
            state: Place::default(),
            smart: SmartPolling::default(),
            scan: None,
            legs: Vec::new(),
            exports: Vec::new(),
            vhost: Vec::new(),
            engine: EngineConfig::default(),
            file: None,
        }
    }
}

impl Config {
    /// Reads a file and applies `--set KEY=VALUE` assignments. The result is not checked yet, so that flags
    /// can still be added: call [`Config::check`] afterwards.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Read`], [`ConfigError::Faults`] with their places, or [`ConfigError::Override`].
    pub fn load(path: &Path, overrides: &[String]) -> Result<Config, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = hemi_text::read(path).map_err(read)?;
        let mut config = Config::parse(&text, path, overrides)?;
        config.file = Some(std::path::absolute(path).map_err(read)?);
        Ok(config)
    }

    /// Like [`Config::load`], but from text. Errors name it `path`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Faults`] with their places, or [`ConfigError::Override`].
    pub fn parse(text: &str, path: &Path, overrides: &[String]) -> Result<Config, ConfigError> {
        let refuse = |_| faults::of_text(text, path);
        let mut config: Config = toml::from_str(text).map_err(refuse)?;
        let mut table: toml::Table = toml::from_str(text).map_err(refuse)?;
        // Assignments are applied one by one, so that an error names the one it comes from.
        for assignment in overrides {
            let refuse = |reason: String| ConfigError::Override {
                assignment: assignment.clone(),
                reason: reason.trim_end().to_owned(),
            };
            assign(&mut table, assignment).map_err(refuse)?;
            config = Config::deserialize(table.clone())
                .map_err(|error| refuse(error.message().to_owned()))?;
        }
        Ok(config)
    }

    /// Returns every bounded option with its value, default and range.
    pub fn bounds(&self) -> Bounds {
        let default = Config::default();
        let mut list = Bounds::default();
        list.size(
            "buffer_budget",
            self.buffer_budget,
            default.buffer_budget,
            Size::mib(16)..=Size::gib(64),
        );
        list.time(
            "drain_on_stop",
            self.drain_on_stop,
            default.drain_on_stop,
            Time(0)..=Time::seconds(86_400),
        );
        list.time(
            "wait_for_legs",
            self.wait_for_legs,
            default.wait_for_legs,
            Time(0)..=Time::seconds(86_400),
        );
        self.engine.bounds(&mut list);
        for (index, export) in self.exports.iter().enumerate() {
            export.bounds(&format!("exports[{index}]"), &mut list);
        }
        list
    }

    /// Checks that the options make sense together.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Faults`]: every fault with the option, its value and the values allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.faults() {
            faults if faults.is_empty() => Ok(()),
            faults => Err(faults::of_sense(self, faults)),
        }
    }

    /// Returns every option that is out of its range, or makes no sense beside another.
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults: Vec<ConfigError> = self.bounds().faults().collect();
        let refused = self.control.as_deref().and_then(|path| check_path(path).err());
        faults.extend(refused.map(|reason| ConfigError::conflict("control", reason)));
        if self.start_degraded && self.wait_for_legs == Time(0) {
            faults.push(ConfigError::conflict(
                "start_degraded",
                "it gives up a leg that is not there at once; say how long to wait for it first \
                 (wait_for_legs, --wait-for-legs)",
            ));
        }
        self.faults_of_http(&mut faults);
        self.faults_of_legs(&mut faults);
        self.faults_of_exports(&mut faults);
        vhost::faults(&self.vhost, &mut faults);
        self.engine.faults(&mut faults);
        if self.engine.policy == Policy::WriteBehind
            && self.engine.flush_copies.0 != FlushCopies::All
            && self.engine.flush_copies != EngineConfig::default().flush_copies
        {
            faults.push(ConfigError::conflict(
                "engine.flush_copies",
                "policy write-behind flushes all legs; leave flush_copies out or set it to \"all\"",
            ));
        }
        faults
    }

    fn faults_of_http(&self, faults: &mut Vec<ConfigError>) {
        if self.http_public && self.http_token_file.is_none() {
            faults.push(ConfigError::conflict(
                "http_public",
                "other machines may only reach a listener that asks for a token; set http_token_file, \
                 or leave http_public out and listen on a loopback address",
            ));
        }
        // A name is resolved only when the listener is bound.
        let literal = self.http.as_ref().and_then(|http| {
            let address = http.host.split('%').next().unwrap_or_default();
            Some((http, address.parse::<std::net::IpAddr>().ok()?))
        });
        if let Some((http, address)) = literal
            && !address.is_loopback()
            && !self.http_public
        {
            faults.push(ConfigError::conflict(
                "http",
                format!(
                    "{http} can be reached from other machines, which needs http_public = true and \
                     http_token_file; or listen on a loopback address, such as 127.0.0.1:{}",
                    http.port
                ),
            ));
        }
    }

    fn faults_of_legs(&self, faults: &mut Vec<ConfigError>) {
        let count = self.legs.len();
        if let Some(scan) = &self.scan
            && scan.volume.is_empty()
        {
            faults.push(ConfigError::conflict("scan", "it is empty; give the volume's name or id"));
        }
        let least = if self.scan.is_some() { 0 } else { 1 };
        if !(least..=LEGS_MAX).contains(&count) {
            faults.push(ConfigError::conflict(
                "legs",
                match count {
                    0 => {
                        "none is named; name each leg of the volume (--leg, or `legs = […]`), or have \
                         them looked for (--scan NAME, or `scan = \"NAME\"`)"
                            .into()
                    }
                    _ => format!("{count} are named; a volume has at most {LEGS_MAX}"),
                },
            ));
        }
        for (index, leg) in self.legs.iter().enumerate() {
            let prefix = format!("legs[{index}]");
            leg.faults(&prefix, faults);
            let key = |name: &str| format!("{prefix}.{name}");
            for earlier in &self.legs[..index] {
                if earlier.path == leg.path {
                    faults.push(ConfigError::conflict(
                        key("path"),
                        format!("{} is named twice; each leg needs its own device", leg.path),
                    ));
                    continue;
                }
                if earlier.label() == leg.label() {
                    faults.push(ConfigError::conflict(
                        key("name"),
                        format!("`{}` is the name of two legs", leg.label()),
                    ));
                }
                if let Some(path) =
                    leg.path.paths().iter().find(|path| earlier.path.paths().contains(path))
                {
                    faults.push(ConfigError::conflict(
                        key("path"),
                        format!("{} is part of {} already", path.display(), earlier.path),
                    ));
                }
            }
        }
    }

    fn faults_of_exports(&self, faults: &mut Vec<ConfigError>) {
        if self.exports.len() > EXPORTS_MAX {
            faults.push(ConfigError::conflict(
                "exports",
                format!("{} are named; at most {EXPORTS_MAX}", self.exports.len()),
            ));
        }
        for (index, export) in self.exports.iter().enumerate() {
            export.faults(&format!("exports[{index}]"), faults);
            if self.exports[..index].iter().any(|earlier| earlier.nbd == export.nbd) {
                faults.push(ConfigError::conflict(
                    format!("exports[{index}].nbd"),
                    format!("{} is listened on by another export already", export.nbd),
                ));
            }
        }
    }

    /// Returns the engine's settings, as far as the buffer budget allows.
    pub fn settings(&self) -> Settings {
        self.engine.settings().within_buffers(self.buffer_budget.0, self.legs.len())
    }

    /// Returns the configuration as the text of a file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every option has a TOML form")
    }
}

/// Applies one `KEY=VALUE` to the table.
fn assign(table: &mut toml::Table, assignment: &str) -> Result<(), String> {
    let (key, text) =
        assignment.split_once('=').ok_or("write KEY=VALUE, for example engine.wait.floor=10ms")?;
    // The text is a TOML value or else plain text, so that 20ms and unix:/x need no quotes.
    let value = toml::from_str::<toml::Table>(&format!("value = {text}"))
        .ok()
        .and_then(|mut parsed| parsed.remove("value").filter(|_| parsed.is_empty()))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts.pop().filter(|last| !last.is_empty()).ok_or("the key is empty")?;
    let mut at = table;
    for part in parts {
        let entry = at.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = entry
            .as_table_mut()
            .ok_or_else(|| format!("`{part}` is no table; set it as a whole"))?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests;
