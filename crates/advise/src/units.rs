//! The drives that a candidate system is made of: one drive, or a stripe of several.

use hemi_drives::array::{Level, Parameters};
use hemi_drives::preset::{Model, Preset, PresetError, Purchase};
use hemi_units::{SECTOR_BYTES, Size};

use crate::load::Load;

/// Least bytes of flash that are simulated of one drive.
pub const LEAST_FLASH: u64 = 6_000_000_000;
/// Data on one member of a stripe before the next one's turn.
const CHUNK: Size = Size::kib(64);

/// A drive of a preset that can be bought, or that one has.
#[derive(Clone, Debug)]
pub struct Stocked {
    /// The preset.
    pub preset: Preset,
    /// Its price and rating.
    pub purchase: Purchase,
    /// Bytes of the real drive.
    pub capacity: u64,
    /// Divisor of the flash's capacity, besides the preset's own.
    pub scale: u64,
}

/// One or several drives of a kind, used as one.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The drive.
    pub drive: Stocked,
    /// Number of drives.
    pub count: u32,
    /// The way they are combined; `None` for one drive.
    pub level: Option<Level>,
    /// Number of these drives that one has already.
    pub owned: u32,
}

impl Stocked {
    /// Returns the drive with its capacity and the scale at which it is simulated under a load.
    /// `scale` overrides the latter.
    ///
    /// # Errors
    /// See [`PresetError`].
    pub fn new(
        preset: Preset,
        purchase: Purchase,
        load: &Load,
        scale: Option<u64>,
    ) -> Result<Stocked, PresetError> {
        let capacity = capacity(&preset)?;
        let own = preset.flash_scale()?;
        let simulated = capacity / own;
        let scale = match scale {
            _ if !has_flash(&preset)? => 1,
            Some(scale) => scale,
            None => divisor(simulated, load.written_bytes),
        };
        let preset = spared(preset, own.saturating_mul(scale));
        Ok(Stocked { preset, purchase, capacity, scale })
    }
}

/// Returns the preset with the blocks that flash frees while it is idle divided like its
/// capacity. These are blocks of a lane, which a small part of the flash could not spare: it
/// would copy almost full blocks without end. A cache of flash keeps one, since it needs some.
fn spared(mut preset: Preset, scale: u64) -> Preset {
    if let Model::Ssd(of) = &mut preset.model {
        let start = of.collection_start;
        let more = u64::from(of.background_blocks.saturating_sub(start));
        let least = u64::from(of.slc.is_some()).min(more);
        of.background_blocks = start + (more / scale).max(least) as u32;
    }
    preset
}

/// Returns the largest power of two by which `simulated` bytes may be divided: what is left is
/// enough flash, and at least twice what the load writes.
fn divisor(simulated: u64, written: u64) -> u64 {
    let least = LEAST_FLASH.max(written.saturating_mul(2));
    let most = (simulated / least).max(1);
    1 << most.ilog2()
}

impl Unit {
    /// Returns one drive.
    pub fn one(drive: Stocked) -> Unit {
        Unit { drive, count: 1, level: None, owned: 0 }
    }

    /// Returns a stripe of `count` drives, or one drive.
    pub fn stripe(drive: Stocked, count: u32) -> Unit {
        Unit { drive, count, level: (count > 1).then_some(Level::Raid0), owned: 0 }
    }

    /// Returns a stripe over `count` / 2 mirrored pairs.
    pub fn mirrored_stripe(drive: Stocked, count: u32) -> Unit {
        Unit { drive, count, level: Some(Level::Raid10), owned: 0 }
    }

    /// Returns the name: the preset's, with the number of drives.
    pub fn name(&self) -> String {
        let preset = &self.drive.preset.name;
        match self.level {
            None => preset.clone(),
            Some(Level::Raid10) => format!("RAID-10 of {} {preset}", self.count),
            Some(_) => format!("{} striped {preset}", self.count),
        }
    }

    /// Returns the bytes a volume on it may have.
    pub fn capacity(&self) -> u64 {
        let each = self.drive.capacity;
        match self.level {
            None => each,
            Some(level) => each * level.data(self.count as usize) as u64,
        }
    }

    /// Returns the number of copies of everything.
    pub fn copies(&self) -> u32 {
        match self.level {
            Some(Level::Raid10) => 2,
            _ => 1,
        }
    }

    /// Returns the parameters of the array, or `None` for one drive.
    pub(crate) fn array(&self) -> Option<Parameters> {
        Some(Parameters {
            member: self.drive.preset.name.clone(),
            count: self.count,
            level: self.level?,
            chunk: CHUNK,
            controller: None,
            supply_efficiency: 1.0,
        })
    }
}

/// Returns the bytes of the real drive, whatever part of it is simulated.
///
/// # Errors
/// See [`PresetError`].
pub fn capacity(preset: &Preset) -> Result<u64, PresetError> {
    use hemi_drives::drive::Drive as _;
    match &preset.model {
        Model::Ssd(of) => Ok(of.capacity.0),
        Model::Network(of) => Ok(of.capacity.0),
        Model::Array(of) => match preset.member()? {
            Some(member) => Ok(capacity(&member)? * of.level.data(of.count as usize) as u64),
            None => Ok(0),
        },
        Model::Hdd(_) => Ok(preset.drive(0)?.sectors() * SECTOR_BYTES),
    }
}

/// Returns true if there is flash in the drive.
pub(crate) fn has_flash(preset: &Preset) -> Result<bool, PresetError> {
    Ok(match (&preset.model, preset.member()?) {
        (Model::Ssd(_), _) => true,
        (_, Some(member)) => has_flash(&member)?,
        (_, None) => false,
    })
}
