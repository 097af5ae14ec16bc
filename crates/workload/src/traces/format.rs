//! The formats, and what has to be said to read one.

use serde::Deserialize;

use super::super::error::WorkloadError;

/// A format, as specs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatSpec {
    /// MSR Cambridge: `timestamp,host,disk,Read|Write,offset,size,response`, in bytes and
    /// units of 100 ns.
    Msr,
    /// SPC, as of UMass: `ASU,LBA,size,R|W,time`, in blocks of 512 bytes, bytes and seconds.
    Spc,
    /// Alibaba 2020: `device,R|W,offset,length,timestamp`, in bytes and microseconds.
    Alibaba,
    /// Tencent CBS: `timestamp,offset,size,0|1,volume`, in seconds and sectors; 1 writes.
    Tencent,
    /// DiskSim's and MQSim's ASCII: `time device block count flags`, in sectors; bit 0 of the
    /// flags reads. What the time counts has to be said.
    #[serde(alias = "mqsim")]
    Disksim,
    /// The text blkparse writes by default.
    Blkparse,
    /// What fio writes with `write_iolog`, version 2 or 3.
    FioIolog,
    /// What `hemi serve --record` writes.
    Hemi,
}

/// What times count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// Which of a request's events stands for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Event {
    /// When it was queued: what the applications asked for.
    #[default]
    #[serde(rename = "Q")]
    Queue,
    /// When it was given to the driver: what the device was asked for.
    #[serde(rename = "D")]
    Dispatch,
}

/// A format with all that has to be known to read it.
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
    /// [`FormatSpec::Hemi`].
    Hemi,
}

impl FormatSpec {
    /// Refuses what does not belong to the format.
    pub(crate) fn check(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<(), WorkloadError> {
        self.with(time_unit, event).map(drop)
    }

    /// The format with what was said of it.
    ///
    /// # Errors
    /// Where something is missing or does not belong to it.
    pub fn with(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<Format, WorkloadError> {
        if let (Some(unit), true) = (time_unit, self != FormatSpec::Disksim) {
            let value = format!("{unit:?}").to_lowercase();
            let right = "leave it out: only disksim traces leave their unit open";
            return Err(WorkloadError::new("time_unit", value, right));
        }
        if let (Some(event), true) = (event, self != FormatSpec::Blkparse) {
            let right = "leave it out: only blkparse has several events for a request";
            return Err(WorkloadError::new("event", format!("{event:?}"), right));
        }
        Ok(match self {
            FormatSpec::Msr => Format::Msr,
            FormatSpec::Spc => Format::Spc,
            FormatSpec::Alibaba => Format::Alibaba,
            FormatSpec::Tencent => Format::Tencent,
            FormatSpec::Disksim => Format::Disksim(time_unit.ok_or_else(|| {
                let right =
                    "write what the trace's times count: ms (DiskSim's), us or ns (MQSim's)";
                WorkloadError::new("time_unit", "none", right)
            })?),
            FormatSpec::Blkparse => Format::Blkparse(event.unwrap_or_default()),
            FormatSpec::FioIolog => Format::FioIolog,
            FormatSpec::Hemi => Format::Hemi,
        })
    }
}
