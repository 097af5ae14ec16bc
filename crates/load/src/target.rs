//! The target of a load, and the check that it may be used.
//!
//! A load that only reads opens its target for reading, whoever else uses it. One that writes
//! always refuses a target that is mounted, partitioned, held or locked. It also refuses one that
//! is not empty, unless the operator has named it a second time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hemi_io::config::legs::{LegConfig, LegSpec, LegSpecError};
use hemi_io::leg::{OpenError, OpenLeg, Purpose};
use hemi_io::probe::{Content, Kind, Probe, ProbeError, Use, contents_of_leg};
use hemi_units::{Size, Time};

/// The default size of `null` in bytes.
const NULL_BYTES: u64 = 1 << 40;

/// A target as it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// No target: every request is done at once. Its size in bytes.
    Null(u64),
    /// A file, a block device or an NBD export.
    Real(LegSpec),
}

/// The reason why a target's name was not understood.
#[derive(Debug, thiserror::Error)]
pub enum TargetSpecError {
    /// The size of `null:SIZE` is invalid.
    #[error("`{0}`: write null, or null and a size, as in null:64GiB")]
    Null(String),
    /// It is a kind of leg other than a file, device or export.
    #[error("`{0}` is a leg that only hemi's volumes have: name a file, device or export")]
    OnlyLeg(String),
    /// It is neither a path nor an export.
    #[error(transparent)]
    Leg(#[from] LegSpecError),
}

impl FromStr for TargetSpec {
    type Err = TargetSpecError;

    fn from_str(text: &str) -> Result<TargetSpec, TargetSpecError> {
        if text == "null" {
            return Ok(TargetSpec::Null(NULL_BYTES));
        }
        if let Some(size) = text.strip_prefix("null:") {
            let size = size.parse::<Size>().ok().filter(|size| size.0 >= 4096);
            let size = size.ok_or_else(|| TargetSpecError::Null(text.to_owned()))?;
            return Ok(TargetSpec::Null(size.0));
        }
        match text.parse::<LegSpec>()? {
            LegSpec::Stripe { .. } | LegSpec::End(_) | LegSpec::External { .. } => {
                Err(TargetSpecError::OnlyLeg(text.to_owned()))
            }
            spec => Ok(TargetSpec::Real(spec)),
        }
    }
}

/// The way a target is opened.
#[derive(Clone, Debug)]
pub struct TargetOptions {
    /// The name it was given.
    pub name: String,
    /// The target that was named.
    pub spec: TargetSpec,
    /// Bypass the page cache, for files and devices.
    pub direct: bool,
    /// The number of connections to an export that lets them share its cache.
    pub connections: u8,
    /// The target, named again: it may be overwritten though it is not empty.
    pub wipe: Option<PathBuf>,
}

/// The reason why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It could not be probed.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// It could not be opened.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// It does not exist.
    #[error("{0} does not exist: create it first, as large as it is to be (truncate -s 1G {0})")]
    Missing(String),
    /// It is a directory, socket or the like.
    #[error("{name} is {found}; a target is a regular file, a block device or an NBD export")]
    NotStorage {
        /// The name of the target.
        name: String,
        /// The kind of thing it is.
        found: &'static str,
    },
    /// It has no bytes.
    #[error("{0} has no bytes; extend it first, to the size it is to have (truncate -s 1G {0})")]
    Empty(String),
    /// `--wipe` names something else.
    #[error("--wipe {wipe} does not name the target, which is {target}")]
    WipeWhat {
        /// The path it names.
        wipe: String,
        /// The target.
        target: String,
    },
    /// It is in use.
    #[error(
        "{path} is in use: {}. The load writes to it; release it first, --wipe does not \
         override this",
        list(uses)
    )]
    InUse {
        /// The name of the target.
        path: String,
        /// The uses found.
        uses: Vec<Use>,
    },
    /// It is not empty.
    #[error(
        "{path} is not empty; it holds {}. The load writes to it; if that may be destroyed, \
         add --wipe {path}",
        list(contents)
    )]
    NotEmpty {
        /// The name of the target.
        path: String,
        /// The contents found.
        contents: Vec<Content>,
    },
    /// Its contents could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The name of the target.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// A target that has been opened.
#[derive(Debug)]
pub struct Target {
    options: TargetOptions,
    opened: Option<OpenLeg>,
    kind: &'static str,
    size: u64,
    block: u32,
}

impl Target {
    /// Opens a target for reading.
    ///
    /// # Errors
    /// Fails if it does not exist, is no storage, or may not be read.
    pub fn look(options: TargetOptions) -> Result<Target, TargetError> {
        let spec = match &options.spec {
            TargetSpec::Null(size) => {
                let size = *size;
                return Ok(Target { options, opened: None, kind: "null", size, block: 512 });
            }
            TargetSpec::Real(spec) => spec,
        };
        let kind = match spec {
            LegSpec::Path(path) => match Probe::new(path) {
                Ok(Probe { kind: Kind::Missing, .. }) | Err(ProbeError::NoFolder { .. }) => {
                    return Err(TargetError::Missing(options.name));
                }
                Err(ProbeError::NotStorage { found, .. }) => {
                    return Err(TargetError::NotStorage { name: options.name, found });
                }
                Err(error) => return Err(error.into()),
                Ok(Probe { size: 0, kind: Kind::File, .. }) => {
                    return Err(TargetError::Empty(options.name));
                }
                Ok(Probe { kind: Kind::Block, .. }) => "block device",
                Ok(_) => "file",
            },
            _ => "nbd",
        };
        let opened = open(&options, spec, Purpose::Inspect)?;
        let (size, block) = (opened.size(), opened.block().max(512));
        if size < u64::from(block) {
            return Err(TargetError::Empty(options.name));
        }
        Ok(Target { options, opened: Some(opened), kind, size, block })
    }

