//! TLS on an export: data that passes through it, and clients that are let in.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hemi_io::config::tls::TlsConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client::{DISCONNECT, FLUSH, READ, WRITE};
use super::{Served, pattern};

const STARTTLS: u32 = 5;
const EXPORT_NAME: u32 = 1;

/// Certificates in a directory, all from one authority.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).expect("the folder can be written");
        };
        write("ca.pem", authority.pem());
        for name in ["server", "client"] {
            let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            let key = KeyPair::generate().expect("a key can be made");
            let certificate = params.signed_by(&key, &authority).expect("it can be signed");
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Certificates { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self) -> TlsConfig {
        TlsConfig {
            cert: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: Some(self.path("ca.pem")),
            client_crl: None,
            clients: Vec::new(),
            required: true,
        }
    }

    fn client(&self, with_certificate: bool) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.path("ca.pem")).expect("it was written");
        roots.add(authority).expect("it is an authority");
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the defaults")
            .with_root_certificates(roots);
        if !with_certificate {
            return builder.with_no_client_auth();
        }
        let chain = CertificateDer::from_pem_file(self.path("client.pem")).expect("it was written");
        let key = PrivateKeyDer::from_pem_file(self.path("client.key")).expect("it was written");
        builder.with_client_auth_cert(vec![chain], key).expect("they belong together")
    }
}

fn greet(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).expect("the export listens");
    socket.set_read_timeout(Some(super::PATIENCE)).expect("a timeout can be set");
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).expect("the server greets");
    socket.write_all(&3_u32.to_be_bytes()).expect("the server listens");
    socket
}

fn option(socket: &mut impl Write, option: u32) {
    socket.write_all(b"IHAVEOPT").expect("the server listens");
    socket.write_all(&option.to_be_bytes()).expect("the server listens");
    socket.write_all(&0_u32.to_be_bytes()).expect("the server listens");
    socket.flush().expect("the server listens");
}

fn start_tls(path: &Path, config: ClientConfig) -> StreamOwned<ClientConnection, UnixStream> {
    let mut socket = greet(path);
    option(&mut socket, STARTTLS);
    let mut reply = [0; 20];
    socket.read_exact(&mut reply).expect("the server answers");
    assert_eq!(reply[12..16], 1_u32.to_be_bytes(), "acknowledged");
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    StreamOwned::new(connection, socket)
}

fn request(command: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(0x2560_9513_u32.to_be_bytes());
    header.extend(0_u16.to_be_bytes());
    header.extend(command.to_be_bytes());
    header.extend(cookie.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header.extend((length as u32).to_be_bytes());
    header
}

#[test]
fn data_goes_both_ways_through_tls() {
    let certificates = Certificates::new();
    let served = Served::with_tls(certificates.server());
    let mut stream = start_tls(&served.socket(), certificates.client(true));
    option(&mut stream, EXPORT_NAME);
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("the export is there");
    let take = |stream: &mut StreamOwned<ClientConnection, UnixStream>| {
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).expect("the server answers");
        assert_eq!(reply[4..8], [0; 4], "no error");
        reply[15]
    };
    for (cookie, length) in [(1, 512), (2, 65536), (3, 3 << 20)] {
        let bytes = pattern(cookie, length);
        stream.write_all(&request(WRITE, cookie, 4096, length)).expect("the server listens");
        stream.write_all(&bytes).expect("the server takes it");
        stream.write_all(&request(FLUSH, cookie + 100, 0, 0)).expect("the server listens");
        stream.flush().expect("the server listens");
        // They come in any order: the flush need not wait for a write that has not been answered.
        let mut answered = [take(&mut stream), take(&mut stream)];
        answered.sort_unstable();
        assert_eq!(answered, [cookie as u8, cookie as u8 + 100]);
        stream.write_all(&request(READ, cookie, 4096, length)).expect("the server listens");
        stream.flush().expect("the server listens");
        assert_eq!(take(&mut stream), cookie as u8);
        let mut back = vec![0; length as usize];
        stream.read_exact(&mut back).expect("the payload follows");
        assert!(back == bytes, "{length} bytes");
    }
    stream.write_all(&request(DISCONNECT, 9, 0, 0)).expect("the server listens");
    stream.flush().expect("the server listens");
    served.until("it is gone", |snapshot| snapshot.connections.open == 0);
    served.until("every buffer is back", |snapshot| snapshot.buffers.used_bytes == 0);
}

#[test]
fn who_has_no_certificate_or_no_tls_is_not_let_in() {
    let certificates = Certificates::new();
    let served = Served::with_tls(certificates.server());
    let mut stream = start_tls(&served.socket(), certificates.client(false));
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").and_then(|()| stream.flush()).ok();
    assert!(stream.read(&mut [0; 10]).is_err(), "an alert");

    let mut plain = greet(&served.socket());
    option(&mut plain, EXPORT_NAME);
    assert_eq!(plain.read(&mut [0; 10]).unwrap_or(0), 0, "closed without an answer");
    served.until("both are gone", |snapshot| snapshot.connections.open == 0);
}
