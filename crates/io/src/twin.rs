//! Two paths to one storage: a disk at two controllers, two loop devices over one file, a file and its loop
//! device.
//!
//! Formatting a leg by its other path destroys it while it is served. Device numbers do not tell, and serial
//! numbers may be made up or be shared by partitions. The proof is a **stamp**: random bytes that are written
//! by one path and read by the other. It is written where a leg has [unused](STAMP_OFFSET) bytes, which are
//! put back, so that it does no harm even to a leg that is being served.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use hemi_engine::format::superblock::MAGIC;
use hemi_engine::format::{BLOCK_BYTES, Id, Layout};
use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{HEAD_BYTES, newest_of};

use crate::blocking::BlockingLeg;
use crate::config::legs::LegSpec;
use crate::leg::device::Device;
use crate::leg::{FileOptions, OpenError, OpenLeg, Purpose, apart, stripe};
use crate::probe::{Locked, Storage, locked};
use crate::random;

/// The byte of a leg, a stripe's member or external metadata at which a stamp is written: behind the first
/// superblock or the identity, where the format of each has nothing.
pub const STAMP_OFFSET: u64 = BLOCK_BYTES as u64;
/// Size of a stamp, the largest block of a device.
const STAMP_BYTES: usize = 4096;
/// Random bytes of a stamp.
const RANDOM_BYTES: usize = 32;
/// Longest wait for bytes of storage that is in use, whose drive may hang.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Bytes compared at either end of storage that has no leg to be stamped.
const COMPARED_BYTES: u64 = 1 << 20;

/// A file, device or remote export of a leg.
#[derive(Debug)]
pub struct Medium<'a> {
    bytes: Bytes<'a>,
    storage: Option<Storage>,
}

