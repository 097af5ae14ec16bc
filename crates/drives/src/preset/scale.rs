//! The scale of a preset's flash: how far its capacity is divided, how far it may be, and what
//! is divided with it.
//!
//! The bound is that of [`crate::ssd::scale`]. Beyond it, write amplification and speed are not
//! those of the whole drive.

use std::fmt;

use super::{Model, Preset, PresetError};

/// Flash that a load needs, by what it writes: with less, most of it would be in the state that
/// the load leaves behind, not in the one it was brought into.
const FLASH_BY_WRITTEN: u64 = 2;

/// A division of flash that goes beyond the bound of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// Divisor in all, the preset's own scale included.
    pub total: u64,
    /// Largest divisor besides the preset's own scale; 0 if that alone is too large.
    pub most: u64,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total;
        write!(
            f,
            "with its flash divided by {total}, its write amplification and its speed are not the \
             drive's"
        )
    }
}

impl Preset {
    /// Returns the preset with the capacity of its flash divided by `scale`; rates stay the
    /// same. The blocks that flash frees while it is idle are divided too
    /// ([`divide_background`](crate::ssd::Parameters::divide_background)). A disk keeps its size,
    /// since its speed depends on the distance its arm moves, and so does a network volume.
    #[must_use]
    pub fn scaled(mut self, scale: u64) -> Preset {
        match &mut self.model {
            Model::Ssd(of) => {
                of.divide_background(scale);
                of.scale = of.scale.saturating_mul(scale.min(1 << 20) as u32);
            }
            Model::Array(_) => self.member_scale = self.member_scale.saturating_mul(scale),
            Model::Hdd(_) | Model::Network(_) => {}
        }
        self
    }

    /// Returns the preset of an array's members at their scale, or `None` for any other drive.
    pub(super) fn scaled_member(&self) -> Result<Option<Preset>, PresetError> {
        Ok(self.member()?.map(|member| member.scaled(self.member_scale)))
    }

    /// Returns the divisor of the flash's capacity, including the preset's own scale, or 1
    /// without flash.
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn flash_scale(&self) -> Result<u64, PresetError> {
        match (&self.model, self.scaled_member()?) {
            (Model::Ssd(of), _) => Ok(u64::from(of.scale)),
            (_, Some(member)) => member.flash_scale(),
            (_, None) => Ok(1),
        }
    }

    /// Returns the largest [`Preset::flash_scale`] at which the drive is as fast as the whole one,
    /// or `None` without flash; see [`crate::ssd::scale`].
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn flash_scale_most(&self) -> Result<Option<u64>, PresetError> {
        match (&self.model, self.member()?) {
            (Model::Ssd(of), _) => Ok(Some(of.scale_most())),
            (_, Some(member)) => member.flash_scale_most(),
            (_, None) => Ok(None),
        }
    }

    /// Returns the largest divisor, besides the preset's own scale, at which the drive is as fast
    /// as the whole one, or `None` without flash. It is 0 if the preset's own scale is too large.
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn scale_most(&self) -> Result<Option<u64>, PresetError> {
        let own = self.flash_scale()?;
        Ok(self.flash_scale_most()?.map(|most| most / own))
    }

    /// Returns the largest divisor, besides the preset's own scale, for a load that writes
    /// `written` bytes: within the bound of the drive, and so that the flash that is left is at
    /// least twice what is written. At least 1; 1 without flash.
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn divisor_for(&self, written: u64) -> Result<u64, PresetError> {
        let Some(by_bound) = self.scale_most()? else { return Ok(1) };
        let needed = written.saturating_mul(FLASH_BY_WRITTEN).max(1);
        Ok(by_bound.min(self.flash_bytes()? / needed).max(1))
    }

    /// Returns how the bound of the drive is exceeded if its flash is divided by `divisor` besides
    /// its own scale, or `None` if it is not.
    ///
    /// # Errors
    /// Fails if an array's member cannot be found.
    pub fn too_small(&self, divisor: u64) -> Result<Option<TooSmall>, PresetError> {
        let Some(most) = self.scale_most()? else { return Ok(None) };
        let total = self.flash_scale()?.saturating_mul(divisor);
        Ok((divisor > most).then_some(TooSmall { total, most }))
    }

    /// Returns the bytes that are left of the flash at its scale, which data has to itself.
    fn flash_bytes(&self) -> Result<u64, PresetError> {
        match (&self.model, self.scaled_member()?) {
            (Model::Ssd(of), _) => Ok(of.capacity.0 / u64::from(of.scale)),
            (Model::Array(of), Some(member)) => {
                Ok(member.flash_bytes()?.saturating_mul(of.level.data(of.count as usize) as u64))
            }
            _ => Ok(0),
        }
    }
}
