use std::path::{Path, PathBuf};

use hemi_units::{Instant, Operation};
use serde::Deserialize;

use super::WorkloadSpec;
use crate::Workload;
use crate::testing::{Done, Server, run, workload};

const ACCESS: &str = "access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                      mix = { read_percent = 50 } }";

/// A spec file, reduced to the parts the tests need.
#[derive(Debug, Deserialize)]
struct File {
    workload: WorkloadSpec,
}

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("specs")
}

fn example(name: &str) -> WorkloadSpec {
    let text = std::fs::read_to_string(specs().join(name)).unwrap();
    toml::from_str::<File>(&text).unwrap_or_else(|error| panic!("{name}: {error}")).workload
}

/// A volume of 100 GB, in sectors.
const VOLUME: u64 = 100_000_000_000 / 512;

#[test]
fn the_examples_can_be_built() {
    let mut count = 0;
    for entry in std::fs::read_dir(specs()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let spec = example(&name);
        spec.check(VOLUME).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut built = spec.build(VOLUME, 1, &specs()).unwrap();
        assert!(spec.ends() && !built.is_over(), "{name}");
        let mut issues = Vec::new();
        while issues.is_empty() {
            let now = built.next_event();
            assert!(now != Instant::NEVER, "{name}");
            built.advance(now, &mut issues);
        }
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn the_mail_stream_is_what_its_file_says() {
    let mut mail = example("mail-server.toml").build(VOLUME, 1, &specs()).unwrap();
    let log = run(&mut mail, &mut Server::random(1, 60_000));
    assert_eq!(log.len(), 1_000_000);
    let data: Vec<&Done> =
        log.iter().filter(|done| done.issue.operation != Operation::Flush).collect();
    let reads = data.iter().filter(|done| done.issue.operation == Operation::Read).count() as f64;
    assert!((reads / data.len() as f64 - 0.95).abs() < 0.001);
    let bytes: u64 = data.iter().map(|done| done.issue.extent.bytes()).sum();
    assert!((bytes as f64 / data.len() as f64 / 7_209.0 - 1.0).abs() < 0.005);
    let hot = data.iter().filter(|done| done.issue.extent.start < VOLUME / 5).count() as f64;
    assert!((hot / data.len() as f64 - 0.8).abs() < 0.002);
    let flushes = log.len() - data.len();
    assert!(flushes.abs_diff((data.len() - reads as usize) / 16) < 10);
}

#[test]
fn bursts_go_over_what_they_are_written_over() {
    let text = format!(
        "[bursts]\nevery = \"1 s\"\npages = 100\npage = \"8 KiB\"\naddresses = \"uniform\"\n\
         outstanding = 10\nduration = \"3500 ms\"\n\
         [bursts.over.closed]\nthreads = 2\nqueue_depth = 2\nduration = \"4 s\"\n{}",
        ACCESS.replace("50", "100")
    );
    let mut server = Server::fixed(1_000_000);
    let log = run(&mut workload(&text, 1 << 20).unwrap(), &mut server);
    let (reads, pages): (Vec<&Done>, Vec<&Done>) =
        log.iter().partition(|done| done.issue.operation == Operation::Read);
    assert_eq!((reads.len(), pages.len()), (16_000, 300));
    assert_eq!(server.most_outstanding, 14);
    assert!(pages.iter().all(|done| done.issue.extent.sectors() == 16));
}

#[test]
fn parts_at_once_share_their_limits_and_keep_their_own() {
    let parts = format!(
        "[[combine.parts]]\n[combine.parts.closed]\nthreads = 2\nqueue_depth = 3\n{ACCESS}\n\
         [[combine.parts]]\n[combine.parts.open]\nrate = 1000\nrequests = 50\n{ACCESS}\n\
         [[combine.parts]]\n[combine.parts.closed]\nthreads = 1\nqueue_depth = 1\n\
         think_time = {{ fixed = \"1 ms\" }}\n{ACCESS}\n"
    );
    let run_of = |text: &str| {
        let mut combine = workload(text, 1 << 20).unwrap();
        let log = run(&mut combine, &mut Server::random(2, 1_000_000));
        let mut counts = [0; 3];
        log.iter().for_each(|done| counts[done.issue.tag as usize % 3] += 1);
        (log, counts)
    };
    let (log, counts) = run_of(&format!("[combine]\nrequests = 5000\n{parts}"));
    assert_eq!((log.len(), counts[1]), (5000, 50));
    assert!(counts[0] > 3_000 && counts[2] > 200, "{counts:?}");

    let (timed, _) = run_of(&format!("[combine]\nduration = \"1 s\"\n{parts}"));
    assert!(timed.iter().all(|done| done.issue.intended < Instant(1_000_000_000)));

    // An additional part changes nothing for the others.
    let more = format!(
        "[combine]\nrequests = 6000\n{parts}[[combine.parts]]\n[combine.parts.open]\n\
         rate = 10\n{ACCESS}\n"
    );
    let mut combine = workload(&more, 1 << 20).unwrap();
    let four = run(&mut combine, &mut Server::random(3, 1_000_000));
    let of_open = |log: &[Done], parts: u32| -> Vec<_> {
        let own = log.iter().filter(|done| done.issue.tag % parts == 1);
        own.map(|done| (done.issue.intended, done.issue.extent)).collect()
    };
    assert_eq!(of_open(&log, 3), of_open(&four, 4));
}

#[test]
fn parts_can_have_phases_and_phases_parts() {
    let phases = format!(
        "[[combine.parts]]\n[[combine.parts.phases]]\nrequests = 100\nmeasured = false\n\
         [combine.parts.phases.workload.closed]\nthreads = 1\nqueue_depth = 4\n{ACCESS}\n\
         [[combine.parts.phases]]\nrequests = 200\n"
    );
    let text = format!(
        "[combine]\n[[combine.parts]]\n[combine.parts.closed]\nthreads = 1\nqueue_depth = 1\n\
         requests = 1000\n{ACCESS}\n{phases}"
    );
    let mut combine = workload(&text, 1 << 20).unwrap();
    let log = run(&mut combine, &mut Server::random(2, 1_000_000));
    assert_eq!(log.len(), 1300);
    let warm_up = log.iter().filter(|done| !done.measured);
    assert_eq!(warm_up.filter(|done| done.issue.tag % 2 == 1).count(), 100);

    let text = format!(
        "[[phases]]\nrequests = 500\nmeasured = false\n[phases.workload.combine]\n\
         [[phases.workload.combine.parts]]\n[phases.workload.combine.parts.closed]\n\
         threads = 3\nqueue_depth = 7\n{ACCESS}\n\
         [[phases.workload.combine.parts]]\n[phases.workload.combine.parts.open]\n\
         rate = 1000\n{ACCESS}\n[[phases]]\nduration = \"1 s\"\n[[phases]]\nrequests = 10\n"
    );
    let mut phases = workload(&text, 1 << 20).unwrap();
    let log = run(&mut phases, &mut Server::random(2, 1_000_000));
    assert!(log[..500].iter().all(|done| !done.measured));
    assert!(log[500..].iter().all(|done| done.measured));
    let length = log[log.len() - 11].issue.intended.since(log[500].issue.intended);
    assert!((980_000_000..=1_000_000_000).contains(&length), "{length}");
}

#[test]
fn a_workload_begins_when_it_is_told_to() {
    for name in ["checkpoint.toml", "trace.toml", "threads-of-two-kinds.toml"] {
        let spec = example(name);
        let first = |begin: Option<u64>| {
            let mut built = spec.build(VOLUME, 1, &specs()).unwrap();
            if let Some(at) = begin {
                built.begin(Instant(at));
            }
            let mut issues = Vec::new();
            let at = built.next_event();
            built.advance(at, &mut issues);
            (at, issues)
        };
        let (zero, later) = (first(None), first(Some(1_000_000)));
        assert_eq!((zero.0 + 1_000_000, zero.1.len()), (later.0, later.1.len()), "{name}");
        assert_eq!(zero.1[0].extent, later.1[0].extent, "{name}");
    }
}

#[test]
fn runs_are_the_same_for_the_same_seed_and_only_then() {
    for name in ["checkpoint.toml", "writes-by-rate.toml"] {
        let log_of = |seed| {
            let mut built = example(name).build(VOLUME, seed, &specs()).unwrap();
            run(&mut built, &mut Server::random(4, 100_000_000))
        };
        let log = log_of(1);
        assert!(log == log_of(1), "{name}");
        assert!(log != log_of(2), "{name}");
    }
}

#[test]
fn what_is_misspelt_is_named_with_its_line() {
    for (text, line, expected) in [
        ("[closd]\nthreads = 1", 1, "unknown variant `closd`"),
        ("[closed]\nthreads = 1\nqueue_dept = 4", 3, "unknown field `queue_dept`"),
        ("[closed]\nthreads = -1\nqueue_depth = 4", 2, "-1"),
        (
            "[closed]\nthreads = 1\nqueue_depth = 4\nduration = \"4 mm\"",
            4,
            "`4 mm` is not a duration",
        ),
        (
            "[closed]\nthreads = 1\nqueue_depth = 4\n[closed.access]\naddresses = \"unifrom\"",
            5,
            "unknown variant `unifrom`",
        ),
        (
            "[[phases]]\nrequests = 3\n[phases.workload.open]\nrate = 5\n\
             [phases.workload.open.access]\naddresses = \"uniform\"\n\
             sizes = { from = \"1 KiB\", to = \"4 KiB\", stepp = \"1 KiB\" }",
            7,
            "unknown field `stepp`",
        ),
        (
            "[open]\nrate = 5\naccess = { addresses = \"uniform\", sizes = 4096 }",
            3,
            "a size, as in",
        ),
        ("[replay]\ntrace = \"a\"\nformat = \"msrc\"", 3, "unknown variant `msrc`"),
    ] {
        let error = toml::from_str::<WorkloadSpec>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("line {line},")), "{error}");
    }
}

