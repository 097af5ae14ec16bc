//! Names what holds a block device exclusively: a mount, in this mount namespace or another, or
//! a device on top of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::probe::{mount_point, partition_names, sys_folder};

/// Returns the exclusive user of a block device in words, as far as this mount namespace and the
/// kernel's list of holders know it.
pub(super) fn holder(path: &Path) -> Option<String> {
    let mounts = hemi_text::read_lossy("/proc/self/mountinfo").unwrap_or_default();
    user(&folder_of_device(path)?, &mounts)
}

/// Returns in words where a block device is mounted in another mount namespace, such as that of
/// a container. A namespace that was copied while the device was mounted keeps the mount after
/// it is unmounted here. Only processes that may be inspected are searched.
pub(super) fn mounted_elsewhere(path: &Path) -> Option<String> {
    let folder = folder_of_device(path)?;
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    let mut processes: Vec<u32> = std::fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    processes.sort_unstable();
    processes.into_iter().find_map(|process| {
        if !seen.insert(namespace(&process.to_string())?) {
            return None;
        }
        let mounts = hemi_text::read_lossy(format!("/proc/{process}/mountinfo")).ok()?;
        let user = user(&folder, &mounts)?;
        let name = hemi_text::read_lossy(format!("/proc/{process}/comm")).unwrap_or_default();
        let name = name.trim_end();
        Some(format!("{user} in the mount namespace of process {process} ({name})"))
    })
}

fn folder_of_device(path: &Path) -> Option<PathBuf> {
    Some(sys_folder(rustix::fs::stat(path).ok()?.st_rdev))
}

/// Returns the user of the device at `folder` in sysfs. `mounts` is the kernel's list of
/// mounts.
fn user(folder: &Path, mounts: &str) -> Option<String> {
    if let Some(user) = user_of(folder, mounts) {
        return Some(user);
    }
    // A disk is in use if one of its partitions is.
    partition_names(folder).into_iter().find_map(|name| {
        let user = user_of(&folder.join(&name), mounts)?;
        Some(format!(
            "a disk with partitions, of which {name} is {user} (a free partition can be a leg \
             by itself)"
        ))
    })
}

fn user_of(folder: &Path, mounts: &str) -> Option<String> {
    let number = std::fs::read_to_string(folder.join("dev")).ok()?.trim().to_owned();
    if let Some(point) = mount_point(mounts, &number) {
        return Some(format!("mounted on {point}"));
    }
    let holder = std::fs::read_dir(folder.join("holders")).ok()?.find_map(Result::ok)?;
    Some(format!("held by {}", holder.file_name().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_held_by_who_holds_a_partition_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path();
        let write = |name: &str, text: &str| {
            let path = disk.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("dev", "8:0\n");
        write("queue/rotational", "1\n");
        for part in 1..3 {
            write(&format!("sda{part}/partition"), &format!("{part}\n"));
            write(&format!("sda{part}/dev"), &format!("8:{part}\n"));
        }
        let other = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
        assert_eq!(user(disk, other), None);
        let mounts = format!("{other}30 22 8:2 / /home rw - ext4 /dev/sda2 rw\n");
        let text = user(disk, &mounts).unwrap();
        assert!(text.contains("partitions, of which sda2 is mounted on /home"), "{text}");
        std::fs::create_dir_all(disk.join("sda1/holders/md0")).unwrap();
        let text = user(disk, other).unwrap();
        assert!(text.contains("sda1 is held by md0"), "{text}");
        let whole = format!("{other}30 22 8:0 / /srv rw - ext4 /dev/sda rw\n");
        assert_eq!(user(disk, &whole).as_deref(), Some("mounted on /srv"));
    }
}
