//! Describes a leg's device for people: the path it was last opened by, its model and its serial
//! number.
//!
//! Every superblock carries the descriptions of all legs, so that a volume that misses one can
//! name the disk to look for. They are advice for people. Nothing is ever decided by them, and
//! bytes that make no sense read as no description.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest text of a description, in bytes of UTF-8: path, model and serial number together.
pub const DESCRIPTION_BYTES_MAX: usize = 104;
/// Longest model and longest serial number, in bytes.
const IDENTITY_BYTES_MAX: usize = 24;
/// Stands for the beginning of a path that is too long.
const ELLIPSIS: &str = "…";

/// The last known path, model and serial number of a leg's device, each empty where unknown.
/// The fields are the bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LegDescription {
    path_bytes: u8,
    model_bytes: u8,
    serial_bytes: u8,
    reserved: u8,
    /// The three texts, one behind the other, then zeros.
    text: [u8; DESCRIPTION_BYTES_MAX],
}

impl Default for LegDescription {
    fn default() -> LegDescription {
        LegDescription {
            path_bytes: 0,
            model_bytes: 0,
            serial_bytes: 0,
            reserved: 0,
            text: [0; DESCRIPTION_BYTES_MAX],
        }
    }
}

impl LegDescription {
    /// Describes a leg. Model and serial number are cut to 24 bytes each. A path that does not
    /// fit beside them loses its beginning. Each byte of a control character
    /// becomes `?`.
    pub fn new(path: &str, model: &str, serial: &str) -> LegDescription {
        let model = head(model.trim(), IDENTITY_BYTES_MAX);
        let serial = head(serial.trim(), IDENTITY_BYTES_MAX);
        let room = DESCRIPTION_BYTES_MAX - model.len() - serial.len();
        let (ellipsis, path) = if path.len() <= room {
            ("", path)
        } else {
            (ELLIPSIS, tail(path, room - ELLIPSIS.len()))
        };
        let mut description = LegDescription {
            path_bytes: (ellipsis.len() + path.len()) as u8,
            model_bytes: model.len() as u8,
            serial_bytes: serial.len() as u8,
            ..LegDescription::default()
        };
        let mut at = 0;
        for character in [ellipsis, path, model, serial].into_iter().flat_map(str::chars) {
            let place = &mut description.text[at..at + character.len_utf8()];
            if character.is_control() {
                place.fill(b'?');
            } else {
                character.encode_utf8(place);
            }
            at += place.len();
        }
        description
    }

    /// The path by which the leg was last opened, or its NBD URI. `…` stands for a beginning
    /// that did not fit.
    pub fn path(&self) -> &str {
        self.texts()[0]
    }

    /// The device's model.
    pub fn model(&self) -> &str {
        self.texts()[1]
    }

    /// The device's serial number.
    pub fn serial(&self) -> &str {
        self.texts()[2]
    }

    /// True if nothing is known of the device.
    pub fn is_empty(&self) -> bool {
        self.texts() == [""; 3]
    }

    /// Path, model and serial number, all empty unless every byte makes sense.
    fn texts(&self) -> [&str; 3] {
        let lengths = [self.path_bytes, self.model_bytes, self.serial_bytes];
        let mut rest = &self.text[..];
        let mut texts = [""; 3];
        for (text, length) in texts.iter_mut().zip(lengths) {
            let part = rest.split_at_checked(length.into()).and_then(|(part, behind)| {
                rest = behind;
                core::str::from_utf8(part).ok()
            });
            match part {
                Some(part) if !part.contains(char::is_control) => *text = part,
                _ => return [""; 3],
            }
        }
        texts
    }
}

/// The longest beginning of `text` of at most `bytes` bytes.
fn head(text: &str, bytes: usize) -> &str {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|&end| end <= bytes).last().unwrap_or(0);
    &text[..end]
}

/// The longest end of `text` of at most `bytes` bytes.
fn tail(text: &str, bytes: usize) -> &str {
    let starts = text.char_indices().map(|(at, _)| at);
    let start = starts.rev().take_while(|&at| text.len() - at <= bytes).last();
    &text[start.unwrap_or(text.len())..]
}

/// The description as people read it: "/dev/sdb, ST4000VN008, serial ZGY1". Empty if nothing
/// is known.
impl fmt::Display for LegDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [path, model, serial] = self.texts();
        let parts = [("", path), ("", model), ("serial ", serial)];
        let known = parts.iter().filter(|(_, text)| !text.is_empty());
        for (index, (label, text)) in known.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}{label}{text}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LegDescription {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [path, model, serial] = self.texts();
        formatter.debug_tuple("LegDescription").field(&path).field(&model).field(&serial).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_description_reads_as_it_was_written() {
        let path = "/dev/disk/by-id/ata-ST4000VN008-2DR166_ZGY1";
        let description = LegDescription::new(path, " ST4000VN008-2DR166  ", "ZGY1");
        assert_eq!(description.path(), path);
        assert_eq!(description.model(), "ST4000VN008-2DR166");
        assert_eq!(description.serial(), "ZGY1");
        let text = format!("{path}, ST4000VN008-2DR166, serial ZGY1");
        assert_eq!(description.to_string(), text);
        assert_eq!(LegDescription::new("a.img", "", "").to_string(), "a.img");
        assert!(LegDescription::default().is_empty());
        assert_eq!(LegDescription::default().to_string(), "");
    }

    #[test]
    fn a_long_path_keeps_its_end() {
        let path = format!("/srv/{}/leg-0.img", "directory-".repeat(20));
        let description = LegDescription::new(&path, "model", "serial");
        assert!(description.path().starts_with('…'), "{description:?}");
        assert!(description.path().ends_with("/leg-0.img"), "{description:?}");
        assert_eq!((description.model(), description.serial()), ("model", "serial"));
    }

    #[test]
    fn nonsense_reads_as_nothing() {
        let mut description = LegDescription::new("/dev/sdb", "", "");
        description.text[0] = 0xFF;
        assert!(description.is_empty(), "not UTF-8");
        let mut description = LegDescription::new("/dev/sdb", "", "");
        description.text[0] = b'\n';
        assert!(description.is_empty(), "a control character");
        let mut description = LegDescription::new("/dev/sdb", "", "");
        description.serial_bytes = 200;
        assert!(description.is_empty(), "too long");
    }

    proptest! {
        #[test]
        fn any_text_fits(path in ".*", model in ".{0,60}", serial in ".{0,60}") {
            let description = LegDescription::new(&path, &model, &serial);
            prop_assert!(!description.to_string().contains(char::is_control));
            prop_assert!(description.model().len() <= IDENTITY_BYTES_MAX);
            if path.len() <= 56 && !path.contains(char::is_control) {
                prop_assert_eq!(description.path(), path);
            }
        }
    }
}
