//! Snapshots of preconditioned flash: the results are the same, whatever happens to the files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hemi_simulate::experiment;
use hemi_simulate::report::Report;
use hemi_simulate::snapshots::{Notice, Snapshots};
use hemi_simulate::spec;
use hemi_simulate::stock::Stock;

const FLASH: &str = r#"
title = "flash that was used before"
[system]
legs = ["x25e-32gb", "x25e-4-raid5-b"]
scale = 32
precondition = "steady"
volume = "128 MiB"
[workload.closed]
threads = 1
queue_depth = 8
duration = "2 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 30 } }
[sweep]
"system.policy" = ["single", "first"]
"#;

/// Returns the report, as JSON, of a run with snapshots in `folder`, and the notices about
/// them.
fn with_snapshots(folder: &Path) -> (String, Vec<String>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let told = move |_: &str, path: &Path, notice: &Notice| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        heard.lock().unwrap().push(match notice {
            Notice::Reused => format!("reused {name}"),
            Notice::Kept => format!("kept {name}"),
            Notice::Unusable(why) => format!("unusable: {why}"),
            Notice::NotKept(_) => format!("not kept {name}"),
        });
    };
    let stock = Stock::new(Some(Snapshots::open(folder, told).unwrap()));
    let cases = spec::parse("test.toml", FLASH).unwrap();
    let run = |case| experiment::run(case, Path::new(""), None, &stock, |_| true).unwrap();
    let reports: Vec<Report> = cases.iter().map(run).collect();
    let said = said.lock().unwrap().clone();
    (serde_json::to_string(&reports).unwrap(), said)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_run_from_snapshots_is_the_run_without_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let without = {
        let stock = Stock::default();
        let cases = spec::parse("test.toml", FLASH).unwrap();
        let run = |case| experiment::run(case, Path::new(""), None, &stock, |_| true).unwrap();
        serde_json::to_string(&cases.iter().map(run).collect::<Vec<Report>>()).unwrap()
    };
    // A single drive and four in an array, each created once for both cases.
    let (first, said) = with_snapshots(&folder);
    assert!(first == without);
    assert!(said.len() == 5 && said.iter().all(|one| one.starts_with("kept ")), "{said:?}");
    let names = files(&folder);
    assert_eq!(names.len(), 5, "nothing is left beside them: {names:?}");

    let (second, said) = with_snapshots(&folder);
    assert!(second == without);
    assert!(said.len() == 5 && said.iter().all(|one| one.starts_with("reused ")), "{said:?}");
}

#[test]
fn snapshots_that_cannot_be_used_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (right, _) = with_snapshots(folder.path());
    let names = files(folder.path());
    let whole: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(name).unwrap()).collect();

    let mut damaged = whole[0].clone();
    damaged[whole[0].len() / 2] ^= 0x10;
    std::fs::write(&names[0], damaged).unwrap();
    std::fs::write(&names[1], &whole[1][..1000]).unwrap();
    std::fs::write(&names[2], "somebody's notes").unwrap();
    // A complete snapshot of another drive under this name.
    std::fs::write(&names[3], &whole[4]).unwrap();
    let mut longer = whole[4].clone();
    longer.extend([0; 100]);
    std::fs::write(&names[4], longer).unwrap();

    let (again, said) = with_snapshots(folder.path());
    assert!(again == right);
    let counted = |what: &str| said.iter().filter(|one| one.contains(what)).count();
    assert_eq!(counted("unusable: it is damaged or truncated"), 3, "{said:?}");
    assert_eq!(counted("unusable: it is not a snapshot"), 1, "{said:?}");
    assert_eq!(counted("unusable: it is of a drive with other"), 1, "{said:?}");
    assert_eq!(counted("kept "), 5, "{said:?}");
    for (name, whole) in names.iter().zip(&whole) {
        assert!(std::fs::read(name).unwrap() == *whole, "{name:?} is whole again");
    }

    // A directory in its place can be neither read nor replaced: only time is lost.
    std::fs::remove_file(&names[0]).unwrap();
    std::fs::create_dir(&names[0]).unwrap();
    let (again, said) = with_snapshots(folder.path());
    assert!(again == right);
    assert!(said.iter().any(|one| one.starts_with("not kept ")), "{said:?}");
    assert_eq!(files(folder.path()), names, "nothing unfinished is left");
}

#[test]
fn two_at_once_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let runs = || with_snapshots(folder.path()).0;
    let results = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(runs));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(results.iter().all(|one| *one == results[0]));
    assert_eq!(files(folder.path()).len(), 5);
    let (last, said) = with_snapshots(folder.path());
    assert!(last == results[0]);
    assert!(said.iter().all(|one| one.starts_with("reused ")), "{said:?}");
}
