//! Checks of the parameters, with errors that name the allowed values.

use hemi_units::{SECTOR_BYTES, Size};

use super::mapping::NONE;
use super::parameters::Parameters;
use super::victim::Policy;
use crate::parameter::ParameterError;

impl Parameters {
    /// Returns an error naming the parameter if no drive can have these parameters.
    pub fn check(&self) -> Result<(), ParameterError> {
        self.check_counts()?;
        self.check_flash()?;
        self.check_controller()?;
        self.check_collection()?;
        self.check_room()
    }

    fn check_counts(&self) -> Result<(), ParameterError> {
        let counts = [
            ("scale", self.scale),
            ("pages_per_block", self.pages_per_block),
            ("channels", self.channels),
            ("dies_per_channel", self.dies_per_channel),
            ("planes", self.planes),
            ("gang", self.gang),
            ("queue_depth", self.queue_depth),
            ("reserve", self.reserve),
            ("collectors", self.collectors),
        ];
        for (name, count) in counts {
            if count == 0 || count > 1 << 20 {
                return Err(ParameterError::new(name, count, "from 1 to 1048576"));
            }
        }
        let sectors = [("page", self.page), ("mapping_unit", self.mapping_unit)];
        for (name, Size(bytes)) in sectors {
            if bytes == 0 || bytes % SECTOR_BYTES != 0 || bytes > 1 << 30 {
                let right = "a multiple of 512 B up to 1 GiB";
                return Err(ParameterError::new(name, format!("{bytes} B"), right));
            }
        }
        let rates = [("channel_rate", self.channel_rate), ("link_rate", self.link_rate)];
        match rates.iter().find(|(_, rate)| rate.0 == 0) {
            Some((name, _)) => Err(ParameterError::new(name, "0 B/s", "it must be above 0")),
            None => Ok(()),
        }
    }

    fn check_flash(&self) -> Result<(), ParameterError> {
        if !(self.alpha > 1.0 && self.alpha <= 100.0) {
            return Err(ParameterError::new(
                "alpha",
                self.alpha,
                "raw / user capacity must be above 1, at most 100",
            ));
        }
        if !(0.0..1.0).contains(&self.raw_loss) {
            return Err(ParameterError::new(
                "raw_loss",
                self.raw_loss,
                "a share from 0 to below 1",
            ));
        }
        let dies = u64::from(self.channels) * u64::from(self.dies_per_channel);
        let gang = u64::from(self.gang);
        let spans =
            self.channels.is_multiple_of(self.gang) || self.gang.is_multiple_of(self.channels);
        if dies > 1 << 16 || dies % gang != 0 || !spans {
            let right = format!(
                "it must divide the {dies} dies (65536 at most), and the channels \
                 or be a multiple of them"
            );
            return Err(ParameterError::new("gang", self.gang, right));
        }
        let (page, unit) = (self.lane_page(), self.mapping_unit.0);
        let divides = page.is_multiple_of(unit) || unit.is_multiple_of(page);
        if !divides || !self.pages_per_block.is_multiple_of(self.pages_per_unit()) {
            let right = format!(
                "it must divide a lane's page ({page} B), or be a multiple of it that divides a \
                 block of {} pages",
                self.pages_per_block
            );
            return Err(ParameterError::new("mapping_unit", format!("{unit} B"), right));
        }
        if unit > 32 << 10 && !unit.is_multiple_of(32 << 10) {
            let right = "above 32 KiB it must be a multiple of 32 KiB";
            return Err(ParameterError::new("mapping_unit", format!("{unit} B"), right));
        }
        let times = [("page_read", &self.page_read), ("page_program", &self.page_program)];
        for (name, times) in times {
            if times.is_empty() || times.iter().any(|time| time.0 == 0) {
                return Err(ParameterError::new(
                    name,
                    format!("{times:?}"),
                    "give at least one time above 0",
                ));
            }
        }
        if self.block_erase.0 == 0 {
            return Err(ParameterError::new("block_erase", "0", "it must be above 0"));
        }
        if self.rated_cycles == Some(0) {
            return Err(ParameterError::new("rated_cycles", "0", "it must be above 0"));
        }
        Ok(())
    }

