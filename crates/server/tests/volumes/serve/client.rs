//! A small blocking NBD client. It uses simple replies and writes requests byte by byte, so that
//! tests can also break the rules.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const FUA: u16 = 1;

/// Longest time that a test waits for an answer that should come.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) size: u64,
    cookie: u64,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Client {
        let mut socket = UnixStream::connect(path).expect("the export listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).expect("the server greets");
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        socket.write_all(&3_u32.to_be_bytes()).expect("the server listens");
        socket.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").expect("the server listens");
        let mut answer = [0; 10];
        socket.read_exact(&mut answer).expect("the export is there");
        let mut size = [0; 8];
        size.copy_from_slice(&answer[..8]);
        Client { socket, size: u64::from_be_bytes(size), cookie: 0 }
    }

    /// Sends a request's header and returns its cookie.
    pub(crate) fn header(&mut self, flags: u16, command: u16, offset: u64, length: u64) -> u64 {
        self.cookie += 1;
        let mut header = Vec::new();
        header.extend(0x2560_9513_u32.to_be_bytes());
        header.extend(flags.to_be_bytes());
        header.extend(command.to_be_bytes());
        header.extend(self.cookie.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend((length as u32).to_be_bytes());
        self.socket.write_all(&header).expect("the server takes a header");
        self.cookie
    }

    /// Receives an answer's header and returns its cookie and error.
    pub(crate) fn answer(&mut self) -> (u64, u32) {
        let mut answer = [0; 16];
        self.socket.read_exact(&mut answer).expect("the server answers");
        assert_eq!(answer[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(answer[4..8].try_into().expect("four bytes"));
        let cookie = u64::from_be_bytes(answer[8..].try_into().expect("eight bytes"));
        (cookie, error)
    }

    pub(crate) fn payload(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.socket.read_exact(&mut bytes).expect("the payload follows");
        bytes
    }

    fn outcome(&mut self, cookie: u64) -> Result<(), u32> {
        let (answered, error) = self.answer();
        assert_eq!(answered, cookie);
        if error == 0 { Ok(()) } else { Err(error) }
    }

    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, u32> {
        let cookie = self.header(0, READ, offset, length);
        self.outcome(cookie)?;
        Ok(self.payload(length as usize))
    }

    pub(crate) fn write(&mut self, flags: u16, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        let cookie = self.header(flags, WRITE, offset, bytes.len() as u64);
        self.socket.write_all(bytes).expect("the server takes the payload");
        self.outcome(cookie)
    }

    pub(crate) fn plain(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        length: u64,
    ) -> Result<(), u32> {
        let cookie = self.header(flags, command, offset, length);
        self.outcome(cookie)
    }

    /// Returns true if the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
