//! The volume's name in the requests and answers of the control socket.
//!
//! The name of a socket's file does not tell which volume answers: other characters become `_` there, and
//! another volume may have taken over the path. So each answer names its volume in a header, and a request
//! that names another volume is refused.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use super::routes::{Shared, refuse};
use super::socket::SocketError;
use super::volume::{Refusal, RefusalKind};

/// The header with the volume's name, percent-encoded, in requests and answers.
pub const VOLUME_HEADER: HeaderName = HeaderName::from_static("hemi-volume");
/// The time limit for a socket to show who answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are searched for the header.
const HEAD_BYTES_MAX: u64 = 8 << 10;

/// Returns a volume's name as the value of [`VOLUME_HEADER`].
///
/// All bytes but ASCII letters, digits, `-`, `_` and `.` are written as `%XX`.
pub fn header_value(name: &str) -> HeaderValue {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'.' => text.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&text).expect("it holds ASCII letters, digits, `-`, `_`, `.` and `%`")
}

/// Returns the volume's name in the value of [`VOLUME_HEADER`]; `None` if it is not a name.
pub fn header_name(value: &HeaderValue) -> Option<String> {
    value.to_str().ok().and_then(name_in)
}

/// Returns the name in the text of [`VOLUME_HEADER`].
fn name_in(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Names the volume in an answer of the control socket, and refuses a request for another volume.
pub(super) async fn name(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let identity = shared.volume.snapshot().identity.clone();
    answer(&identity.name, request, next).await
}

/// Does what [`name`] does for a volume with this name.
pub(super) async fn answer(name: &str, request: Request, next: Next) -> Response {
    let own = header_value(name);
    let wanted = request.headers().get(VOLUME_HEADER).filter(|wanted| **wanted != own);
    let mut response = match wanted {
        None => next.run(request).await,
        Some(wanted) => {
            let wanted = header_name(wanted).unwrap_or_default();
            refuse(Refusal::new(
                RefusalKind::NotFound,
                format!("the volume here is {name:?}, not {wanted:?}"),
                "hemi list shows the volumes that are served on this machine.",
            ))
        }
    };
    response.headers_mut().insert(VOLUME_HEADER, own);
    response
}

/// The one that answers at a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The control socket of the volume with this name.
    Volume(String),
    /// A control socket that does not name its volume: its server is older, or too busy to answer.
    Unnamed,
    /// Something else, such as an NBD export.
    Other,
}

/// Finds out who answers on a connected socket. An NBD server sends its own magic first.
pub fn ask(mut stream: &UnixStream) -> Answerer {
    const BEGINS: &[u8] = b"HTTP/";
    let patient = stream
        .set_read_timeout(Some(PROBE_TIMEOUT))
        .and_then(|()| stream.set_write_timeout(Some(PROBE_TIMEOUT)));
    if patient.is_err() {
        return Answerer::Other;
    }
    let asked =
        stream.write_all(b"HEAD /v1/status HTTP/1.1\r\nhost: hemi\r\nconnection: close\r\n\r\n");
    let mut begins = [0; BEGINS.len()];
    match asked.and_then(|()| stream.read_exact(&mut begins)) {
        Ok(()) if begins == *BEGINS => {}
        Ok(()) => return Answerer::Other,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            return Answerer::Unnamed;
        }
        Err(_) => return Answerer::Other,
    }
    let mut head = Vec::new();
    // An answer that is cut off has no name, or has it already.
    let _ = stream.take(HEAD_BYTES_MAX).read_to_end(&mut head);
    let head = String::from_utf8_lossy(&head);
    let header = VOLUME_HEADER;
    let name = head.split("\r\n").take_while(|line| !line.is_empty()).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(header.as_str()).then(|| name_in(value.trim()))?
    });
    name.map_or(Answerer::Unnamed, Answerer::Volume)
}

/// Adds the name of the volume to the error of a control socket that is in use, if it is that of another
/// volume than `name`. Two names may make one file name.
pub(super) fn whose(error: SocketError, name: &str) -> SocketError {
    let SocketError::InUse { path, option } = error else { return error };
    let served = UnixStream::connect(&path).ok().map(|stream| ask(&stream));
    match served {
        Some(Answerer::Volume(served)) if served != name => {
            SocketError::OtherVolume { path, option, served, name: name.to_owned() }
        }
        _ => SocketError::InUse { path, option },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_passes_through_the_header_and_no_two_become_one() {
        for (name, value) in [
            ("my db", "my%20db"),
            ("my_db", "my_db"),
            ("my%20db", "my%2520db"),
            ("Größe", "Gr%C3%B6%C3%9Fe"),
            ("../x\"\\", "..%2Fx%22%5C"),
            ("", ""),
        ] {
            assert_eq!(header_value(name), value);
            assert_eq!(name_in(value).as_deref(), Some(name));
        }
        for broken in ["%", "%2", "%zz", "%FF"] {
            assert_eq!(name_in(broken), None, "{broken}");
        }
    }
}
