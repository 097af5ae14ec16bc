//! A leg's report as text.

use hemi_units::prose::counted;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, UNIX_EPOCH};

use hemi_engine::format::LegDescription;
use hemi_engine::io::OutReason;
use hemi_text::Plain;

use hemi_io::config::legs::LegSpec;
use hemi_io::leg::apart::MetadataPlace;
use hemi_units::Size;

use super::{
    LegReport, LegView, LostView, Runs, Slot, SlotState, StandbyView, SuperblockView, TableView,
};

/// Number of past generations shown.
const ANCESTORS_SHOWN: usize = 3;
/// Number of lost extents shown.
const LOST_SHOWN: usize = 12;
/// Number of bad page slots shown.
const BAD_SLOTS_SHOWN: usize = 12;

pub(super) fn line(
    formatter: &mut Formatter<'_>,
    subject: &str,
    text: fmt::Arguments<'_>,
) -> fmt::Result {
    writeln!(formatter, "  {subject:<12} {text}")
}

/// Writes that the subject of the report is in use, and by which process if that is known.
pub(super) fn in_use_line(
    formatter: &mut Formatter<'_>,
    in_use: bool,
    used_by: Option<u32>,
) -> fmt::Result {
    match (in_use, used_by) {
        (true, Some(process)) => line(
            formatter,
            "in use",
            format_args!("by process {process}; what is below may be changing"),
        ),
        (true, None) => line(formatter, "in use", format_args!("what is below may be changing")),
        (false, _) => Ok(()),
    }
}

impl Display for LegReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.path, Size(self.size_bytes))?;
        in_use_line(f, self.in_use, self.used_by)?;
        if let Some(superblock) = &self.superblock {
            superblock.write(f, self.metadata.as_ref())?;
            if let Some(command) = self.mount() {
                line(f, "mount", format_args!("{command}"))?;
            }
            if self.size_bytes < superblock.leg_bytes {
                let missing = superblock.leg_bytes - self.size_bytes;
                line(f, "TOO SHORT", format_args!("it is truncated by {missing} bytes"))?;
            }
        } else if let Some(StandbyView { name, volume }) = &self.standby {
            let text = format_args!("of volume {name:?}, {volume}; it holds nothing of it yet");
            return line(f, "standby", text);
        } else {
            line(f, "volume", format_args!("none can be read here"))?;
            if let Some(otherwise) = &self.otherwise {
                line(f, "", format_args!("{}", Plain(otherwise)))?;
            }
        }
        let [first, second] = &self.superblock_slots;
        line(f, "superblock", format_args!("slot 0 {first}; slot 1 {second}"))?;
        if let (Some(table), Some(superblock)) = (&self.table, &self.superblock) {
            table.write(f, superblock)?;
        }
        if let Some(lost) = &self.lost {
            lost.write(f)?;
        }
        Ok(())
    }
}

impl LegReport {
    /// Returns the command that mounts the data of a detached leg, for a single file or device.
    fn mount(&self) -> Option<String> {
        let superblock = self.superblock.as_ref().filter(|superblock| superblock.is_detached())?;
        let LegSpec::Path(path) = self.path.parse().ok()? else { return None };
        let offset = superblock.data_offset;
        Some(format!("mount -o ro,loop,offset={offset} {} DIRECTORY", path.display()))
    }
}

impl Display for Slot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.state, self.sequence, &self.problem) {
            (SlotState::Valid, Some(sequence), _) => write!(f, "sequence {sequence}"),
            (_, _, Some(problem)) => f.write_str(problem),
            (state, _, None) => write!(f, "{state:?}"),
        }
    }
}

impl SuperblockView {
    fn is_detached(&self) -> bool {
        let own = self.legs.iter().find(|leg| leg.leg == self.leg);
        own.is_some_and(|leg| leg.reason == Some(OutReason::Detached))
    }

    fn write(&self, f: &mut Formatter<'_>, metadata: Option<&MetadataPlace>) -> fmt::Result {
        let name = Plain(&self.name);
        let name = if self.name.is_empty() { String::new() } else { format!("\"{name}\" ") };
        line(f, "volume", format_args!("{name}{}", self.volume))?;
        line(
            f,
            "size",
            format_args!(
                "{}, regions of {}, blocks of {}",
                Size(self.size_bytes),
                Size(self.region_bytes),
                Size(self.block_bytes.into())
            ),
        )?;
        let created = UNIX_EPOCH.checked_add(Duration::from_secs(self.created));
        match created.filter(|_| self.created < 253_402_300_800) {
            Some(time) => {
                line(f, "created", format_args!("{}", humantime::format_rfc3339_seconds(time)))?;
            }
            None => line(f, "created", format_args!("{} s after 1970", self.created))?,
        }
        line(f, "this is", format_args!("leg {}, id {}", self.leg, self.leg_id))?;
        match metadata {
            None => line(f, "data", format_args!("at byte {}", self.data_offset))?,
            Some(MetadataPlace { path, start, .. }) => {
                let (end, path) = (start + self.data_offset - 1, path.display());
                line(f, "data", format_args!("at byte 0"))?;
                line(f, "metadata", format_args!("in bytes {start} to {end} of {path}"))?;
            }
        }
        let state = if self.is_detached() {
            "detached: the data area is a plain disk image, for use without hemi"
        } else if self.open {
            "open: it is being served, or was not closed when it last was"
        } else {
            "closed"
        };
        line(f, "state", format_args!("{state}"))?;
        line(f, "generation", format_args!("{}", self.generation))?;
        for ancestor in self.ancestry.iter().take(ANCESTORS_SHOWN) {
            let (generation, sequence) = (&ancestor.generation, ancestor.sequence);
            line(f, "", format_args!("{generation} until sequence {sequence}"))?;
        }
        if self.ancestry.len() > ANCESTORS_SHOWN {
            let more = self.ancestry.len() - ANCESTORS_SHOWN;
            line(f, "", format_args!("and {more} before"))?;
        }
        for (index, leg) in self.legs.iter().enumerate() {
            let subject = if index == 0 { "legs" } else { "" };
            let own = if leg.leg == self.leg { ", this one" } else { "" };
            line(f, subject, format_args!("{leg}{own}"))?;
        }
        Ok(())
    }
}

