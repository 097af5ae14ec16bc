//! Trace formats and the settings needed to read them.

use hemi_units::{MICROSECOND, MILLISECOND, SECOND};
use serde::Deserialize;

use super::super::error::WorkloadError;

/// A format by its name in specs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatSpec {
    /// MSR Cambridge: `timestamp,host,disk,Read|Write,offset,size,response`, in bytes and units
    /// of 100 ns.
    Msr,
    /// SPC, as used by UMass: `ASU,LBA,size,R|W,time`, in blocks of 512 bytes, bytes and
    /// seconds.
    Spc,
    /// Alibaba 2020: `device,R|W,offset,length,timestamp`, in bytes and microseconds.
    Alibaba,
    /// Tencent CBS: `timestamp,offset,size,0|1,volume`, in seconds and sectors; 1 is a write.
    Tencent,
    /// ASCII format of DiskSim and MQSim: `time device block count flags`, in sectors; bit 0 of
    /// the flags is set for a read. The unit of time has to be given.
    #[serde(alias = "mqsim")]
    Disksim,
    /// The default text output of blkparse.
    Blkparse,
    /// The output of fio's `write_iolog`, version 2 or 3.
    FioIolog,
    /// CloudPhysics' vSCSI traces: binary records of version 1 or 2.
    Vscsi,
    /// Comma-separated values under a line that names the columns, as `hemi trace convert` writes
    /// them.
    Csv,
    /// The output of `hemi serve --record`.
    Hemi,
}

/// The names of the formats, for messages.
pub const FORMAT_NAMES: &str =
    "hemi, csv, msr, spc, alibaba, tencent, disksim, mqsim, blkparse, fio_iolog, vscsi";

/// The unit of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// 100 ns, as Windows counts file times.
    Filetime,
}

impl TimeUnit {
    /// Returns its nanoseconds, a power of ten.
    pub(super) fn nanoseconds(self) -> u64 {
        match self {
            TimeUnit::S => SECOND,
            TimeUnit::Ms => MILLISECOND,
            TimeUnit::Us => MICROSECOND,
            TimeUnit::Filetime => 100,
            TimeUnit::Ns => 1,
        }
    }
}

/// The event that stands for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Event {
    /// The request was queued: the view of the applications.
    #[default]
    #[serde(rename = "Q")]
    Queue,
    /// The request was given to the driver: the view of the device.
    #[serde(rename = "D")]
    Dispatch,
}

/// The way to read a trace, as far as it was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The format; recognised by the file's beginning if absent.
    pub format: Option<FormatSpec>,
    /// The unit of the times, of formats that have none.
    pub time_unit: Option<TimeUnit>,
    /// The event that stands for a request, of formats with several.
    pub event: Option<Event>,
}

/// A format with all settings needed to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// [`FormatSpec::Msr`].
    Msr,
    /// [`FormatSpec::Spc`].
    Spc,
    /// [`FormatSpec::Alibaba`].
    Alibaba,
    /// [`FormatSpec::Tencent`].
    Tencent,
    /// [`FormatSpec::Disksim`].
    Disksim(TimeUnit),
    /// [`FormatSpec::Blkparse`].
    Blkparse(Event),
    /// [`FormatSpec::FioIolog`].
    FioIolog,
    /// [`FormatSpec::Vscsi`].
    Vscsi,
    /// [`FormatSpec::Csv`], with the unit of its column `at`.
    Csv(Option<TimeUnit>),
    /// [`FormatSpec::Hemi`].
    Hemi,
}

impl Format {
    /// Returns its name in specs.
    pub fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Disksim(_) => "disksim",
            Format::Blkparse(_) => "blkparse",
            Format::FioIolog => "fio_iolog",
            Format::Vscsi => "vscsi",
            Format::Csv(_) => "csv",
            Format::Hemi => "hemi",
        }
    }

    /// Returns true if a line of it may have bytes that are not UTF-8: the kernel cuts the names of
    /// processes, also within a character.
    pub(super) fn has_any_bytes(self) -> bool {
        matches!(self, Format::Blkparse(_))
    }
}

/// A setting of a format that is missing or does not belong to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {right}")]
pub struct FormatError {
    key: &'static str,
    value: String,
    right: &'static str,
}

impl From<FormatError> for WorkloadError {
    fn from(FormatError { key, value, right }: FormatError) -> WorkloadError {
        WorkloadError::new(key, value, right)
    }
}

impl FormatSpec {
    /// Returns the format with its settings.
    ///
    /// # Errors
    /// Fails if a setting is missing or does not belong to the format.
    pub fn with(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<Format, FormatError> {
        let wrong = |key, value, right| Err(FormatError { key, value, right });
        let has_unit = !matches!(self, FormatSpec::Disksim | FormatSpec::Csv);
        if let (Some(unit), true) = (time_unit, has_unit) {
            let right = "leave it out: only disksim and csv traces leave their unit open";
            return wrong("time_unit", format!("{unit:?}").to_lowercase(), right);
        }
        if let (Some(event), true) = (event, self != FormatSpec::Blkparse) {
            let right = "leave it out: only blkparse has several events for a request";
            return wrong("event", format!("{event:?}"), right);
        }
        Ok(match self {
            FormatSpec::Msr => Format::Msr,
            FormatSpec::Spc => Format::Spc,
            FormatSpec::Alibaba => Format::Alibaba,
            FormatSpec::Tencent => Format::Tencent,
            FormatSpec::Disksim => match time_unit {
                Some(unit) => Format::Disksim(unit),
                None => {
                    let right = "write what the trace's times count: ms (DiskSim's), ns (MQSim's), \
                                 us, s or filetime";
                    return wrong("time_unit", "none".into(), right);
                }
            },
            FormatSpec::Blkparse => Format::Blkparse(event.unwrap_or_default()),
            FormatSpec::FioIolog => Format::FioIolog,
            FormatSpec::Vscsi => Format::Vscsi,
            FormatSpec::Csv => Format::Csv(time_unit),
            FormatSpec::Hemi => Format::Hemi,
        })
    }
}
