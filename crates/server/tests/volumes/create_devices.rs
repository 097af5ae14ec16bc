//! `create` on block devices. They are loop devices, so these tests need root and are skipped
//! without it.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hemi_io::leg::{FileOptions, OpenLeg, Purpose};
use hemi_server::create::{CreateOptions, Created, create};
use hemi_server::inspect::inspect;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Runs a program and returns its output. Panics with its error output if it fails.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A loop device over a new file, removed on drop.
struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    fn new(folder: &Path, name: &str, options: &[&str]) -> Loop {
        let file = folder.join(name);
        File::create(&file).and_then(|file| file.set_len(80 * MIB)).expect("a sparse file");
        let path = file.display().to_string();
        let device = run("losetup", &[&["--find", "--show"], options, &[path.as_str()]].concat());
        Loop { device, file }
    }
}

impl Loop {
    /// Returns another loop device over the same file.
    fn second(&self) -> Loop {
        let path = self.file.display().to_string();
        Loop { device: run("losetup", &["--find", "--show", &path]), file: self.file.clone() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
    }
}

/// A mounted file system, unmounted on drop.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(device: &str, at: &'a Path) -> Mount<'a> {
        fs::create_dir(at).expect("a new folder");
        run("mount", &[device, &at.display().to_string()]);
        Mount(at)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

/// Runs a test by itself in a mount namespace of its own. What it mounts is copied to no other
/// namespace that is made meanwhile, where it would stay mounted after it is unmounted here.
/// Returns its folder in the process that is to run the test, as [`root`] does elsewhere.
fn in_own_mounts(test: &str) -> Option<TempDir> {
    const INSIDE: &str = "HEMI_TEST_OWN_MOUNTS";
    let folder = root()?;
    if std::env::var_os(INSIDE).is_some() {
        return Some(folder);
    }
    let program = std::env::current_exe().expect("the path of this test program");
    let test = format!("create_devices::{test}");
    let output = Command::new("unshare")
        .args(["--mount".as_ref(), program.as_os_str()])
        .args(["--exact", &test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{complaint}");
    None
}

fn root() -> Option<TempDir> {
    if rustix::process::geteuid().is_root() {
        return Some(tempfile::tempdir().expect("a temporary folder"));
    }
    eprintln!("SKIPPED: loop devices need root");
    None
}

fn options(legs: &[&str]) -> CreateOptions {
    let legs = legs.iter().map(|leg| (*leg).into()).collect();
    CreateOptions { size: SIZE.into(), legs, ..CreateOptions::default() }
}

fn wiping(legs: &[&str]) -> CreateOptions {
    CreateOptions { wipe: legs.iter().map(PathBuf::from).collect(), ..options(legs) }
}

fn refused(options: &CreateOptions, parts: &[&str]) {
    let text = create(options).expect_err("it must be refused").to_string();
    for part in parts {
        assert!(text.contains(part), "{text}\n  lacks: {part}");
    }
}

fn whole(created: &Created) -> Vec<bool> {
    created.legs.iter().map(|leg| leg.whole).collect()
}

#[test]
fn devices_become_legs_and_the_largest_block_counts() {
    let Some(folder) = root() else { return };
    let small = Loop::new(folder.path(), "a", &[]);
    let large = Loop::new(folder.path(), "b", &["--sector-size", "4096"]);
    let legs = [small.device.as_str(), large.device.as_str()];
    let blocks = CreateOptions { block_bytes: Some(512), ..options(&legs) };
    refused(&blocks, &["block size 512", "has blocks of 4096 bytes", "--block-size 4096"]);
    let created = create(&options(&legs)).expect("both are empty");
    assert_eq!(created.block_bytes, 4096);
    // Nothing is known about the devices' content.
    assert_eq!((whole(&created), created.zeros), (vec![true, false], false));
    for leg in legs {
        let report = inspect(leg).expect("it can be opened");
        assert_eq!(report.superblock.expect("a superblock").volume, created.volume);
        assert!(report.table.expect("a table").slots.valid == 2);
    }
    let zero = CreateOptions { zero: true, ..wiping(&legs) };
    let created = create(&zero).expect("both may be wiped");
    assert_eq!((whole(&created), created.zeros), (vec![true, true], true));
}

/// Fails unless other programs find only hemi's signature on a device.
fn assert_only_signed(device: &str) {
    let found = run("wipefs", &["--no-act", "--noheadings", device]);
    assert!(found.lines().count() == 1 && found.contains("iso9660"), "{found}");
    assert!(found.contains(" HEMI_"), "{found}");
}

#[test]
fn a_mounted_device_is_refused_whatever_is_said() {
    let Some(folder) = in_own_mounts("a_mounted_device_is_refused_whatever_is_said") else {
        return;
    };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let legs = [device.device.as_str(), other.device.as_str()];
    run("mkfs.ext4", &["-q", "-L", "precious", &device.device]);
    let point = folder.path().join("mounted here");
    let mount = Mount::new(&device.device, &point);
    let place = format!("{} is mounted on {}", device.device, point.display());
    refused(&options(&legs), &[&place]);
    refused(&wiping(&legs), &[&place, "--wipe does not override"]);
    fs::write(point.join("file"), "kept").expect("the file system works");
    drop(mount);
    refused(&options(&legs), &["is not empty", "ext4 labelled \"precious\""]);
    create(&wiping(&legs)).expect("unmounted, it may be wiped");
    assert_only_signed(&device.device);
}

#[test]
fn the_file_behind_a_loop_device_is_in_use() {
    let Some(folder) = root() else { return };
    let device = Loop::new(folder.path(), "a", &[]);
    let file = device.file.display().to_string();
    let other = folder.path().join("b").display().to_string();
    refused(&wiping(&[&file, &other]), &["is in use", &format!("attached to {}", device.device)]);
}

#[test]
fn partitions_are_named_and_forgotten_when_wiped() {
    let Some(folder) = root() else { return };
    let device = Loop::new(folder.path(), "a", &["--partscan"]);
    let other = Loop::new(folder.path(), "b", &[]);
    let legs = [device.device.as_str(), other.device.as_str()];
    let mut table = [0; 512];
    for (entry, start) in [(446, 2048u32), (462, 20480)] {
        table[entry + 4] = 0x83;
        table[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        table[entry + 12..entry + 16].copy_from_slice(&16384u32.to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xAA]);
    let file = File::options().write(true).open(&device.device).expect("root may");
    file.write_all_at(&table, 0).and_then(|()| file.sync_all()).expect("it can be written");
    drop(file);
    run("blockdev", &["--rereadpt", &device.device]);
    let name = device.device.trim_start_matches("/dev/").to_owned();
    let folder_of = |part| format!("/sys/class/block/{name}/{name}p{part}");
    let known = Path::new(&folder_of(1)).exists();
    refused(&options(&legs), &["is not empty", "a partition table (dos)"]);
    if known {
        refused(&options(&legs), &[&format!("partitions ({name}p1, {name}p2;")]);
    } else {
        eprintln!("SKIPPED in part: this kernel shows no partitions of loop devices");
    }
    create(&wiping(&legs)).expect("it may be wiped");
    assert_only_signed(&device.device);
    assert!(!Path::new(&folder_of(1)).exists(), "the kernel still knows the partitions");
}

#[test]
fn an_exclusive_holder_is_respected() {
    let Some(folder) = root() else { return };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let legs = [device.device.as_str(), other.device.as_str()];
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::EXCL;
    let held = rustix::fs::open(&device.device, flags, rustix::fs::Mode::empty());
    let held = held.expect("nobody else has it");
    refused(&wiping(&legs), &["held exclusively by another program"]);
    drop(held);
    create(&options(&legs)).expect("now it is free");
}

#[test]
fn the_same_device_twice_and_a_small_one_are_refused() {
    let Some(folder) = root() else { return };
    let device = Loop::new(folder.path(), "a", &[]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&device.device, &link).expect("a new name");
    let link = link.display().to_string();
    refused(&options(&[&device.device, &link]), &["are the same block device"]);
    let other = folder.path().join("b").display().to_string();
    let large = CreateOptions { size: (79 * MIB).into(), ..options(&[&device.device, &other]) };
    refused(&large, &["has 83886080 bytes", "needs 84934656", "1048576 bytes more"]);
}

#[test]
fn two_paths_to_one_disk_are_refused_and_leave_it_as_it_was() {
    let Some(folder) = root() else { return };
    let one = Loop::new(folder.path(), "a", &[]);
    let two = one.second();
    let both = [one.device.as_str(), two.device.as_str()];
    let same = "are the same storage by two paths";
    refused(&options(&both), &[&one.device, &two.device, same]);
    let stripe = format!("stripe:{},{}", one.device, two.device);
    let other = folder.path().join("b").display().to_string();
    refused(&options(&[&stripe, &other]), &[&one.device, &two.device, same]);
    let file = File::options().write(true).open(&one.file).expect("the file is there");
    file.write_all_at(b"data", 4096).expect("it can be written");
    file.sync_all().expect("it can be synced");
    let before = fs::read(&one.file).expect("it can be read");
    refused(&wiping(&both), &[&one.device, &two.device, same]);
    assert!(fs::read(&one.file).expect("it can be read") == before, "something was changed");

    // A leg that another process has locked.
    drop((file, two));
    create(&wiping(&[&one.device, &other])).unwrap_or_else(|error| panic!("{error}"));
    let mut user = Command::new("flock")
        .args(["--exclusive", &one.device, "sh", "-c", "echo locked; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("flock is there");
    user.stdout.as_mut().expect("it is piped").read_exact(&mut [0; 7]).expect("it is locked");
    let two = one.second();
    let new = folder.path().join("c").display().to_string();
    let legs = [two.device.as_str(), new.as_str()];
    for options in [options(&legs), wiping(&[&two.device])] {
        let options = CreateOptions { legs: legs.map(Into::into).to_vec(), ..options };
        refused(&options, &[&two.device, &format!("is another path to {}", one.device)]);
    }
    drop(user.stdin.take());
    user.wait().expect("it ends");
    let report = inspect(&one.device).expect("it can be read");
    assert!(report.superblock.is_some(), "the leg is as it was");
    create(&CreateOptions { legs: legs.map(Into::into).to_vec(), ..wiping(&[&two.device]) })
        .unwrap_or_else(|error| panic!("nobody uses it any more: {error}"));
}

/// A mount namespace that is copied while a device is mounted keeps the mount, as a container's
/// may. The error names a process in it.
#[test]
fn a_device_mounted_in_another_namespace_names_a_process_there() {
    let Some(folder) = in_own_mounts("a_device_mounted_in_another_namespace_names_a_process_there")
    else {
        return;
    };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let legs = [device.device.as_str(), other.device.as_str()];
    run("mkfs.ext4", &["-q", &device.device]);
    let point = folder.path().join("mounted there");
    let mount = Mount::new(&device.device, &point);
    let mut container = Command::new("unshare")
        .args(["--mount", "sh", "-c", "echo copied; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare is there");
    let told = container.stdout.as_mut().expect("it is piped");
    told.read_exact(&mut [0; 7]).expect("the namespace is copied");
    drop(mount);
    let place = format!("mounted on {} in the mount namespace of process ", point.display());
    let text = create(&wiping(&legs)).map(|_| ()).map_err(|error| error.to_string());
    container.kill().and_then(|()| container.wait()).expect("it is this process's child");
    let text = text.expect_err("it must be refused");
    assert!(text.contains(&format!("{place}{} (", container.id())), "{text}");
    create(&wiping(&legs)).expect("with the last process the namespace is gone");
}

/// Signatures at the far end are wiped as well.
#[test]
fn a_wipe_reaches_both_ends() {
    let Some(folder) = root() else { return };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let legs = [device.device.as_str(), other.device.as_str()];
    let file = File::options().write(true).open(&device.device).expect("root may");
    file.write_all_at(b"end", 80 * MIB - 3).expect("it is that large");
    file.sync_all().expect("it can be flushed");
    drop(file);
    refused(&options(&legs), &["data (at byte 83886077)"]);
    create(&wiping(&legs)).expect("it may be wiped");
    let mut end = [1; 3];
    let file = File::open(&device.device).expect("root may");
    file.read_exact_at(&mut end, 80 * MIB - 3).expect("it is that large");
    assert_eq!(end, [0; 3]);
}

#[test]
fn data_between_the_ends_of_a_device_is_found_by_samples() {
    let Some(folder) = root() else { return };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let file = File::options().write(true).open(&device.device).expect("root may");
    file.write_all_at(&vec![7; 2 << 20], 33 * MIB).expect("it is that large");
    file.sync_all().expect("it can be flushed");
    drop(file);
    let legs = [device.device.as_str(), other.device.as_str()];
    refused(&options(&legs), &["is not empty", "data (at byte "]);
    create(&wiping(&legs)).expect("it may be wiped");
}

#[test]
fn what_cannot_be_written_is_refused_with_errno_and_way_out() {
    let Some(folder) = in_own_mounts("what_cannot_be_written_is_refused_with_errno_and_way_out")
    else {
        return;
    };
    let (device, other) = (Loop::new(folder.path(), "a", &[]), Loop::new(folder.path(), "b", &[]));
    let legs = [device.device.as_str(), other.device.as_str()];
    create(&options(&legs)).expect("both are empty");
    run("blockdev", &["--setro", &device.device]);
    let says = ["cannot be written", "os error 30", "blockdev --setrw"];
    refused(&wiping(&legs), &says);
    let open = |path: &str| {
        let spec = path.parse().expect("it is a path");
        OpenLeg::open(&spec, FileOptions::default(), Purpose::Serve)
    };
    let text = open(&device.device).expect_err("it must be refused").to_string();
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
    inspect(&device.device).expect("it can still be read");
    run("blockdev", &["--setrw", &device.device]);
    open(&device.device).expect("now it can be written");

    // The file is on a file system mounted read-only.
    drop(device);
    let disk = Loop::new(folder.path(), "c", &[]);
    run("mkfs.ext4", &["-q", &disk.device]);
    let point = folder.path().join("mounted");
    let mount = Mount::new(&disk.device, &point);
    fs::write(point.join("leg"), [0; 4096]).expect("the file system works");
    run("mount", &["-o", "remount,ro", &point.display().to_string()]);
    let file = point.join("leg").display().to_string();
    let text = open(&file).expect_err("it must be refused").to_string();
    assert!(text.contains("os error 30") && text.contains("remount,rw"), "{text}");
    drop(mount);
}
