use std::fs::File;

use super::*;

const CREATE: Purpose = Purpose::Create { size: 1 << 20, data_offset: 0 };

fn open(path: &Path, purpose: Purpose) -> Result<Device, OpenError> {
    Device::open(path, FileOptions::default(), purpose)
}

#[test]
fn a_created_file_has_its_size_and_reads_back_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    let device = open(&path, Purpose::Create { size: 5_000_001, data_offset: 0 }).unwrap();
    assert_eq!(device.size(), 5_001_216);
    assert!(device.block() == 512 || device.block() == 4096);
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|byte| (byte % 251) as u8).collect();
    device.write_at(8192, &bytes).unwrap();
    device.flush().unwrap();
    let mut back = vec![0; bytes.len() - 10];
    device.read_at(8192 + 5, &mut back).unwrap();
    assert!(back[..] == bytes[5..bytes.len() - 5]);
    let mut tail = [1; 100];
    let error = device.read_at(device.size() - 50, &mut tail).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let error = device.write_at(100, &[0; 512]).unwrap_err();
    assert!(error.to_string().contains("not aligned"), "{error}");
}

#[test]
fn a_leg_in_use_is_refused_with_its_holder_and_still_inspectable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    let first = open(&path, CREATE).unwrap();
    let error = open(&path, Purpose::Serve).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    open(&path, Purpose::Inspect).unwrap();
    drop(first);
    open(&path, Purpose::Serve).unwrap();
}

#[test]
fn a_leg_let_go_is_free_though_a_child_still_has_a_copy_of_its_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    let first = open(&path, CREATE).unwrap();
    // A forked child that has not yet become its program has such a copy.
    let _copy = first.descriptor.try_clone().unwrap();
    first.unlock();
    drop(first);
    open(&path, Purpose::Serve).unwrap();
}

#[test]
fn what_is_no_storage_or_not_there_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = open(folder.path(), Purpose::Serve).unwrap_err().to_string();
    assert!(error.contains("a directory"), "{error}");
    let error = open(Path::new("/dev/null"), Purpose::Serve).unwrap_err().to_string();
    assert!(error.contains("character device"), "{error}");
    let missing = folder.path().join("missing");
    let error = open(&missing, Purpose::Serve).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    assert!(!missing.exists());
}

#[test]
fn an_existing_larger_file_is_left_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    assert_eq!(open(&path, CREATE).unwrap().size(), 4 << 20);
}

#[test]
fn a_size_no_disk_has_is_refused_and_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    for existing in [false, true] {
        if existing {
            std::fs::write(&path, "content").unwrap();
        }
        let error = open(&path, Purpose::Create { size: 8 << 40, data_offset: 0 }).unwrap_err();
        assert!(matches!(error, OpenError::Space { .. }), "{error}");
        assert!(error.to_string().contains("create it sparse"), "{error}");
        assert_eq!(path.exists(), existing);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
}

#[test]
fn a_sparse_file_reserves_nothing() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    let options = FileOptions { sparse: true, ..FileOptions::default() };
    let device =
        Device::open(&path, options, Purpose::Create { size: 1 << 30, data_offset: 0 }).unwrap();
    assert_eq!(device.size(), 1 << 30);
    assert!(std::fs::metadata(&path).unwrap().blocks() < 100);
}

#[test]
fn holes_are_found_possible_on_this_file_system_only_if_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leg");
    let device = open(&path, CREATE).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let can = rustix::fs::fallocate(&device.descriptor, flags, 0, 4096).is_ok();
    assert_eq!(device.punch, can);
    assert_eq!(device.size(), std::fs::metadata(&path).unwrap().len());
}

#[test]
fn only_what_has_ended_is_dead() {
    assert!(!is_dead(std::process::id()));
    assert!(is_dead(u32::MAX - 1));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    // The child has ended but has not been waited for.
    let ended = (0..24_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        is_dead(child.id())
    });
    assert!(ended);
    child.wait().unwrap();
}

#[test]
fn udev_is_known_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!is_udev(std::process::id()));
    assert!(!is_udev(u32::MAX - 1));
    let worker = folder.path().join("(udev-worker)");
    let sleep = ["/usr/bin/sleep", "/bin/sleep"].iter().find(|path| Path::new(path).exists());
    // A process is named after the path it was started by.
    std::os::unix::fs::symlink(sleep.unwrap(), &worker).unwrap();
    let mut child = std::process::Command::new(&worker).arg("60").spawn().unwrap();
    // The kernel releases the parent just before it renames the child.
    let known = (0..24_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        is_udev(child.id())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(known);
}
