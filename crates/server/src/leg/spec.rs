//! How an operator names a leg.
//!
//! | form | meaning |
//! | --- | --- |
//! | `PATH` | a regular file or block device |
//! | `file:PATH[,direct=off][,sparse=on]` | the same with options |
//! | `stripe:PATH,PATH[,…][,chunk=64K][,direct=off][,sparse=on]` | several as one, RAID-0 |
//! | `nbd://HOST[:PORT][/EXPORT]` | a remote NBD export |
//! | `nbd+unix:///[EXPORT]?socket=PATH` | an NBD export on a unix socket |
//!
//! In the forms with a prefix a comma in a path is written `\,` and a backslash `\\`. A bare
//! path is taken as it is; one that begins with a prefix is written `./stripe:…`.

use std::path::PathBuf;
use std::str::FromStr;

/// Default chunk of a stripe: a small request stays on one member, and a
/// megabyte uses them all.
pub const CHUNK_DEFAULT_BYTES: u64 = 64 << 10;
/// Smallest chunk: no block of any drive is cut.
pub const CHUNK_MIN_BYTES: u64 = 4 << 10;
/// Largest chunk.
pub const CHUNK_MAX_BYTES: u64 = 16 << 20;
/// Most members of a stripe.
pub const MEMBERS_MAX: usize = 16;

/// How files and devices are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOptions {
    /// Bypass the page cache (O_DIRECT). Off only where the file system cannot; data is then
    /// durable by flush as ever, but competes with everything else for memory.
    pub direct: bool,
    /// When a file is created, leave it sparse instead of reserving its space.
    pub sparse: bool,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { direct: true, sparse: false }
    }
}

/// A leg as named on the command line or in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LegSpec {
    /// One file or block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// How to open it.
        options: FileOptions,
    },
    /// Several files or block devices as one leg.
    Stripe {
        /// The members in order.
        paths: Vec<PathBuf>,
        /// Bytes on one member before the next takes over.
        chunk: u64,
        /// How to open them.
        options: FileOptions,
    },
    /// A remote NBD export, as its URI.
    Nbd {
        /// `nbd://…` or `nbd+unix://…`.
        uri: String,
    },
}

/// Why a leg's name could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing there.
    #[error("a leg's name is empty; give a path, stripe:PATH,PATH, or nbd://HOST/EXPORT")]
    Empty,
    /// A stripe of one.
    #[error("the stripe {spec:?} has {count} member(s); it needs 2 to {MEMBERS_MAX}")]
    Members {
        /// The text.
        spec: String,
        /// Members found.
        count: usize,
    },
    /// A file: form with several paths.
    #[error("{spec:?} names several files; use stripe:PATH,PATH, or write a comma as \\,")]
    OneFile {
        /// The text.
        spec: String,
    },
    /// The same member twice.
    #[error("the stripe {spec:?} names {path:?} twice")]
    Twice {
        /// The text.
        spec: String,
        /// The path.
        path: PathBuf,
    },
    /// An option's value.
    #[error("{option}={value:?} in the leg {spec:?}: {wanted}")]
    Value {
        /// The text.
        spec: String,
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// A scheme hemi has no leg for.
    #[error(
        "hemi has no leg for {scheme}:// ({spec:?}); serve it by NBD (qemu-storage-daemon, \
         nbdkit) and name it nbd:// or nbd+unix://"
    )]
    Scheme {
        /// The text.
        spec: String,
        /// The scheme.
        scheme: String,
    },
}

impl FromStr for LegSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<LegSpec, SpecError> {
        if text.is_empty() {
            return Err(SpecError::Empty);
        }
        if let Some(rest) = text.strip_prefix("stripe:") {
            return stripe(text, rest);
        }
        if let Some(rest) = text.strip_prefix("file:") {
            let parts = Parts::parse(text, rest, false)?;
            return match <[PathBuf; 1]>::try_from(parts.paths) {
                Ok([path]) => Ok(LegSpec::File { path, options: parts.options }),
                Err(paths) if paths.is_empty() => Err(SpecError::Empty),
                Err(_) => Err(SpecError::OneFile { spec: text.into() }),
            };
        }
        match text.split_once("://") {
            Some(("nbd" | "nbd+unix" | "nbds" | "nbds+unix", _)) => {
                Ok(LegSpec::Nbd { uri: text.into() })
            }
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+') => {
                Err(SpecError::Scheme { spec: text.into(), scheme: scheme.into() })
            }
            _ => Ok(LegSpec::File { path: text.into(), options: FileOptions::default() }),
        }
    }
}

