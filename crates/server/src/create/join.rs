//! Prepares a leg to join a volume that is being served.
//!
//! The leg is checked like a leg of a new volume. Its metadata is left blank: the volume writes it
//! when the leg joins, and until then nothing on the leg refers to anything.

use hemi_engine::format::{Id, Layout, Superblock};
use hemi_engine::recovery::newest_of;

use super::candidate::{self, Candidate, Member};
use super::{CreateError, LegsInUse, Opened, Share, prepare, random_id, twins};
use hemi_io::config::legs::LegConfig;
use hemi_io::leg::{FileOptions, OpenLeg, Purpose};
use hemi_io::probe::Probe;
use hemi_io::signature::Signature;

/// A leg that is to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// The leg's configuration.
    pub config: LegConfig,
    /// The volume's layout.
    pub layout: Layout,
    /// The volume's smallest request in bytes.
    pub block_bytes: u32,
    /// True if its content may be destroyed.
    pub wipe: bool,
    /// The share of its drive to leave unused.
    pub spare: Option<Share>,
    /// The volume's id.
    pub volume: Id,
    /// The legs that the volume uses.
    pub in_use: LegsInUse,
    /// The volume's name, possibly empty.
    pub name: String,
}

/// Checks the leg, destroys content that may be destroyed, blanks its metadata and gives it a
/// random id. Blocks.
///
/// # Errors
/// As for a leg of a new volume. Nothing has been changed, except with [`CreateError::Write`].
pub fn prepare_join(options: &JoinOptions) -> Result<(OpenLeg, Id), CreateError> {
    let JoinOptions { config, layout, .. } = options;
    let spec = &config.path;
    let text = spec.to_string();
    let mut members = Vec::new();
    for path in spec.paths() {
        let probe = Probe::new(path)?;
        members.push(Member { path: path.clone(), probe, wipe: options.wipe });
    }
    let spec = spec.clone();
    let candidate = Candidate {
        text: text.clone(),
        spec,
        members,
        wipe_remote: options.wipe,
        adopted: false,
        spare: options.spare,
    };
    let candidates = [candidate];
    let files = FileOptions { direct: config.direct, ..FileOptions::default() };
    candidate::check(&candidates, layout)
        .map_err(|error| twins::instead_of(error, &candidates, files, &options.in_use))?;
    let [candidate] = &candidates;

    let mut opened = Opened::default();
    opened.open(candidate, layout, |purpose| OpenLeg::configured(config, purpose))?;
    twins::check_unused(&text, &opened.legs[0], &options.in_use)?;
    candidate::check_opened(candidate, &opened.legs[0], layout)?;
    let block = opened.legs[0].block();
    if block > options.block_bytes {
        return Err(CreateError::BlockBytes {
            asked: options.block_bytes,
            reason: format!(
                "{text} has blocks of {block} bytes, more than the volume's; use another drive, or \
                 create a volume with --block-size 4096 and copy"
            ),
        });
    }
    twins::check_apart(&candidates, &opened.legs)?;
    opened.prepare(&candidates, layout, false)?;
    let signature = Signature { name: options.name.clone(), volume: options.volume };
    let blanked = prepare::blank_metadata(&opened.legs[0], layout)
        .and_then(|()| signature.write(&opened.legs[0]))
        .and_then(|()| opened.legs[0].flush());
    blanked.map_err(|source| CreateError::Write { action: "blank", path: text, source })?;
    let id = random_id()?;
    prepare::forget_partitions(&candidates);
    let leg = opened.legs.swap_remove(0);
    opened.keep()?;
    Ok((leg, id))
}

/// Returns the newest superblock on a leg, if one can be read. Changes and locks nothing. Blocks.
///
/// # Errors
/// Fails if the leg cannot be opened or read.
pub fn superblock_of(config: &LegConfig) -> Result<Option<Superblock>, CreateError> {
    let leg = OpenLeg::configured(config, Purpose::Inspect)?;
    let head =
        leg.head().map_err(|source| CreateError::Read { path: config.path.to_string(), source })?;
    Ok(newest_of(&head).ok())
}
