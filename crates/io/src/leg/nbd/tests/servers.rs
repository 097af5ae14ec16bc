//! Servers for the tests: nbdkit, qemu-nbd, and one of our own that misbehaves.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hemi_nbd::codec::{BlockSize, ErrorCode, TransmissionFlags};
use hemi_nbd::server::{self, Export, ServerConfig, ServerEvent, ServerSession, TlsMode};
use tempfile::TempDir;

/// Runs a server and waits until `up` returns true.
fn start(program: &str, arguments: &[&str], up: impl Fn() -> bool) -> Child {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; `make setup-test` installs it"));
    for _ in 0..12_000 {
        if up() {
            return child;
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("{program} {arguments:?} ended: {status}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{program} {arguments:?} does not listen");
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// An nbdkit on a unix socket, or on a TCP port.
pub(super) struct Nbdkit {
    child: Child,
    folder: TempDir,
    port: Option<u16>,
}

impl Nbdkit {
    pub(super) fn start(arguments: &[&str]) -> Nbdkit {
        let folder = tempfile::tempdir().unwrap();
        let child = Nbdkit::spawn(&folder.path().join("s"), arguments);
        Nbdkit { child, folder, port: None }
    }

    pub(super) fn start_tcp(arguments: &[&str]) -> Nbdkit {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = port.to_string();
        let all =
            [&["-f", "--exit-with-parent", "-i", "127.0.0.1", "-p", &text], arguments].concat();
        let child = start("nbdkit", &all, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Nbdkit { child, folder, port: Some(port) }
    }

    fn spawn(socket: &Path, arguments: &[&str]) -> Child {
        let path = socket.to_str().unwrap();
        let all = [&["-f", "--exit-with-parent", "-U", path], arguments].concat();
        start("nbdkit", &all, || UnixStream::connect(socket).is_ok())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    pub(super) fn uri(&self) -> String {
        match self.port {
            Some(port) => format!("nbd://127.0.0.1:{port}/"),
            None => format!("nbd+unix:///?socket={}", self.socket().display()),
        }
    }

    pub(super) fn kill(&mut self) {
        end(&mut self.child);
        let _ = std::fs::remove_file(self.socket());
    }

    pub(super) fn restart(&mut self, arguments: &[&str]) {
        self.child = Nbdkit::spawn(&self.socket(), arguments);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// Freezes the server and waits until all of its threads have stopped.
    pub(super) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let state = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        for _ in 0..12_000 {
            if std::fs::read_dir(&tasks).unwrap().all(stands) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nbdkit does not stop");
    }

    pub(super) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A qemu-nbd on a unix socket.
pub(super) struct QemuNbd {
    child: Child,
    folder: TempDir,
}

impl QemuNbd {
    pub(super) fn start(image: &Path, arguments: &[&str]) -> QemuNbd {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let (path, image) = (socket.to_str().unwrap(), image.to_str().unwrap());
        let shared = ["--persistent", "--format=raw", "-k", path];
        let all = [&shared[..], arguments, &[image]].concat();
        let child = start("qemu-nbd", &all, || UnixStream::connect(&socket).is_ok());
        QemuNbd { child, folder }
    }

    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.path().join("s").display())
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A fault of our own server, on its first connection only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Closes the first connection after this number of bytes of replies in transmission.
    CloseAfter(usize),
    /// Answers every request from this one on that it is shutting down, and stays.
    ShutdownAfter(usize),
    /// Sends nonsense after this number of bytes of replies in transmission, and stays.
    GarbageAfter(usize),
}

/// A server on hemi's own session, one thread per connection.
pub(super) struct Own {
    folder: TempDir,
}

impl Own {
    pub(super) fn start(size: u64, style: &'static str, fault: Fault) -> Own {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let device = Arc::new(Mutex::new(vec![0; size as usize]));
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let Ok(socket) = socket else { return };
                let device = device.clone();
                let fault = if number == 0 { fault } else { Fault::None };
                std::thread::spawn(move || serve(socket, &device, style, fault));
            }
        });
        Own { folder }
    }

    pub(super) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.folder.path().join("s").display())
    }
}

fn config(size: u64) -> Arc<ServerConfig> {
    let export = Export {
        name: String::new(),
        description: String::new(),
        size,
        features: TransmissionFlags::SEND_FLUSH
            | TransmissionFlags::SEND_FUA
            | TransmissionFlags::SEND_WRITE_ZEROES
            | TransmissionFlags::CAN_MULTI_CONN,
        block_size: BlockSize { minimum: 512, preferred: 4096, maximum_payload: 1 << 20 },
        contexts: vec!["base:allocation".into()],
    };
    Arc::new(ServerConfig::new(vec![export], TlsMode::Off).unwrap())
}

/// Serves one connection until it ends or the fault strikes.
fn serve(mut socket: UnixStream, device: &Mutex<Vec<u8>>, style: &str, fault: Fault) {
    let mut output = Vec::new();
    let size = device.lock().unwrap().len() as u64;
    let mut session = ServerSession::new(config(size), &mut output);
    let (mut input, mut sent, mut requests) = (Vec::new(), 0, 0);
    let mut buffer = vec![0; 64 << 10];
    let mut in_transmission = false;
    let answer =
        |request: server::Request, payload: &[u8], number, session: &_, output: &mut _| match fault
        {
            Fault::ShutdownAfter(last) if number > last => {
                let style = ServerSession::style(session);
                style.error(request.reply_to(), ErrorCode::Shutdown, "going down", output);
            }
            _ => perform(session, request, payload, device, output),
        };
    loop {
        let limit = match fault {
            Fault::CloseAfter(limit) | Fault::GarbageAfter(limit) if in_transmission => limit,
            _ => usize::MAX,
        };
        if sent + output.len() > limit {
            let _ = socket.write_all(&output[..limit - sent]);
            if matches!(fault, Fault::GarbageAfter(_)) {
                let _ = socket.write_all(&[0xAB; 64]);
                while matches!(socket.read(&mut buffer), Ok(1..)) {}
            }
            return;
        }
        if in_transmission {
            sent += output.len();
        }
        if socket.write_all(&output).is_err() {
            return;
        }
        output.clear();
        in_transmission = session.in_transmission();
        let Ok(count @ 1..) = socket.read(&mut buffer) else { return };
        input.extend_from_slice(&buffer[..count]);
        let mut write = None;
        loop {
            // A server that does not know the richer styles refuses them.
            refuse(&mut input, style, session.in_transmission(), &mut output);
            let advance = session.advance(&input, &mut output).unwrap();
            input.drain(..advance.consumed);
            match advance.event {
                ServerEvent::NeedMore => break,
                ServerEvent::Request(request) => {
                    requests += 1;
                    if request.payload_length() > 0 {
                        write = Some(request);
                    } else {
                        answer(request, &[], requests, &session, &mut output);
                    }
                }
                ServerEvent::Payload { remaining } => {
                    let request = write.expect("a write is open");
                    while (input.len() as u64) < remaining {
                        let Ok(count @ 1..) = socket.read(&mut buffer) else { return };
                        input.extend_from_slice(&buffer[..count]);
                    }
                    let payload: Vec<u8> = input.drain(..remaining as usize).collect();
                    session.payload_taken(remaining);
                    answer(request, &payload, requests, &session, &mut output);
                }
                ServerEvent::Abort | ServerEvent::Disconnect => return,
                _ => {}
            }
        }
    }
}

/// Answers `EXTENDED_HEADERS` (and `STRUCTURED_REPLY`) with `ERR_UNSUP` in place of the
/// session, which knows them.
fn refuse(input: &mut Vec<u8>, style: &str, in_transmission: bool, output: &mut Vec<u8>) {
    let refused: &[u8] = match style {
        "simple" => &[8, 11],
        "structured" => &[11],
        _ => &[],
    };
    if in_transmission || input.len() < 16 {
        return;
    }
    // The first message begins with the client's flags.
    let start = if input.starts_with(b"IHAVEOPT") { 0 } else { 4 };
    if input.len() >= start + 16 && refused.contains(&input[start + 11]) {
        output.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        output.extend([0, 0, 0, input[start + 11], 0x80, 0, 0, 1, 0, 0, 0, 0]);
        input.drain(start..start + 16);
    }
}

fn perform(
    session: &ServerSession,
    request: server::Request,
    payload: &[u8],
    device: &Mutex<Vec<u8>>,
    output: &mut Vec<u8>,
) {
    let (style, to) = (session.style(), request.reply_to());
    let mut device = device.lock().unwrap();
    let range = request.offset as usize..(request.offset + request.length) as usize;
    match request.command {
        server::Command::Read { .. } => {
            let length = request.length as u32;
            output.extend_from_slice(&style.read_data(to, request.offset, length, true));
            output.extend_from_slice(&device[range]);
            return;
        }
        server::Command::Write => device[range].copy_from_slice(payload),
        server::Command::WriteZeroes { .. } => device[range].fill(0),
        _ => {}
    }
    output.extend_from_slice(&style.success(to));
}
