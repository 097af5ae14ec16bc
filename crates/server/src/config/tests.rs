use std::path::Path;

use hemi_engine::settings::{ExposureMode, FlushCopies};

use super::exports::Listen;
use super::*;
use hemi_io::config::legs::LegSpec;

const FULL: &str = r#"
volume = "db"
control = "/run/hemi/db.sock"
http = "127.0.0.1:9188"
http_token_file = "/etc/hemi/db.token"
buffer_budget = "512MiB"
allow_inject = true
drain_on_stop = "1m"

legs = [
    "/dev/nvme0n1",
    { path = "nbd+unix:///?socket=/run/remote.sock", name = "remote", quarantine = "30s" },
    { path = "stripe:/dev/sdb,/dev/sdc", direct = false },
]

[[exports]]
nbd = "unix:/run/hemi/db.nbd"

[[exports]]
nbd = "tcp:0.0.0.0:10809"
name = "db"
read_only = true
tls = { cert = "/etc/hemi/cert.pem", key = "/etc/hemi/key.pem", client_ca = "/etc/hemi/ca.pem" }
limits = { connections_max = 8 }

[engine]
policy = "paper"
flush_copies = "all"

[engine.exposure]
bytes = "1GiB"
mode = "fall-behind"

[engine.wait]
floor = "5ms"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("test.toml"), &[])
}

