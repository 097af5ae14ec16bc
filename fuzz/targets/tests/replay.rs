//! Runs every fuzz target on every input of its corpus, and on random changes of these. `make fuzz`
//! searches further, guided by coverage.

use std::path::PathBuf;

use hemi_fuzz_targets::TARGETS;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, FileFailurePersistence, TestRunner};

/// The longest input that is tried, as under libFuzzer.
const INPUT_BYTES_MAX: usize = 8192;

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    Put(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Truncate(Index),
    /// Appends a part of another input.
    Splice(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(vec![0u8, 1, 127, 128, 254, 255])];
    prop_oneof![
        4 => (any::<Index>(), byte.clone()).prop_map(|(at, byte)| Change::Put(at, byte)),
        2 => (any::<Index>(), prop::collection::vec(byte, 1..9))
            .prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (any::<Index>(), 1usize..65).prop_map(|(at, length)| Change::Remove(at, length)),
        1 => any::<Index>().prop_map(Change::Truncate),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(other, at)| Change::Splice(other, at)),
    ]
}

/// An input, printed so that it can be pasted into a test.
struct Input(Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

fn changed(corpus: &[Vec<u8>], base: Index, changes: &[Change]) -> Input {
    let mut input = base.get(corpus).clone();
    for change in changes {
        let length = input.len();
        match change {
            Change::Put(at, byte) if length > 0 => input[at.index(length)] = *byte,
            Change::Insert(at, bytes) => {
                let at = at.index(length + 1);
                input.splice(at..at, bytes.iter().copied());
            }
            Change::Remove(at, count) if length > 0 => {
                let start = at.index(length);
                input.drain(start..length.min(start + count));
            }
            Change::Truncate(at) => input.truncate(at.index(length + 1)),
            Change::Splice(other, at) => {
                let other = other.get(corpus);
                input.extend(&other[at.index(other.len() + 1)..]);
            }
            Change::Put(..) | Change::Remove(..) => {}
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    Input(input)
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
    let entries = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable directory").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "the corpus of {name} is empty");
    for input in &corpus {
        (target.run)(input);
    }
    let config = Config {
        cases: target.cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(file!()),
        ..Config::default()
    };
    let inputs = (any::<Index>(), prop::collection::vec(change(), 1..12))
        .prop_map(|(base, changes)| changed(&corpus, base, &changes));
    TestRunner::new(config)
        .run(&inputs, |input| {
            (target.run)(&input.0);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn every_target_is_replayed() {
            let mut tested = vec![$(stringify!($name)),*];
            tested.sort();
            assert_eq!(tested, TARGETS.map(|target| target.name));
        }
    };
}

replays! {
    capture config control disksim leg_spec lost nbd_client nbd_server page recovery stamp superblock trace
}
