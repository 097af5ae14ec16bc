//! The load: fio writes through NBD at a set pace, then reads everything back and verifies it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::children::Background;
use super::legs::VOLUME_BYTES;

/// The number of writes per second, like a small database and below the long-run rate of the slow
/// leg, so that the result shows the stall and not a lack of bandwidth.
pub(super) const PACE: u32 = 600;
/// The number of writes in flight.
pub(super) const DEPTH: u32 = 8;

/// The results of a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// Writes per second.
    pub(super) iops: f64,
    /// Write latencies.
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) p999: Duration,
    pub(super) max: Duration,
    /// The longest time in which no write at all completed.
    pub(super) longest_stall: Duration,
    /// The number of bytes read back and found right.
    pub(super) verified_bytes: u64,
}

/// Fails unless fio is installed with its NBD engine.
pub(super) fn check_installed() -> Result<()> {
    let engine = Command::new("fio").arg("--enghelp=nbd").stdin(Stdio::null()).output();
    match engine {
        Err(error) => {
            Err(error).context("the demonstration needs fio: install it, or run `make setup`")
        }
        Ok(done) if !done.status.success() => {
            bail!("this fio has no NBD engine; Debian 12's package `fio` has it")
        }
        Ok(_) => Ok(()),
    }
}

/// A running load.
pub(super) struct Load {
    process: Background,
    folder: PathBuf,
    uri: String,
}

impl Load {
    /// Starts writing to the export at `socket` for `seconds`.
    pub(super) fn start(folder: &Path, socket: &Path, seconds: u64) -> Result<Load> {
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut command = job(folder, &uri, "write.json");
        command.arg(format!("--iodepth={DEPTH}")).arg(format!("--rate_iops={PACE}"));
        command.arg(format!("--runtime={seconds}")).arg("--do_verify=0");
        command.args(["--write_lat_log=write", "--percentile_list=50:99:99.9"]);
        let process = Background::start(command, folder, "fio-write")?;
        Ok(Load { process, folder: folder.to_owned(), uri })
    }

    /// Waits for the last write, then reads all of them back. Fails if one is wrong.
    pub(super) fn finish(mut self, limit: Duration, stop: &AtomicBool) -> Result<Figures> {
        self.process.finish(limit, stop).context("the load failed")?;
        let log = read(&self.folder.join("write_clat.1.log"))?;
        let written = parse(&read(&self.folder.join("write.json"))?)?;
        let writes = number(&written, "/write/total_ios")? as u64;

        // The same seed makes the same writes. This job only verifies each of them.
        let mut command = job(&self.folder, &self.uri, "verify.json");
        command.arg(format!("--number_ios={writes}")).arg("--iodepth=16");
        command.args(["--verify_only=1", "--do_verify=1", "--verify_fatal=1"]);
        let mut verify = Background::start(command, &self.folder, "fio-verify")?;
        verify.finish(limit, stop).context("what was written did not read back right")?;
        let verified = parse(&read(&self.folder.join("verify.json"))?)?;

        let figures = figures(&written, &verified, longest_stall(&log)?)?;
        let written_bytes = number(&written, "/write/io_bytes")? as u64;
        ensure!(
            figures.verified_bytes == written_bytes,
            "fio wrote {written_bytes} bytes and verified {} of them",
            figures.verified_bytes
        );
        Ok(figures)
    }
}

/// Returns the command that writing and verifying have in common.
fn job(folder: &Path, uri: &str, result: &str) -> Command {
    let mut command = Command::new("fio");
    command.current_dir(folder);
    command.args(["--name=demo", "--ioengine=nbd", "--rw=randwrite", "--bs=4k"]);
    command.arg(format!("--uri={uri}")).arg(format!("--size={VOLUME_BYTES}"));
    command.args(["--verify=crc32c", "--output-format=json"]);
    command.arg(format!("--output={result}"));
    command
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the only job of fio's JSON. Fails if fio reported an error.
fn parse(text: &str) -> Result<Value> {
    // fio may print warnings before its JSON.
    let start = text.find('{').context("fio printed no JSON")?;
    let mut output: Value = serde_json::from_str(&text[start..]).context("fio's JSON is broken")?;
    let job = output.pointer_mut("/jobs/0").context("fio's JSON holds no job")?.take();
    let error = number(&job, "/error")?;
    ensure!(error == 0.0, "fio reported error {error}");
    Ok(job)
}

fn number(job: &Value, pointer: &str) -> Result<f64> {
    job.pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("fio's JSON lacks {pointer}"))
}

