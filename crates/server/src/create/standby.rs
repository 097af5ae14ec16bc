//! Standbys: a drive is prepared to be one, and one is prepared to join as a leg.

use std::io;

use hemi_engine::format::superblock::Name;
use hemi_engine::format::{BLOCK_BYTES, Id, Layout, Standby};

use super::join::{JoinOptions, prepare_join};
use super::{CreateError, prepare, random_id};
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::{OpenLeg, Purpose};
use hemi_units::Size;

/// The volume that a standby is to join.
#[derive(Clone, Debug)]
pub struct Joined {
    /// Its id.
    pub volume: Id,
    /// Its layout.
    pub layout: Layout,
    /// Its smallest request in bytes.
    pub block_bytes: u32,
}

/// Checks a drive like one that joins, destroys content that may be destroyed, and makes it a standby. Blocks.
///
/// # Errors
/// As [`prepare_join`].
pub fn make_standby(options: &JoinOptions) -> Result<OpenLeg, CreateError> {
    let (leg, _) = prepare_join(options)?;
    let path = || options.config.path.to_string();
    let name = Name::new(&options.name)?;
    write_standby(&leg, &Standby { volume_id: options.volume, name }).map_err(|source| {
        CreateError::Write { action: "make a standby of", path: path(), source }
    })?;
    Ok(leg)
}

/// Writes a standby's superblock over that of a leg, one slot after the other. Blocks.
///
/// # Errors
/// The system's error. One slot may have been written.
pub fn write_standby(leg: &OpenLeg, standby: &Standby) -> io::Result<()> {
    for slot in 0..2 {
        leg.write_at(Layout::superblock_address(slot), &standby.encode(slot))?;
        leg.flush()?;
    }
    Ok(())
}

/// Opens and locks a standby, and prepares it to join its volume as a leg. Until the volume writes a leg's
/// superblock over the standby's, it stays a standby: a crash leaves nothing that is neither. Blocks.
///
/// # Errors
/// [`CreateError::NotStandby`] if it is no standby of this volume, or cannot hold it. Nothing has been changed
/// then.
pub fn take_standby(config: &LegConfig, to: &Joined) -> Result<(OpenLeg, Id), CreateError> {
    let path = || config.path.to_string();
    let leg = OpenLeg::configured(config, Purpose::Serve)?;
    let head = leg.head().map_err(|source| CreateError::Read { path: path(), source })?;
    let found = Standby::of(&head).filter(|standby| standby.volume_id == to.volume);
    let unfit = match found {
        None => Some("its superblock does not say so".to_owned()),
        Some(_) => unfit(&leg, to),
    };
    if let Some(reason) = unfit {
        return Err(CreateError::NotStandby { path: path(), reason });
    }
    // What is left of an earlier volume must never be taken for this one's metadata.
    let start = Layout::superblock_address(1) + BLOCK_BYTES as u64;
    prepare::write_zeros(start, to.layout.data_offset(), |at, zeros| leg.write_at(at, zeros))
        .and_then(|()| leg.flush())
        .map_err(|source| CreateError::Write { action: "blank", path: path(), source })?;
    Ok((leg, random_id()?))
}

/// Returns the reason why a drive cannot hold a leg of the volume, if there is one.
pub fn unfit(leg: &OpenLeg, to: &Joined) -> Option<String> {
    let needs = to.layout.leg_bytes();
    if leg.size() < needs {
        return Some(format!("it has {}, and the volume needs {}", Size(leg.size()), Size(needs)));
    }
    (leg.block() > to.block_bytes).then(|| {
        format!("it has blocks of {} bytes, the volume of {}", leg.block(), to.block_bytes)
    })
}
