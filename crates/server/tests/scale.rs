//! Volumes of 16 TiB, on sparse files of an XFS in a loop device (ext4 has no files that large).
//! The test needs root and is skipped without it.
//!
//! It asserts the figures that grow with a volume: the size of the metadata and the memory to read
//! it. Times are printed, not judged: `cargo test -p hemi-server --test scale -- --nocapture`.
//! There is only one test, so the process's memory is its own.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use hemi_engine::format::Layout;
use hemi_server::config::place::Place;
use hemi_server::create::{CreateOptions, create};
use hemi_server::inspect::inspect_all;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// An XFS cannot be smaller than 300 MB.
const FILE_SYSTEM: u64 = 700 * MIB;

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
}

struct Mount(String);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

/// Returns the peak memory of the process in bytes.
fn memory_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it is there");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

#[test]
fn sixteen_tebibytes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a loop device needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("xfs").display().to_string();
    File::create(&image).and_then(|file| file.set_len(FILE_SYSTEM)).expect("a sparse file");
    run("mkfs.xfs", &["-q", &image]);
    let point = folder.path().join("mount");
    fs::create_dir(&point).expect("a new folder");
    run("mount", &["-o", "loop", &image, &point.display().to_string()]);
    let mount = Mount(point.display().to_string());

    let before = memory_peak();
    // Default regions, with the fewest and the most legs.
    volume(&point, 2, None, 262_144);
    volume(&point, 8, None, 262_144);
    // The largest possible number of regions.
    volume(&point, 2, Some(MIB), 16_777_216);
    let more = memory_peak() - before;
    println!("memory: {} KiB more at the peak", more >> 10);
    // The table is read and written in pieces and never in memory as a whole.
    assert!(more < 16 * MIB, "{more} bytes");
    drop(mount);
}

fn volume(folder: &Path, legs: usize, region_bytes: Option<u64>, regions: u32) {
    let paths: Vec<_> =
        (0..legs).map(|leg| folder.join(leg.to_string()).display().to_string()).collect();
    let options = CreateOptions {
        size: (16 * TIB).into(),
        legs: paths.clone(),
        region_bytes,
        ..CreateOptions::default()
    };
    let begun = Instant::now();
    let created = create(&options).expect("nothing is in the way");
    let create_time = begun.elapsed();
    assert!(created.zeros && created.legs.iter().all(|leg| leg.whole));
    let layout = Layout::new(16 * TIB, created.region_bytes).expect("it was created");
    assert_eq!(layout.region_count(), regions);
    for path in &paths {
        let metadata = fs::metadata(path).expect("it was made");
        assert_eq!(metadata.len(), layout.leg_bytes());
        // The table twice, in whole blocks of the file system, and some more blocks.
        let table = u64::from(layout.page_count()) * 8192;
        let used = metadata.blocks() * 512;
        assert!(used >= table && used < table + MIB, "{used} bytes for a table of {table}");
    }

    // One page in the middle is damaged.
    let page = layout.page_count() / 2;
    let file = File::options().write(true).open(&paths[0]).expect("it was made");
    file.write_all_at(&[0xFF], layout.page_address(page, 1) + 1001).expect("there is space");
    drop(file);

    let begun = Instant::now();
    let inspection = inspect_all(&paths, &Place::None).expect("all can be opened");
    let inspect_time = begun.elapsed();
    for (leg, report) in inspection.legs.iter().enumerate() {
        let table = report.table.as_ref().expect("a table");
        let bad = u32::from(leg == 0);
        assert_eq!(table.slots.valid, 2 * layout.page_count() - bad);
        assert_eq!(table.slots.damaged, bad);
        let doubtful = if leg == 0 { layout.page_regions(page).len() } else { 0 };
        assert_eq!(table.doubtful.count(), doubtful as u64);
        assert!(table.not_whole.is_empty());
    }
    println!(
        "{legs} legs, {regions} regions in {} pages, table of {} KiB on each leg: \
         created in {create_time:.1?}, read and checked in {inspect_time:.1?}",
        layout.page_count(),
        layout.page_count() * 8
    );
    paths.iter().for_each(|path| fs::remove_file(path).expect("it was made"));
}