#[derive(Debug)]
enum Bytes<'a> {
    Local(&'a Device),
    Remote(&'a OpenLeg),
}

impl<'a> Medium<'a> {
    /// Returns the files and devices of a leg, or its export.
    pub fn of(leg: &'a OpenLeg) -> Vec<Medium<'a>> {
        match leg {
            OpenLeg::Nbd(_) => vec![Medium { bytes: Bytes::Remote(leg), storage: None }],
            local => local.devices().iter().map(Medium::local).collect(),
        }
    }

    /// Returns one file or device.
    pub fn local(device: &'a Device) -> Medium<'a> {
        Medium { bytes: Bytes::Local(device), storage: device.storage() }
    }

    fn size(&self) -> u64 {
        match self.bytes {
            Bytes::Local(device) => device.size(),
            Bytes::Remote(leg) => leg.size(),
        }
    }

    /// Reads what is on the storage now, and not what was read from it before.
    fn read(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        match self.bytes {
            Bytes::Local(device) => device.read_fresh(at, &mut bytes)?,
            Bytes::Remote(leg) => leg.read_at(at, &mut bytes)?,
        }
        Ok(bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let leg: &dyn BlockingLeg = match self.bytes {
            Bytes::Local(device) => device,
            Bytes::Remote(leg) => leg,
        };
        leg.write_at(at, bytes)?;
        leg.flush()
    }

    /// Writes a stamp, calls `look` with it, and puts the bytes back that were there.
    fn stamped<T>(&self, at: u64, look: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let before = self.read(at, STAMP_BYTES)?;
        let mut stamp = vec![0; STAMP_BYTES];
        stamp[..RANDOM_BYTES].copy_from_slice(&random::bytes::<RANDOM_BYTES>()?);
        let seen = self.write(at, &stamp).map(|()| look(&stamp));
        self.write(at, &before)?;
        seen
    }
}

/// Finds two of these that are one storage. Each has the byte at which it may be stamped, if it may be.
///
/// # Errors
/// Fails if one cannot be read or written.
pub fn twins(media: &[(Medium<'_>, Option<u64>)]) -> io::Result<Option<(usize, usize)>> {
    for (index, (medium, at)) in media.iter().enumerate() {
        let Some(at) = *at else { continue };
        let is_seen = |(other, _): &(Medium<'_>, _), stamp: &[u8]| -> io::Result<bool> {
            let place = match (&medium.storage, &other.storage) {
                (Some(own), Some(other)) => own.place_in(other, at).unwrap_or(at),
                _ => at,
            };
            let is_there = place + STAMP_BYTES as u64 <= other.size();
            Ok(is_there && other.read(place, STAMP_BYTES)? == stamp)
        };
        let found = medium.stamped(at, |stamp| {
            for (number, other) in media.iter().enumerate().filter(|(number, _)| *number != index) {
                if is_seen(other, stamp)? {
                    return Ok(Some((index.min(number), index.max(number))));
                }
            }
            io::Result::Ok(None)
        })??;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Storage in use that a path also leads to, or seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The path by which it is in use, or the name of a remote leg.
    pub path: String,
    /// The process that uses it, if it is one of this machine.
    pub process: Option<u32>,
    /// The reason why the proof is missing, if it is.
    pub unproven: Option<String>,
}

/// A leg that a medium seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The volume's id.
    pub volume: Id,
    /// The leg's slot.
    pub leg: LegIndex,
}

/// The users of storage whose other paths are searched for.
pub trait Users {
    /// Returns true if storage that `process` has locked need not be looked at for a medium that shows this
    /// leg, or none.
    fn pass_over(&self, process: u32, seen: Option<Seen>) -> bool;

    /// Returns the remote leg that is served and that a medium showing this leg may be.
    fn remote(&self, seen: Seen) -> Option<LegSpec>;
}

/// Finds storage in use that `medium` is another path to.
///
/// # Errors
/// Fails if the medium cannot be read or written. Storage in use that cannot be read counts as possibly the
/// same, see [`InUse::unproven`].
pub fn in_use(medium: &Medium<'_>, users: &impl Users) -> io::Result<Option<InUse>> {
    let heads = heads(medium)?;
    let mut others = if medium.storage.is_some() { locked() } else { Vec::new() };
    others.retain(|other| medium.storage.as_ref().is_some_and(|own| !own.is(&other.storage)));
    let mut doubt = None;
    for head in &heads {
        let mut suspects: Vec<(Source, u64)> = others
            .iter()
            .filter(|other| !users.pass_over(other.process, head.seen))
            .filter_map(|other| {
                let place = head.place_on(medium.storage.as_ref()?, &other.storage)?;
                Some((Source::Locked(other.clone()), place))
            })
            .collect();
        let remote = head.seen.and_then(|seen| users.remote(seen));
        suspects.extend(remote.map(|spec| (Source::Remote(spec), STAMP_OFFSET)));
        if suspects.is_empty() {
            continue;
        }
        let found = medium.stamped(head.at + STAMP_OFFSET, |stamp| {
            suspects.into_iter().find_map(|(source, place)| match source.read(place, STAMP_BYTES) {
                Ok(bytes) => (bytes == stamp).then(|| source.in_use(None)),
                Err(why) => {
                    if source.may_be(medium.storage.as_ref()) {
                        doubt.get_or_insert_with(|| source.in_use(Some(why)));
                    }
                    None
                }
            })
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    if heads.is_empty()
        && let Some(own) = &medium.storage
    {
        for other in others.into_iter().filter(|other| !users.pass_over(other.process, None)) {
            match likeness(medium, own, &other)? {
                None => {}
                Some(why) => {
                    let source = Source::Locked(other);
                    if source.may_be(Some(own)) {
                        doubt.get_or_insert_with(|| source.in_use(Some(why)));
                    }
                }
            }
        }
    }
    Ok(doubt)
}

/// The beginning of a leg, of a stripe's member or of external metadata.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The byte of the medium at which it begins.
    at: u64,
    /// The bytes of the medium that it is in: all, or a partition.
    within: (u64, u64),
    seen: Option<Seen>,
}

impl Head {
    /// Returns the place of its stamp on other storage, which may be the same by sharing bytes, or by having
    /// as many.
    fn place_on(&self, own: &Storage, other: &Storage) -> Option<u64> {
        let stamp = self.at + STAMP_OFFSET;
        let (start, size) = self.within;
        let has_as_many = size / BLOCK_BYTES as u64 == other.size() / BLOCK_BYTES as u64;
        own.place_in(other, stamp).or_else(|| has_as_many.then_some(stamp - start))
    }
}

/// Finds legs on a medium and on its partitions.
fn heads(medium: &Medium<'_>) -> io::Result<Vec<Head>> {
    let mut parts = vec![(0, medium.size())];
    if let Some(storage) = &medium.storage {
        parts.extend(storage.partitions());
    }
    let mut found = Vec::new();
    for within in parts {
        let (start, size) = within;
        let ends = [Some(0), apart::head_at_end(size)];
        for offset in ends.into_iter().flatten() {
            let at = start + offset;
            let length = HEAD_BYTES.min(size - offset);
            if length <= STAMP_OFFSET + STAMP_BYTES as u64 || at + length > medium.size() {
                continue;
            }
            let head = medium.read(at, length as usize)?;
            let superblock = newest_of(&head).ok();
            let seen = superblock.map(|found| Seen { volume: found.volume_id, leg: found.leg });
            let begins = |at: u64, magic: &[u8]| {
                head.get(at as usize..).is_some_and(|bytes| bytes.starts_with(magic))
            };
            // A damaged superblock still shows whose it is.
            let is_leg = seen.is_some()
                || (0..2).any(|slot| begins(Layout::superblock_address(slot), &MAGIC));
            let is_part = offset == 0 && (begins(0, &stripe::MAGIC) || begins(0, &apart::MAGIC));
            if is_leg || is_part {
                found.push(Head { at, within, seen });
            }
        }
    }
    Ok(found)
}

/// Storage in use that may be the same.
#[derive(Debug)]
enum Source {
    Locked(Locked),
    Remote(LegSpec),
}

impl Source {
    fn in_use(&self, unproven: Option<String>) -> InUse {
        match self {
            Source::Locked(locked) => InUse {
                path: locked.path.display().to_string(),
                process: Some(locked.process),
                unproven,
            },
            Source::Remote(spec) => InUse { path: spec.to_string(), process: None, unproven },
        }
    }

    /// Returns true if it may be the storage of a medium, though it cannot be read. A process may have let go
    /// of it meanwhile.
    fn may_be(&self, own: Option<&Storage>) -> bool {
        match self {
            Source::Locked(locked) => {
                locked.is_held() && own.is_none_or(|own| !own.is_unlike(&locked.storage))
            }
            Source::Remote(_) => true,
        }
    }

    /// Reads what is on it now, within [`READ_WITHIN`].
    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        match self {
            Source::Locked(locked) => read_soon(locked.door.clone(), at, length),
            Source::Remote(spec) => {
                let leg = OpenLeg::open(spec, FileOptions::default(), Purpose::Inspect)
                    .map_err(|error| error.to_string())?;
                let mut bytes = vec![0; length];
                leg.read_at(at, &mut bytes).map_err(|error| error.to_string())?;
                Ok(bytes)
            }
        }
    }
}

/// Reads a file or device on a thread of its own. If it hangs, the thread is left behind.
fn read_soon(path: PathBuf, at: u64, length: usize) -> Result<Vec<u8>, String> {
    let (sender, read) = sync_channel(1);
    let work = move || {
        let open = |direct| {
            let options = FileOptions { direct, ..FileOptions::default() };
            Device::open(&path, options, Purpose::Inspect)
        };
        let opened = match open(true) {
            Err(OpenError::NoDirect { .. }) => open(false),
            other => other,
        };
        let bytes = opened.map_err(|error| error.to_string()).and_then(|device| {
            let mut bytes = vec![0; length];
            let read = device.read_fresh(at, &mut bytes);
            read.map(|()| bytes).map_err(|error| format!("it cannot be read: {error}"))
        });
        // Nobody waits for it if it came too late.
        let _ = sender.send(bytes);
    };
    let spawned = std::thread::Builder::new().name("hemi-twin".into()).spawn(work);
    spawned.map_err(|error| format!("it cannot be read: {error}"))?;
    read.recv_timeout(READ_WITHIN)
        .unwrap_or_else(|_| Err(format!("it did not answer within {} s", READ_WITHIN.as_secs())))
}

/// Compares the medium with storage in use at both ends, where the system gives reason to. Returns the reason
/// why they may be the same.
fn likeness(medium: &Medium<'_>, own: &Storage, other: &Locked) -> io::Result<Option<String>> {
    let size = medium.size();
    let ends = [0..COMPARED_BYTES.min(size), size.saturating_sub(COMPARED_BYTES)..size];
    let place = |at: u64| {
        own.place_in(&other.storage, at).or_else(|| own.resembles(&other.storage).then_some(at))
    };
    let mut compared = false;
    for Range { start, end } in ends.into_iter().filter(|range| !range.is_empty()) {
        let Some(place) = place(start) else { continue };
        let length = (end - start).min(other.storage.size() - place) as usize;
        let read = || read_soon(other.door.clone(), place, length);
        let before = match read() {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Some(why)),
        };
        let bytes = medium.read(start, length)?;
        // Only bytes that nobody writes meanwhile can show a difference.
        if bytes != before && read().is_ok_and(|after| after == before) {
            return Ok(None);
        }
        compared = true;
    }
    Ok(compared.then(|| "all that was compared is equal on both".to_owned()))
}
