//! The command as a person uses it: a volume is created, served, changed and stopped, and the tests
//! check the output and the exit codes. There is no client traffic here, which `tests/blackbox`
//! has.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Far longer than anything here takes: only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(120);

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn control(&self) -> PathBuf {
        self.path("control")
    }

    fn hemi(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hemi"));
        command.current_dir(self.folder.path());
        // This keeps the machine's own volumes out.
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env_remove("HEMI_CONTROL");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.hemi().args(arguments).output().expect("hemi can be run")
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = printed(&output);
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    /// Runs a command that must be refused with this exit code, and returns its output.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains("error: ") && !text.contains("panicked"), "{arguments:?}: {text}");
        text
    }

    fn create(&self) {
        self.done(&["create", "--size", "32M", "--leg", "a", "--leg", "b", "--name", "db"]);
    }

    fn serve(&self, more: &[&str]) -> Served<'_> {
        let mut command = self.hemi();
        command.args(["serve", "--leg", "a", "--leg", "b", "--nbd", "unix:nbd"]);
        command.arg("--control").arg(self.control()).args(more);
        Served::start(self, command)
    }
}

fn printed(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns true if O_DIRECT works in the temporary directory, which it does not on tmpfs of old
/// kernels.
fn direct_works(place: &Place) -> bool {
    let probe = place.path("probe");
    std::fs::write(&probe, [0; 4096]).expect("the folder can be written");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let works = rustix::fs::open(&probe, flags, rustix::fs::Mode::empty()).is_ok();
    std::fs::remove_file(&probe).expect("it was just made");
    works
}

#[test]
fn a_size_is_the_largest_or_rounded_down() {
    let place = Place::new();
    let error = place.refused(&["create", "--leg", "a", "--leg", "b"], 2);
    assert!(error.contains("a has no size yet") && error.contains("--size"), "{error}");
    for name in ["a", "b"] {
        let file = std::fs::File::create(place.path(name)).expect("the folder can be written");
        file.set_len(64 << 20).expect("it may be sparse");
    }
    let said = place.done(&["create", "--leg", "a", "--leg", "b"]);
    assert!(said.contains("  size 62MiB, "), "{said}");
    for name in ["a", "b"] {
        std::fs::remove_file(place.path(name)).expect("it is ours");
    }
    let said = place.done(&["create", "--size", "10MB", "--leg", "a", "--leg", "b"]);
    assert!(said.contains("10MB was rounded down to a multiple of 4096 bytes"), "{said}");
    assert!(said.contains("  size 9764KiB, "), "{said}");
    let error = place.refused(&["create", "--size", "100", "--leg", "c", "--leg", "d"], 2);
    assert!(error.contains("100"), "{error}");
    for name in ["a", "b"] {
        let file = std::fs::File::options().write(true).open(place.path(name));
        file.and_then(|file| file.set_len(64 << 20)).expect("it is ours");
    }
    let said = place.done(&["grow", "--leg", "a", "--leg", "b", "--size", "20MB"]);
    let grown =
        "has grown from 9764KiB to 19528KiB (20MB rounded down to a multiple of 4096 bytes)";
    assert!(said.contains(grown), "{said}");
}

struct Served<'a> {
    place: &'a Place,
    child: Child,
}

