//! `create` and `inspect` on regular files.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use hemi_server::config::place::Place;
use hemi_server::create::{CreateError, CreateOptions, Created, create};
use hemi_server::inspect::{LegReport, inspect, inspect_all};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// Metadata of a volume of [`SIZE`]: the fixed mebibyte, and the table rounded up to one.
const DATA_OFFSET: u64 = 2 * MIB;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn options(folder: &Path, legs: &[&str]) -> CreateOptions {
    let legs = legs.iter().map(|leg| folder.join(leg).display().to_string()).collect();
    CreateOptions { size: SIZE.into(), legs, name: "test".into(), ..CreateOptions::default() }
}

fn create_plain(folder: &Path) -> Created {
    create(&options(folder, &["a", "b"])).expect("nothing is in the way")
}

fn file(folder: &Path, name: &str, size: u64) -> (PathBuf, File) {
    let path = folder.join(name);
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.expect("a new file");
    file.set_len(size).expect("a sparse file");
    (path, file)
}

fn report(folder: &Path, leg: &str) -> LegReport {
    inspect(&folder.join(leg).display().to_string()).expect("it can be opened")
}

fn refused(options: &CreateOptions, parts: &[&str]) -> CreateError {
    let error = create(options).expect_err("it must be refused");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text}\n  lacks: {part}");
    }
    error
}

#[test]
fn new_files_are_whole_and_sparse() {
    let folder = folder();
    let created = create_plain(folder.path());
    assert!(created.zeros && created.legs.iter().all(|leg| leg.made && leg.whole));
    assert_eq!(created.data_offset, DATA_OFFSET);
    for (slot, name) in ["a", "b"].into_iter().enumerate() {
        let metadata = fs::metadata(folder.path().join(name)).expect("it was made");
        assert_eq!(metadata.len(), DATA_OFFSET + SIZE);
        assert!(metadata.blocks() * 512 < MIB, "{} blocks", metadata.blocks());
        let report = report(folder.path(), name);
        let superblock = report.superblock.as_ref().expect("a superblock");
        assert_eq!(usize::from(superblock.leg), slot);
        assert_eq!((superblock.name.as_str(), superblock.open), ("test", false));
        assert_eq!(superblock.volume, created.volume);
        assert_eq!(superblock.legs.len(), 2);
        let table = report.table.as_ref().expect("a table");
        assert_eq!((table.regions, table.pages, table.slots.valid), (64, 1, 2));
        assert!(table.not_whole.is_empty() && table.dirty.count() == 0);
        assert_eq!(report.lost.as_ref().expect("a list").extents, Some(vec![]));
        let text = report.to_string();
        for part in ["\"test\"", "64MiB, regions of 1MiB", "closed", "no leg", "nothing"] {
            assert!(text.contains(part), "{text}\n  lacks: {part}");
        }
    }
}

#[test]
fn a_volume_in_the_way_is_named_and_only_wipe_overrides() {
    let folder = folder();
    let first = create_plain(folder.path());
    let mut options = options(folder.path(), &["a", "b"]);
    refused(&options, &["a is not empty", "leg 0 of the hemi volume \"test\"", &first.volume]);
    options.wipe = vec![folder.path().join("a")];
    refused(&options, &["b is not empty", "add --wipe", "leg 1"]);
    options.wipe.push(folder.path().join("b"));
    let second = create(&options).expect("both may be wiped");
    assert_ne!(first.volume, second.volume);
    assert!(second.legs.iter().all(|leg| leg.whole && !leg.made));
}

