//! The public part of the published data set, which is not part of this tree (`docs/fail-slow.md` says where
//! it is): `HEMI_FAIL_SLOW_DATA` names its directory `data`, with `cluster_A/host_1/DAY.csv` and so on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// Length of a row.
const ROW_MS: u64 = 15_000;
/// The data set has bytes a second, and no sizes of I/O.
const SIZE: f64 = 16_384.0;
/// The drives that are labelled slow.
const LABELLED: [(&str, &str, &str); 3] = [
    ("cluster_A", "host_22", "disk11"),
    ("cluster_A", "host_25", "disk8"),
    ("cluster_B", "host_5", "disk5"),
];

/// A minute of one drive in the making.
#[derive(Clone, Copy, Default)]
struct Rows {
    minute: u64,
    rows: u64,
    bytes: f64,
    latency_ns: f64,
}

impl Rows {
    fn sample(self) -> Sample {
        let count = (self.bytes / SIZE) as u64;
        // Each row's latency is a mean; the minute's is weighted with what was done.
        let typical = if self.bytes > 0.0 { self.latency_ns / self.bytes } else { 0.0 };
        let reads = Work {
            count,
            bytes: self.bytes as u64,
            sum_ns: (typical * self.bytes / SIZE) as u64,
            typical_ns: typical as u64,
            stalled: 0,
        };
        let at_ms = self.minute * MINUTE_MS;
        Sample { at_ms, span_ms: self.rows * ROW_MS, reads, writes: Work::default() }
    }
}

/// Judges each drive of a host over all of its days. Returns the number of drives and those that are slow.
fn judge(host: &Path) -> (usize, BTreeSet<String>) {
    let mut days: Vec<PathBuf> = fs::read_dir(host)
        .expect("the host has files")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Some were archived with another system's notes beside them.
            name.ends_with(".csv") && !name.starts_with('.')
        })
        .collect();
    days.sort();
    let (mut judges, mut slow) = (HashMap::<String, Judge>::new(), BTreeSet::new());
    for day in days {
        let mut open = BTreeMap::<String, Rows>::new();
        let text = fs::read_to_string(&day).expect("a day is text");
        let mut end = |drive: &str, rows: Rows| {
            let judge = judges.entry(drive.to_owned()).or_default();
            judge.take(judge.look(rows.sample(), DriveKind::Nvme), DriveKind::Nvme);
            if judge.verdict().is_some() {
                slow.insert(drive.to_owned());
            }
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
            let [at, drive, throughput, latency] = fields[..] else { panic!("a row: {line}") };
            // A row without figures is one that was not taken.
            let (Ok(throughput), Ok(latency)) = (throughput.parse::<f64>(), latency.parse::<f64>())
            else {
                continue;
            };
            let minute = at.parse::<f64>().expect("seconds") as u64 / 60;
            let rows = open.entry(drive.to_owned()).or_default();
            if rows.rows > 0 && rows.minute != minute {
                end(drive, std::mem::take(rows));
            }
            let bytes = throughput * ROW_MS as f64 / 1000.0;
            rows.minute = minute;
            rows.rows += 1;
            rows.bytes += bytes;
            rows.latency_ns += bytes * latency * 1000.0;
        }
        open.iter().for_each(|(drive, rows)| end(drive, *rows));
    }
    (judges.len(), slow)
}

#[test]
#[ignore = "needs the recorded data, which is not in this tree"]
fn the_labelled_drives_are_found_and_no_others() {
    let data = std::env::var("HEMI_FAIL_SLOW_DATA").expect("it names the directory of the data");
    let (mut drives, mut found) = (0, BTreeSet::new());
    for cluster in ["cluster_A", "cluster_B"] {
        let hosts = fs::read_dir(Path::new(&data).join(cluster)).expect("the cluster has hosts");
        for host in hosts {
            let host = host.expect("it can be read").path();
            if !host.is_dir() {
                continue;
            }
            let name = host.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // One host was made by a script.
            if name.contains("synth") {
                continue;
            }
            let (count, slow) = judge(&host);
            drives += count;
            found.extend(slow.into_iter().map(|drive| (cluster.to_owned(), name.clone(), drive)));
        }
    }
    assert!(drives > 1_000, "{drives} drives");
    let labelled = LABELLED.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(found, BTreeSet::from(labelled), "of {drives} drives");
}