    /// Opens the target again for writing, if nobody uses it and it is empty, or its contents may
    /// be destroyed. Nothing is destroyed here.
    ///
    /// # Errors
    /// Fails with the obstacle.
    pub fn for_writing(mut self) -> Result<Target, TargetError> {
        let name = self.options.name.clone();
        if let Some(wipe) = &self.options.wipe
            && !is_named(wipe, &self.options)
        {
            let wipe = wipe.display().to_string();
            return Err(TargetError::WipeWhat { wipe, target: name });
        }
        let TargetSpec::Real(spec) = &self.options.spec else { return Ok(self) };
        // Only one session or lock may exist at a time.
        self.opened = None;
        let wipes = self.options.wipe.is_some();
        let probe = match spec {
            LegSpec::Path(path) => Some(Probe::new(path)?),
            _ => None,
        };
        if let Some(probe) = probe.as_ref().filter(|probe| !probe.uses.is_empty()) {
            return Err(TargetError::InUse { path: name, uses: probe.uses.clone() });
        }
        let opened = open(&self.options, spec, Purpose::Serve)?;
        if !wipes {
            // From here on nobody else can write in between.
            let contents = match &probe {
                Some(probe) => probe.contents()?,
                None => contents_of_leg(&opened)
                    .map_err(|source| TargetError::Read { path: name.clone(), source })?,
            };
            if !contents.is_empty() {
                return Err(TargetError::NotEmpty { path: name, contents });
            }
        }
        self.opened = Some(opened);
        Ok(self)
    }

    /// Returns the name it was given.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns its kind: `file`, `block device`, `nbd` or `null`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns its size in bytes, whole blocks only.
    pub fn size(&self) -> u64 {
        self.size / u64::from(self.block) * u64::from(self.block)
    }

    /// Returns the smallest unit it reads and writes, in bytes.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Returns true if the page cache is bypassed, or `None` where the load does not control that.
    pub fn direct(&self) -> Option<bool> {
        matches!(self.kind, "file" | "block device").then_some(self.options.direct)
    }

    /// Returns the leg that the engine drives, or `None` for `null`.
    pub fn into_opened(self) -> Option<OpenLeg> {
        self.opened
    }
}

fn open(options: &TargetOptions, spec: &LegSpec, purpose: Purpose) -> Result<OpenLeg, TargetError> {
    let mut config = LegConfig::new(spec.clone());
    if spec.is_remote() {
        config.connections = Some(options.connections);
        // A lost session ends the load. No request is retried, so a late write can meet none.
        config.quarantine = Some(Time::seconds(0));
    } else {
        config.direct = options.direct;
    }
    OpenLeg::configured(&config, purpose).map_err(|error| TargetError::Open(Box::new(error)))
}

fn is_named(wipe: &Path, options: &TargetOptions) -> bool {
    if wipe.to_str() == Some(&options.name) {
        return true;
    }
    match (wipe.canonicalize(), Path::new(&options.name).canonicalize()) {
        (Ok(wipe), Ok(target)) => wipe == target,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str, wipe: Option<&str>) -> TargetOptions {
        TargetOptions {
            name: name.into(),
            spec: name.parse().expect("a target"),
            direct: false,
            connections: 1,
            wipe: wipe.map(PathBuf::from),
        }
    }

    #[test]
    fn names_are_understood_or_refused() {
        assert_eq!("null".parse::<TargetSpec>().expect("null"), TargetSpec::Null(1 << 40));
        let small = "null:4 MiB".parse::<TargetSpec>().expect("null");
        assert_eq!(small, TargetSpec::Null(4 << 20));
        for wrong in ["null:", "null:7", "null:1 B", "stripe:a,b", "end:a", "external:a,metadata=b"]
        {
            assert!(wrong.parse::<TargetSpec>().is_err(), "{wrong}");
        }
        assert!(matches!("nbd://host/x".parse(), Ok(TargetSpec::Real(LegSpec::NbdTcp { .. }))));
    }

    #[test]
    fn what_is_not_empty_is_written_only_if_it_is_named_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let name = path.to_str().expect("plain");
        assert!(matches!(Target::look(options(name, None)), Err(TargetError::Missing(_))));
        std::fs::write(&path, []).expect("a file");
        assert!(matches!(Target::look(options(name, None)), Err(TargetError::Empty(_))));
        std::fs::write(&path, vec![0; 10_000]).expect("a file");
        let target = Target::look(options(name, None)).expect("it can be read");
        assert_eq!((target.size(), target.block(), target.kind()), (9728, 512, "file"));
        drop(target.for_writing().expect("it is empty"));

        std::fs::write(&path, vec![7; 8192]).expect("a file");
        let error = Target::look(options(name, None)).expect("readable").for_writing();
        let error = error.expect_err("it holds data").to_string();
        assert!(error.contains("data (at byte 0)") && error.contains("--wipe"), "{error}");
        let other = Target::look(options(name, Some("/elsewhere"))).expect("readable");
        let other = other.for_writing().expect_err("another is named");
        assert!(matches!(other, TargetError::WipeWhat { .. }));
        let held = Target::look(options(name, Some(name))).expect("readable").for_writing();
        let held = held.expect("named twice");
        // And it is not written while somebody else uses it.
        let second = Target::look(options(name, Some(name))).expect("readable").for_writing();
        assert!(matches!(second, Err(TargetError::InUse { .. })));
        drop(held);
    }
}
