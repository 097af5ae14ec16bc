use std::path::Path;
use std::time::SystemTime;

use hemi_io::ring::Ring;
use hemi_workload::any::AnyWorkload;
use hemi_workload::spec::WorkloadSpec;

use super::{Ending, Engine, EngineOptions, Stop, Totals};
use crate::account::{Account, Progress};
use crate::backend::Backend;
use crate::buffers::Buffers;
use crate::segments::segments;
use crate::target::{Target, TargetOptions};

fn workload(text: &str, sectors: u64) -> AnyWorkload {
    let spec: WorkloadSpec = toml::from_str(text).expect("a workload");
    spec.build(sectors, 1, Path::new("")).expect("it fits")
}

fn run(name: &str, text: &str, cap: u32, stop: &Stop) -> (Totals, Account) {
    run_after(name, text, cap, stop, || {})
}

/// Runs a load and calls `change` once its target is open.
fn run_after(
    name: &str,
    text: &str,
    cap: u32,
    stop: &Stop,
    change: impl FnOnce(),
) -> (Totals, Account) {
    let options = TargetOptions {
        name: name.into(),
        spec: name.parse().expect("a target"),
        direct: false,
        connections: 1,
        wipe: Some(name.into()),
    };
    let target = Target::look(options).expect("it is there").for_writing().expect("it is free");
    let workload = workload(text, target.size() / 512);
    let options = EngineOptions {
        queue_depth_cap: cap,
        spin: 100_000,
        limit: 60_000_000_000,
        block: target.block(),
    };
    let mut backend =
        Backend::new(Ring::new().expect("a ring"), target.into_opened()).expect("a backend");
    let buffers = Buffers::new(backend.ring(), 1 << 20, true, 1).expect("memory");
    let (filler, drain) = segments();
    let reader = std::thread::spawn(move || {
        let mut account = Account::new(1_000_000_000, None);
        let progress = Progress::default();
        drain.run(|rows| account.take(rows, &progress)).expect("no file");
        account.finish().expect("no file");
        account
    });
    change();
    let engine = Engine::new(options, workload, backend, buffers, filler);
    let totals = engine.run(stop).expect("a ring that works");
    (totals, reader.join().expect("no panic"))
}

const ACCESS: &str = "access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                      mix = { read_percent = 50, trim_percent = 5, flush_every = 50 } }";

/// A tool that observes the target beside the load matches requests by this time.
#[test]
fn a_load_begins_with_its_first_request_and_not_with_its_preparations() {
    let text = format!("[closed]\nthreads = 1\nqueue_depth = 1\nrequests = 10\n{ACCESS}");
    let mut prepared = SystemTime::UNIX_EPOCH;
    let (totals, _) =
        run_after("null", &text, 1, &Stop::default(), || prepared = SystemTime::now());
    assert!(totals.began >= prepared && totals.began <= SystemTime::now());
}

#[test]
fn all_that_is_issued_is_accounted_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a file");
    let name = path.to_str().expect("plain");
    for (target, cap) in [("null", 7), (name, 7), (name, u32::MAX)] {
        let text = format!("[closed]\nthreads = 3\nqueue_depth = 4\nrequests = 3000\n{ACCESS}");
        let (totals, account) = run(target, &text, cap, &Stop::default());
        assert_eq!((totals.issued, totals.ended, totals.unfinished), (3000, 3000, 0));
        assert_eq!((account.completed, account.failed()), (3000, 0));
        assert_eq!(totals.ending, Ending::Finished);
        assert_eq!(account.figures.all.count(), 3000);
        // Both sides of Little's law are computed from the same events.
        assert_eq!(totals.presence, account.stays);
    }
    // The data written is random.
    let bytes = std::fs::read(&path).expect("readable");
    assert!(bytes.iter().any(|&byte| byte != 0));
}

#[test]
fn an_open_loop_lasts_as_long_as_it_should() {
    let text = format!("[open]\nrate = 1000\narrivals = \"fixed\"\nrequests = 300\n{ACCESS}");
    let (totals, account) = run("null", &text, u32::MAX, &Stop::default());
    assert_eq!(account.completed, 300);
    // The last is intended for 300 ms and never issued before.
    assert!(totals.time >= 300_000_000);
    assert!(account.lateness.quantile(1.0) < 60_000_000_000);
}

#[test]
fn a_load_that_is_stopped_says_so() {
    let text = format!("[closed]\nthreads = 1\nqueue_depth = 8\n{ACCESS}");
    let stop = Stop::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            stop.ask();
        });
        let (totals, account) = run("null:1 MiB", &text, 4, &stop);
        assert_eq!(totals.ending, Ending::Stopped);
        assert_eq!(totals.issued, account.completed);
        assert_eq!(totals.unfinished, 0);
    });
}

#[test]
fn errors_of_the_target_are_counted_by_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x");
    std::fs::write(&path, vec![0; 1 << 20]).expect("a file");
    let name = path.to_str().expect("plain");
    let text = "[open]\nrate = 2000\nrequests = 400\n\
                access = { addresses = \"uniform\", sizes = \"4 KiB\", mix = { read_percent = 100 } }";
    // Truncated once it is open: a read past the end is a medium error.
    let (totals, account) = run_after(name, text, 8, &Stop::default(), || {
        let file = std::fs::File::options().write(true).open(&path).expect("there");
        file.set_len(4096).expect("cut");
    });
    assert_eq!(totals.issued, account.completed + account.failed());
    assert!(account.failed() > 0 && account.failures.keys().all(|(kind, _)| *kind == "read"));
}
