//! The drives that a candidate system is made of: one drive, or a stripe of several.

use hemi_drives::array::{Level, Parameters};
use hemi_drives::preset::{Model, Preset, PresetError, Purchase};
use hemi_units::{SECTOR_BYTES, Size};

use crate::load::Load;

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
    /// Divisor of the flash's capacity, besides the preset's own; 1 without flash.
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
    /// Returns the drive with its capacity and the scale at which it is simulated under a load:
    /// the largest at which the drive is still itself ([`Preset::divisor_for`]), or `scale`.
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
        let scale = match scale {
            Some(scale) if has_flash(&preset)? => scale,
            _ => preset.divisor_for(load.written_bytes)?,
        };
        Ok(Stocked { preset, purchase, capacity, scale })
    }

    /// Returns the preset as it is simulated.
    pub(crate) fn simulated(&self) -> Preset {
        self.preset.clone().scaled(self.scale)
    }
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
    Ok(preset.flash_scale_most()?.is_some())
}
