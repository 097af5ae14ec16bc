//! Tests of the control API over a real socket, against a volume that records its requests.

use std::io;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hemi_engine::status::{LegState, LegStatus};
use serde_json::{Value, json};

use super::volume::{
    Fault, FaultyOperation, Identity, LegIdentity, Outcome, Phase, Refusal, RefusalKind, Request,
    Snapshot, Volume,
};
use super::{ControlThread, Listeners, named};
use crate::config::Config;
use crate::config::place::Place;
use hemi_io::config::legs::LegConfig;
use hemi_units::Time;

struct FakeVolume {
    snapshot: Mutex<Arc<Snapshot>>,
    asked: Mutex<Vec<Request>>,
    refusal: Option<Refusal>,
}

impl Volume for FakeVolume {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.lock().expect("no test panics with it").clone()
    }

    fn request(&self, request: Request) -> Outcome {
        self.asked.lock().expect("no test panics with it").push(request);
        let result = self.refusal.clone().map_or(Ok(()), Err);
        Box::pin(async { result })
    }
}

struct Served {
    directory: PathBuf,
    socket: PathBuf,
    volume: Arc<FakeVolume>,
    http: Option<std::net::SocketAddr>,
    thread: Option<ControlThread>,
}

impl Served {
    fn new(name: &str, config: Config, refusal: Option<Refusal>) -> Served {
        let directory =
            std::env::temp_dir().join(format!("hemi-{}-api-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let socket = directory.join("x.sock");
        let identity = Identity {
            name: "db".into(),
            id: [0xab; 16],
            size_bytes: 1 << 30,
            block_bytes: 512,
            region_bytes: 65536,
            ledger: crate::ledger::LedgerStatus::default(),
            given_up: None,
        };
        let legs = (0..2)
            .map(|leg| LegIdentity { leg, name: format!("l{leg}"), path: format!("/dev/l{leg}") })
            .collect();
        let mut snapshot = Snapshot::opening(identity, legs);
        snapshot.phase = Phase::Serving;
        snapshot.status.legs = (0..2)
            .map(|leg| LegStatus { leg, state: LegState::Healthy, ..Default::default() })
            .collect();
        let volume = Arc::new(FakeVolume {
            snapshot: Mutex::new(Arc::new(snapshot)),
            asked: Mutex::default(),
            refusal,
        });
        let config = Config { control: Some(socket.clone()), state: Place::None, ..config };
        let listeners = Listeners::bind(&config, "db").unwrap_or_else(|error| panic!("{error}"));
        let http = listeners.http_address();
        let thread = listeners
            .spawn(Arc::new(config), volume.clone())
            .unwrap_or_else(|error| panic!("{error}"));
        Served { directory, socket, volume, http, thread: Some(thread) }
    }

    fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        let mut held = self.volume.snapshot.lock().expect("no test panics with it");
        let mut snapshot = (**held).clone();
        change(&mut snapshot);
        *held = Arc::new(snapshot);
    }

    fn get(&self, path: &str) -> (u16, String) {
        let stream = UnixStream::connect(&self.socket).expect("control listens");
        exchange(stream, "GET", path, "")
    }

    fn post(&self, path: &str, body: &str) -> (u16, Value) {
        let stream = UnixStream::connect(&self.socket).expect("control listens");
        let (code, text) = exchange(stream, "POST", path, body);
        (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    fn asked(&self) -> Vec<String> {
        let asked = self.volume.asked.lock().expect("no test panics with it");
        asked.iter().map(|request| format!("{request:?}")).collect()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.stop();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn exchange(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: hemi\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // The server may answer and close before it has read the whole of a request it refuses.
    let is_closed = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    };
    stream
        .write_all(request.as_bytes())
        .or_else(|e| if is_closed(&e) { Ok(()) } else { Err(e) })
        .expect("the server reads");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .or_else(|e| if is_closed(&e) { Ok(0) } else { Err(e) })
        .expect("the server answers");
    let answer = String::from_utf8(answer).expect("an answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an HTTP answer has a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (code, body.to_owned())
}

#[test]
fn status_names_the_volume_and_its_legs() {
    let served = Served::new("status", Config::default(), None);
    let (code, text) = served.get("/v1/status");
    let status: super::api::VolumeStatus =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(code, 200);
    assert_eq!((status.name.as_str(), status.size_bytes), ("db", 1 << 30));
    assert_eq!(status.id, "abababab-abab-abab-abab-abababababab");
    assert_eq!(status.legs.len(), 2);
    assert_eq!(status.legs[1].name, "l1");
    assert_eq!(status.legs[1].path, "/dev/l1");
    let (code, legs) = served.get("/v1/legs");
    assert_eq!(code, 200);
    assert!(legs.starts_with('[') && legs.contains("\"l0\""), "{legs}");
}

#[test]
fn what_is_asked_of_another_volume_is_refused() {
    let served = Served::new("named", Config::default(), None);
    served.change(|snapshot| Arc::make_mut(&mut snapshot.identity).name = "my db".into());
    let connect = || UnixStream::connect(&served.socket).expect("control listens");
    assert_eq!(named::ask(&connect()), named::Answerer::Volume("my db".into()));
    let scrub = |volume: &str| {
        let mut stream = connect();
        let value = named::header_value(volume);
        let value = value.to_str().expect("it is ASCII");
        let head =
            "POST /v1/scrub HTTP/1.1\r\nhost: hemi\r\nconnection: close\r\ncontent-length: 0";
        write!(stream, "{head}\r\nhemi-volume: {value}\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let refused = scrub("my_db");
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    assert!(refused.contains(r#"the volume here is \"my db\", not \"my_db\""#), "{refused}");
    assert_eq!(served.asked(), Vec::<String>::new());
    let done = scrub("my db");
    assert!(done.starts_with("HTTP/1.1 200") && done.contains("hemi-volume: my%20db"), "{done}");
    assert_eq!(served.asked().len(), 1);

    // The file's name may be that of two volumes.
    let config = Config { control: Some(served.socket.clone()), ..Config::default() };
    let refused = Listeners::bind(&config, "my_db").expect_err("my db has it").to_string();
    assert!(refused.contains("the control socket of the volume \"my db\""), "{refused}");
    assert!(refused.contains("give \"my_db\" another with --control"), "{refused}");
    let refused = Listeners::bind(&config, "my db").expect_err("it is served").to_string();
    assert!(refused.contains("is in use: another process listens there"), "{refused}");
}

#[test]
fn the_stream_sends_a_line_at_a_time() {
    let served = Served::new("stream", Config::default(), None);
    let mut stream = UnixStream::connect(&served.socket).expect("control listens");
    write!(stream, "GET /v1/status/stream HTTP/1.1\r\nhost: hemi\r\n\r\n").expect("it reads");
    let mut seen = String::new();
    let mut part = [0; 4096];
    // The second line shows that the stream goes on.
    while seen.matches("\"version\"").count() < 2 {
        let count = stream.read(&mut part).expect("it sends");
        assert!(count > 0, "the stream ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&part[..count]));
    }
    assert!(seen.contains("application/x-ndjson"), "{seen}");
}

/// A path that no listener has is answered with 404, one that has another method with 405.
#[test]
fn pages_may_ask_for_what_there_is_and_not_for_what_is_the_sockets_alone() {
    let config = Config { allow_inject: true, ..Config::default() };
    let served = Served::new("pages", config, None);
    for path in super::routes::PAGE_PATHS {
        assert_ne!(served.post(path, "").0, 404, "{path}");
    }
    for path in ["/v1/upgrade", "/v1/shutdown", "/v1/config", "/v1/legs/add", "/v1/legs/remove"] {
        assert!(!super::is_for_pages(path), "{path}");
        assert_ne!(served.post(path, "{").0, 404, "{path} is there");
    }
}

#[test]
fn requests_reach_the_volume_as_sent() {
    let config = Config { allow_inject: true, ..Config::default() };
    let served = Served::new("requests", config, None);
    for (path, body) in [
        ("/v1/legs/add", json!({ "config": "/dev/new" })),
        ("/v1/legs/replace", json!({ "leg": 1, "config": { "path": "/dev/new", "name": "n" } })),
        ("/v1/legs/remove", json!({ "leg": 1 })),
        ("/v1/legs/detach", json!({ "leg": 0 })),
        ("/v1/legs/attach", json!({ "config": "/dev/old" })),
        ("/v1/scrub", json!({ "repair": true })),
        ("/v1/scrub", json!({ "stop": true })),
        ("/v1/inject", json!({ "leg": 0, "fault": { "freeze": { "duration": "2s" } } })),
        ("/v1/shutdown", json!({})),
        (
            "/v1/inject",
            json!({ "leg": 1, "fault": { "stall": { "phases": [
                { "reads": 0.5, "writes": 1, "by": "500ms", "for": "15m" }, { "for": "1m" },
            ] } } }),
        ),
        (
            "/v1/inject",
            json!({ "leg": 1, "fault": { "experiment": { "name": "ebs-sustained", "seed": 7 } } }),
        ),
    ] {
        let (code, answer) = served.post(path, &body.to_string());
        assert_eq!((code, answer), (200, json!({ "done": true })), "{path} {body}");
    }
    let (code, _) = served.post("/v1/scrub", "");
    assert_eq!(code, 200, "no body is an empty object");
    let asked = served.asked();
    for (index, part) in [
        (0, "Add { leg: None"),
        (1, "Replace { leg: 1"),
        (2, "Remove { leg: 1 }"),
        (3, "Detach { leg: 0 }"),
        (4, "Attach {"),
        (5, "Scrub { repair: Unreadable, part: None }"),
        (6, "ScrubStop"),
        (7, "Inject { leg: 0, fault: Freeze { duration: Time(2000000000) } }"),
        (8, "Shutdown { drain: Time(30000000000) }"),
        (9, "Inject { leg: 1, fault: Stall { phases: [PhaseSpec { reads: 0.5, writes: 1.0"),
        (
            10,
            "Inject { leg: 1, fault: Experiment { name: \"ebs-sustained\", time_scale: 1.0, \
             seed: 7 } }",
        ),
        (11, "Scrub { repair: Nothing, part: None }"),
    ] {
        assert!(asked[index].starts_with(part), "{index}: {}", asked[index]);
    }
}

#[test]
fn what_is_wrong_is_named_with_the_way_out() {
    let served = Served::new("wrong", Config::default(), None);
    for (path, body, code, error, what) in [
        ("/v1/legs/detach", "{", 400, "bad-request", "not understood"),
        ("/v1/legs/detach", "{}", 400, "bad-request", "missing field `leg`"),
        ("/v1/legs/detach", r#"{"leg":1,"x":2}"#, 400, "bad-request", "unknown field `x`"),
        ("/v1/legs/detach", r#"{"leg":300}"#, 400, "bad-request", "300"),
        ("/v1/legs/add", r#"{"config":"stripe:/a"}"#, 400, "bad-request", "stripe:/a"),
        ("/v1/scrub", r#"{"repair":true,"stop":true}"#, 400, "bad-request", "beside"),
        (
            "/v1/inject",
            r#"{"leg":0,"fault":{"freeze":{"duration":"2s"}}}"#,
            403,
            "forbidden",
            "may not be injected",
        ),
        ("/v1/nothing", "{}", 404, "not-found", "/v1/nothing"),
        ("/v1/status", "{}", 405, "bad-request", "POST"),
    ] {
        let (got, answer) = served.post(path, body);
        assert_eq!(got, code, "{path} {body}: {answer}");
        assert_eq!(answer["error"], error, "{path} {body}: {answer}");
        assert!(
            answer["what"].as_str().is_some_and(|text| text.contains(what)),
            "{path} {body}: {answer}"
        );
        assert!(answer["way_out"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    }
    assert_eq!(served.asked(), Vec::<String>::new(), "nothing wrong reached the volume");
    let huge = format!("{{\"leg\":1{}}}", " ".repeat(70 << 10));
    let stream = UnixStream::connect(&served.socket).expect("control listens");
    let (code, _) = exchange(stream, "POST", "/v1/legs/detach", &huge);
    assert_eq!(code, 413);
}

#[test]
fn a_refusal_keeps_its_kind() {
    for (kind, code, word) in [
        (RefusalKind::Unsafe, 409, "unsafe"),
        (RefusalKind::Conflict, 409, "conflict"),
        (RefusalKind::NotFound, 404, "not-found"),
        (RefusalKind::Closing, 503, "closing"),
        (RefusalKind::Failed, 500, "failed"),
    ] {
        let refusal = Refusal::new(kind, "what", "way");
        let served = Served::new(word, Config::default(), Some(refusal));
        let (got, answer) = served.post("/v1/legs/detach", r#"{"leg":0}"#);
        assert_eq!(got, code);
        assert_eq!(answer, json!({ "error": word, "what": "what", "way_out": "way" }));
    }
}

/// Returns a valid configuration with two legs.
fn of_two_legs() -> Config {
    let leg = |path: &str| LegConfig::new(path.parse().expect("a path is a leg"));
    Config { legs: vec![leg("/dev/a"), leg("/dev/b")], ..Config::default() }
}

#[test]
fn settings_change_together_or_not_at_all() {
    let served = Served::new("set", of_two_legs(), None);
    let value = |key: &str| {
        let (code, text) = served.get("/v1/settings");
        assert_eq!(code, 200);
        let list: Vec<crate::config::live::Setting> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let found = list.into_iter().find(|setting| setting.key == key);
        found.expect(key).value.expect("it has a value")
    };
    let set = |body: Value| served.post("/v1/set", &body.to_string());
    let done = (200, json!({ "done": true }));
    assert_eq!(value("engine.exposure.bytes"), "256MiB");
    assert_eq!(set(json!({ "key": "exposure", "value": "64MiB" })), done);
    assert_eq!(value("engine.exposure.bytes"), "64MiB");
    let (_, status) = served.get("/v1/status");
    assert!(status.contains("\"policy\":\"first\""), "{status}");
    let both = json!({ "values": { "engine.policy": "paper", "engine.wait.multiple": 5 } });
    assert_eq!(set(both), done);
    assert_eq!(
        (value("engine.policy"), value("engine.wait.multiple")),
        ("paper".into(), "5".into())
    );
    let (_, status) = served.get("/v1/status");
    assert!(status.contains("\"policy\":\"paper\""), "{status}");
    assert_eq!(set(json!({ "key": "drain_on_stop", "value": "2s" })), done);
    assert_eq!(served.post("/v1/shutdown", "{}").0, 200);
    let asked = served.asked();
    assert!(asked[0].contains("exposure_bytes: 67108864"), "{}", asked[0]);
    assert!(asked[3].starts_with("Shutdown { drain: Time(2000000000) }"), "{}", asked[3]);
    for (body, code, what) in [
        (json!({}), 400, "`key` and `value`"),
        (json!({ "key": "engine.policy" }), 400, "`key` and `value`"),
        (json!({ "key": "exposure", "value": "1K" }), 400, "out of range"),
        (json!({ "key": "exposre", "value": "1K" }), 400, "did you mean engine.exposure.bytes"),
        (json!({ "key": "buffer_budget", "value": "1G" }), 409, "allocated and registered"),
        (
            json!({ "values": { "exposure": "32MiB", "engine.wait.floor": "x" } }),
            400,
            "engine.wait.floor=x",
        ),
    ] {
        let (got, answer) = set(body);
        assert_eq!(got, code, "{answer}");
        assert!(answer["what"].as_str().is_some_and(|text| text.contains(what)), "{answer}");
    }
    assert_eq!(value("engine.exposure.bytes"), "64MiB", "nothing of it was done");
    assert_eq!(served.asked().len(), 4, "nothing wrong reached the volume");
}

/// A setting that the engine refuses is not shown as if it were in force.
#[test]
fn a_setting_that_the_engine_refuses_stays() {
    let refusal = Refusal::new(RefusalKind::Closing, "what", "way");
    let served = Served::new("set-refused", of_two_legs(), Some(refusal));
    assert_eq!(served.post("/v1/set", r#"{"key":"exposure","value":"64MiB"}"#).0, 503);
    assert!(served.get("/v1/config").1.contains("256MiB"));
}

/// Drains and scrubs report their rate and the time left.
#[test]
fn work_under_way_says_when_it_will_end() {
    const MIB: u64 = 1 << 20;
    let served = Served::new("work", Config::default(), None);
    let start = Instant::now();
    // Samples come twice a second, as the snapshots of a busy volume do.
    for step in 0..9_u64 {
        served.change(|snapshot| {
            snapshot.taken = start + std::time::Duration::from_millis(500 * step);
            snapshot.status.scrub = Some((step * 2048, 64 * 2048));
            let leg = &mut snapshot.status.legs[1];
            leg.state = LegState::Out;
            leg.out_reason = Some(hemi_engine::io::OutReason::Joining);
            (leg.owed_bytes, leg.owed_region_bytes) = ((512 - 8 * step) * MIB, 400 * MIB);
            leg.drained_bytes = 8 * step * MIB;
        });
        std::thread::sleep(super::history::SAMPLE_EVERY);
    }
    let (_, text) = served.get("/v1/status");
    let status: super::api::VolumeStatus =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let leg = &status.legs[1];
    // The volume has 1 GiB, of which 448 MiB are left.
    assert_eq!(leg.progress_permille, Some(562));
    let near =
        |got: Option<u64>, wanted: u64| got.is_some_and(|got| got.abs_diff(wanted) < wanted / 4);
    assert!(near(leg.drain_bytes_per_s, 16 * MIB), "{leg:?}");
    assert!(near(leg.remaining_ns, 28_000_000_000), "{leg:?}");
    assert!(near(status.scrub.bytes_per_s, 2 * MIB), "{:?}", status.scrub);
    assert!(near(status.scrub.remaining_ns, 28_000_000_000), "{:?}", status.scrub);
    assert_eq!(status.scrub.permille, Some(125));
    assert_eq!(status.legs[0].remaining_ns, None, "it owes nothing");
    served.change(|snapshot| snapshot.no_session = vec![(1, "no route to host".into())]);
    let (_, text) = served.get("/v1/status");
    let status: super::api::VolumeStatus =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(status.legs[1].progress_permille, None, "nothing goes to it");
}

#[test]
fn a_scrub_that_is_refused_has_not_begun() {
    let busy = Refusal::new(RefusalKind::Conflict, "another such command is still running", "");
    let served = Served::new("scrubs", Config::default(), Some(busy));
    served.change(|snapshot| snapshot.status.scrub = Some((0, 2048)));
    let (code, _) = served.post("/v1/scrub", "{}");
    assert_eq!(code, 409);
    let (_, events) = served.get("/v1/events");
    assert!(events.contains("Asked to scrub: refused, because another such command"), "{events}");
    assert!(!events.contains("A scrub began"), "{events}");
}

#[test]
fn injected_errors_are_bounded() {
    let config = Config { allow_inject: true, ..Config::default() };
    let served = Served::new("inject", config, None);
    let fault = Fault::Error { operation: FaultyOperation::Write, rate: 2.0 };
    let (code, answer) =
        served.post("/v1/inject", &json!({ "leg": 0, "fault": fault }).to_string());
    assert_eq!(code, 400, "{answer}");
    for (fault, what) in [
        (json!({ "stall": { "phases": [{ "reads": 1, "by": "2h" }] } }), "7200 s"),
        (json!({ "stall": { "phases": [{ "reads": 1, "by": 5 }] } }), "20ms..2s"),
        (json!({ "stall": { "phases": [{ "flushes": 1 }] } }), "unknown field `flushes`"),
        (json!({ "experiment": { "name": "ebs-none" } }), "`ebs-none`"),
    ] {
        let (code, answer) =
            served.post("/v1/inject", &json!({ "leg": 0, "fault": fault }).to_string());
        assert_eq!(code, 400, "{answer}");
        assert!(answer["what"].as_str().is_some_and(|text| text.contains(what)), "{answer}");
    }
    let fault = Fault::Delay { delay: Time::millis(20) };
    let (code, answer) =
        served.post("/v1/inject", &json!({ "leg": 0, "fault": fault }).to_string());
    assert_eq!(code, 200, "{answer}");
}

#[test]
fn health_follows_the_volume() {
    let http = "127.0.0.1:0".parse().ok();
    let served = Served::new("health", Config { http, ..Config::default() }, None);
    let http = served.http.expect("a port was asked for");
    let ask = |path: &str| {
        let stream = std::net::TcpStream::connect(http).expect("metrics are served");
        exchange(stream, "GET", path, "")
    };
    let (code, text) = ask("/healthz");
    assert!(code == 200 && text.contains("\"healthy\""), "{code} {text}");
    served.change(|snapshot| snapshot.status.legs[0].state = LegState::Frozen);
    let (code, text) = ask("/healthz");
    assert!(code == 200 && text.contains("\"degraded\"") && text.contains("P4"), "{code} {text}");
    served.change(|snapshot| snapshot.phase = Phase::Closing);
    let (code, text) = ask("/healthz");
    assert!(code == 503 && text.contains("\"not-serving\""), "{code} {text}");
    assert_eq!(ask("/livez").0, 200, "a closing volume lives");
    served.change(|snapshot| {
        snapshot.phase = Phase::Serving;
        snapshot.taken = Instant::now() - 2 * super::routes::SNAPSHOT_AGE_MAX;
    });
    assert_eq!(ask("/livez").0, 503, "the data path does not move");
    assert_eq!(ask("/healthz").0, 503);
    let (code, text) = ask("/metrics");
    assert!(code == 200 && text.contains("hemi_leg_state"), "{code} {text}");
    assert_eq!(ask("/v1/config").0, 404, "the control API is not on TCP as a whole");
}

/// Returns a volume with an HTTP listener, and its token.
fn served_over_http(name: &str, with_token: bool, is_public: bool) -> (Served, String) {
    let path = std::env::temp_dir().join(format!("hemi-{}-token-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let config = Config {
        http: "127.0.0.1:0".parse().ok(),
        http_token_file: with_token.then(|| path.clone()),
        http_public: is_public,
        allow_inject: true,
        ..Config::default()
    };
    let served = Served::new(name, config, None);
    let token = std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
    let _ = std::fs::remove_file(&path);
    (served, token)
}

/// Sends a request with headers, and returns the status code, the head and the body of the answer.
fn over_http(served: &Served, request: &str, headers: &str, body: &str) -> (u16, String, String) {
    let http = served.http.expect("a port was asked for");
    let mut stream = std::net::TcpStream::connect(http).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
    .expect("the server reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers");
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
    (code, head, String::from_utf8_lossy(&answer[end + 4..]).into_owned())
}

const LOCAL: &str = "host: localhost:9188\r\n";

#[test]
fn the_dashboard_is_served_with_rules_for_the_browser() {
    let (served, _) = served_over_http("page", false, false);
    let (code, head, page) = over_http(&served, "GET /", LOCAL, "");
    assert_eq!(code, 200, "{head}");
    for part in [
        "content-security-policy: default-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
    let script = page.split('"').find(|part| part.ends_with("/main.js")).expect("it has a script");
    let zipped = format!("{LOCAL}accept-encoding: gzip\r\n");
    let (code, head, _) = over_http(&served, &format!("GET /{script}"), &zipped, "");
    assert!(code == 200 && head.contains("content-encoding: gzip"), "{head}");
    assert!(head.contains("immutable") && head.contains("text/javascript"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("it has a tag");
    let again = format!("{LOCAL}if-none-match: {tag}\r\n");
    let (code, _, body) = over_http(&served, &format!("GET /{script}"), &again, "");
    assert_eq!((code, body.as_str()), (304, ""));
    assert_eq!(over_http(&served, "GET /assets/0/main.js", LOCAL, "").0, 404, "of another version");
    assert_eq!(over_http(&served, "GET /", "host: evil.example\r\n", "").0, 403);
    assert_eq!(over_http(&served, "GET /", "", "").0, 403, "without a host");
    let (code, text) = served.get("/");
    assert!(code == 200 && text.contains("main.js"), "the socket has it, too: {text}");
}

#[test]
fn changes_over_http_need_the_token() {
    let scrub = r#"{"repair": true}"#;
    let (served, _) = served_over_http("no-token", false, false);
    assert_eq!(over_http(&served, "GET /v1/status", LOCAL, "").0, 200);
    let (code, _, text) = over_http(&served, "POST /v1/scrub", LOCAL, scrub);
    assert!(code == 403 && text.contains("http_token_file"), "{code} {text}");
    drop(served);

    let (served, token) = served_over_http("token", true, false);
    assert_eq!(token.len(), 64, "made at the start");
    let right = format!("{LOCAL}authorization: Bearer {token}\r\n");
    let (code, head, _) = over_http(&served, "POST /v1/scrub", LOCAL, scrub);
    assert!(code == 401 && head.contains("www-authenticate: bearer"), "{code} {head}");
    let wrong = format!("{LOCAL}authorization: Bearer {}\r\n", token.replace(&token[..1], "g"));
    assert_eq!(over_http(&served, "POST /v1/scrub", &wrong, scrub).0, 401);
    let elsewhere = format!("host: evil.example\r\nauthorization: Bearer {token}\r\n");
    assert_eq!(over_http(&served, "POST /v1/scrub", &elsewhere, scrub).0, 403);
    assert_eq!(served.asked(), [""; 0], "nothing reached the volume");
    assert_eq!(over_http(&served, "POST /v1/scrub", &right, scrub).0, 200);
    assert_eq!(served.asked().len(), 1);
    for path in
        ["shutdown", "upgrade", "grow", "reload", "legs/add", "legs/remove", "device/detach"]
    {
        let code = over_http(&served, &format!("POST /v1/{path}"), &right, "{}").0;
        assert_eq!(code, 404, "{path} is for the socket");
    }
    let access = |headers: &str| over_http(&served, "GET /v1/access", headers, "").2;
    assert!(access(LOCAL).contains(r#""read":"open","change":"token""#), "{}", access(LOCAL));
    assert!(
        access(LOCAL).contains(r#""granted":false"#)
            && access(&right).contains(r#""granted":true"#)
    );
}

#[test]
fn a_public_listener_shows_figures_to_whoever_has_the_token() {
    let (served, token) = served_over_http("public", true, true);
    let anywhere = "host: storage.example\r\n";
    let right = format!("{anywhere}authorization: Bearer {token}\r\n");
    for path in ["GET /v1/status", "GET /v1/legs", "GET /v1/status/stream"] {
        assert_eq!(over_http(&served, path, anywhere, "").0, 401, "{path}");
    }
    assert_eq!(over_http(&served, "GET /v1/status", &right, "").0, 200);
    for open in ["GET /", "GET /v1/access", "GET /metrics", "GET /healthz", "GET /livez"] {
        assert_eq!(over_http(&served, open, anywhere, "").0, 200, "{open}");
    }
}

#[test]
fn a_listener_that_others_reach_has_to_be_allowed() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let config = Config {
        control: Some(directory.path().join("x.sock")),
        http: "0.0.0.0:0".parse().ok(),
        ..Config::default()
    };
    let error = Listeners::bind(&config, "db").expect_err("it is not allowed").to_string();
    assert!(error.contains("http_public") && error.contains("http_token_file"), "{error}");
}

#[test]
fn stopping_removes_the_socket() {
    let mut served = Served::new("stop", Config::default(), None);
    let _stream = UnixStream::connect(&served.socket).expect("control listens");
    served.thread.take().expect("it runs").stop();
    assert!(!served.socket.exists());
}

/// The documentation explains every field of the status.
#[test]
fn the_documentation_names_every_field() {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let risk = super::api::Risk {
        promise: "P1".into(),
        condition: super::health::Condition::Lost,
        brief: String::new(),
        text: String::new(),
        advice: None,
    };
    let injected = super::api::Injected { stalls: Some(Default::default()), ..Default::default() };
    let leg = super::api::LegStatus { injected: Some(injected), ..Default::default() };
    let status = super::api::VolumeStatus {
        legs: vec![leg],
        risks: vec![risk],
        scrub: super::api::ScrubStatus { last: Some(Default::default()), ..Default::default() },
        ..Default::default()
    };
    let mut found = Vec::new();
    names(&serde_json::to_value(status).expect("a status has a JSON form"), &mut found);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-api.md");
    let text = std::fs::read_to_string(page).expect("docs/control-api.md is in the tree");
    for name in found {
        assert!(text.contains(&format!("`{name}`")), "docs/control-api.md lacks {name}");
    }
}
