//! Finds the whole disks behind a leg's file or device, through sysfs.
//!
//! A file lies on the device of its file system. A partition lies on its disk, and a mapped or RAID device on
//! the devices that the kernel lists as its slaves. A loop device lies on its file.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use hemi_io::probe::backing_file;

/// Maximum depth of stacked devices that is followed.
const LEVELS_MAX: u32 = 8;
/// Maximum number of disks of one leg.
const DISKS_MAX: usize = 64;

/// The files that describe the machine's devices.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The mount point of sysfs.
    pub(super) sys: PathBuf,
    /// The directory of udev's database.
    pub(super) udev: PathBuf,
    /// The list of this process's mounts.
    pub(super) mounts: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            sys: "/sys".into(),
            udev: "/run/udev/data".into(),
            mounts: "/proc/self/mountinfo".into(),
        }
    }
}

/// A whole disk: its kernel name and its directory in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    /// The kernel name, such as `nvme0n1`.
    pub(super) name: String,
    /// The directory, with links resolved.
    pub(super) folder: PathBuf,
}

impl Disk {
    /// Returns the path of its device.
    pub(super) fn device(&self) -> String {
        // The kernel writes a slash in a device name as an exclamation mark.
        format!("/dev/{}", self.name.replace('!', "/"))
    }
}

impl Machine {
    /// Returns the disks behind a file or block device, each once.
    ///
    /// # Errors
    /// A sentence that says why they are unknown.
    pub(super) fn disks(&self, path: &Path) -> Result<Vec<Disk>, String> {
        let mut disks = Vec::new();
        self.behind_path(path, 0, &mut disks)?;
        Ok(disks)
    }

    fn behind_path(&self, path: &Path, level: u32, disks: &mut Vec<Disk>) -> Result<(), String> {
        let metadata = fs::metadata(path)
            .map_err(|error| format!("{} cannot be looked at: {error}", path.display()))?;
        let number = match metadata.file_type().is_block_device() {
            true => metadata.rdev(),
            false => metadata.dev(),
        };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        if major != 0 {
            return self.behind_number(&format!("{major}:{minor}"), level, disks);
        }
        // For a file system that spans devices, the source of its mount is used.
        let mounts = self.mounts_text();
        let (format, source) = mount_of(&mounts, path, &format!("{major}:{minor}"))
            .ok_or_else(|| format!("the file system of {} is not known", path.display()))?;
        if !source.starts_with("/dev/") {
            return Err(format!(
                "{} is on {format}, which does not tell its disks",
                path.display()
            ));
        }
        self.deeper(level)?;
        self.behind_path(Path::new(source), level + 1, disks)
    }

    /// Returns the list of mounts, whatever names are in it.
    fn mounts_text(&self) -> String {
        hemi_text::read_lossy(&self.mounts).unwrap_or_default()
    }

    fn behind_number(&self, number: &str, level: u32, disks: &mut Vec<Disk>) -> Result<(), String> {
        let link = self.sys.join("dev/block").join(number);
        let folder = fs::canonicalize(&link)
            .map_err(|error| format!("{} cannot be read: {error}", link.display()))?;
        self.behind_folder(&folder, level, disks)
    }

    fn behind_folder(
        &self,
        folder: &Path,
        level: u32,
        disks: &mut Vec<Disk>,
    ) -> Result<(), String> {
        if folder.join("partition").exists()
            && let Some(disk) = folder.parent()
        {
            return self.behind_folder(disk, level, disks);
        }
        if let Some(file) = backing_file(folder) {
            self.deeper(level)?;
            let bytes = file.as_os_str().as_bytes();
            let file = OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes));
            return self.behind_path(Path::new(file), level + 1, disks);
        }
        let mut slaves: Vec<PathBuf> = fs::read_dir(folder.join("slaves"))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        slaves.sort();
        for slave in &slaves {
            self.deeper(level)?;
            let slave = fs::canonicalize(slave)
                .map_err(|error| format!("{} cannot be read: {error}", slave.display()))?;
            self.behind_folder(&slave, level + 1, disks)?;
        }
        if !slaves.is_empty() {
            return Ok(());
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let disk = Disk { name, folder: folder.to_owned() };
        if !disks.contains(&disk) && disks.len() < DISKS_MAX {
            disks.push(disk);
        }
        Ok(())
    }

    fn deeper(&self, level: u32) -> Result<(), String> {
        match level < LEVELS_MAX {
            true => Ok(()),
            false => Err(format!("its devices are stacked more than {LEVELS_MAX} deep")),
        }
    }
}