#[test]
fn what_cannot_be_is_named_by_its_key() {
    let bad = ACCESS.replace("50", "150");
    for (text, expected) in [
        (
            format!("[closed]\nthreads = 1\nqueue_depth = 1\n{bad}"),
            "closed.access.mix.read_percent = 150: ",
        ),
        (
            format!("[[phases]]\n[phases.workload.open]\nrate = 1\nduration = \"1 s\"\n{bad}"),
            "phases[0].workload.open.access.mix.read_percent = 150: ",
        ),
        ("[[phases]]\nrequests = 1".to_owned(), "phases[0].workload = nothing: "),
        (
            format!("[[phases]]\n[phases.workload.open]\nrate = 1\n{ACCESS}\n[[phases]]"),
            "phases[0].duration = none: ",
        ),
        (
            "[combine]\n[[combine.parts]]\n[combine.parts.combine]\nparts = []".to_owned(),
            "combine.parts[0].combine.parts = a combine in a combine: ",
        ),
        ("[combine]\nparts = []".to_owned(), "combine.parts = a list of 0: write a list of 1 to "),
        ("phases = []".to_owned(), "phases = a list of 0: write a list of 1 to 65535 entries"),
        (
            "[[phases]]\n[phases.workload.combine]\nparts = [{ replay = { trace = \"none.csv\" } }]"
                .to_owned(),
            "phases[0].workload.combine.parts[0].replay.trace: ",
        ),
        (
            "[bursts]\nevery = \"1 s\"\npages = 1\npage = \"8 KiB\"\naddresses = \"uniform\"\n\
             [bursts.over.combine]\nparts = []"
                .to_owned(),
            "bursts.over = combine: write closed, open or replay",
        ),
    ] {
        let error = workload(&text, 1 << 20).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

// Checks of docs/commands/sim.md.

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/sim.md");
    std::fs::read_to_string(path).expect("the page is in the tree")
}

#[test]
fn every_documented_workload_can_be_built() {
    let page = page();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut kinds = std::collections::BTreeSet::new();
    for block in blocks.filter(|block| block.contains("[workload")) {
        let spec =
            toml::from_str::<File>(block).unwrap_or_else(|e| panic!("{e}:\n{block}")).workload;
        spec.check(VOLUME).unwrap_or_else(|error| panic!("{error}:\n{block}"));
        kinds.insert(spec.name());
    }
    let all = ["bursts", "closed", "combine", "open", "phases", "replay"];
    assert!(kinds.iter().eq(&all), "{kinds:?}");
}

#[test]
fn every_documented_form_of_access_can_be_built() {
    let page = page();
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    for span in page.split('`').skip(1).step_by(2) {
        let Some((key, _)) = span.split_once(" = ") else { continue };
        let mut access = std::collections::BTreeMap::from([
            ("addresses", "addresses = \"uniform\""),
            ("sizes", "sizes = \"4 KiB\""),
            ("mix", "mix = { read_percent = 50 }"),
        ]);
        if !["addresses", "sizes", "span", "mix", "alignment"].contains(&key) {
            continue;
        }
        access.insert(key, span);
        let access: Vec<&str> = access.into_values().collect();
        let text = format!(
            "[workload.open]\nrate = 100\nduration = \"1 s\"\naccess = {{ {} }}",
            access.join(", ")
        );
        let spec =
            toml::from_str::<File>(&text).unwrap_or_else(|e| panic!("{e}:\n{span}")).workload;
        spec.check(VOLUME).unwrap_or_else(|error| panic!("{error}:\n{span}"));
        *seen.entry(key).or_default() += 1;
    }
    // Every form that the types accept.
    assert!(seen["addresses"] >= 5 && seen["sizes"] >= 3 && seen["span"] >= 2, "{seen:?}");
    assert!(seen["mix"] >= 2 && seen["alignment"] >= 1, "{seen:?}");
    for form in ["\"uniform\"", "\"sequential\"", "{ zipf", "{ hot_cold", "{ zoned"] {
        assert!(page.contains(&format!("`addresses = {form}")), "{form}");
    }
}

fn refusal(workload: &str) -> String {
    toml::from_str::<File>(workload).expect_err("it makes no sense").to_string()
}

#[test]
fn a_wrong_form_is_answered_with_the_right_one() {
    let with = |addresses: &str| {
        refusal(&format!(
            "[workload.open]\nrate = 1\naccess = {{ addresses = {addresses}, sizes = \"4 KiB\", \
             mix = {{ read_percent = 50 }} }}"
        ))
    };
    for (addresses, right) in [
        ("\"zipf\"", "write addresses = { zipf = { skew = 0.99 } }"),
        ("\"hot_cold\"", "write addresses = { hot_cold = { accesses = 80, space = 20 } }"),
        ("\"zoned\"", "write addresses = { zoned = [{"),
        ("\"zipfian\"", "\"uniform\", \"sequential\", { zipf"),
        ("{ zipfian = 1 }", "\"uniform\", \"sequential\", { zipf"),
        ("{}", "\"uniform\", \"sequential\", { zipf"),
        ("5", "\"uniform\", \"sequential\", { zipf"),
    ] {
        let said = with(addresses);
        assert!(said.contains(right), "{addresses}: {said}");
    }
    let said = refusal("[workload]");
    assert!(said.contains("one of closed, open, bursts, replay, combine, phases"), "{said}");
    let said = refusal("[workload.opne]\nrate = 1");
    assert!(said.contains("opne") && said.contains("`closed`, `open`"), "{said}");
}
