//! The identity of a disk, from sysfs and udev's database.

use std::collections::HashMap;
use std::fs;

use super::disks::{Disk, Machine};
use super::{DriveKind, DriveStatus};
use hemi_io::leg::describe;
use hemi_text::read_lossy;

/// Maximum number of characters of a model, a serial number or a version.
const TEXT_MAX: usize = 64;
/// Parts of the model names of volumes served by a cloud provider or another machine.
const NETWORK_MODELS: [&str; 4] =
    ["Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk", "nvme-ebs"];
/// Parts of the model names of virtual machines' disks.
const VIRTUAL_MODELS: [&str; 6] =
    ["QEMU", "VBOX", "VMware", "Virtual disk", "Virtual Disk", "VIRTUAL-DISK"];
/// Prefixes of names of devices served by a program or another machine.
const NETWORK_NAMES: [&str; 3] = ["nbd", "rbd", "drbd"];
/// Prefixes of names of virtual machines' disks, of memory, and of devices served by programs.
const VIRTUAL_NAMES: [&str; 6] = ["vd", "xvd", "zram", "ram", "pmem", "ublkb"];

impl Machine {
    /// Returns a disk's identity as the machine knows it, without querying the drive.
    pub(super) fn identity(&self, disk: &Disk) -> DriveStatus {
        let text =
            |name: &str| read_lossy(disk.folder.join(name)).ok().and_then(|text| plain(&text));
        let udev = self.udev_properties(disk);
        let property = |name: &str| udev.get(name).and_then(|text| plain(text));
        let (model, serial) = describe::of_disk(&disk.folder);
        let is_ata = udev.get("ID_BUS").is_some_and(|bus| bus == "ata");
        // For a SATA drive the kernel keeps only the first 16 characters of the model.
        let full = property("ID_MODEL").map(|model| model.replace('_', " "));
        let model = match is_ata {
            true => full.or_else(|| plain(&model)),
            false => plain(&model).or(full),
        };
        let serial = plain(&serial).or_else(|| property("ID_SERIAL_SHORT"));
        let firmware = text("device/firmware_rev")
            .or_else(|| property("ID_REVISION"))
            .or_else(|| text("device/rev"));
        let rotational = match text("queue/rotational").as_deref() {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        };
        DriveStatus {
            device: Some(disk.device()),
            kind: kind(&disk.name, model.as_deref().unwrap_or_default(), rotational),
            model,
            serial,
            firmware,
            rotational,
            ..DriveStatus::default()
        }
    }