impl<'a> Served<'a> {
    fn start(place: &'a Place, mut command: Command) -> Served<'a> {
        let log = std::fs::File::create(place.path("log")).expect("the folder can be written");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("hemi can be run");
        let mut served = Served { place, child };
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(place.control()).is_err() {
            let ended = served.child.try_wait().expect("it is ours");
            assert!(ended.is_none() && Instant::now() < end, "hemi serve: {}", served.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        served
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> String {
        let mut all = arguments.to_vec();
        let control = self.place.control();
        all.extend(["--control", control.to_str().expect("the path is text")]);
        self.place.done(&all)
    }

    fn command_refused(&self, arguments: &[&str], code: i32) -> String {
        let mut all = arguments.to_vec();
        let control = self.place.control();
        all.extend(["--control", control.to_str().expect("the path is text")]);
        self.place.refused(&all, code)
    }

    /// Returns the status, once hemi has the time to answer: the command gives up after ten
    /// seconds.
    fn status(&self) -> Value {
        let control = self.place.control();
        let control = control.to_str().expect("the path is text");
        let end = Instant::now() + PATIENCE;
        loop {
            let output = self.place.run(&["status", "--json", "--control", control]);
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).expect("status is JSON");
            }
            let text = printed(&output);
            let busy = text.contains("did not answer within") && Instant::now() < end;
            assert!(busy, "{text}\n{}", self.log());
        }
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < end, "never {what}: {status:#}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends SIGTERM for the `count`th time and waits until it is handled: the kernel merges a
    /// signal with a pending one of its kind.
    fn terminate_attended(&self, count: usize) {
        self.terminate();
        let end = Instant::now() + PATIENCE;
        while self.log().matches("stopping").count() < count {
            assert!(Instant::now() < end, "SIGTERM is not attended to: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.expect("a process has a number");
        rustix::process::kill_process(pid, signal).expect("it is ours");
    }

    fn wait_for_log(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "never {text:?} in the log: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn ended(mut self) -> i32 {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status.code().unwrap_or_else(|| panic!("{status}: {}", self.log()));
            }
            assert!(Instant::now() < end, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // It has ended already, or a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn leg_states(status: &Value) -> Vec<String> {
    let legs = status["legs"].as_array().cloned().unwrap_or_default();
    legs.iter().map(|leg| leg["state"].as_str().unwrap_or("").to_owned()).collect()
}

#[test]
fn a_volume_is_served_looked_at_and_closed() {
    let place = Place::new();
    if !direct_works(&place) {
        panic!("the temporary folder's file system has no O_DIRECT: set TMPDIR to one that has");
    }
    place.create();
    let served = place.serve(&[]);
    let status = served.wait_for("serving", |status| status["phase"] == "serving");
    assert_eq!(status["name"], "db");
    assert_eq!(status["size_bytes"], 32 << 20);
    assert_eq!(leg_states(&status), ["healthy", "healthy"]);
    let screen = served.command(&["status"]);
    assert!(screen.starts_with("db  32 MiB  healthy"), "{screen}");
    let list = served.command(&["leg", "list"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(served.command(&["scrub"]).contains("all legs of db are alike"));
    let error = served.command_refused(&["inject", "--leg", "0", "--freeze", "1s"], 1);
    assert!(error.contains("--allow-inject"), "{error}");

    let mut second = place.hemi();
    second.args(["serve", "--leg", "a", "--leg", "b", "--nbd", "unix:other", "--control", "c2"]);
    let second = second.output().expect("hemi can be run");
    assert_eq!(second.status.code(), Some(1));
    assert!(printed(&second).contains("in use by another hemi"), "{}", printed(&second));

    served.terminate();
    assert_eq!(served.ended(), 0);
    assert!(!place.control().exists(), "the socket's file goes");
    let inspection = place.done(&["inspect", "a", "b"]);
    assert_eq!(inspection.matches("state        closed").count(), 2, "{inspection}");
}

#[test]
fn legs_come_and_go_while_the_volume_is_served() {
    let place = Place::new();
    place.create();
    let served = place.serve(&[]);
    served.wait_for("serving", |status| status["phase"] == "serving");

    assert!(served.command(&["leg", "add", "c", "--name", "third"]).contains("being filled"));
    let all_healthy = |count: usize| {
        move |status: &Value| leg_states(status) == vec!["healthy".to_owned(); count]
    };
    let status = served.wait_for("three healthy legs", all_healthy(3));
    assert_eq!(status["legs"][2]["name"], "third");
    let error = served.command_refused(&["leg", "add", "c"], 3);
    assert!(error.contains("in use"), "{error}");
    let error = served.command_refused(&["leg", "remove", "2"], 1);
    assert!(error.contains("detach"), "{error}");
    let error = served.command_refused(&["leg", "replace", "2", "d"], 1);
    assert!(error.contains("leg 2 is still part of the volume"), "{error}");
    assert!(!place.path("d").exists(), "what was refused made nothing");
    let error = served.command_refused(&["leg", "replace", "5", "d"], 1);
    assert!(error.contains("slot 5 holds no leg"), "{error}");
    let error = served.command_refused(&["leg", "detach", "7"], 1);
    assert!(error.contains("hemi leg list"), "{error}");

    served.command(&["leg", "detach", "2"]);
    let status = served.status();
    assert_eq!(status["legs"][2]["out_reason"], "detached");
    assert_eq!(status["health"], "healthy", "the two others are all it needs");
    let error = served.command_refused(&["leg", "attach", "c"], 3);
    assert!(error.contains("--wipe"), "{error}");
    served.command(&["leg", "attach", "c", "--wipe"]);
    served.wait_for("three healthy legs again", all_healthy(3));
    served.command(&["leg", "detach", "2"]);
    served.command(&["leg", "replace", "2", "d"]);
    served.wait_for("the new leg filled", all_healthy(3));
    served.command(&["leg", "detach", "1"]);
    served.command(&["leg", "remove", "1"]);
    let status = served.wait_for("two legs", all_healthy(2));
    assert_eq!(status["legs"][1]["leg"], 2);

    served.command(&["leg", "detach", "2"]);
    let error = served.command_refused(&["leg", "detach", "0"], 3);
    assert!(error.contains("no other leg in use") && error.contains("hemi leg add"), "{error}");
    assert!(!error.contains("Wait") && !error.contains("drain"), "{error}");
    let status = served.status();
    assert_eq!(status["degraded"], true);
    let risks = status["risks"].to_string();
    assert!(risks.contains("All data is on a (leg 0) alone"), "{risks}");
}

#[test]
fn a_leg_that_went_its_own_way_is_not_overwritten() {
    let place = Place::new();
    place.create();
    // Leg b decides alone, and is used, so it holds data that a does not.
    place.done(&["promote", "b", "--accept-loss"]);
    std::fs::copy(place.path("b"), place.path("alone")).expect("the folder can be written");
    place.done(&["promote", "a", "--accept-loss"]);
    let mut command = place.hemi();
    command.args(["serve", "--leg", "a", "--nbd", "unix:nbd", "--control"]).arg(place.control());
    let served = Served::start(&place, command);
    served.wait_for("serving", |status| status["phase"] == "serving");
    let error = served.command_refused(&["leg", "attach", "alone"], 3);
    assert!(error.contains("used without the other legs"), "{error}");
    assert!(error.contains("--wipe"), "{error}");
    let other = Place::new();
    other.create();
    let foreign = other.path("a");
    let foreign = foreign.to_str().expect("the path is text");
    let error = served.command_refused(&["leg", "attach", foreign], 3);
    assert!(error.contains("another volume"), "{error}");
    std::fs::write(place.path("noleg"), vec![1; 40 << 20]).expect("the folder can be written");
    let error = served.command_refused(&["leg", "attach", "noleg"], 2);
    assert!(error.contains("not a leg of any volume"), "{error}");
    let error = served.command_refused(&["leg", "add", "noleg"], 3);
    assert!(error.contains("--wipe"), "{error}");
    served.command(&["leg", "add", "noleg", "--wipe"]);
    served.wait_for("filled", |status| leg_states(status) == ["healthy", "out", "healthy"]);
}

#[test]
fn faults_show_and_stop_draining_is_bounded() {
    let place = Place::new();
    place.create();
    let served = place.serve(&["--allow-inject", "--drain-on-stop", "1h"]);
    served.wait_for("serving", |status| status["phase"] == "serving");
    for fault in [
        &["--delay", "20ms"][..],
        &["--delay", "0s"],
        &["--error", "read:0.5"],
        &["--error", "flush:0"],
        &["--stall", "reads:0.5,writes:1,by:10ms..20ms,for:1h", "--stall", "for:1m", "--seed", "7"],
        &["--experiment", "ebs-intermittent", "--time-scale", "0.1"],
        &["--clear"],
    ] {
        let mut arguments = vec!["inject", "--leg", "1"];
        arguments.extend(fault);
        served.command(&arguments);
    }
    let error = served.command_refused(&["inject", "--leg", "7", "--clear"], 1);
    assert!(error.contains("hemi leg list"), "{error}");
    served.command_refused(&["inject", "--leg", "1", "--delay", "2h"], 2);
    for (wrong, said) in [
        (&["--stall", "writes:1"][..], "phase 1 has no delay"),
        (&["--stall", "writes:2,by:1s"], "a share of 2"),
        (&["--stall", "writes:1,by:2h"], "7200 s"),
        (&["--stall", "writes=1"], "KEY:VALUE"),
        (&["--stall", "writes:1,by:1s", "--clear"], "--clear"),
        (&["--experiment", "ebs-none"], "ebs-sustained"),
        (&["--experiment", "ebs-sustained", "--time-scale", "0"], "time scale"),
        (&["--delay", "1ms", "--time-scale", "2"], "--time-scale"),
        (&["--delay", "1ms", "--seed", "2"], "--seed"),
    ] {
        let mut arguments = vec!["inject", "--leg", "1"];
        arguments.extend(wrong);
        let error = served.command_refused(&arguments, 2);
        assert!(error.contains(said), "{wrong:?}: {error}");
    }
    served
        .wait_for_log("stall requests of leg 1: reads:0.5,writes:1,by:10ms..20ms,for:1h; reads:0");
    served.wait_for_log("experiment ebs-intermittent on leg 1, 0.1 times its length, seed 0");
    served.command(&["inject", "--leg", "1", "--freeze", "1h"]);
    served.wait_for_log("freeze leg 1 for 1h");
    assert!(!served.log().contains("Inject {"), "the log is for people: {}", served.log());
    served.terminate_attended(1);
    served.terminate();
    assert_eq!(served.ended(), 0);
}

#[test]
fn refusals_have_their_exit_codes() {
    let place = Place::new();
    place.create();
    let error = place.refused(&["create", "--size", "32M", "--leg", "a", "--leg", "c"], 3);
    assert!(error.contains("\"db\"") && error.contains("--wipe a"), "{error}");
    place.refused(&["create", "--size", "32M", "--leg", "c"], 2);
    place.refused(&["create", "--size", "3333", "--leg", "c", "--leg", "d"], 2);
    let error = place.refused(&["serve", "--leg", "a", "--control", "x"], 3);
    assert!(error.contains("promote"), "{error}");
    let error = place.refused(&["serve", "--leg", "a", "--leg", "b", "--volume", "x"], 3);
    assert!(error.contains("\"db\""), "{error}");
    let error = place.refused(&["serve", "--leg", "a", "--leg", "none"], 3);
    assert!(error.contains("leg none is absent"), "{error}");
    let error = place.refused(&["serve", "--leg", "a", "--leg", "b", "--set", "x=1"], 2);
    assert!(error.contains("unknown field `x`"), "{error}");
    place.refused(&["serve"], 2);
    let error = place.refused(&["promote", "a"], 3);
    assert!(error.contains("--accept-loss"), "{error}");
    let control = place.path("nowhere");
    let control = control.to_str().expect("the path is text");
    let error = place.refused(&["status", "--control", control], 1);
    assert!(error.contains("cannot reach hemi"), "{error}");
}

#[test]
fn the_effective_configuration_can_be_printed_and_served() {
    let place = Place::new();
    place.create();
    let config = place.done(&[
        "serve",
        "--leg",
        "a",
        "--leg",
        "b",
        "--nbd",
        "unix:nbd",
        "--control",
        "control",
        "--set",
        "engine.wait.floor=7ms",
        "--print-config",
    ]);
    assert!(config.contains("floor = \"7ms\""), "{config}");
    std::fs::write(place.path("db.toml"), &config).expect("the folder can be written");
    assert!(place.done(&["config", "check", "db.toml"]).contains("ok"));
    assert_eq!(place.done(&["config", "check", "db.toml", "--print"]), config);

    let mut command = place.hemi();
    command.args(["serve", "db.toml", "--log-format", "json"]);
    let served = Served::start(&place, command);
    let control = UnixStream::connect(place.control());
    let mut control = control.expect("it listens");
    control
        .write_all(b"GET /v1/config HTTP/1.1\r\nhost: hemi\r\nconnection: close\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    control.read_to_string(&mut answer).expect("it answers");
    assert!(answer.contains("\"floor\":\"7ms\""), "{answer}");
    served.terminate();
    let log = place.path("log");
    assert_eq!(served.ended(), 0);
    for line in std::fs::read_to_string(log).expect("it was written").lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

/// systemd gets its notifications, in order.
#[test]
fn systemd_hears_of_ready_status_watchdog_and_stopping() {
    let place = Place::new();
    place.create();
    let socket = place.path("notify");
    let notify = UnixDatagram::bind(&socket).expect("the folder can be written");
    notify.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let mut command = place.hemi();
    command.args(["serve", "--leg", "a", "--leg", "b", "--nbd", "unix:nbd", "--control"]);
    command.arg(place.control()).env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "1000000");
    let served = Served::start(&place, command);
    let mut heard = String::new();
    let mut hear = |what: &str| {
        let mut part = [0; 4096];
        while !heard.contains(what) {
            let count = notify.recv(&mut part).unwrap_or_else(|error| {
                panic!("never {what}: {error}; heard {heard}");
            });
            heard.push_str(&String::from_utf8_lossy(&part[..count]));
            heard.push('\n');
        }
    };
    hear("READY=1");
    hear("STATUS=db (32 MiB): healthy");
    hear("WATCHDOG=1");
    served.terminate();
    hear("STOPPING=1");
    assert_eq!(served.ended(), 0);
}

#[test]
fn the_version_names_the_commit_and_the_disk_format() {
    let place = Place::new();
    let number = env!("CARGO_PKG_VERSION");
    assert_eq!(place.done(&["-V"]), format!("hemi {number}\n"));
    let version = place.done(&["--version"]);
    assert!(version.starts_with(&format!("hemi {number} (commit ")), "{version}");
    assert!(version.ends_with(", disk format 1)\n"), "{version}");
    let head = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"])
        .output()
        .ok()
        .filter(|output| output.status.success());
    let built = version.split("commit ").nth(1).and_then(|rest| rest.split(',').next());
    match (head, built) {
        (Some(head), Some(built)) if !built.starts_with("unknown") => {
            assert!(String::from_utf8_lossy(&head.stdout).starts_with(built), "{version}");
        }
        // It was built from an archive, perhaps unpacked inside another checkout.
        _ => assert!(version.contains("commit unknown"), "{version}"),
    }
}

#[test]
fn man_pages_and_completions_are_made() {
    let place = Place::new();
    let man = place.path("man");
    let man_text = man.to_str().expect("the path is text");
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    place.done(&["generate", "man", "--docs", docs, man_text]);
    for page in ["hemi.1", "hemi-serve.1", "hemi-leg.1", "hemi-promote.1", "hemi.toml.5"] {
        let text = std::fs::read_to_string(man.join(Path::new(page))).unwrap_or_default();
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{page}: {text}");
    }
    let text = place.refused(&["generate", "man", man_text], 1);
    assert!(text.contains("docs/commands/create.md (--docs)"), "{text}");
    assert!(!man.join("hemi-generate.1").exists(), "it is for packagers");
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.done(&["generate", "completions", shell]).contains("promote"), "{shell}");
    }
}

#[test]
fn inspecting_what_is_no_leg_fails_after_showing_what_there_is() {
    let place = Place::new();
    place.create();
    std::fs::write(place.path("other"), [0; 1 << 20]).expect("the folder can be written");
    let text = place.refused(&["inspect", "a", "other"], 1);
    assert!(text.contains("state        closed"), "{text}");
    assert!(text.contains("no leg of a hemi volume can be read at other"), "{text}");
    let text = place.refused(&["inspect", "--json", "other"], 1);
    assert!(text.contains("\"superblock\": null"), "{text}");
    place.done(&["inspect", "a", "b"]);
}

/// A terminal that closes sends HUP.
#[test]
fn a_hangup_does_not_end_the_volume() {
    let place = Place::new();
    place.create();
    // The control socket is bound before anything else that can be seen.
    let served = place.serve(&[]);
    served.signal(rustix::process::Signal::HUP);
    served.wait_for_log("HUP");
    served.wait_for("serving", |status| status["phase"] == "serving");
    served.signal(rustix::process::Signal::HUP);
    served.wait_for("still serving", |status| status["phase"] == "serving");
    served.terminate();
    assert_eq!(served.ended(), 0);
    let inspection = place.done(&["inspect", "a", "b"]);
    assert_eq!(inspection.matches("state        closed").count(), 2, "{inspection}");
}

/// Gives both legs of a volume another name, as a hemi that did not check it could have.
fn rename(place: &Place, name: &str) {
    use hemi_engine::format::{Layout, Superblock};
    for leg in ["a", "b"] {
        let mut bytes = std::fs::read(place.path(leg)).expect("the leg is a file");
        for slot in [0, 1] {
            let start = usize::try_from(Layout::superblock_address(slot)).expect("it is small");
            let block = bytes[start..].first_chunk_mut().expect("a leg is larger");
            let mut superblock = Superblock::decode(block, slot).expect("both slots are written");
            superblock.name =
                hemi_engine::format::superblock::Name::new(name).expect("it is short");
            superblock.encode(block, slot);
        }
        std::fs::write(place.path(leg), bytes).expect("the folder can be written");
    }
}

#[test]
fn a_name_from_a_disk_does_not_leave_the_run_directory() {
    let place = Place::new();
    for name in ["a/b", "../../x/evil", ".", ".."] {
        let error = place
            .refused(&["create", "--size", "32M", "--leg", "a", "--leg", "b", "--name", name], 2);
        assert!(error.contains(&format!("--name {name:?}")), "{error}");
        assert!(!place.path("a").exists(), "what was refused created nothing");
    }
    place.create();
    // The run directory may be the machine's.
    let evil = format!("evil{}", std::process::id());
    let name = format!("../{evil}");
    rename(&place, &name);
    let mut command = place.hemi();
    command.args(["serve", "--leg", "a", "--leg", "b"]);
    let log = std::fs::File::create(place.path("log")).expect("the folder can be written");
    let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("hemi can be run");
    let served = Served { place: &place, child };
    served.wait_for_log("control socket");
    let directories = [PathBuf::from("/run/hemi"), place.path("hemi")];
    for file in [format!("_._{evil}.sock"), format!("_._{evil}.nbd")] {
        assert!(served.log().contains(&format!("hemi/{file}")), "no {file}: {}", served.log());
        let is_there = directories.iter().any(|directory| directory.join(&file).exists());
        assert!(is_there, "no {file} in {directories:?}");
    }
    let status = place.done(&["status", "--json", "--volume", &name]);
    assert!(status.contains(&format!("\"../{evil}\"")), "{status}");
    served.terminate();
    assert_eq!(served.ended(), 0);
}

/// The quick start names sockets in a directory that does not exist before the first volume.
#[test]
fn the_directories_of_sockets_are_created() {
    let place = Place::new();
    place.create();
    let mut command = place.hemi();
    command.args(["serve", "--leg", "a", "--leg", "b", "--nbd", "unix:run/nbd/db.sock"]);
    command.args(["--control", "run/control/db.ctl"]);
    let log = std::fs::File::create(place.path("log")).expect("the folder can be written");
    let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("hemi can be run");
    let served = Served { place: &place, child };
    served.wait_for_log("control socket");
    assert!(place.path("run/nbd/db.sock").exists());
    place.done(&["status", "--control", "run/control/db.ctl"]);
    let error = place.refused(&["status", "--control", "run/nbd/db.sock"], 1);
    assert!(error.contains("is not a control socket"), "{error}");
    served.terminate();
    assert_eq!(served.ended(), 0);
    let long = "x".repeat(120);
    let error = place.refused(&["serve", "--leg", "a", "--leg", "b", "--control", &long], 2);
    assert!(error.contains("has 120 bytes") && error.contains("at most 107"), "{error}");
}

#[test]
fn a_check_of_the_configuration_reports_what_the_machine_lacks() {
    let place = Place::new();
    place.create();
    let write = |text: &str| {
        std::fs::write(place.path("db.toml"), text).expect("the folder can be written");
    };
    let legs = "[[legs]]\npath = \"a\"\n[[legs]]\npath = \"b\"\n";
    write(&format!("control = \"run/control\"\n{legs}"));
    assert!(place.done(&["config", "check", "db.toml"]).contains("ok"));
    assert!(place.done(&["config", "check", "--probe", "db.toml"]).contains("ok"));

    write(&format!(
        "control = \"a\"\n{}[[exports]]\nnbd = \"tcp:localhost:0\"\n\
         tls = {{ cert = \"no-cert.pem\", key = \"no-key.pem\" }}\n",
        legs.replace("\"b\"", "\"gone\"")
    ));
    let error = place.refused(&["config", "check", "db.toml"], 1);
    for part in [
        "legs[1].path: there is no file or device gone",
        "exports[0].tls: no-cert.pem",
        "control: a exists and is not a socket",
        "3 problems on this machine",
    ] {
        assert!(error.contains(part), "no {part:?}: {error}");
    }

    // Only --probe reads the legs and tries the ports.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = taken.local_addr().expect("it is bound").port();
    std::fs::write(place.path("c"), "hello world").expect("the folder can be written");
    let legs = legs.replace("\"b\"", "\"c\"\ndirect = false");
    write(&format!("control = \"control\"\nhttp = \"127.0.0.1:{port}\"\n{legs}"));
    assert!(place.done(&["config", "check", "db.toml"]).contains("ok"));
    let error = place.refused(&["config", "check", "--probe", "db.toml"], 1);
    assert!(error.contains("legs[1].path: c: there is no hemi superblock"), "{error}");
    assert!(error.contains(&format!("http: cannot listen on port {port}")), "{error}");
}

#[test]
fn what_is_missing_or_something_else_is_told_so() {
    let place = Place::new();
    std::fs::write(place.path("text"), "hello world").expect("the folder can be written");
    let error = place.refused(&["promote", "--no-direct", "text"], 1);
    assert!(error.contains("there is no hemi superblock"), "{error}");
    assert!(!error.contains("blank"), "{error}");
    std::fs::write(place.path("zeros"), [0; 1 << 20]).expect("the folder can be written");
    let error = place.refused(&["promote", "--no-direct", "zeros"], 1);
    assert!(error.contains("only zeros"), "{error}");

    let error = place.refused(&["trace", "convert", "nosuch", "out", "--to", "csv"], 1);
    assert!(error.contains("nosuch does not exist"), "{error}");
    let disksim = ["trace", "convert", "text", "out", "--to", "csv", "--from", "disksim"];
    let error = place.refused(&disksim, 2);
    assert!(error.contains("--time-unit"), "{error}");
    let error = place.refused(&["trace", "convert", "text", "out", "--to", "csv"], 2);
    assert!(error.contains("text is in no format") && error.contains("--from"), "{error}");

    let workload = "[workload.closed]\nthreads = 1\nqueue_depth = 1\nrequests = 9\n\
                    access = { addresses = \"uniform\", sizes = \"4 KiB\", \
                    mix = { read_percent = 100 } }\n";
    std::fs::write(place.path("load.toml"), workload).expect("the folder can be written");
    let error = place.refused(&["load", "load.toml", "--target", "nosuch"], 2);
    assert!(error.contains("nosuch does not exist"), "{error}");
    let error = place.refused(&["load", "load.toml", "--target", "."], 2);
    assert!(error.contains("a target is a regular file"), "{error}");
    let error = place.refused(&["serve", "--leg", "a", "--leg", "b", "--log", "x=y=z"], 2);
    assert!(error.contains("--log x=y=z"), "{error}");
}

/// A supervisor may change its mind as soon as it sees the volume.
#[test]
fn a_stop_in_the_first_moment_closes_clean() {
    let place = Place::new();
    place.create();
    for _ in 0..10 {
        let mut command = place.hemi();
        command.args(["serve", "--leg", "a", "--leg", "b", "--nbd", "unix:nbd"]);
        command.arg("--control").arg(place.control());
        let log = std::fs::File::create(place.path("log")).expect("the folder can be written");
        let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("hemi can be run");
        let served = Served { place: &place, child };
        let end = Instant::now() + PATIENCE;
        while !place.control().exists() {
            assert!(Instant::now() < end, "hemi serve: {}", served.log());
            std::hint::spin_loop();
        }
        served.terminate();
        let log = place.path("log");
        assert_eq!(served.ended(), 0, "{}", std::fs::read_to_string(log).unwrap_or_default());
        let inspection = place.done(&["inspect", "a", "b"]);
        assert_eq!(inspection.matches("state        closed").count(), 2, "{inspection}");
    }
}