fn figures(written: &Value, verified: &Value, longest_stall: Duration) -> Result<Figures> {
    let time = |pointer: &str| number(written, pointer).map(nanoseconds);
    let max = time("/write/clat_ns/max")?;
    let min = time("/write/clat_ns/min")?.min(max);
    // fio reports the middle of a bucket, which may lie beyond the exact minimum or maximum.
    let percentile = |pointer: &str| time(pointer).map(|found| found.clamp(min, max));
    Ok(Figures {
        iops: number(written, "/write/iops")?,
        p50: percentile("/write/clat_ns/percentile/50.000000")?,
        p99: percentile("/write/clat_ns/percentile/99.000000")?,
        p999: percentile("/write/clat_ns/percentile/99.900000")?,
        max,
        longest_stall,
        verified_bytes: number(verified, "/read/io_bytes")? as u64,
    })
}

fn nanoseconds(value: f64) -> Duration {
    Duration::from_nanos(value.max(0.0) as u64)
}

/// Returns the longest gap between completions of writes. A line of fio's log is the time since the
/// start in milliseconds, the latency in nanoseconds, the direction (1 is a write), and more.
fn longest_stall(log: &str) -> Result<Duration> {
    let mut previous = 0_u64;
    let mut longest = 0;
    for line in log.lines() {
        let mut fields = line.split(',').map(str::trim);
        let (Some(time), Some(_), Some(direction)) = (fields.next(), fields.next(), fields.next())
        else {
            bail!("fio's log has a line of another form: {line}");
        };
        if direction != "1" {
            continue;
        }
        let time: u64 = time.parse().with_context(|| format!("fio's log: {line}"))?;
        longest = longest.max(time.saturating_sub(previous));
        previous = previous.max(time);
    }
    Ok(Duration::from_millis(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stall_is_the_longest_gap_between_writes() {
        let log = "1, 400, 1, 4096, 0\n5, 300, 1, 4096, 0\n2010, 2004000, 1, 4096, 0\n\
                   2011, 5, 1, 4096, 0\n9000, 5, 0, 4096, 0\n";
        assert_eq!(longest_stall(log).unwrap(), Duration::from_millis(2005));
        assert!(longest_stall("what is this\n").is_err());
    }

    #[test]
    fn figures_come_from_fios_own_fields() {
        let written = r#"note: a warning first
            {"jobs": [{"error": 0,
              "write": {"iops": 599.5, "clat_ns": {"min": 91000, "max": 41000000,
                "percentile": {"50.000000": 90000, "99.000000": 400000, "99.900000": 41156608}}}}]}"#;
        let verified = r#"{"jobs": [{"error": 0, "read": {"io_bytes": 19660800}}]}"#;
        let stall = Duration::from_millis(3);
        let got = figures(&parse(written).unwrap(), &parse(verified).unwrap(), stall).unwrap();
        assert_eq!(got.p50, Duration::from_micros(91), "not below the minimum");
        assert_eq!(got.p99, Duration::from_micros(400));
        assert_eq!(got.p999, Duration::from_millis(41), "not above the maximum");
        assert_eq!(got.max, Duration::from_millis(41));
        assert_eq!(got.verified_bytes, 19_660_800);
    }

    #[test]
    fn an_error_or_a_missing_field_is_not_a_figure() {
        assert!(parse("no JSON").is_err());
        assert!(parse(r#"{"jobs": [{"error": 84}]}"#).is_err());
        let empty = parse(r#"{"jobs": [{"error": 0}]}"#).unwrap();
        assert!(figures(&empty, &empty, Duration::ZERO).is_err());
    }
}
