//! TLS on the connection of a client, or on a leg's connection to an NBD server. It uses the same
//! ring as plain connections, and its buffers have the same lifetime.
//!
//! rustls owns no socket. Received bytes are handed to it, and bytes to send are taken from it.
//! Payload is encrypted out of its buffer and decrypted into the staging area, which is one copy
//! more than without TLS.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, Connection};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::config::legs::LegTls;
use crate::config::tls::{Access, TlsConfig};

/// The files in which distributions keep the authorities that the machine trusts.
const SYSTEM_AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Plaintext handed to TLS at once, in bytes: one record.
const RECORD_BYTES: usize = 16 << 10;

/// Reads an export's certificate, key and authorities.
///
/// # Errors
/// Text naming the file, what is wrong and what would do.
pub fn serving(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .with_crls(revoked(config.client_crl.as_deref())?)
                .build()
                .map_err(|error| named(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(&config.cert)?;
    let key = private_key(&config.key)?;
    let server = builder
        .with_single_cert(chain, key)
        .map_err(|error| pair(&config.cert, &config.key, &error))?;
    Ok(Arc::new(server))
}

/// Reads the authorities that judge a remote leg's server, and our own certificate.
///
/// # Errors
/// Text naming the file, what is wrong and what would do.
pub fn connecting(config: &LegTls) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let roots = match &config.ca {
        Some(path) => authorities(path)?,
        None => match SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists()) {
            Some(path) => authorities(path)?,
            None => {
                let text = "no authority to judge the server by: name one (`tls.ca`, or \
                            tls-certificates=FOLDER in the URI, with ca-cert.pem)";
                return Err(text.into());
            }
        },
    };
    let builder = builder.with_root_certificates(roots);
    let client = match (&config.cert, &config.key) {
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|error| pair(cert, key, &error))?,
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(client))
}

/// Reads the revocation lists, if a file of them is configured.
fn revoked(path: Option<&Path>) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    path.map_or(Ok(Vec::new()), |path| pem(path, "list of revoked certificates"))
}

/// The rights of clients, by the names for which their certificates are valid.
#[derive(Debug)]
pub struct Clients(Vec<(ServerName<'static>, Access)>);

impl Clients {
    /// Those that are configured.
    pub fn new(config: &TlsConfig) -> Clients {
        let clients = config.clients.iter().filter_map(|client| {
            // The configuration has been checked, so each of these is a name.
            Some((ServerName::try_from(client.name.clone()).ok()?, client.access))
        });
        Clients(clients.collect())
    }

    /// Returns what the client at the other end may do; none if it is not listed. Where nobody
    /// is, everybody may write.
    pub fn access(&self, tls: &Tls) -> Option<Access> {
        if self.0.is_empty() {
            return Some(Access::Write);
        }
        let chain = tls.session.peer_certificates()?;
        let certificate = ParsedCertificate::try_from(chain.first()?).ok()?;
        let is_named = |name: &ServerName<'_>| verify_server_name(&certificate, name).is_ok();
        self.0.iter().find(|(name, _)| is_named(name)).map(|(_, access)| *access)
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| named(path, &error))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| named(path, &error))
}

fn pair(cert: &Path, key: &Path, error: &rustls::Error) -> String {
    let mut text = named(cert, error);
    let _ = write!(text, " (with the key {})", key.display());
    text
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    pem(path, "certificate")
}

/// Reads all objects of one kind in a PEM file, which must hold at least one.
fn pem<T: PemObject>(path: &Path, kind: &str) -> Result<Vec<T>, String> {
    let found: Vec<T> =
        T::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| named(path, &error))?;
    if found.is_empty() {
        return Err(format!("{} holds no {kind} (PEM)", path.display()));
    }
    Ok(found)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// TLS on one connection.
pub struct Tls {
    session: Connection,
    /// True once the NBD session has been told that TLS is up.
    announced: bool,
    /// Plaintext that waits to be sent, in bytes, approximately.
    queued: usize,
}

impl Tls {
    /// Starts TLS with a client of this server.
    pub fn serve(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        Ok(Tls::new(ServerConnection::new(config)?.into()))
    }

    /// Starts TLS with a server whose certificate must carry `name`.
    pub(crate) fn connect(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Tls, rustls::Error> {
        Ok(Tls::new(ClientConnection::new(config, name)?.into()))
    }

    fn new(mut session: Connection) -> Tls {
        // The caller bounds the queue by how much it writes.
        session.set_buffer_limit(None);
        Tls { session, announced: false, queued: 0 }
    }

    /// True once, when the handshake is over.
    pub fn is_newly_up(&mut self) -> bool {
        let up = !self.announced && !self.session.is_handshaking();
        self.announced |= up;
        up
    }

    /// Takes received bytes and returns the number used.
    ///
    /// # Errors
    /// The peer broke TLS, or was not let in. An alert may be waiting to be sent.
    pub fn take(&mut self, received: &[u8]) -> Result<usize, rustls::Error> {
        let mut rest = received;
        match self.session.read_tls(&mut rest) {
            Ok(used) => {
                self.session.process_new_packets()?;
                Ok(used)
            }
            // Its buffer is full of plaintext that has not been read yet.
            Err(_) => Ok(0),
        }
    }

    /// Fetches plaintext; none if there is none now.
    pub fn plaintext(&mut self, into: &mut [u8]) -> usize {
        // An unexpected end is the socket's to tell, nothing to read yet is no error.
        self.session.reader().read(into).unwrap_or(0)
    }

    /// Encrypts the beginning of `plaintext`; how many bytes of it.
    pub fn encrypt(&mut self, plaintext: &[u8]) -> usize {
        let record = &plaintext[..plaintext.len().min(RECORD_BYTES)];
        // Its buffer has no bound, so writing to it cannot fail.
        let taken = self.session.writer().write(record).unwrap_or(0);
        self.queued += taken;
        taken
    }

    /// Encrypts all of `plaintext`.
    pub(crate) fn encrypt_all(&mut self, mut plaintext: &[u8]) {
        while !plaintext.is_empty() {
            match self.encrypt(plaintext) {
                0 => break,
                taken => plaintext = &plaintext[taken..],
            }
        }
    }

    /// Returns the number of bytes of plaintext that wait to be sent, approximately.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Returns true if there is anything to send.
    pub fn wants_to_send(&self) -> bool {
        self.session.wants_write()
    }

    /// Takes bytes to send; how many.
    pub fn outgoing(&mut self, mut into: &mut [u8]) -> usize {
        let room = into.len();
        let mut used = 0;
        while used < room && self.session.wants_write() {
            let taken: io::Result<usize> = self.session.write_tls(&mut into);
            match taken {
                Ok(count) if count > 0 => used += count,
                _ => break,
            }
        }
        let wants = self.session.wants_write();
        self.queued = if wants { self.queued.saturating_sub(used) } else { 0 };
        used
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("announced", &self.announced).finish_non_exhaustive()
    }
}