#[test]
fn data_is_found_wherever_it_is_and_not_touched() {
    let folder = folder();
    let size = DATA_OFFSET + SIZE;
    for offset in [0, MIB - 1, 5 * MIB + 7, 30 * MIB, size - MIB, size - 1] {
        let (path, file) = file(folder.path(), "a", size);
        file.write_all_at(b"x", offset).expect("space");
        let options = options(folder.path(), &["a", "b"]);
        refused(&options, &["a is not empty", &format!("data (at byte {offset})")]);
        let mut kept = [0];
        file.read_exact_at(&mut kept, offset).expect("it is still there");
        assert_eq!(&kept, b"x");
        assert!(!folder.path().join("b").exists(), "nothing is made for a refused volume");
        fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn a_leg_with_old_content_is_drained_to_unless_all_have_some() {
    let folder = folder();
    // Zeros that were written: nothing to lose, but not known to be zeros by their allocation.
    let data = DATA_OFFSET + SIZE / 2;
    let write = |name| {
        let (_, file) = file(folder.path(), name, DATA_OFFSET + SIZE);
        file.write_all_at(&[0; 4096], data).expect("space");
        file.sync_all().expect("a file can be flushed");
    };
    write("a");
    let created = create(&options(folder.path(), &["a", "b"])).expect("only zeros");
    let whole: Vec<_> = created.legs.iter().map(|leg| leg.whole).collect();
    assert_eq!((whole, created.zeros), (vec![false, true], true));
    let table = report(folder.path(), "b").table.expect("a table");
    assert_eq!((table.not_whole[0].leg, table.not_whole[0].regions.count()), (0, 64));
    assert!(report(folder.path(), "b").to_string().contains("leg 0 in 64 regions: 0-63"));

    fs::remove_file(folder.path().join("b")).expect("it is there");
    write("a");
    write("b");
    let mut options = options(folder.path(), &["a", "b"]);
    let created = create(&options).expect("only zeros");
    let whole: Vec<_> = created.legs.iter().map(|leg| leg.whole).collect();
    assert_eq!((whole, created.zeros), (vec![true, false], false));
    assert!(created.to_string().contains("what leg 0 held"), "{created}");

    write("a");
    write("b");
    options.zero = true;
    let created = create(&options).expect("only zeros");
    assert!(created.zeros && created.legs.iter().all(|leg| leg.whole));

    // Legs named by --wipe are destroyed, and others are not touched.
    write("a");
    let (_, old) = file(folder.path(), "b", DATA_OFFSET + SIZE);
    old.write_all_at(b"old", data).expect("space");
    refused(&options, &["b is not empty", &format!("data (at byte {data})")]);
    options.wipe = vec![folder.path().join("b")];
    create(&options).expect("it may be wiped");
    let mut found = [1; 3];
    old.read_exact_at(&mut found, data).expect("it is long enough");
    assert_eq!(found, [0; 3]);
}

#[test]
fn an_empty_file_gets_its_size_a_short_one_is_refused() {
    let folder = folder();
    file(folder.path(), "a", 0);
    file(folder.path(), "b", SIZE);
    let error =
        refused(&options(folder.path(), &["a", "b"]), &["b has 67108864 bytes", "2097152 "]);
    assert!(matches!(error, CreateError::TooSmall { needs, .. } if needs == SIZE + DATA_OFFSET));
    let length = |name| fs::metadata(folder.path().join(name)).expect("it is there").len();
    assert_eq!(length("a"), 0, "nothing is changed by a refusal");
    fs::remove_file(folder.path().join("b")).expect("it is there");
    create_plain(folder.path());
    assert_eq!(length("a"), SIZE + DATA_OFFSET);
}

#[test]
fn the_same_storage_twice_is_refused() {
    let folder = folder();
    let (path, _) = file(folder.path(), "a", DATA_OFFSET + SIZE);
    fs::hard_link(&path, folder.path().join("hard")).expect("one file system");
    std::os::unix::fs::symlink(&path, folder.path().join("soft")).expect("a new name");
    for other in ["a", "hard", "soft", "./a"] {
        refused(&options(folder.path(), &["a", other]), &["are the same file"]);
    }
    refused(&options(folder.path(), &["new", "./new"]), &["are the same file"]);
}

#[test]
fn space_is_reserved_only_if_asked_for() {
    let folder = folder();
    let reserve = CreateOptions { reserve: true, ..options(folder.path(), &["a", "b"]) };
    let created = create(&reserve).expect("there is room");
    assert!(created.zeros && created.legs.iter().all(|leg| leg.whole), "reserved is still zero");
    let metadata = fs::metadata(folder.path().join("a")).expect("it was made");
    assert!(metadata.blocks() * 512 >= DATA_OFFSET + SIZE, "{} blocks", metadata.blocks());

    let folder = tempfile::tempdir().expect("a temporary folder");
    let reserve = CreateOptions {
        size: (16 << 40).into(),
        reserve: true,
        ..options(folder.path(), &["a", "b"])
    };
    refused(&reserve, &["could not reserve 17592189190144 bytes"]);
    assert!(!folder.path().join("a").exists(), "nothing was left behind");
}

#[test]
fn stripes_are_legs() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let stripe = format!("stripe:{},{}", path("s0"), path("s1"));
    let mut options = options(folder.path(), &["a"]);
    options.legs.push(stripe.clone());
    let created = create(&options).expect("nothing is in the way");
    assert!(created.legs.iter().all(|leg| leg.made && leg.whole));
    let whole = inspect(&stripe).expect("its members fit together");
    assert_eq!(whole.superblock.as_ref().expect("a superblock").volume, created.volume);
    assert_eq!(whole.table.as_ref().expect("a table").slots.valid, 2);

    // A member that is not empty is named by itself, and may be wiped by itself or through its leg.
    fs::remove_file(path("a")).expect("it is there");
    refused(&options, &["s0 is not empty; it holds", "add --wipe", "s0"]);
    options.wipe = vec![path("s0").into()];
    refused(&options, &["s1 is not empty"]);
    options.wipe = vec![stripe.clone().into()];
    let again = create(&options).expect("both members may be wiped");
    assert!(again.zeros && again.legs.iter().all(|leg| leg.whole));
    let wrong = format!("stripe:{},{}", path("s1"), path("s0"));
    assert!(inspect(&wrong).expect_err("swapped").to_string().contains("swap the paths"));

    fs::remove_file(path("a")).expect("it is there");
    file(folder.path(), "s1", 20 * MIB);
    options.wipe = vec![path("s0").into()];
    let error = refused(&options, &["s1 has 20971520 bytes", "it needs"]);
    // Half of the leg rounded up to a chunk, plus the stripe's own mebibyte.
    let needed = (SIZE + DATA_OFFSET) / 2 + MIB;
    assert!(matches!(error, CreateError::TooSmall { needs, .. } if needs == needed), "{error}");
    let twice = CreateOptions { legs: vec![stripe, path("s0")], ..options };
    refused(&twice, &["are the same file"]);
}

#[test]
fn bad_requests_say_what_would_be_right() {
    let folder = folder();
    let path = folder.path();
    refused(&options(path, &["a"]), &["2 to 8 legs, not 1"]);
    refused(
        &options(path, &["0", "1", "2", "3", "4", "5", "6", "7", "8"]),
        &["2 to 8 legs, not 9"],
    );
    let missing = |legs: &[&str]| CreateOptions {
        legs: legs.iter().map(|leg| (*leg).into()).collect(),
        ..options(path, &[])
    };
    refused(&missing(&["missing", "missing"]), &["0 other legs", "2 that are missing"]);
    refused(&missing(&["a", "b", "missing"]), &["2 other legs", "hemi leg add"]);
    refused(&options(path, &["a", "none/b"]), &["no directory", "none"]);
    refused(&options(path, &["a", "."]), &["is a directory; a leg is a regular file"]);
    let device =
        CreateOptions { legs: vec!["/dev/null".into(), "/dev/zero".into()], ..options(path, &[]) };
    refused(&device, &["/dev/null is a character device"]);
    let wipe = CreateOptions { wipe: vec!["c".into()], ..options(path, &["a", "b"]) };
    refused(&wipe, &["--wipe c names none of the legs"]);
    let sizes = |size: u64, region_bytes| CreateOptions {
        size: size.into(),
        region_bytes,
        ..options(path, &["a", "b"])
    };
    refused(&sizes(4095, None), &["positive multiple of 4096"]);
    refused(&sizes(0, None), &["positive multiple of 4096"]);
    refused(&sizes(SIZE, Some(3 << 20)), &["power of two from 64 KiB to 1 GiB"]);
    refused(&sizes(16 << 40, Some(64 << 10)), &["at least 1048576 bytes"]);
    let named = CreateOptions { name: "x".repeat(65), ..options(path, &["a", "b"]) };
    refused(&named, &["65 bytes, more than 64"]);
    let blocks = CreateOptions { block_bytes: Some(1024), ..options(path, &["a", "b"]) };
    refused(&blocks, &["512 or 4096"]);
    let stripe = CreateOptions { legs: vec!["stripe:x".into(), "b".into()], ..options(path, &[]) };
    refused(&stripe, &["2 to 16 devices"]);
    assert_eq!(fs::read_dir(path).expect("it is there").count(), 0, "nothing was left behind");
}

#[test]
fn a_file_too_large_for_its_file_system_leaves_nothing_behind() {
    let folder = folder();
    // Larger than any file on ext4; XFS could hold it.
    let huge = CreateOptions { size: (8 << 50).into(), ..options(folder.path(), &["a", "b"]) };
    if let Err(error) = create(&huge) {
        assert!(matches!(error, CreateError::Open(_)), "{error}");
        assert!(!folder.path().join("a").exists());
    }
}

#[test]
fn a_locked_leg_is_in_use() {
    let folder = folder();
    create_plain(folder.path());
    let held = File::open(folder.path().join("b")).expect("it is there");
    held.lock().expect("nobody else has it");
    let mut options = options(folder.path(), &["a", "b"]);
    options.wipe = vec![folder.path().join("a"), folder.path().join("b")];
    let process = format!("(process {})", std::process::id());
    refused(&options, &["b is in use", "another hemi", &process, "--wipe does not override"]);
    let report = report(folder.path(), "b");
    assert_eq!((report.in_use, report.used_by), (true, Some(std::process::id())));
    assert!(report.to_string().contains("may be changing"));
}

#[test]
fn damage_is_reported_slot_by_slot() {
    let folder = folder();
    create_plain(folder.path());
    let path = folder.path().join("a");
    let file = File::options().write(true).open(path).expect("it is there");
    // Damages one bit of the newest superblock, of the newest page and of both lost lists.
    file.write_all_at(&[0xFF], (64 << 10) + 4000).expect("space");
    file.write_all_at(&[0xFF], MIB + 4096 + 700).expect("space");
    for slot in 0..2 {
        file.write_all_at(&[0xFF], (128 << 10) + slot * 4096).expect("space");
    }
    let report = report(folder.path(), "a");
    assert_eq!(report.superblock.as_ref().expect("slot 0 is left").sequence, 1);
    let table = report.table.as_ref().expect("a table");
    assert_eq!((table.slots.valid, table.slots.damaged), (1, 1));
    assert_eq!((table.bad_slots[0].page, table.bad_slots[0].slot), (0, 1));
    assert_eq!(table.doubtful.count(), 64);
    assert_eq!(report.lost.as_ref().expect("a list").extents, None);
    let text = report.to_string();
    for part in [
        "slot 0 sequence 1; slot 1 the hemi superblock is damaged",
        "1 valid, 1 DAMAGED",
        "page 0 slot 1: the page is damaged",
        "DOUBTFUL     64 regions: 0-63",
        "unknown: no list can be read",
    ] {
        assert!(text.contains(part), "{text}\n  lacks: {part}");
    }
    let json = serde_json::to_value(&report).expect("plain values");
    assert_eq!(json["superblock_slots"][1]["state"], "damaged");
    assert_eq!(json["table"]["doubtful"]["runs"][0], serde_json::json!([0, 63]));
}

#[test]
fn strangers_cut_legs_and_copies_are_pointed_out() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    create_plain(folder.path());
    create(&options(folder.path(), &["c", "d"])).expect("nothing is in the way");
    let together = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|name| path(name)).collect();
        inspect_all(&paths, &Place::None).expect("all can be opened").together.join("\n")
    };
    assert_eq!(together(&["a", "b"]), "");
    assert!(together(&["a"]).contains("not among these"), "{}", together(&["a"]));
    assert!(together(&["a", "b", "c", "d"]).contains("different volumes"));
    fs::copy(path("a"), path("copy")).expect("space");
    assert!(together(&["a", "b", "copy"]).contains("are the same leg"));

    let file = File::options().write(true).open(path("a")).expect("it is there");
    file.set_len(DATA_OFFSET + SIZE - 5 * MIB).expect("it can be cut");
    let text = report(folder.path(), "a").to_string();
    assert!(text.contains("TOO SHORT    it is truncated by 5242880 bytes"), "{text}");
    file.set_len(MIB + 8192).expect("it can be cut");
    assert_eq!(report(folder.path(), "a").table.expect("a table").slots.valid, 2);
    file.set_len(100 << 10).expect("it can be cut");
    let cut = report(folder.path(), "a");
    assert_eq!(cut.table.as_ref().expect("a table").slots.unreadable, 2);
    assert_eq!(cut.table.as_ref().expect("a table").unknown.count(), 64);
    file.set_len(0).expect("it can be cut");
    assert!(report(folder.path(), "a").to_string().contains("none can be read here"));
}

#[test]
fn plain_files_and_missing_ones_are_told_apart() {
    let folder = folder();
    file(folder.path(), "zeros", MIB);
    let (_, text) = file(folder.path(), "text", MIB);
    text.write_all_at(b"hello", 0).expect("space");
    assert!(report(folder.path(), "zeros").to_string().contains("only zeros"));
    assert!(report(folder.path(), "text").to_string().contains("there is no hemi superblock"));
    let error = inspect(&folder.path().join("none").display().to_string()).expect_err("missing");
    assert!(error.to_string().contains("there is no"), "{error}");
}
