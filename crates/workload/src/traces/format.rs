//! Trace formats and the settings needed to read them.

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
    /// The output of `hemi serve --record`.
    Hemi,
}

/// The unit of times.
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
    /// [`FormatSpec::Hemi`].
    Hemi,
}

impl FormatSpec {
    /// Returns an error if a setting does not belong to the format.
    pub(crate) fn check(
        self,
        time_unit: Option<TimeUnit>,
        event: Option<Event>,
    ) -> Result<(), WorkloadError> {
        self.with(time_unit, event).map(drop)
    }

    /// Returns the format with its settings.
    ///
    /// # Errors
    /// Fails if a setting is missing or does not belong to the format.
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