impl Display for LegView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {}, joined in epoch {}, ", self.leg, self.id, self.join_epoch)?;
        match self.reason {
            None if self.out => f.write_str("out"),
            None => f.write_str("in"),
            Some(reason) => write!(f, "out: {}", words(reason)),
        }?;
        let last = LegDescription::new(&self.path, &self.model, &self.serial);
        if last.is_empty() { Ok(()) } else { write!(f, "; last seen as {last}") }
    }
}

fn words(reason: OutReason) -> &'static str {
    match reason {
        OutReason::Unresponsive => "it did not answer",
        OutReason::Removed => "its device was removed",
        OutReason::WriteErrors => "it failed writes",
        OutReason::Detached => "it was detached",
        OutReason::Joining => "it joined and is being drained to",
    }
}

impl TableView {
    fn write(&self, f: &mut Formatter<'_>, superblock: &SuperblockView) -> fmt::Result {
        let slots = &self.slots;
        line(
            f,
            "table",
            format_args!(
                "{} in {}; slots: {} valid{}{}{}{}{}",
                counted(self.regions, "region"),
                counted(self.pages, "page"),
                slots.valid,
                Count(slots.torn, "interrupted"),
                Count(slots.blank, "BLANK"),
                Count(slots.damaged, "DAMAGED"),
                Count(slots.unreadable, "UNREADABLE"),
                Count(slots.refused, "REFUSED"),
            ),
        )?;
        for bad in self.bad_slots.iter().take(BAD_SLOTS_SHOWN) {
            line(f, "", format_args!("page {} slot {}: {}", bad.page, bad.slot, bad.found))?;
        }
        if self.unknown.count() > 0 {
            line(f, "UNKNOWN", format_args!("{}: no valid page", regions(&self.unknown)))?;
        }
        if self.doubtful.count() > 0 {
            let regions = regions(&self.doubtful);
            line(f, "DOUBTFUL", format_args!("{regions}: the newest page may be the bad one"))?;
        }
        match self.dirty.count() {
            0 => line(f, "dirty", format_args!("nothing"))?,
            _ => line(f, "dirty", format_args!("{}", regions(&self.dirty)))?,
        }
        for authority in &self.authorities {
            line(f, "", format_args!("leg {} decides {}", authority.leg, authority.regions))?;
        }
        if self.not_whole.is_empty() {
            line(f, "not whole", format_args!("no leg"))?;
        }
        for (index, not_whole) in self.not_whole.iter().enumerate() {
            let subject = if index == 0 { "not whole" } else { "" };
            let bytes = not_whole.regions.count().saturating_mul(superblock.region_bytes);
            let bytes = Size(bytes.min(superblock.size_bytes));
            let regions = regions(&not_whole.regions);
            line(f, subject, format_args!("leg {} in {regions} (up to {bytes})", not_whole.leg))?;
        }
        Ok(())
    }
}

/// A count with its noun, formatted as nothing if it is zero.
struct Count(u32, &'static str);

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, ", {} {}", self.0, self.1) }
    }
}

fn regions(runs: &Runs) -> String {
    format!("{}: {runs}", counted(runs.count(), "region"))
}

impl LostView {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (slot, found) in self.slots.iter().enumerate() {
            if !matches!(found.state, SlotState::Valid | SlotState::Torn) {
                line(f, "LOST LIST", format_args!("slot {slot}: {found}"))?;
            }
        }
        let Some(extents) = &self.extents else {
            return line(f, "lost", format_args!("unknown: no list can be read"));
        };
        if extents.is_empty() {
            return line(f, "lost", format_args!("nothing"));
        }
        let sectors: u64 = extents.iter().map(|extent| extent.end - extent.start).sum();
        line(f, "LOST", format_args!("{} bytes, by sectors:", sectors * 512))?;
        for extent in extents.iter().take(LOST_SHOWN) {
            line(f, "", format_args!("{}-{}", extent.start, extent.end - 1))?;
        }
        if extents.len() > LOST_SHOWN {
            line(f, "", format_args!("and {} more extents", extents.len() - LOST_SHOWN))?;
        }
        Ok(())
    }
}