    fn check_controller(&self) -> Result<(), ParameterError> {
        let least = self.page.0.min(self.mapping_unit.0).max(4096);
        if self.buffer.0 < least || self.buffer.0 > 1 << 40 {
            let right = format!("from {least} B to 1 TiB");
            return Err(ParameterError::new("buffer", format!("{} B", self.buffer.0), right));
        }
        if let Some(Size(bytes)) = self.map_cache
            && bytes < 4096
        {
            return Err(ParameterError::new("map_cache", format!("{bytes} B"), "at least 4 KiB"));
        }
        let Some(slc) = &self.slc else { return Ok(()) };
        let shape = self.shape();
        if !(2..=4).contains(&slc.bits) || shape.cached_slots == 0 {
            let right = "2, 3 or 4, and a block must have at least as many pages";
            return Err(ParameterError::new("slc.bits", slc.bits, right));
        }
        if slc.page_program.0 == 0 || slc.page_read.0 == 0 {
            let right = "it must be above 0";
            return Err(ParameterError::new("slc.page_read` or `slc.page_program", "0", right));
        }
        Ok(())
    }

    fn check_collection(&self) -> Result<(), ParameterError> {
        if !(self.collection_share > 0.0 && self.collection_share < 1.0) {
            let right = "a share above 0 and below 1";
            return Err(ParameterError::new("collection_share", self.collection_share, right));
        }
        if self.reserve < 1 + u32::from(self.hot_cold) {
            let right = "at least 1, or 2 with hot_cold";
            return Err(ParameterError::new("reserve", self.reserve, right));
        }
        if self.collection_start <= self.reserve {
            let right = format!("it must be above reserve ({})", self.reserve);
            return Err(ParameterError::new("collection_start", self.collection_start, right));
        }
        if self.background_blocks > 1 << 20 {
            return Err(ParameterError::new(
                "background_blocks",
                self.background_blocks,
                "up to 1048576",
            ));
        }
        if let Policy::Choices(0) = self.victim {
            return Err(ParameterError::new("victim", "0 choices", "at least 1"));
        }
        Ok(())
    }

    /// Checks that user data and the pool of free blocks fit.
    fn check_room(&self) -> Result<(), ParameterError> {
        let scale = u64::from(self.scale);
        if self.capacity.0 / scale < self.mapping_unit.0 {
            let right = format!("it must hold a mapping unit ({} B)", self.mapping_unit.0);
            return Err(ParameterError::new(
                "capacity",
                format!("{} B / {scale}", self.capacity.0),
                right,
            ));
        }
        let block = self.lane_page() * u64::from(self.pages_per_block);
        let slots = (self.capacity.0 as f64) * self.alpha / self.mapping_unit.0 as f64;
        if slots / f64::from(self.scale) >= f64::from(NONE - (1 << 24)) {
            let right = "at most about 4 billion slots are possible: raise scale or mapping_unit";
            return Err(ParameterError::new("capacity", format!("{} B", self.capacity.0), right));
        }
        let shape = self.shape();
        let needed = u64::from(shape.units.div_ceil(shape.slots));
        let (_, pool) = self.blocks();
        let pool = libm::ceil(pool) as u64;
        if u64::from(shape.blocks) <= needed + pool {
            let right = format!(
                "with raw_loss {} the drive has {} blocks of {block} B; its data needs {needed} \
                 and the pool of free ones more than {pool}: raise it, or lower reserve and \
                 collection_start, or scale",
                self.raw_loss, shape.blocks
            );
            return Err(ParameterError::new("alpha", self.alpha, right));
        }
        Ok(())
    }
}
