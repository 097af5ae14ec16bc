//! Experiments from their files to their reports, and the errors on the way.

use std::collections::HashMap;
use std::path::Path;

use hemi_drives::drive::Drive;
use hemi_drives::preset::{Class, Preset};
use hemi_simulate::experiment;
use hemi_simulate::report::Report;
use hemi_simulate::reproduce::Reproduction;
use hemi_simulate::session::{Session, SessionSpec};
use hemi_simulate::spec::{self, Case, SpecError, SystemSpec};
use hemi_simulate::stock::{self, Stock};
use hemi_simulate::system::PolicyName;
use hemi_simulate::tables;

const SPEC: &str = r#"
title = "two network volumes"
[system]
legs = ["gp3", "gp3-16k"]
volume = "1 GiB"
[workload.open]
rate = 1000
duration = "2 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 50, flush_every = 8 } }
[sweep]
"system.policy" = ["single", "all", "write-behind", "paper", "paper-unsafe", "first", "oracle"]
"#;

fn reports(text: &str) -> Vec<Report> {
    let stock = Stock::default();
    let cases = spec::parse("test.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let run = |case| experiment::run(case, Path::new(""), Some(3), &stock, |_| true);
    cases.iter().map(|case| run(case).unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[test]
fn the_same_seed_gives_the_same_report_to_the_byte() {
    let json = || serde_json::to_string(&reports(SPEC)).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn a_report_accounts_for_every_request() {
    for report in reports(SPEC) {
        let kinds = [&report.reads, &report.writes, &report.flushes];
        let sum: u64 = kinds.iter().map(|kind| kind.count).sum();
        assert_eq!(sum, report.requests, "{:?}", report.choices);
        assert!((1_800..2_200).contains(&sum), "{sum} requests in 2 s at 1,000 a second");
        let (in_system, by_stay) = report.little;
        assert!((in_system / by_stay - 1.0).abs() < 1e-9, "{:?}", report.choices);
        let ends = report.intervals.iter().skip(1).map(|next| next.start).chain([report.time]);
        let counts =
            report.intervals.iter().zip(ends).map(|(one, end)| one.iops * (end - one.start));
        assert!((counts.sum::<f64>() - sum as f64).abs() < 1e-3, "{:?}", report.intervals);
        for kind in kinds {
            let counted: u64 = kind.latency.histogram.iter().map(|(_, count)| count).sum();
            assert_eq!(counted, kind.count);
            assert!(kind.latency.p50 <= kind.latency.p99 && kind.latency.p99 <= kind.latency.p999);
        }
    }
}

#[test]
fn what_a_spec_cannot_mean_is_refused_by_name() {
    let refused = |from: &str, to: &str| {
        let error = spec::parse("test.toml", &SPEC.replace(from, to)).unwrap_err();
        (error.to_string(), error)
    };
    let (text, _) = refused("volume =", "volum =");
    assert!(text.contains("test.toml") && text.contains("volum") && text.contains("line 5"));
    let (text, _) = refused("\"1 GiB\"", "\"1 gigabyte\"");
    assert!(text.contains("1 gigabyte") && text.contains("line 5"), "{text}");
    let (text, error) = refused("[\"gp3\", \"gp3-16k\"]", "[]");
    assert!(matches!(error, SpecError::Impossible { key: "system.legs", .. }), "{text}");
    let (text, error) = refused("\"first\", ", "\"frist\", ");
    assert!(matches!(error, SpecError::Choice { .. }) && text.contains("frist"), "{text}");
    let (text, _) = refused("rate = 1000", "rate = 1000\npoisson = true");
    assert!(text.contains("poisson"), "{text}");
}

/// A spec with errors of meaning, each of which is planted by a replacement.
const PLACED: &str = r#"title = "a database"
[system]
policy = "all"
legs = ["gp3", "gp3-16k"]
volume = "1 GiB"
engine = { leg_window = 64 }

[[system.faults]]
leg = 1
freeze = "1 s"

[workload]
phases = [
  { requests = 100, workload.open = { rate = 100, access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 50 } } } },
  { requests = 200 },
]

[sweep]
workload.phases = [[{ requests = 1, workload.closed = { threads = 1, queue_depth = 1, access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 50 } } } }]]
"system.scale" = [1, 2]
"#;

