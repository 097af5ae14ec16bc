//! fio's I/O logs, versions 2 and 3.
//!
//! In version 3 every line begins with a time in microseconds. In version 2 the time is the sum
//! of the `wait` lines so far, also in microseconds. Then follows `file action [offset
//! length]`, in bytes. Adding, opening and closing files are not requests. Each file is a
//! volume.

use hemi_units::{MICROSECOND, Operation};

use super::fields::{Fields, TOO_LARGE, Wrong};
use super::{Record, Said, Volumes, extent_of_bytes};

/// The state of reading a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    version: Option<Version>,
    /// Sum of the waits so far in nanoseconds, for version 2.
    waited: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

impl State {
    pub(super) fn parse(&mut self, line: &str, volumes: &mut Volumes) -> Result<Said, Wrong> {
        let Some(version) = self.version else {
            self.version = Some(match line {
                "fio version 2 iolog" => Version::Two,
                "fio version 3 iolog" => Version::Three,
                _ => {
                    let right = "write `fio version 2 iolog` or `fio version 3 iolog`";
                    return Err(Wrong::new("version", line, right));
                }
            });
            return Ok(Said::Nothing);
        };
        let mut fields = Fields::by_space(line);
        let at = match version {
            Version::Three => fields.next("timestamp")?.number_of(MICROSECOND)?,
            Version::Two => self.waited,
        };
        let file = fields.next("file")?;
        let action = fields.next("action")?;
        let operation = match action.text {
            "read" => Operation::Read,
            "write" => Operation::Write { fua: false },
            "trim" => Operation::Trim,
            "sync" | "datasync" => Operation::Flush,
            "add" | "open" | "close" => {
                fields.end()?;
                return Ok(Said::Nothing);
            }
            "wait" if version == Version::Two => {
                let time = fields.next("microseconds to wait")?;
                // Other writers of such logs omit the length.
                if let Some(length) = fields.optional("length") {
                    length.number()?;
                }
                fields.end()?;
                let waited = self.waited.checked_add(time.number_of(MICROSECOND)?);
                self.waited = waited.ok_or_else(|| time.wrong(TOO_LARGE))?;
                return Ok(Said::Nothing);
            }
            _ => {
                let right = "write add, open, close, read, write, trim, sync, datasync or (in \
                             version 2) wait";
                return Err(action.wrong(right));
            }
        };
        let (extent, rounded) = if operation == Operation::Flush {
            for name in ["offset", "length"] {
                if let Some(field) = fields.optional(name) {
                    field.number()?;
                }
            }
            Default::default()
        } else {
            let offset = fields.next("offset")?;
            let length = fields.next("length")?;
            extent_of_bytes(offset.number()?, length.number()?).ok_or_else(|| {
                offset.wrong("write an offset that, with the length, is below 2^64")
            })?
        };
        fields.end()?;
        let volume = volumes.number(format_args!("{}", file.text));
        Ok(Said::One(Record { at, volume, operation, extent, rounded, latency: None }))
    }
}
