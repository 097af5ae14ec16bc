//! Lines of column names: copies of published traces have one that the originals lack.
//!
//! The names have to be those of the format, in its order. Many of its columns are plain numbers, so
//! that columns in another order would be read without an error, and wrongly.

use super::fields::Wrong;
use super::format::Format;

const TIME: &[&str] = &["timestamp", "time"];
const HOST: &[&str] = &["hostname", "host", "server"];
const VOLUME: &[&str] =
    &["disknumber", "diskid", "disk", "deviceid", "device", "volumeid", "volume"];
const OPERATION: &[&str] = &["type", "iotype", "opcode", "operation", "op", "rw"];
const LENGTH: &[&str] = &["size", "length"];

/// The columns of a format.
pub(super) struct Columns {
    /// The names of each, in lower case and without anything but letters and digits.
    names: &'static [&'static [&'static str]],
    /// The remedy for a first line that is neither a request nor the names of these columns.
    pub(super) right: &'static str,
}

/// Returns the columns of a format whose lines are separated by commas, except hemi's own, which
/// has to begin with their names.
pub(super) fn columns(format: Format) -> Option<Columns> {
    let (names, right): (&'static [&'static [&'static str]], _) = match format {
        Format::Msr => (
            &[TIME, HOST, VOLUME, OPERATION, &["offset"], LENGTH, &["responsetime", "latency"]],
            "remove this line if the columns are timestamp, host name, disk number, type, offset, \
             size, response time in this order, or bring them into it",
        ),
        Format::Spc => (
            &[&["asu"], &["lba"], LENGTH, OPERATION, TIME],
            "remove this line if the columns are ASU, LBA, size, opcode, timestamp in this order, or \
             bring them into it",
        ),
        Format::Alibaba => (
            &[VOLUME, OPERATION, &["offset"], LENGTH, TIME],
            "remove this line if the columns are device_id, opcode, offset, length, timestamp in \
             this order, or bring them into it",
        ),
        Format::Tencent => (
            &[TIME, &["offset"], LENGTH, OPERATION, VOLUME],
            "remove this line if the columns are timestamp, offset, size, I/O type, volume ID in \
             this order, or bring them into it",
        ),
        _ => return None,
    };
    Some(Columns { names, right })
}

impl Columns {
    /// Returns true if the first line has the columns' names, and false if it is a request. Every
    /// request begins with a number.
    ///
    /// # Errors
    /// Fails if it is neither.
    pub(super) fn are_named(&self, line: &str) -> Result<bool, Wrong> {
        if line.trim_start().starts_with(|first: char| first.is_ascii_digit()) {
            return Ok(false);
        }
        let mut found = line.trim_start_matches('#').split(',');
        let all = self.names.iter().all(|names| {
            let name = found.next().unwrap_or_default();
            let letters = name.chars().filter(char::is_ascii_alphanumeric);
            let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
            names.contains(&name.as_str())
        });
        match all && found.next().is_none() {
            true => Ok(true),
            false => Err(Wrong::new("first line", line, self.right)),
        }
    }
}