#[test]
fn an_error_of_meaning_is_named_by_its_place() {
    let error = |from: &str, to: &str, sweep: bool| {
        let text = PLACED.replacen(from, to, 1);
        assert_ne!(text, PLACED, "{from}");
        let text = if sweep { text } else { text.split("[sweep]").next().unwrap().to_owned() };
        let cases = match spec::parse("a.toml", &text) {
            Ok(cases) => cases,
            Err(error) => return error.to_string(),
        };
        let stock = Stock::default();
        let run = |case| experiment::run(case, Path::new(""), None, &stock, |_| true);
        let failed = cases.iter().find_map(|case| run(case).err().map(|error| (case, error)));
        let (case, error) = failed.expect("it makes no sense");
        format!("{}: {error}", case.place(&error))
    };
    for (from, to, expected) in [
        ("leg_window = 64", "leg_window = 0", "a.toml:6:12: system.engine.leg_window = 0: 1 to "),
        ("\"gp3\", \"gp3-16k\"", "", "a.toml:4:1: system.legs = 0: "),
        ("gp3-16k", "gp33", "a.toml:4:1: system.legs: no preset is named `gp33`"),
        ("1 GiB", "2 TiB", "a.toml:5:1: system: a volume of 2199023255552 bytes"),
        ("leg = 1", "leg = 2", "a.toml:8:1: system.faults: fault 1: leg = 2: the legs are 0 to 1"),
        (
            "freeze = \"1 s\"",
            "worn = \"1%\"",
            "a.toml:8:1: system.faults: fault 1: leg 1: worn: it has no flash",
        ),
        (
            "read_percent = 50",
            "read_percent = 150",
            "a.toml:14:110: workload.phases[0].workload.open.access.mix.read_percent = 150: write",
        ),
        (
            "{ requests = 200 }",
            "{ requests = 0 }",
            "a.toml:15:5: workload.phases[1].requests = 0: write a number from 1 to ",
        ),
        (
            "requests = 100, ",
            "",
            "a.toml:14:3: workload.phases[0].duration = none: write how long the phase lasts",
        ),
    ] {
        let error = error(from, to, false);
        assert!(error.starts_with(expected), "{error}");
    }
    // A value of the sweep is found there.
    for (from, to, expected) in [
        ("[1, 2]", "[1, 0]", "a.toml:20:1: system.scale = 0: 1 to 1048576"),
        (
            "threads = 1",
            "threads = 0",
            "a.toml:19:10: workload.phases[0].workload.closed.threads = 0",
        ),
        ("[1, 2]", "[]", "a.toml:20:1: sweep: `system.scale` = []: write a list"),
        ("1 GiB", "2 TiB", "a.toml:5:1: system: a volume of 2199023255552 bytes"),
    ] {
        let error = error(from, to, true);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn an_error_in_a_session_is_named_by_its_place() {
    let text = "title = \"a\"\n[system]\nlegs = [\"gp3\"]\npolicy = \"single\"\nSCALE";
    let with = |line: &str| SessionSpec::parse("s.toml", &text.replace("SCALE", line));
    let refused = with("scale = 0").unwrap_err().to_string();
    assert_eq!(refused, "s.toml:5:1: system.scale = 0: 1 to 1048576");
    let spec = with("volume = \"9 TiB\"").unwrap();
    let error = Session::open(&spec, Path::new(""), None).err().expect("it is too large");
    assert_eq!(spec.place(&error), "s.toml:5:1");
}

/// Settings that a spec does not name are those of a served volume, including the ledger.
#[test]
fn a_volume_is_simulated_with_the_ledger_it_is_served_with() {
    let first = SPEC.replace(
        "\"single\", \"all\", \"write-behind\", \"paper\", \"paper-unsafe\", \"first\", \"oracle\"",
        "\"first\"",
    );
    assert_ne!(first, SPEC);
    let with = |engine: &str| {
        let settings = format!("[system.engine]\n{engine}\n[workload.open]");
        reports(&first.replace("[workload.open]", &settings)).remove(0)
    };
    let usual = reports(&first).remove(0);
    let json = |report: &Report| serde_json::to_string(report).unwrap();
    assert_eq!(json(&with("wait_ceiling = \"1 s\"")), json(&usual), "the others stay as they are");
    assert_eq!(json(&with("ledger = true")), json(&usual));
    assert_ne!(json(&with("ledger = false")), json(&usual));
}

const FAULTY: &str = r#"
title = "a leg with faults"
[system]
legs = ["gp3-16k", "gp3"]
volume = "1 GiB"
[[system.faults]]
leg = 1
at = "2 s"
FAULT
[workload.open]
rate = 300
duration = "10 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 50 } }
[sweep]
"system.policy" = ["all", "first"]
"#;

fn with_fault(fault: &str) -> (Report, Report) {
    let mut reports = reports(&FAULTY.replace("FAULT", fault)).into_iter();
    let mut next = || reports.next().expect("there are two cases");
    (next(), next())
}

#[test]
fn a_leg_of_any_kind_can_be_frozen() {
    let (all, first) = with_fault("freeze = \"3 s\"");
    let latency = |report: &Report| report.writes.latency.max;
    // A plain mirror waits for the leg; hemi does not.
    assert!((2.9..3.5).contains(&latency(&all)), "{}", latency(&all));
    assert!(latency(&first) < 0.5, "{}", latency(&first));
    let silent = all.intervals.iter().filter(|interval| interval.iops < 200.0).count();
    assert!(silent >= 2, "three seconds in which no write is done: {:?}", all.intervals);
    let (again, _) = with_fault("freeze = \"1 s\"\nevery = \"3 s\"");
    let held = again.intervals.iter().filter(|interval| interval.max > 0.9).count();
    assert!(held >= 3, "one freeze every three seconds: {:?}", again.intervals);
}

#[test]
fn single_requests_of_a_leg_can_stall() {
    // A single drive: the effect of stalls on a mirror is tested with the engine.
    let alone = |fault: &str| {
        let text = FAULTY.replace("FAULT", fault).replace("leg = 1", "leg = 0");
        reports(&text.replace("[\"all\", \"first\"]", "[\"single\"]")).remove(0)
    };
    let late = |kind: &hemi_simulate::report::Summary| {
        // Bins are nanoseconds, and slightly wide.
        let late = kind.latency.histogram.iter().filter(|(latency, _)| *latency >= 500_000_000);
        late.map(|(_, count)| *count).sum::<u64>() as f64 / kind.count as f64
    };
    // All writes of four seconds out of ten.
    let report = alone("stall = [{ writes = 1, by = \"500 ms\", for = \"4 s\" }]");
    assert!((0.35..0.45).contains(&late(&report.writes)), "{}", late(&report.writes));
    assert!(report.writes.latency.max < 0.6, "by no more than that");
    assert!(report.reads.latency.max < 0.1, "reads do not stall, and wait for no write");
    // 4.5 of ten seconds.
    let part = "experiment = \"ebs-sustained\"\ntime_scale = 0.005";
    let report = alone(part);
    assert!((0.4..0.5).contains(&late(&report.writes)), "{}", late(&report.writes));
    assert!((0.18..0.27).contains(&late(&report.reads)), "{}", late(&report.reads));
    let json = || serde_json::to_string(&alone(part)).expect("a report has a JSON form");
    assert_eq!(json(), json(), "the same seed stalls the same requests");
    let other = || alone(&format!("{part}\nseed = 5"));
    assert_ne!(serde_json::to_string(&other()).expect("as above"), json());
    // A mirror that waits for every leg is affected.
    let (all, first) = with_fault(part);
    assert!(all.writes.latency.p99 > 0.5, "{}", all.writes.latency.p99);
    assert!(first.writes.latency.p50 < 0.1, "{}", first.writes.latency.p50);
}

/// Every form shown in docs/commands/sim.md is accepted.
#[test]
fn the_documented_faults_are_taken() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/sim.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Faults").expect("the page has faults");
    let (_, block) = section.split_once("```toml\n").expect("the section has an example");
    let (block, _) = block.split_once("```").expect("the example ends");
    let spec = FAULTY.replace("[[system.faults]]\nleg = 1\nat = \"2 s\"\nFAULT", block);
    let cases = spec::parse("sim.md", &spec).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(cases[0].spec.system.faults.len(), 7);
}

#[test]
fn faults_that_cannot_be_are_refused_by_name() {
    for (fault, part) in [
        ("freeze = \"0 s\"", "fault 1: freeze"),
        ("experiment = \"ebs-all\"", "`ebs-all`"),
        ("stall = [{ writes = 1 }]", "phase 1 has no delay"),
        ("stal = []", "stal"),
    ] {
        let error = spec::parse("test.toml", &FAULTY.replace("FAULT", fault)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("test.toml") && text.contains(part), "{text}");
    }
    let text = FAULTY.replace("FAULT", "freeze = \"1 s\"").replace("leg = 1", "leg = 2");
    let error = spec::parse("test.toml", &text).unwrap_err().to_string();
    assert!(error.contains("leg = 2: the legs are 0 to 1"), "{error}");
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let refused = |from: &str, to: &str| {
        let cases = spec::parse("test.toml", &SPEC.replace(from, to)).unwrap();
        let stock = Stock::default();
        let case = cases.last().expect("there is a case");
        experiment::run(case, Path::new(""), None, &stock, |_| true).unwrap_err().to_string()
    };
    assert!(refused("gp3-16k", "gp33").contains("`gp33`"));
    assert!(refused("read_percent = 50", "read_percent = 150").contains("read_percent = 150"));
}

#[test]
fn a_volume_larger_than_its_legs_is_refused_under_every_policy() {
    let stock = Stock::default();
    let run = |case: &Case| experiment::run(case, Path::new(""), None, &stock, |_| true);
    let cases = spec::parse("test.toml", &SPEC.replace("1 GiB", "2 TiB")).unwrap();
    assert_eq!(cases.len(), 7);
    for case in &cases {
        let error = run(case).unwrap_err().to_string();
        assert!(error.contains("a volume of 2199023255552 bytes"), "{error}");
        assert!(error.contains("the smallest has"), "{error}");
        assert!(error.ends_with("make the volume smaller"), "{error}");
    }
    // Only the first leg counts without a mirror, and all of it may be used.
    let gp3 = Preset::built_in("gp3").unwrap().drive(1).unwrap().sectors() * 512;
    let whole = |volume: u64| {
        let text = SPEC.replace("1 GiB", &format!("{volume} B")).replace("gp3-16k", "qlc");
        let cases = spec::parse("test.toml", &text.replace("legs =", "scale = 64\nlegs ="));
        run(&cases.unwrap()[0])
    };
    assert!(whole(gp3).is_ok());
    assert!(whole(gp3 + 4096).unwrap_err().to_string().contains("make the volume smaller"));
}

#[test]
fn a_report_warns_of_flash_divided_too_far_and_of_models_that_nothing_holds() {
    let text =
        SPEC.replace("legs = [\"gp3\", \"gp3-16k\"]", "scale = SCALE\nlegs = [\"qlc\", \"gp3\"]");
    let first = |scale: u64| {
        let cases = spec::parse("test.toml", &text.replace("SCALE", &scale.to_string())).unwrap();
        let stock = Stock::default();
        experiment::run(&cases[0], Path::new(""), None, &stock, |_| true).unwrap()
    };
    let preset = Preset::built_in("qlc").unwrap();
    let best = preset.flash_scale_most().unwrap().unwrap() / preset.flash_scale().unwrap();
    assert!(first(best).warnings.is_empty());
    let warnings = first(best + 1).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("qlc: with its flash divided by "), "{warnings:?}");
    let [reads, writes] = Class::ALL.map(|class| preset.validation().of(class).is_validated());
    let lacks = |class| first(best).legs[0].drive.not_validated.contains(&class);
    assert_eq!((!lacks("reads"), !lacks("writes")), (reads, writes));
}

