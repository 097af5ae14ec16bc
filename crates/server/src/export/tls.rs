//! TLS on a connection, through the same ring and the same buffers' life.
//!
//! rustls owns no socket: received bytes are handed to it, what it has to send is taken from
//! it. Payload is encrypted out of its buffer and decrypted into the staging area, one copy
//! more than without TLS.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::config::exports::TlsConfig;

/// Plaintext handed to TLS at once: one record.
const RECORD_BYTES: usize = 16 << 10;

/// Reads certificate, key and authorities.
///
/// # Errors
/// Text naming the file, what is wrong and what would do.
pub(super) fn configure(config: &TlsConfig) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| named(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| named(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates(&config.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&config.key).map_err(|error| named(&config.key, &error))?;
    let server = builder.with_single_cert(chain, key).map_err(|error| {
        let mut text = named(&config.cert, &error);
        let _ = write!(text, " (with the key {})", config.key.display());
        text
    })?;
    Ok(Arc::new(server))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| named(path, &error))?;
    if found.is_empty() {
        return Err(format!("{} holds no certificate (PEM)", path.display()));
    }
    Ok(found)
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// TLS on one connection.
pub(super) struct Tls {
    session: ServerConnection,
    /// Whether the NBD session has been told that TLS is up.
    announced: bool,
}

impl Tls {
    pub(super) fn new(config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        let mut session = ServerConnection::new(config)?;
        // What may wait is bounded by what is written: one record at a time.
        session.set_buffer_limit(None);
        Ok(Tls { session, announced: false })
    }

    /// True once, when the handshake is over.
    pub(super) fn is_newly_up(&mut self) -> bool {
        let up = !self.announced && !self.session.is_handshaking();
        self.announced |= up;
        up
    }

    /// Takes received bytes; how many it used.
    ///
    /// # Errors
    /// The peer broke TLS, or was not let in. An alert may be waiting to be sent.
    pub(super) fn take(&mut self, received: &[u8]) -> Result<usize, rustls::Error> {
        let mut rest = received;
        match self.session.read_tls(&mut rest) {
            Ok(used) => {
                self.session.process_new_packets()?;
                Ok(used)
            }
            // Its buffer is full of plaintext not yet fetched.
            Err(_) => Ok(0),
        }
    }

    /// Fetches plaintext; none if there is none now.
    pub(super) fn plaintext(&mut self, into: &mut [u8]) -> usize {
        // An unexpected end is the socket's to tell, nothing to read yet is no error.
        self.session.reader().read(into).unwrap_or(0)
    }

    /// Encrypts the beginning of `plaintext`; how many bytes of it.
    pub(super) fn encrypt(&mut self, plaintext: &[u8]) -> usize {
        let record = &plaintext[..plaintext.len().min(RECORD_BYTES)];
        // Writing to its buffer, which has no bound, cannot fail.
        self.session.writer().write(record).unwrap_or(0)
    }

    /// Whether there is anything to send.
    pub(super) fn wants_to_send(&self) -> bool {
        self.session.wants_write()
    }

    /// Takes bytes to send; how many.
    pub(super) fn outgoing(&mut self, mut into: &mut [u8]) -> usize {
        let room = into.len();
        let mut used = 0;
        while used < room && self.session.wants_write() {
            let taken: io::Result<usize> = self.session.write_tls(&mut into);
            match taken {
                Ok(count) if count > 0 => used += count,
                _ => break,
            }
        }
        used
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("announced", &self.announced).finish_non_exhaustive()
    }
}
