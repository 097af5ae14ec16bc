//! Legs of hemi volumes in the content of a file or device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hemi_engine::format::{BLOCK_BYTES, Layout, Standby, Superblock, SuperblockError, block};
use hemi_engine::recovery::{HEAD_BYTES, newest_of};

use super::{Content, Kind, Probe, hex};
use crate::config::legs::LegSpec;
use crate::leg::apart;

/// Returns the leg if either slot holds a hemi superblock.
pub(super) fn hemi(
    size: u64,
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Content>> {
    let mut unusable = None;
    for slot in 0..2 {
        let address = Layout::superblock_address(slot);
        if address + BLOCK_BYTES as u64 > size {
            break;
        }
        let mut block = block::blank();
        read_at(address, &mut block)?;
        match Superblock::decode(&block, slot) {
            Ok(superblock) => {
                return Ok(Some(Content::Hemi {
                    name: superblock.name.as_str().into(),
                    volume: hex(superblock.volume_id),
                    leg: superblock.leg.0,
                    at_end: false,
                }));
            }
            Err(SuperblockError::Blank | SuperblockError::NotHemi) => {}
            Err(SuperblockError::Standby) => unusable = Standby::decode(&block, slot).map(standby),
            Err(error) => unusable = Some(Content::HemiUnusable { reason: error.to_string() }),
        }
    }
    Ok(unusable)
}

fn standby(standby: Standby) -> Content {
    Content::HemiStandby { name: standby.name.as_str().into(), volume: hex(standby.volume_id) }
}

/// Returns a leg whose metadata is at the end, or a leg's external metadata.
pub(super) fn hemi_apart(file: &File, size: u64) -> io::Result<Option<Content>> {
    if let Some(superblock) = superblock_at_end(file, size)? {
        return Ok(Some(Content::Hemi {
            name: superblock.name.as_str().into(),
            volume: hex(superblock.volume_id),
            leg: superblock.leg.0,
            at_end: true,
        }));
    }
    let mut block = [0; apart::IDENTITY_BYTES];
    if size < block.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut block, 0)?;
    let Ok(identity) = apart::Identity::decode(&block, Path::new("")) else { return Ok(None) };
    let spec = format!("external:{},metadata=…", identity.name);
    Ok(Some(Content::HemiMetadata { spec }))
}

/// Returns the superblock of a leg that has its metadata at the end of `file`, a file or device of `size`
/// bytes, if there is one. A search for legs must look at the beginning first: the data of a leg found there
/// may end with another leg, for example one of a virtual machine. The spec of a leg found here is
/// `end:PATH`.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn superblock_at_end(file: &File, size: u64) -> io::Result<Option<Superblock>> {
    let Some(place) = apart::head_at_end(size) else { return Ok(None) };
    let mut head = vec![0; HEAD_BYTES as usize];
    file.read_exact_at(&mut head, place)?;
    let found = newest_of(&head).ok();
    // A superblock that does not fit was written for another size, or is a copy within some data.
    Ok(found.filter(|superblock| superblock.layout.leg_bytes() <= apart::end_of(size)))
}

/// Returns a sentence with the right spec, if `spec` is a path alone and belongs to a leg with another spec.
/// The message about a path without a superblock at its beginning uses it.
pub fn other_spec(spec: &LegSpec) -> Option<String> {
    let LegSpec::Path(path) = spec else { return None };
    let size = match Probe::new(path) {
        Ok(probe) if probe.kind != Kind::Missing => probe.size,
        _ => return None,
    };
    let file = File::open(path).ok()?;
    let shown = path.display();
    match hemi_apart(&file, size).ok()?? {
        leg @ Content::Hemi { .. } => Some(format!("{shown} is {leg}: name it end:{shown}")),
        Content::HemiMetadata { spec } => Some(format!(
            "{shown} holds the metadata of a leg whose data is elsewhere: name that leg {}{shown}",
            spec.trim_end_matches('…')
        )),
        _ => None,
    }
}