#[test]
fn tables_are_written_and_folders_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let reports = reports(SPEC);
    tables::write(&folder.path().join("new"), &reports).unwrap();
    for name in ["cases", "intervals", "latencies"] {
        let path = folder.path().join(format!("new/{name}.parquet"));
        let bytes = std::fs::read(path).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
    std::fs::write(folder.path().join("file"), "").unwrap();
    let error = tables::write(&folder.path().join("file"), &reports).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

/// Every reproduction in the repository is valid.
#[test]
fn reproductions_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("reproductions");
    let files = hemi_simulate::reproduce::files(&folder).unwrap();
    assert!(!files.is_empty());
    let mut capacities = HashMap::new();
    for file in files {
        let name = file.display().to_string();
        let reproduction = Reproduction::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let cases = reproduction.cases(&name).unwrap_or_else(|error| panic!("{error}"));
        assert!(!cases.is_empty(), "{name}");
        for (_, case) in &cases {
            legs_suffice(&name, &case.spec.system, &folder, &mut capacities);
        }
    }
}

/// Checks that the flash of every leg is not divided too far, and that every leg holds the
/// volume. `capacities` has those of the legs seen so far.
fn legs_suffice(
    name: &str,
    system: &SystemSpec,
    folder: &Path,
    capacities: &mut HashMap<(String, u64), u64>,
) {
    let legs = if system.policy == PolicyName::Single { &system.legs[..1] } else { &system.legs };
    for leg in legs {
        let preset = stock::preset(leg, folder).unwrap().scaled(system.scale);
        let (scale, most) = (preset.flash_scale().unwrap(), preset.flash_scale_most().unwrap());
        assert!(most.is_none_or(|most| scale <= most), "{name}: {leg} at {scale}: {most:?}");
        let Some(volume) = system.volume else { continue };
        let capacity = capacities
            .entry((leg.clone(), system.scale))
            .or_insert_with(|| preset.drive(1).unwrap().sectors() * 512);
        assert!(volume.0 <= *capacity, "{name}: {leg} has {capacity} of {volume:?}");
    }
}
