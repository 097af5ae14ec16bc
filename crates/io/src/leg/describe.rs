//! Descriptions of a leg's device for people: its path, and the model and serial number on its
//! label.
//!
//! The superblocks of all legs keep them, so that a volume that misses a leg can name the disk.
//! Model and serial number come from sysfs, for a partition from the disk it is on. If sysfs
//! has neither, the path alone describes the device.

use std::fs;
use std::path::{Path, PathBuf};

use hemi_engine::format::LegDescription;

use super::device::{Device, DeviceKind};

/// Describes a local file or device.
pub(super) fn device(device: &Device) -> LegDescription {
    // A relative path would mean nothing to the next start, which may be in another directory.
    let path = std::path::absolute(&device.path).unwrap_or_else(|_| device.path.clone());
    named(&path.to_string_lossy(), device)
}

/// Describes the leg named `name` whose data is on a file or device.
pub(super) fn named(name: &str, device: &Device) -> LegDescription {
    let (model, serial) = match device.kind {
        DeviceKind::Regular => (String::new(), String::new()),
        DeviceKind::Block => rustix::fs::fstat(&device.descriptor).map_or_else(
            |_| Default::default(),
            |stat| {
                let major = rustix::fs::major(stat.st_rdev);
                let minor = rustix::fs::minor(stat.st_rdev);
                identity(Path::new("/sys"), &format!("{major}:{minor}"))
            },
        ),
    };
    LegDescription::new(name, &model, &serial)
}

/// Describes a leg by its spec alone.
pub(super) fn spec(spec: &str) -> LegDescription {
    LegDescription::new(spec, "", "")
}

/// Returns the model and serial number of the disk that holds the block device `number`
/// ("major:minor"). Each is empty if sysfs, mounted at `sys`, does not have it.
fn identity(sys: &Path, number: &str) -> (String, String) {
    let block = sys.join("dev/block").join(number);
    let disk: PathBuf =
        if block.join("partition").exists() { block.join("..") } else { block.clone() };
    // The kernel resolves `..` behind the link, and that leads to the disk.
    let Ok(disk) = fs::canonicalize(disk) else { return Default::default() };
    of_disk(&disk)
}

/// Returns model and serial number from a disk's directory in sysfs, each empty where it does not tell.
pub fn of_disk(disk: &Path) -> (String, String) {
    let text = |name: &str| {
        let bytes = fs::read(disk.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes)
            .trim_matches(|c: char| c == '\0' || c.is_whitespace())
            .to_owned()
    };
    let model = text("device/model");
    // NVMe has its serial number beside the model, virtio-blk in the disk's directory. SCSI and
    // ATA disks have only the page of vital product data as the disk sends it.
    let serial = ["device/serial", "serial"].iter().map(|name| text(name)).find(|s| !s.is_empty());
    let serial = serial.unwrap_or_else(|| {
        fs::read(disk.join("device/vpd_pg80"))
            .ok()
            .and_then(|page| unit_serial(&page))
            .unwrap_or_default()
    });
    (model, serial)
}

/// Returns the serial number in a SCSI "unit serial number" page: page code 0x80 in byte 1, its
/// length big-endian in bytes 2 and 3, then ASCII (SPC-4, section 7.8.15).
fn unit_serial(page: &[u8]) -> Option<String> {
    let [_, 0x80, high, low, text @ ..] = page else { return None };
    let text = text.get(..usize::from(u16::from_be_bytes([*high, *low])))?;
    Some(String::from_utf8_lossy(text).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a file with its directories.
    fn put(root: &Path, path: &str, content: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
        fs::write(path, content).expect("a file");
    }

    fn link(root: &Path, number: &str, to: &str) {
        fs::create_dir_all(root.join("dev/block")).expect("a directory");
        std::os::unix::fs::symlink(
            Path::new("../..").join(to),
            root.join("dev/block").join(number),
        )
        .expect("a link");
    }

    #[test]
    fn nvme_disks_and_their_partitions_are_told() {
        let sys = tempfile::tempdir().expect("a directory");
        let root = sys.path();
        put(
            root,
            "devices/nvme0/nvme0n1/device/model",
            b"Samsung SSD 980 PRO 1TB                 \n",
        );
        put(root, "devices/nvme0/nvme0n1/device/serial", b"S5GXNX0T123456      \n");
        put(root, "devices/nvme0/nvme0n1/nvme0n1p3/partition", b"3\n");
        link(root, "259:0", "devices/nvme0/nvme0n1");
        link(root, "259:3", "devices/nvme0/nvme0n1/nvme0n1p3");
        let expected = ("Samsung SSD 980 PRO 1TB".to_owned(), "S5GXNX0T123456".to_owned());
        assert_eq!(identity(root, "259:0"), expected);
        assert_eq!(identity(root, "259:3"), expected);
    }

    #[test]
    fn scsi_serial_numbers_come_from_vital_product_data() {
        let sys = tempfile::tempdir().expect("a directory");
        let root = sys.path();
        put(root, "devices/sdb/device/model", b"ST4000VN008-2DR1\n");
        put(root, "devices/sdb/device/vpd_pg80", b"\0\x80\0\x0c    ZGY1ABCD");
        link(root, "8:16", "devices/sdb");
        assert_eq!(identity(root, "8:16"), ("ST4000VN008-2DR1".into(), "ZGY1ABCD".into()));
        assert_eq!(unit_serial(b"\0\x80\0\xff short"), None);
        assert_eq!(unit_serial(b"\0\x83\0\x01x"), None);
        assert_eq!(unit_serial(b""), None);
    }

    #[test]
    fn virtual_disks_have_a_serial_number_of_their_own() {
        let sys = tempfile::tempdir().expect("a directory");
        let root = sys.path();
        put(root, "devices/vda/serial", b"data-volume");
        link(root, "254:0", "devices/vda");
        assert_eq!(identity(root, "254:0"), (String::new(), "data-volume".into()));
        assert_eq!(identity(root, "1:1"), (String::new(), String::new()));
    }
}
