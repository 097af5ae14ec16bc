//! Facts about files and devices from /proc, /sys and `wipefs`.
//!
//! They only serve a clear message: if a file in /proc is missing, nothing is found. Safety rests
//! on the exclusive open and the lock of the leg itself.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hemi_text::read_lossy;
use serde_json::Value;

use super::{Content, Use};

/// Paths of `wipefs`, for users whose search path does not include it.
const WIPEFS: [&str; 3] = ["wipefs", "/usr/sbin/wipefs", "/sbin/wipefs"];

pub(super) fn uses_of_file(path: &Path, metadata: &Metadata) -> Vec<Use> {
    let mut uses = Vec::new();
    uses.extend(lock_owner(metadata).map(|process| Use::Locked { process }));
    let Ok(real) = fs::canonicalize(path) else {
        return uses;
    };
    if is_swap(&real) {
        uses.push(Use::Swap);
    }
    // Compared by inode, since the loop device may have been given another name of the file.
    let same = |behind: &Metadata| (behind.dev(), behind.ino()) == (metadata.dev(), metadata.ino());
    uses.extend(loops_over(same));
    uses
}

/// Finds loop devices over the file or device that `same` recognises. The kernel does not count
/// them as holders, nor does an exclusive open fail because of them.
fn loops_over(same: impl Fn(&Metadata) -> bool) -> impl Iterator<Item = Use> {
    let over = move |device: &String| {
        let file = backing_file(&Path::new("/sys/block").join(device));
        file.is_some_and(|file| fs::metadata(file).is_ok_and(|it| same(&it)))
    };
    let devices = entries(Path::new("/sys/block")).into_iter().filter(over);
    devices.map(|device| Use::Loop { device: format!("/dev/{device}") })
}

pub(super) fn uses_of_device(metadata: &Metadata) -> Vec<Use> {
    let mut uses = Vec::new();
    uses.extend(lock_owner(metadata).map(|process| Use::Locked { process }));
    let folder = sys_folder(metadata.rdev());
    let mounts = read_lossy("/proc/self/mountinfo").unwrap_or_default();
    let whole = folder_name(&folder);
    let mut parts = vec![(whole, folder.clone())];
    for name in partition_names(&folder) {
        parts.push((name.clone(), folder.join(name)));
    }
    for (name, folder) in parts {
        let device = format!("/dev/{name}");
        let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
        if let Some(at) = mount_point(&mounts, number.trim()) {
            uses.push(Use::Mounted { device: device.clone(), at });
        }
        for holder in entries(&folder.join("holders")) {
            let holder = format!("/dev/{holder}");
            uses.push(Use::Holder { device: device.clone(), holder });
        }
        if is_swap(Path::new(&device)) {
            uses.push(Use::Swap);
        }
        uses.extend(loops_over(|behind| {
            let (major, minor) =
                (rustix::fs::major(behind.rdev()), rustix::fs::minor(behind.rdev()));
            behind.file_type().is_block_device() && format!("{major}:{minor}") == number.trim()
        }));
    }
    uses
}

pub(super) fn partitions(number: u64) -> Vec<String> {
    partition_names(&sys_folder(number))
}

/// Returns the process that holds a lock on the file or device node: `None` if it is not locked,
/// `Some(None)` if the process is unknown. Another hemi holds a `flock`, and qemu locks ranges.
pub(super) fn lock_owner(metadata: &Metadata) -> Option<Option<u32>> {
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let inode = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        // "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK" | "POSIX" | "OFDLCK", _, _, process, of, ..] if of == inode => {
                Some(process.parse().ok().filter(|&process| process != 0))
            }
            _ => None,
        }
    })
}

/// Returns the signatures that `wipefs` finds; none if it is not installed.
pub(super) fn signatures(path: &Path) -> Vec<Content> {
    let Ok(path) = fs::canonicalize(path) else {
        return Vec::new();
    };
    for program in WIPEFS {
        let mut command = Command::new(program);
        command.args(["--no-act", "--json", "--"]).arg(&path);
        command.env("LC_ALL", "C").stdin(Stdio::null());
        let Ok(output) = command.output() else {
            continue;
        };
        return signatures_in(&output.stdout);
    }
    Vec::new()
}

