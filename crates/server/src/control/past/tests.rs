//! Tests of what the file has when hemi is killed.

use std::path::Path;

use super::super::events::Severity;
use super::super::hidden::Hour;
use super::*;

const VOLUME: Id = [7; 16];

/// Begins a record in a directory, and waits until what was kept there has been read.
fn begun(directory: &Path) -> Past {
    let past = Past::begin(&Place::Directory(directory.into()), VOLUME);
    await_file(&past);
    past
}

/// Waits until what was kept has been read.
fn await_file(past: &Past) {
    while past.lock().waiting.is_some() {
        past.lock().read();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops a record as a kill does, once the file has all that was handed to it.
fn kill(past: Past) {
    let writer = past.lock().writer.take();
    writer.expect("the directory can be used").end(Batch::default(), END_PATIENCE);
}

fn event() -> Event {
    Event::new("request", Severity::Info, "something was asked")
}

/// Returns true if an answer would be given now.
fn is_answered(past: &Past) -> bool {
    let mut answer = std::pin::pin!(past.until_read());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    answer.as_mut().poll(&mut context).is_ready()
}

#[test]
fn an_answer_waits_until_the_file_has_been_read() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let past = Past::begin(&Place::Directory(directory.path().into()), VOLUME);
    past.happened(event());
    assert!(past.events(None, 10).is_empty() && !is_answered(&past));
    await_file(&past);
    past.tell(past.lock());
    assert!(is_answered(&past));
    assert_eq!(past.events(None, 10).len(), 1);
}

#[test]
fn hidden_stall_time_is_kept_with_the_next_event() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let past = begun(directory.path());
    let hour = Hour { hour: unix_ms() / 3_600_000, hidden: 5, total: 5 };
    past.lock().hidden.restore(&[hour]);
    past.happened(event());
    kill(past);

    let past = begun(directory.path());
    assert_eq!(past.figures().0.total_ns, 5);
    // An hour that is written again counts once.
    past.happened(event());
    kill(past);
    let hidden = begun(directory.path()).figures().0;
    assert_eq!((hidden.day_ns, hidden.total_ns), (5, 5));
}