/// Returns the type and the source of the file system that a path is on. It is found by its device number,
/// else by the longest mount point above the path (btrfs gives each subvolume its own number).
fn mount_of<'a>(mounts: &'a str, path: &Path, number: &str) -> Option<(&'a str, &'a str)> {
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut best: Option<(usize, (&str, &str))> = None;
    for line in mounts.lines() {
        let Some((mount, source)) = line.split_once(" - ") else { continue };
        let fields: Vec<&str> = mount.split(' ').collect();
        let [_, _, of, _, point, ..] = fields[..] else { continue };
        let mut words = source.split(' ');
        let (Some(format), Some(source)) = (words.next(), words.next()) else { continue };
        if of == number {
            return Some((format, source));
        }
        // Mount points with blanks are escaped here, so such a path is found by its number or not at all.
        if full.starts_with(point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), (format, source)));
        }
    }
    best.map(|(_, found)| found)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A fake sysfs.
    pub(in crate::drive) struct Made {
        pub(in crate::drive) root: tempfile::TempDir,
        pub(in crate::drive) machine: Machine,
    }

    impl Made {
        pub(in crate::drive) fn new() -> Made {
            let root = tempfile::tempdir().expect("a directory");
            let machine = Machine {
                sys: root.path().join("sys"),
                udev: root.path().join("udev"),
                mounts: root.path().join("mounts"),
            };
            Made { root, machine }
        }

        pub(in crate::drive) fn put(&self, path: &str, content: &str) {
            let path = self.root.path().join(path);
            fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
            fs::write(path, content).expect("a file");
        }

        /// Gives a directory of the fake `/sys/devices` a number.
        pub(in crate::drive) fn number(&self, number: &str, device: &str) {
            let folder = self.machine.sys.join("devices").join(device);
            fs::create_dir_all(&folder).expect("a directory");
            let links = self.machine.sys.join("dev/block");
            fs::create_dir_all(&links).expect("a directory");
            symlink(folder, links.join(number)).expect("a link");
        }

        fn slave(&self, device: &str, of: &str) {
            let slaves = self.machine.sys.join("devices").join(of).join("slaves");
            fs::create_dir_all(&slaves).expect("a directory");
            let folder = self.machine.sys.join("devices").join(device);
            let name = Path::new(device).file_name().expect("it has a name");
            symlink(folder, slaves.join(name)).expect("a link");
        }

        fn names(&self, number: &str) -> Vec<String> {
            let mut disks = Vec::new();
            self.machine
                .behind_number(number, 0, &mut disks)
                .unwrap_or_else(|error| panic!("{error}"));
            disks.into_iter().map(|disk| disk.name).collect()
        }
    }

    #[test]
    fn a_mapped_volume_on_a_raid_leads_to_each_disk_once() {
        let made = Made::new();
        made.number("8:0", "ata1/sda");
        made.number("8:16", "ata2/sdb");
        made.number("8:1", "ata1/sda/sda1");
        made.put("sys/devices/ata1/sda/sda1/partition", "1\n");
        made.put("sys/devices/ata2/sdb/sdb1/partition", "1\n");
        made.number("9:0", "virtual/md0");
        made.slave("ata1/sda/sda1", "virtual/md0");
        made.slave("ata2/sdb/sdb1", "virtual/md0");
        made.number("253:0", "virtual/dm-0");
        made.slave("virtual/md0", "virtual/dm-0");
        assert_eq!(made.names("8:1"), ["sda"]);
        assert_eq!(made.names("9:0"), ["sda", "sdb"]);
        assert_eq!(made.names("253:0"), ["sda", "sdb"]);
        // A second mapping on the same disk adds nothing.
        made.slave("ata1/sda/sda1", "virtual/dm-0");
        assert_eq!(made.names("253:0"), ["sda", "sdb"]);
    }

    #[test]
    fn a_mount_point_with_an_odd_name_hides_no_other() {
        let made = Made::new();
        made.put("tank/leg", "");
        let folder = made.root.path().join("tank");
        let mut mounts = b"29 1 0:43 / /mnt/caf\xe9 rw - tmpfs tmpfs rw\n".to_vec();
        mounts.extend(format!("31 1 0:45 / {} rw - zfs tank rw\n", folder.display()).bytes());
        fs::write(&made.machine.mounts, mounts).expect("a file");
        let text = made.machine.mounts_text();
        assert_eq!(mount_of(&text, &folder.join("leg"), "0:99"), Some(("zfs", "tank")));
    }

    #[test]
    fn a_circle_of_devices_ends() {
        let made = Made::new();
        made.number("253:0", "virtual/dm-0");
        made.number("253:1", "virtual/dm-1");
        made.slave("virtual/dm-0", "virtual/dm-1");
        made.slave("virtual/dm-1", "virtual/dm-0");
        let error = made.machine.behind_number("253:0", 0, &mut Vec::new());
        assert!(error.expect_err("it has no end").contains("more than 8 deep"));
    }

    #[test]
    fn a_file_system_without_a_device_tells_its_source() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      30 22 0:44 /sub /pool rw shared:1 - btrfs /dev/sdc rw\n\
                      31 22 0:45 / /tank rw - zfs tank/data rw\n";
        assert_eq!(mount_of(mounts, Path::new("/x"), "0:45"), Some(("zfs", "tank/data")));
        assert_eq!(mount_of(mounts, Path::new("/pool/a/b"), "0:99"), Some(("btrfs", "/dev/sdc")));
        assert_eq!(mount_of(mounts, Path::new("/nowhere"), "0:99"), Some(("ext4", "/dev/vda")));
        assert_eq!(mount_of("", Path::new("/x"), "0:1"), None);

        let made = Made::new();
        let file = made.root.path().join("leg.img");
        fs::write(&file, "x").expect("a file");
        let missing = made.machine.disks(&made.root.path().join("none"));
        assert!(missing.expect_err("it is not there").contains("cannot be looked at"));
        // The fake sysfs does not know the device of the test's directory.
        made.machine.disks(&file).expect_err("it is not in the made sysfs");
    }
}