fn refused(text: &str) -> String {
    match parse(text).and_then(|config| config.check().map(|()| config)) {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_full_file_says_all_it_says() {
    let config = parse(FULL).unwrap_or_else(|error| panic!("{error}"));
    config.check().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.legs.len(), 3);
    assert_eq!(config.legs[0], LegConfig::new(LegSpec::Path("/dev/nvme0n1".into())));
    assert_eq!(config.legs[1].quarantine, Some(Time::seconds(30)));
    assert_eq!(config.legs[1].label(), "remote");
    assert!(!config.legs[2].direct);
    assert_eq!(config.exports[1].nbd, Listen::Tcp { host: "0.0.0.0".into(), port: 10809 });
    assert!(config.exports[1].tls.as_ref().is_some_and(|tls| tls.required));
    assert_eq!(config.exports[1].limits.connections_max, 8);
    assert_eq!(config.exports[1].limits.request_bytes_max, Size::mib(32));
    let settings = config.engine.settings();
    assert_eq!(settings.flush_copies, FlushCopies::All);
    assert_eq!(settings.exposure_mode, ExposureMode::FallBehind);
    assert_eq!(settings.exposure_bytes, 1 << 30);
    assert_eq!(settings.exposure_age, 5_000_000_000, "an absent key keeps its default");
    assert_eq!(settings.wait_floor, 5_000_000);
}

#[test]
fn what_is_printed_is_what_was_read() {
    let config = parse(FULL).unwrap_or_else(|error| panic!("{error}"));
    let printed = config.to_toml();
    let again = parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(again, config, "{printed}");
}

#[test]
fn defaults_pass_with_legs() {
    let config = parse("legs = ['/a', '/b']").unwrap_or_else(|error| panic!("{error}"));
    config.check().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn errors_of_form_show_their_place() {
    for (text, part) in [
        ("legs = ['/a']\nbuffer = '1MiB'", "unknown field `buffer`"),
        ("[engine]\nwait_floor = '5ms'", "unknown field `wait_floor`"),
        ("[engine.wait]\nfloor = '5'", "`5` is not a duration"),
        ("[engine.wait]\nfloor = 5", "a duration with its unit"),
        ("[engine]\nwait = 3", "invalid type: integer `3`, expected a table"),
        ("[engine]\npolicy = 'fastest'", "unknown variant `fastest`"),
        ("[engine]\nflush_copies = 9", "a number of legs from 1 to 8, or \"all\""),
        ("legs = ['stripe:/a']", "2 to 16 devices, not 1"),
        ("legs = [{ name = 'x' }]", "missing field `path`"),
        ("legs = [{ path = '/a', quarantin = '3s' }]", "unknown field `quarantin`"),
        ("[[exports]]\nnbd = '/run/a'", "write unix:PATH or tcp:"),
        ("http = 'localhost'", "the port is missing"),
        ("legs = ", "test.toml"),
    ] {
        let error = refused(text);
        assert!(error.contains(part), "{text}: {error}");
        assert!(error.contains("test.toml:"), "{text}: {error}");
    }
}

#[test]
fn all_faults_are_told_in_the_order_of_the_file() {
    let text = "\
volum = 'db'
legs = ['/a', 'stripe:/b', { path = '/c', quarantine = '1s' }, '/a']
buffer_budget = '1MiB'
[engine]
leg_window = -1
out_after = '1s'
policy = 'fastest'
[engine.wait]
floor = '5'
flor = '5ms'
[[exports]]
nbd = 'unix:/x'
[[exports]]
name = 'y'
[[exports]]
nbd = 'unix:/x'
";
    let error = refused(text);
    let starts = [
        "12 faults:",
        "test.toml:1:1: unknown field `volum`, expected one of `volume`",
        "test.toml:2:15: legs[1]: leg `stripe:/b`",
        "test.toml:2:43: legs[2].quarantine: /c is local",
        "test.toml:2:64: legs[3].path: /a is named twice",
        "test.toml:3:1: buffer_budget = 1MiB is out of range: allowed are 16MiB to 64GiB",
        "test.toml:5:14: engine.leg_window: invalid value: integer `-1`, a whole number up to 4294967295",
        "test.toml:6:1: engine.out_after: 1s is not above engine.wait.ceiling (1s)",
        "test.toml:7:10: engine.policy: unknown variant `fastest`",
        "test.toml:9:9: engine.wait.floor: `5` is not a duration",
        "test.toml:10:1: unknown field `flor`",
        "test.toml:13:1: exports[1]: missing field `nbd`",
        "test.toml:16:1: exports[2].nbd: unix:/x is listened on by another export",
    ];
    let lines: Vec<&str> = error.lines().collect();
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n is not {start}\n in\n{error}");
    }
    assert_eq!(lines.len(), starts.len(), "{error}");
}

/// A value that is refused for its form has no second fault for a default in its place.
#[test]
fn a_fault_that_follows_from_another_is_not_told() {
    let error = refused("legs = ['stripe:/a']\n[engine]\nout_after = '1s'\nwait.ceiling = 5\n");
    assert_eq!(error.lines().count(), 3, "{error}");
    let error = refused("legs = [\nvolume = 'x'\n");
    assert!(error.contains("test.toml:2:") && !error.contains("TOML parse error"), "{error}");
}

/// A fault that a file has by itself is told with its place, and one that the command line added without.
#[test]
fn faults_of_sense_have_a_place_if_the_file_has_them() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(file.path(), "legs = ['/a']\n[engine]\nleg_window = 0\n").expect("it is ours");
    let mut config =
        Config::load(file.path(), &["buffer_budget=1".into()]).expect("its form is sound");
    config.start_degraded = true;
    let error = config.check().expect_err("it has three faults").to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "3 faults:");
    assert!(lines[1].starts_with("buffer_budget = 1 is out of range"), "{error}");
    assert!(lines[2].starts_with("start_degraded: "), "{error}");
    let place = format!("{}:3:1: engine.leg_window = 0 is out", file.path().display());
    assert!(lines[3].starts_with(&place), "{error}");
}