    /// Reads a disk's entry in udev's database, which has lines of `E:NAME=VALUE`.
    fn udev_properties(&self, disk: &Disk) -> HashMap<String, String> {
        let number = fs::read_to_string(disk.folder.join("dev")).unwrap_or_default();
        let entry = self.udev.join(format!("b{}", number.trim()));
        let text = read_lossy(&entry).unwrap_or_default();
        let properties = text.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        properties.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// Returns the kind of a disk, by its name, its model and the kernel's rotational flag.
fn kind(name: &str, model: &str, rotational: Option<bool>) -> DriveKind {
    let is_one_of = |parts: &[&str]| parts.iter().any(|part| model.contains(part));
    let begins_with = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
    if is_one_of(&NETWORK_MODELS) || begins_with(&NETWORK_NAMES) {
        return DriveKind::Network;
    }
    // The host decides whether a virtual disk is reported as rotational.
    if is_one_of(&VIRTUAL_MODELS) || begins_with(&VIRTUAL_NAMES) {
        return DriveKind::Virtual;
    }
    match rotational {
        Some(true) => DriveKind::Hdd,
        Some(false) if name.starts_with("nvme") => DriveKind::Nvme,
        Some(false) => DriveKind::Ssd,
        None => DriveKind::Unknown,
    }
}

/// Returns a drive's string without surrounding blanks and control characters, truncated to
/// [`TEXT_MAX`]; `None` if nothing is left.
pub(super) fn plain(text: &str) -> Option<String> {
    let trimmed = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let plain: String =
        trimmed.chars().filter(|c| hemi_text::is_plain(*c)).take(TEXT_MAX).collect();
    (!plain.is_empty()).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::super::disks::tests::Made;
    use super::*;

    #[test]
    fn a_sata_drive_has_its_whole_model_from_udev() {
        let made = Made::new();
        made.number("8:16", "ata2/sdb");
        made.put("sys/devices/ata2/sdb/dev", "8:16\n");
        made.put("sys/devices/ata2/sdb/queue/rotational", "1\n");
        made.put("sys/devices/ata2/sdb/device/model", "ST4000VN008-2DR1\n");
        made.put("sys/devices/ata2/sdb/device/rev", "SC60\n");
        made.put(
            "udev/b8:16",
            "S:disk/by-id/x\nE:ID_BUS=ata\nE:ID_MODEL=ST4000VN008-2DR166\n\
             E:ID_SERIAL_SHORT=ZGY1ABCD\nE:ID_REVISION=SC60\n",
        );
        let folder = made.machine.sys.join("devices/ata2/sdb");
        let drive = made.machine.identity(&Disk { name: "sdb".into(), folder });
        assert_eq!(drive.device.as_deref(), Some("/dev/sdb"));
        assert_eq!(drive.model.as_deref(), Some("ST4000VN008-2DR166"));
        assert_eq!(drive.serial.as_deref(), Some("ZGY1ABCD"));
        assert_eq!(drive.firmware.as_deref(), Some("SC60"));
        assert_eq!((drive.rotational, drive.kind), (Some(true), DriveKind::Hdd));
    }

    #[test]
    fn a_property_with_odd_bytes_costs_no_other() {
        let made = Made::new();
        made.number("8:16", "ata2/sdb");
        made.put("sys/devices/ata2/sdb/dev", "8:16\n");
        made.put("udev/b8:16", "");
        let entry = b"E:ID_FS_LABEL=caf\xe9\nE:ID_MODEL=ST4000VN008\nE:ID_SERIAL_SHORT=ZGY1ABCD\n";
        fs::write(made.machine.udev.join("b8:16"), entry).expect("a file");
        let folder = made.machine.sys.join("devices/ata2/sdb");
        let drive = made.machine.identity(&Disk { name: "sdb".into(), folder });
        assert_eq!(drive.model.as_deref(), Some("ST4000VN008"));
        assert_eq!(drive.serial.as_deref(), Some("ZGY1ABCD"));
    }

    #[test]
    fn an_nvme_drive_needs_no_udev() {
        let made = Made::new();
        made.put("sys/devices/nvme0n1/device/model", "Samsung SSD 980 PRO 1TB     \n");
        made.put("sys/devices/nvme0n1/device/serial", "S5GXNX0T123456\n");
        made.put("sys/devices/nvme0n1/device/firmware_rev", "5B2QGXA7\n");
        made.put("sys/devices/nvme0n1/queue/rotational", "0\n");
        let folder = made.machine.sys.join("devices/nvme0n1");
        let drive = made.machine.identity(&Disk { name: "nvme0n1".into(), folder });
        assert_eq!(drive.model.as_deref(), Some("Samsung SSD 980 PRO 1TB"));
        assert_eq!(drive.firmware.as_deref(), Some("5B2QGXA7"));
        assert_eq!(drive.kind, DriveKind::Nvme);
    }

    #[test]
    fn kinds_are_told_by_what_is_behind_the_name() {
        for (name, model, rotational, expected) in [
            ("sda", "Samsung SSD 860", Some(false), DriveKind::Ssd),
            ("sda", "ST4000VN008", Some(true), DriveKind::Hdd),
            ("nvme0n1", "WD_BLACK SN850", Some(false), DriveKind::Nvme),
            ("nvme1n1", "Amazon Elastic Block Store", Some(false), DriveKind::Network),
            ("nvme1n1", "Amazon EC2 NVMe Instance Storage", Some(false), DriveKind::Nvme),
            ("nbd0", "", Some(false), DriveKind::Network),
            ("vda", "", Some(true), DriveKind::Virtual),
            ("sda", "QEMU HARDDISK", Some(true), DriveKind::Virtual),
            ("sdz", "", None, DriveKind::Unknown),
        ] {
            assert_eq!(kind(name, model, rotational), expected, "{name} {model}");
        }
    }

    #[test]
    fn a_drives_words_cannot_steer_a_terminal() {
        assert_eq!(plain(" a\x1b[2Jb \0").as_deref(), Some("a[2Jb"));
        assert_eq!(plain(" \n"), None);
        assert_eq!(plain(&"x".repeat(100)).map(|text| text.len()), Some(TEXT_MAX));
    }
}
