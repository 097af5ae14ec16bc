//! Preparing a leg to join: refusals, and the content left on the leg.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use hemi_engine::format::Layout;
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_server::create::{
    CreateError, CreateOptions, JoinOptions, LegsInUse, create, prepare_join, superblock_of,
};

const SIZE: u64 = 64 << 20;

fn options(path: &Path, wipe: bool) -> JoinOptions {
    let layout = Layout::new(SIZE, 1 << 20).expect("the sizes are possible");
    let (volume, name) = ([7; 16], "db".to_owned());
    let (config, in_use) = (config(path), LegsInUse::default());
    JoinOptions { config, layout, block_bytes: 512, wipe, spare: None, volume, in_use, name }
}

fn config(path: &Path) -> LegConfig {
    LegConfig { direct: false, ..LegConfig::new(LegSpec::Path(path.into())) }
}

fn volume(folder: &Path) -> [std::path::PathBuf; 2] {
    let legs = ["a", "b"].map(|name| folder.join(name));
    create(&CreateOptions {
        size: SIZE.into(),
        legs: legs.iter().map(|path| path.display().to_string()).collect(),
        name: "db".into(),
        cached: true,
        ..CreateOptions::default()
    })
    .unwrap_or_else(|error| panic!("{error}"));
    legs
}

#[test]
fn a_missing_file_is_made_with_room_for_everything() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("new");
    let options = options(&path, false);
    let (leg, id) = prepare_join(&options).unwrap_or_else(|error| panic!("{error}"));
    assert!(leg.size() >= options.layout.leg_bytes());
    assert_ne!(id, [0; 16]);
    drop(leg);
    assert!(path.exists(), "the file stays");
}

#[test]
fn a_leg_that_holds_something_is_kept_unless_named() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let [a, _] = volume(folder.path());
    let superblock =
        superblock_of(&config(&a)).unwrap_or_else(|error| panic!("{error}")).expect("it is a leg");
    assert_eq!((superblock.name.as_str(), superblock.leg.0), ("db", 0));

    let error = prepare_join(&options(&a, false)).expect_err("it holds a volume");
    assert!(matches!(error, CreateError::NotEmpty { .. }), "{error}");
    assert!(error.to_string().contains("\"db\""), "{error}");
    assert!(superblock_of(&config(&a)).is_ok_and(|found| found.is_some()));

    prepare_join(&options(&a, true)).unwrap_or_else(|error| panic!("{error}"));
    let found = superblock_of(&config(&a));
    assert!(found.is_ok_and(|found| found.is_none()), "its past does not speak any more");
    let metadata = Layout::new(SIZE, 1 << 20).expect("the sizes are possible").data_offset();
    let mut bytes = vec![1; metadata as usize];
    let file = File::open(&a).expect("it is there");
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    // The signature for other programs is not metadata (docs/design/disk-format.md).
    let signature = 32 << 10..48 << 10;
    assert!(bytes[signature.clone()].starts_with(b"\x01CD001"), "it looks blank");
    bytes[signature].fill(0);
    assert!(bytes.iter().all(|byte| *byte == 0), "its metadata is blank");
}

#[test]
fn what_is_too_small_or_in_use_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let small = folder.path().join("small");
    std::fs::write(&small, vec![0; 1 << 20]).expect("the folder can be written");
    let error = prepare_join(&options(&small, true)).expect_err("it is too small");
    assert!(matches!(error, CreateError::TooSmall { .. }), "{error}");
    assert_eq!(std::fs::metadata(&small).map(|found| found.len()).ok(), Some(1 << 20));

    let path = folder.path().join("new");
    let _held = prepare_join(&options(&path, false)).unwrap_or_else(|error| panic!("{error}"));
    let error = prepare_join(&options(&path, true)).expect_err("it is held");
    assert!(error.to_string().contains("in use"), "{error}");
}