#[test]
fn errors_of_sense_name_key_value_and_way_out() {
    let legs = "legs = ['/a', '/b']\n";
    for (text, part) in [
        ("", "legs: none is named"),
        ("legs = ['/a','/a']", "legs[1].path: /a is named twice"),
        ("legs = ['/a','stripe:/b,/a']", "legs[1].path: /a is part of /a already"),
        ("legs = ['1','2','3','4','5','6','7','8','9']", "legs: 9 are named"),
        ("legs = [{path='/a',name='x'},{path='/b',name='x'}]", "`x` is the name of two legs"),
        ("legs = [{path='/a',quarantine='1s'}]", "legs[0].quarantine: /a is local"),
        ("legs = [{path='/a',connections=2}]", "legs[0].connections: /a is local"),
        ("legs = [{path='nbd://h/',connections=9}]", "legs[0].connections: 9 is out of range"),
        ("legs = [{path='nbd://h/',direct=false}]", "legs[0].direct: nbd://h/ is remote"),
        (
            "buffer_budget = '1MiB'",
            "buffer_budget = 1MiB is out of range: allowed are 16MiB to 64GiB (default 256MiB)",
        ),
        (
            "[engine]\nleg_window = 0",
            "engine.leg_window = 0 is out of range: allowed are 1 to 1024",
        ),
        ("[engine]\ndrain_bytes = 65537", "engine.drain_bytes: 65537 is not a multiple of 4096"),
        ("[engine.wait]\nfloor='2s'", "engine.wait.ceiling: 1s is below engine.wait.floor (2s)"),
        ("[engine]\nout_after='1s'", "engine.out_after: 1s is not above engine.wait.ceiling (1s)"),
        (
            "[engine]\npolicy='write-behind'\nflush_copies=2",
            "engine.flush_copies: policy write-behind flushes all legs",
        ),
        (
            "[[exports]]\nnbd='unix:/x'\n[[exports]]\nnbd='unix:/x'",
            "exports[1].nbd: unix:/x is listened on",
        ),
        (
            "[[exports]]\nnbd='unix:/x'\nlimits={connections_max=0}",
            "exports[0].limits.connections_max = 0 is out of range",
        ),
        (
            "[[exports]]\nnbd='unix:/x'\nlimits={in_flight_bytes_max='1MiB'}",
            "exports[0].limits.in_flight_bytes_max: 1MiB is less than request_bytes_max (32MiB)",
        ),
        ("http = '0.0.0.0:9188'", "http: 0.0.0.0:9188 can be reached from other machines"),
        ("http = '[fe80::1%eth0]:9188'", "or listen on a loopback address, such as 127.0.0.1:9188"),
        (
            "http_public = true",
            "http_public: other machines may only reach a listener that asks for a token",
        ),
    ] {
        let whole = if text.is_empty() || text.starts_with("legs") {
            text.to_owned()
        } else {
            format!("{legs}{text}")
        };
        let error = refused(&whole);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn assignments_reach_every_key() {
    let set = |assignments: &[&str]| {
        let overrides: Vec<String> = assignments.iter().map(|&text| text.to_owned()).collect();
        Config::parse(FULL, Path::new("test.toml"), &overrides)
    };
    let config = set(&[
        "engine.wait.floor=7ms",
        "engine.flush_copies=2",
        "engine.exposure.age=\"9s\"",
        "allow_inject=false",
        "buffer_budget=1G",
        "legs=['/x', '/y']",
        "http=[::1]:80",
    ])
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.engine.wait.floor, Time::millis(7));
    assert_eq!(config.engine.flush_copies.0, FlushCopies::Count(2));
    assert_eq!(config.engine.exposure.age, Time::seconds(9));
    assert_eq!(config.buffer_budget, Size::gib(1));
    assert_eq!(config.legs.len(), 2);
    assert_eq!(config.http.map(|http| http.to_string()), Some("[::1]:80".into()));

    for (assignment, part) in [
        ("engine.wait.flor=7ms", "--set engine.wait.flor=7ms: unknown field `flor`"),
        ("engine.wait.floor", "write KEY=VALUE"),
        ("=3", "the key is empty"),
        ("buffer_budget.x=3", "`buffer_budget` is no table"),
        ("buffer_budget=lots", "`lots` is not a size"),
    ] {
        let error = set(&[assignment]).expect_err(assignment).to_string();
        assert!(error.contains(part), "{assignment}: {error}");
    }
}

/// The documentation's table lists every bounded option with its default and range.
#[test]
fn the_documentation_has_every_bound() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&page).expect("docs/configuration.md is in the tree");
    let config =
        Config { exports: vec![ExportConfig::new(Listen::Unix("/x".into()))], ..Config::default() };
    for bound in config.bounds().list {
        let key = bound.key.replace("exports[0].", "");
        let row =
            format!("| `{key}` | {} | {} to {} |", bound.default, bound.lowest, bound.highest);
        assert!(text.contains(&row), "docs/configuration.md lacks the row beginning: {row}");
    }
}

/// The installed example states the defaults and is valid.
#[test]
fn the_packaged_example_is_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/hemi.toml");
    let config = Config::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
    config.check().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.engine, EngineConfig::default());
    assert_eq!(config.buffer_budget, Config::default().buffer_budget);
    assert_eq!(config.drain_on_stop, Config::default().drain_on_stop);
}