/// Returns the signatures in the JSON of `wipefs`. A label may have any bytes.
fn signatures_in(output: &[u8]) -> Vec<Content> {
    let found: Value = serde_json::from_str(&String::from_utf8_lossy(output)).unwrap_or_default();
    let list = found.get("signatures").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let word = |of: &Value, key: &str| of.get(key).and_then(Value::as_str).map(str::to_owned);
    let signature = |of: &Value| Content::Signature {
        format: word(of, "type").unwrap_or_else(|| "an unknown format".to_owned()),
        label: word(of, "label"),
    };
    let mut contents: Vec<_> = list.iter().map(signature).collect();
    // Some formats have signatures in several places.
    contents.dedup();
    contents
}

/// Returns the file behind the loop device with this folder in sysfs.
pub fn backing_file(folder: &Path) -> Option<PathBuf> {
    let text = fs::read(folder.join("loop/backing_file")).ok()?;
    let path = text.strip_suffix(b"\n").unwrap_or(&text);
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns the folder in sysfs of the block device with this number.
pub(crate) fn sys_folder(number: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    fs::canonicalize(&link).unwrap_or(link)
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns the names of the partitions of the disk at `folder` in sysfs, sorted.
pub(crate) fn partition_names(folder: &Path) -> Vec<String> {
    let mut names = entries(folder);
    names.retain(|name| folder.join(name).join("partition").exists());
    names
}

/// Returns the mount point of the device with this `major:minor`, from the text of a process's
/// mountinfo.
pub(crate) fn mount_point(mounts: &str, number: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let matches = fields.next() == Some(number);
        let point = fields.nth(1)?;
        matches.then(|| unescape(point))
    })
}

fn is_swap(path: &Path) -> bool {
    let swaps = read_lossy("/proc/swaps").unwrap_or_default();
    swaps.lines().skip(1).any(|line| {
        let used = line.split_whitespace().next().map(unescape);
        used.is_some_and(|used| path.to_string_lossy() == used)
    })
}

/// Undoes the kernel's octal escapes (`\040`) for blanks in paths.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match (code, piece.get(3..)) {
            (Some(code), Some(rest)) => {
                plain.push(char::from(code));
                plain.push_str(rest);
            }
            _ => {
                plain.push('\\');
                plain.push_str(piece);
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_paths_are_read() {
        assert_eq!(unescape("/mnt/two\\040words\\011"), "/mnt/two words\t");
        assert_eq!(unescape("/mnt/plain"), "/mnt/plain");
        assert_eq!(unescape("odd\\"), "odd\\");
        assert_eq!(unescape("odd\\9zz"), "odd\\9zz");
    }

    #[test]
    fn an_odd_signature_hides_no_other() {
        // The label is Latin-1, as wipefs writes it.
        let output = b"{ \"signatures\": [ {\"type\": \"ext4\", \"label\": \"caf\xe9\"},
            {\"type\": null, \"label\": 7}, {\"type\": \"xfs\", \"label\": null} ] }";
        let signature = |format: &str, label: Option<&str>| Content::Signature {
            format: format.into(),
            label: label.map(Into::into),
        };
        let expected = [
            signature("ext4", Some("caf\u{FFFD}")),
            signature("an unknown format", None),
            signature("xfs", None),
        ];
        assert_eq!(signatures_in(output), expected);
        assert_eq!(signatures_in(b"wipefs: no such device"), []);
    }

    #[test]
    fn the_file_behind_a_loop_device_may_have_any_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(backing_file(folder.path()), None);
        fs::create_dir(folder.path().join("loop")).unwrap();
        fs::write(folder.path().join("loop/backing_file"), b"/srv/caf\xe9\n").unwrap();
        let expected = OsStr::from_bytes(b"/srv/caf\xe9");
        assert_eq!(backing_file(folder.path()).as_deref(), Some(Path::new(expected)));
    }

    #[test]
    fn mounts_are_found_by_number() {
        let mounts = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 22 7:3 /sub /mnt/a\\040b rw shared:1 - xfs /dev/loop3 rw\n";
        assert_eq!(mount_point(mounts, "7:3"), Some("/mnt/a b".into()));
        assert_eq!(mount_point(mounts, "7:30"), None);
        assert_eq!(mount_point("broken", "7:3"), None);
    }
}
