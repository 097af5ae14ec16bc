//! The properties of a block device for a udev rule.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use super::{Reading, read_candidate, read_end};
use crate::device;
use hemi_io::config::legs::LegSpec;

/// A property's name and value.
type Property = (&'static str, String);

/// Returns the udev properties of a block device. For a leg or a part of one, they tell other programs to
/// keep off. For the block device of a volume, they hold the volume's name. Returns none for any other
/// device, and for one that cannot be read.
///
/// An adopted disk has properties only with the spec `end:PATH`. They do not hide the file system on it.
pub fn udev_properties(device: &LegSpec) -> Vec<Property> {
    match device {
        LegSpec::Path(path) => of_device(path),
        LegSpec::End(path) => of_adopted(path),
        _ => Vec::new(),
    }
}

fn of_adopted(path: &Path) -> Vec<Property> {
    let size = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    match size.map(|size| read_end(&LegSpec::Path(path.into()), size)) {
        Ok(Reading::Leg(leg)) => vec![
            ("HEMI_ADOPTED", safe(&leg.name)),
            ("HEMI_VOLUME_ID", leg.volume),
            ("HEMI_LEG", leg.leg.to_string()),
        ],
        _ => Vec::new(),
    }
}

fn of_device(device: &Path) -> Vec<Property> {
    if let Some(name) = device::volume_at(device) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        // udev replaces other characters in the name of a link, which would then be a different link.
        let plain = name.bytes().all(is_plain);
        return plain.then_some(("HEMI_DEVICE", name)).into_iter().collect();
    }
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    if ["ublkb", "nbd"].iter().any(|prefix| name.starts_with(prefix)) {
        // A read would wait for a server that may be gone.
        return Vec::new();
    }
    let member =
        |format: &str| vec![("ID_FS_TYPE", format.to_owned()), ("ID_FS_USAGE", "raid".to_owned())];
    match read_candidate(&LegSpec::Path(device.into())) {
        Reading::Standby(standby) => {
            let mut properties = member("hemi_standby");
            properties.push(("HEMI_VOLUME_ID", standby.volume));
            properties
        }
        Reading::Leg(leg) => {
            let mut properties = member("hemi_leg");
            properties.extend([
                ("ID_FS_UUID", leg.volume.clone()),
                ("ID_FS_UUID_ENC", leg.volume),
                ("ID_FS_UUID_SUB", leg.id.clone()),
                ("ID_FS_UUID_SUB_ENC", leg.id),
                ("ID_FS_LABEL", safe(&leg.name)),
                ("ID_FS_LABEL_ENC", encoded(&leg.name)),
                ("HEMI_LEG", leg.leg.to_string()),
            ]);
            properties
        }
        Reading::Member(_) => member("hemi_stripe_member"),
        Reading::Other(..) | Reading::Nothing => Vec::new(),
    }
}

/// Replaces each character that may be special to a reader with an underscore.
fn safe(name: &str) -> String {
    let safe = |c: char| if is_safe(c) { c } else { '_' };
    name.chars().map(safe).collect()
}

/// Escapes such characters as udev does, for example as `\\x20`.
fn encoded(name: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4];
    for character in name.chars() {
        if is_safe(character) {
            text.push(character);
        } else {
            let bytes = character.encode_utf8(&mut bytes).bytes();
            text.extend(bytes.map(|byte| format!("\\x{byte:02x}")));
        }
    }
    text
}

fn is_safe(character: char) -> bool {
    character.is_ascii_alphanumeric() || "#+-.:=@_".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_udev_has_them() {
        assert_eq!((safe("db-1"), encoded("db-1")), ("db-1".into(), "db-1".into()));
        assert_eq!(safe("a b\n$(x)"), "a_b___x_");
        assert_eq!(encoded("a b\\é"), "a\\x20b\\x5c\\xc3\\xa9");
    }
}
