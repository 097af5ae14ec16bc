//! Flash left unused, so that the drive has room for garbage collection (`--spare`).
//!
//! A drive can use only space that it knows to be free. So the whole drive is discarded first, and its last
//! part is never written again.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::CreateError;
use super::candidate::{Candidate, Member};
use hemi_io::probe::Kind;

/// The largest share, in thousandths.
const SHARE_MAX: u64 = 500;
/// Maximum number of bytes discarded by one call, which cannot be interrupted.
const DISCARD_AT_ONCE: u64 = 16 << 30;

/// A share of a drive to leave unused, from 0.1 % to 50 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    permille: u64,
}

impl Share {
    /// Returns the bytes of a drive that may be used.
    fn usable(self, size: u64) -> u64 {
        // The size is divided first, because a size times a thousand may not fit.
        size - size / 1000 * self.permille - size % 1000 * self.permille / 1000
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = text.strip_suffix('%').map(|number| number.trim_end().parse::<f64>());
        let permille = match number {
            Some(Ok(percent)) if percent.is_finite() => percent * 10.0,
            _ => return Err(format!("`{text}` is not a share: write for example 20%")),
        };
        match permille.round() {
            // It is not rounded to zero, and within the bound.
            whole if (1.0..=SHARE_MAX as f64).contains(&whole) => {
                Ok(Share { permille: whole as u64 })
            }
            _ => Err(format!("{text} is out of range: allowed are 0.1% to {}%", SHARE_MAX / 10)),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.permille as f64 / 10.0)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The value of `--spare`: a share of every leg, or of one named leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spare {
    /// The leg, named as after `--leg`; `None` for every leg.
    pub leg: Option<String>,
    /// The share.
    pub share: Share,
}

impl FromStr for Spare {
    type Err = String;

    fn from_str(text: &str) -> Result<Spare, String> {
        // A leg's name may itself contain this character.
        match text.rsplit_once('=') {
            Some((leg, share)) => Ok(Spare { leg: Some(leg.to_owned()), share: share.parse()? }),
            None => Ok(Spare { leg: None, share: text.parse()? }),
        }
    }
}

/// Returns the share of each leg to leave unused. A value for one leg takes precedence over one for all.
///
/// # Errors
/// Fails if a `--spare` names none of the legs.
pub(super) fn shares(spares: &[Spare], legs: &[String]) -> Result<Vec<Option<Share>>, CreateError> {
    let unknown =
        spares.iter().filter_map(|spare| spare.leg.as_ref()).find(|it| !legs.contains(it));
    if let Some(unknown) = unknown {
        return Err(CreateError::SpareWhat(unknown.clone()));
    }
    let of = |leg: Option<&String>| {
        spares.iter().rfind(|spare| spare.leg.as_ref() == leg).map(|spare| spare.share)
    };
    Ok(legs.iter().map(|leg| of(Some(leg)).or_else(|| of(None))).collect())
}

impl Candidate {
    /// Returns the bytes of a member that may be used.
    pub(super) fn usable(&self, member: &Member) -> u64 {
        let size = member.probe.size;
        self.spare.map_or(size, |share| share.usable(size))
    }

    /// Checks that the drive can be told that the spare part is free.
    pub(super) fn check_spare(&self) -> Result<(), CreateError> {
        if self.spare.is_none() {
            return Ok(());
        }
        let fail = |path: &Path, reason: &'static str| {
            Err(CreateError::Spare { path: path.to_owned(), reason })
        };
        if self.adopted {
            return fail(
                Path::new(&self.text),
                "it keeps its content (--adopt), and a discard would destroy that",
            );
        }
        if self.members.is_empty() {
            return fail(
                Path::new(&self.text),
                "it is remote: leave a part of the drive unused on its server",
            );
        }
        for member in &self.members {
            match member.probe.kind {
                Kind::Block if can_discard(&member.path) => {}
                Kind::Block => {
                    return fail(
                        &member.path,
                        "it cannot discard, so it would not know what is free (a hard disk needs no \
                         spare; a USB bridge, a RAID controller or dm-crypt may hide the command)",
                    );
                }
                _ => {
                    return fail(
                        &member.path,
                        "it is a file: leave room in its file system and have that trimmed (fstrim)",
                    );
                }
            }
        }
        Ok(())
    }

    /// Discards each member as a whole, if a share of it is to stay unused.
    pub(super) fn discard(&self) -> Result<(), CreateError> {
        if self.spare.is_none() {
            return Ok(());
        }
        for member in &self.members {
            discard(&member.path, member.probe.size).map_err(|source| CreateError::Write {
                action: "discard",
                path: member.path.display().to_string(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Returns true if a block device, or the disk of a partition, supports discards.
fn can_discard(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let number = metadata.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let most = ["queue/discard_max_bytes", "../queue/discard_max_bytes"]
        .iter()
        .find_map(|name| fs::read_to_string(folder.join(name)).ok());
    most.is_some_and(|bytes| bytes.trim() != "0")
}

/// Discards the first `size` bytes of a block device.
fn discard(path: &Path, size: u64) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut at = 0;
    while at < size {
        let range = [at, DISCARD_AT_ONCE.min(size - at)];
        // SAFETY: BLKDISCARD reads two 64-bit numbers, a start and a length in bytes, and keeps no reference
        // to them.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
        if result == 0 {
            at += range[1];
            continue;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    file.sync_all()
}

/// `_IO(0x12, 119)` of `linux/fs.h`.
const BLKDISCARD: libc::Ioctl = 0x1277;

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> Share {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn shares_are_percents_within_bounds() {
        for text in ["20%", "0.1%", "50%", "7.5%"] {
            assert_eq!(share(text).to_string(), text);
        }
        for text in ["20", "%", "0%", "0.01%", "51%", "-1%", "NaN%", "inf%", "1e9%"] {
            let error = text.parse::<Share>().expect_err(text);
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(share("20%").usable(1000), 800);
        assert_eq!(share("20%").usable(1001), 801);
        assert_eq!(share("50%").usable(u64::MAX), u64::MAX / 2 + 1);
        assert_eq!(share("0.1%").usable(0), 0);
    }

    #[test]
    fn a_word_for_a_leg_counts_before_one_for_all() {
        let legs = ["/dev/a".to_owned(), "external:/dev/b,metadata=/x".to_owned()];
        let spares = |texts: &[&str]| {
            let spares: Vec<Spare> = texts
                .iter()
                .map(|text| text.parse().unwrap_or_else(|error| panic!("{error}")))
                .collect();
            shares(&spares, &legs).map_err(|error| error.to_string())
        };
        assert_eq!(spares(&[]), Ok(vec![None, None]));
        assert_eq!(spares(&["20%"]), Ok(vec![Some(share("20%")), Some(share("20%"))]));
        let one = spares(&["20%", "external:/dev/b,metadata=/x=10%"]);
        assert_eq!(one, Ok(vec![Some(share("20%")), Some(share("10%"))]));
        assert_eq!(spares(&["/dev/a=5%"]), Ok(vec![Some(share("5%")), None]));
        let error = spares(&["/dev/c=5%"]).expect_err("there is no such leg");
        assert!(error.contains("/dev/c"), "{error}");
    }
}
