//! Fuzz target for the control API over its socket: HTTP, routes, and the JSON of every request.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hemi_server::config::Config;
use hemi_server::config::place::Place;
use hemi_server::control::api::ErrorBody;
use hemi_server::control::inject::schedule;
use hemi_server::control::volume::{
    Fault, Identity, LegIdentity, Outcome, Phase, Request, Snapshot, Volume,
};
use hemi_server::control::{ControlThread, Listeners};

/// The paths that take a body, chosen by an input's first byte. With any other first byte the rest
/// is the whole conversation.
const ROUTES: [&str; 8] = [
    "/v1/legs/add",
    "/v1/legs/remove",
    "/v1/legs/replace",
    "/v1/legs/detach",
    "/v1/legs/attach",
    "/v1/scrub",
    "/v1/inject",
    "/v1/shutdown",
];
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// The longest wait for the rest of a conversation that has no end, such as the event stream's.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_RAW: Duration = Duration::from_millis(50);

/// A volume that does nothing but check the requests that passed the API's checks.
struct Nowhere(Arc<Snapshot>);

impl Volume for Nowhere {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.0.clone()
    }

    fn request(&self, request: Request) -> Outcome {
        if let Request::Inject { fault: Fault::Error { rate, .. }, .. } = request {
            assert!((0.0..=1.0).contains(&rate));
        } else if let Request::Inject { fault, .. } = request {
            assert!(schedule(&fault).is_ok(), "what was checked can be carried out");
        }
        Box::pin(async { Ok(()) })
    }
}

struct Served {
    socket: PathBuf,
    _thread: ControlThread,
}

/// Returns the control thread, started once for all inputs.
fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("hemi-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let socket = directory.join("control.sock");
        let identity = Identity {
            name: "vol".into(),
            id: [7; 16],
            size_bytes: 1 << 30,
            block_bytes: 512,
            region_bytes: 1 << 20,
            ledger: hemi_server::ledger::LedgerStatus::default(),
            given_up: None,
        };
        let legs = (0..2)
            .map(|leg| LegIdentity { leg, name: format!("l{leg}"), path: format!("/dev/l{leg}") })
            .collect();
        let mut snapshot = Snapshot::opening(identity, legs);
        snapshot.phase = Phase::Serving;
        let config = Config {
            control: Some(socket.clone()),
            allow_inject: true,
            state: Place::None,
            ..Config::default()
        };
        let listeners = Listeners::bind(&config, "vol").unwrap_or_else(|error| panic!("{error}"));
        let volume = Arc::new(Nowhere(Arc::new(snapshot)));
        let thread =
            listeners.spawn(Arc::new(config), volume).unwrap_or_else(|error| panic!("{error}"));
        Served { socket, _thread: thread }
    })
}

/// Sends any bytes to the control API. It must answer or hang up, report errors in the documented
/// form, and survive.
pub(crate) fn control(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    let Some(route) = ROUTES.get(usize::from(first)) else {
        converse(rest, PATIENCE_RAW, true);
        return;
    };
    let mut request = format!(
        "POST {route} HTTP/1.1\r\nhost: hemi\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        rest.len()
    )
    .into_bytes();
    request.extend(rest);
    check_answer(&converse(&request, PATIENCE, false));
}

/// Sends the bytes and reads until control hangs up. With `cut` the client closes its sending side,
/// which HTTP allows control to take as the end of the connection.
fn converse(request: &[u8], patience: Duration, cut: bool) -> Vec<u8> {
    let mut stream = UnixStream::connect(&served().socket).expect("control listens");
    stream.set_read_timeout(Some(patience)).expect("a plain timeout");
    // Control may hang up before it has read all of it.
    let _ = stream.write_all(request);
    if cut {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    answer
}

/// Checks that a whole request has a whole answer: done, or a refusal with a reason and a way out.
fn check_answer(answer: &[u8]) {
    let answer = str::from_utf8(answer).expect("answers are text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole request is answered");
    let code = head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    match code {
        Some(200) => assert_eq!(body, "{\"done\":true}"),
        Some(400..500) => {
            let error: ErrorBody = serde_json::from_str(body).expect("a refusal");
            assert!(!error.what.is_empty() && !error.way_out.is_empty());
        }
        _ => panic!("{answer}"),
    }
}
