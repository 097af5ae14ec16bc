//! A range of the volume on the command line: `START+LENGTH`.

use std::fmt;
use std::str::FromStr;

use hemi_units::Size;

/// A range of bytes of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteRange, String> {
        let parsed = text.split_once('+').and_then(|(start, length)| {
            Some(ByteRange {
                start: start.parse::<Size>().ok()?.0,
                length: length.parse::<Size>().ok()?.0,
            })
        });
        match parsed {
            Some(range) if range.length > 0 => Ok(range),
            _ => Err(format!("{text:?} is no range; write START+LENGTH, such as 4096000+16KiB")),
        }
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}+{}", self.start, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_as_it_is_written() {
        let range = ByteRange { start: 4_096_000, length: 16_384 };
        assert_eq!("4096000+16KiB".parse(), Ok(range));
        assert_eq!(range.to_string().parse(), Ok(range));
        for wrong in ["", "7", "+", "1+", "+1", "1+0", "1-2", "x+1"] {
            assert!(wrong.parse::<ByteRange>().is_err(), "{wrong}");
        }
    }
}