impl std::fmt::Display for LegSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let escape =
            |path: &PathBuf| path.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
        let options = |f: &mut std::fmt::Formatter<'_>, options: &FileOptions| {
            let direct = if options.direct { "" } else { ",direct=off" };
            let sparse = if options.sparse { ",sparse=on" } else { "" };
            write!(f, "{direct}{sparse}")
        };
        match self {
            LegSpec::File { path, options } if *options == FileOptions::default() => {
                write!(f, "{}", path.display())
            }
            LegSpec::File { path, options: set } => {
                write!(f, "file:{}", escape(path))?;
                options(f, set)
            }
            LegSpec::Stripe { paths, chunk, options: set } => {
                let paths: Vec<String> = paths.iter().map(escape).collect();
                write!(f, "stripe:{},chunk={}K", paths.join(","), chunk >> 10)?;
                options(f, set)
            }
            LegSpec::Nbd { uri } => write!(f, "{uri}"),
        }
    }
}

fn stripe(text: &str, rest: &str) -> Result<LegSpec, SpecError> {
    let Parts { paths, chunk, options } = Parts::parse(text, rest, true)?;
    if !(2..=MEMBERS_MAX).contains(&paths.len()) {
        return Err(SpecError::Members { spec: text.into(), count: paths.len() });
    }
    for (index, path) in paths.iter().enumerate() {
        if paths[..index].contains(path) {
            return Err(SpecError::Twice { spec: text.into(), path: path.clone() });
        }
    }
    Ok(LegSpec::Stripe { paths, chunk, options })
}

struct Parts {
    paths: Vec<PathBuf>,
    chunk: u64,
    options: FileOptions,
}

impl Parts {
    fn parse(text: &str, rest: &str, stripe: bool) -> Result<Parts, SpecError> {
        let mut parts = Parts {
            paths: Vec::new(),
            chunk: CHUNK_DEFAULT_BYTES,
            options: FileOptions::default(),
        };
        let wrong = |option, value: &str, wanted| SpecError::Value {
            spec: text.into(),
            option,
            value: value.into(),
            wanted,
        };
        for part in split(rest) {
            match part.split_once('=') {
                Some(("chunk", value)) if stripe => {
                    let wanted = "a power of two from 4K to 16M";
                    parts.chunk = size(value)
                        .filter(|size| size.is_power_of_two())
                        .filter(|size| (CHUNK_MIN_BYTES..=CHUNK_MAX_BYTES).contains(size))
                        .ok_or_else(|| wrong("chunk", value, wanted))?;
                }
                Some(("direct", value)) => {
                    parts.options.direct =
                        switch(value).ok_or_else(|| wrong("direct", value, "on or off"))?;
                }
                Some(("sparse", value)) => {
                    parts.options.sparse =
                        switch(value).ok_or_else(|| wrong("sparse", value, "on or off"))?;
                }
                _ if part.is_empty() => return Err(SpecError::Empty),
                _ => parts.paths.push(part.into()),
            }
        }
        Ok(parts)
    }
}

/// Cuts at commas, not at `\,`, and takes the escapes out.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            ',' if !escaped => parts.push(String::new()),
            _ => {
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            }
        }
        escaped = false;
    }
    parts
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> LegSpec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn every_form_parses_and_prints_itself() {
        for text in [
            "/dev/sda",
            "relative/file, with comma",
            "file:/a\\,b,direct=off",
            "file:/a\\\\b,direct=off,sparse=on",
            "stripe:/a,/b,chunk=64K",
            "stripe:/a,/b\\,c,/d,chunk=1024K,direct=off",
            "nbd://host:10809/export",
            "nbd+unix:///export?socket=/run/x.sock",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(parse("stripe:/a,/b"), parse("stripe:/a,chunk=64K,/b"));
        assert_eq!(parse("file:/a"), parse("/a"));
        assert_eq!(parse("./stripe:a").to_string(), "./stripe:a");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("file:", "empty"),
            ("stripe:/a", "needs 2"),
            ("stripe:/a,/a", "twice"),
            ("stripe:/a,/b,chunk=3K", "power of two"),
            ("stripe:/a,/b,chunk=32M", "power of two"),
            ("stripe:/a,/b,chunk=99999999999999999999K", "power of two"),
            ("file:/a,direct=maybe", "on or off"),
            ("file:/a,/b", "several files"),
            ("rbd://pool/image", "qemu-storage-daemon"),
        ] {
            let error = text.parse::<LegSpec>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
