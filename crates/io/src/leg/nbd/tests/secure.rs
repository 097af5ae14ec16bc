//! Tests of NBD legs through TLS, against nbdkit.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::config::legs::LegTls;

/// Certificates of one authority, in directories laid out as NBD programs expect them.
struct Certificates {
    folder: TempDir,
}

impl Certificates {
    fn new() -> Certificates {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        for name in ["server", "client", "anonymous"] {
            let own = folder.path().join(name);
            std::fs::create_dir(&own).unwrap();
            std::fs::write(own.join("ca-cert.pem"), authority.pem()).unwrap();
            if name == "anonymous" {
                continue;
            }
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let params = CertificateParams::new(names).unwrap();
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(own.join(format!("{name}-cert.pem")), certificate.pem()).unwrap();
            std::fs::write(own.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
        }
        Certificates { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns nbdkit's arguments for a server that accepts only clients with a certificate.
    fn server(&self) -> Vec<String> {
        let folder = self.path("server");
        vec!["--tls=require".into(), format!("--tls-certificates={folder}")]
    }

    fn strict(&self) -> Vec<String> {
        [self.server(), vec!["--tls-verify-peer".into()]].concat()
    }
}

fn nbdkit(tls: &[String], plugin: &[&str]) -> Nbdkit {
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    Nbdkit::start(&[&tls[..], plugin].concat())
}

/// Returns the server's URI through TLS, with the certificates of `folder`.
fn secure(server: &Nbdkit, folder: &str) -> String {
    let plain = server.uri().replacen("nbd", "nbds", 1);
    let separator = if plain.contains('?') { '&' } else { '?' };
    format!("{plain}{separator}tls-certificates={folder}")
}

fn refusal(uri: &str) -> String {
    match OpenLeg::open(&uri.parse().unwrap(), Default::default(), Purpose::Serve) {
        Err(error @ OpenError::Nbd { .. }) => error.to_string(),
        other => panic!("{uri}: {other:?}"),
    }
}

#[test]
fn everything_goes_through_tls() {
    let certificates = Certificates::new();
    let server = nbdkit(&certificates.strict(), &["memory", "16M"]);
    for connections in [1, 4] {
        exercise(&secure(&server, &certificates.path("client")), options(connections, HOUR));
    }
    let tls = certificates.strict();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    let server = Nbdkit::start_tcp(&[&tls[..], &["memory", "16M"]].concat());
    exercise(&secure(&server, &certificates.path("client")), options(2, HOUR));
}

/// A reconnect is negotiated through the ring, unlike the first connection.
#[test]
fn a_session_through_tls_comes_back() {
    let certificates = Certificates::new();
    let image = certificates.folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
    let image = image.display().to_string();
    let mut server = nbdkit(&certificates.strict(), &["file", &image]);
    let uri = secure(&server, &certificates.path("client"));
    let mut bench = Bench::with(&uri, options(2, HOUR));
    bench.fill(0, 4 * MIB, 0x33);
    assert_eq!(bench.one(WRITE, 4096, 4 * MIB as u64, 0), Ok(()));
    assert_eq!(bench.one(LegOperation::Flush, 0, 0, 0), Ok(()));
    for _ in 0..2 {
        bench.events.clear();
        server.kill();
        bench.until("the loss", |bench| bench.events.contains(&LegEvent::Gone { removed: false }));
        let tls = certificates.strict();
        let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
        server.restart(&[&tls[..], &["file", &image]].concat());
        bench.until("the session", |bench| bench.events.contains(&LegEvent::Back));
        bench.memory.span(8 * MIB, 4 * MIB).zero();
        assert_eq!(bench.one(LegOperation::Read, 4096, 4 * MIB as u64, 8 * MIB), Ok(()));
        assert!(bench.same(0, 8 * MIB, 4 * MIB));
        assert_eq!(bench.one(FUA, 8192, MIB as u64, 0), Ok(()));
        assert_eq!(bench.one(WRITE, 4096, 4 * MIB as u64, 0), Ok(()));
    }
    let on_disk = std::fs::read(Path::new(&image)).unwrap();
    assert!(on_disk[4096..][..4 * MIB] == bench.memory.span(0, 4 * MIB).to_vec());
}

#[test]
fn who_is_not_who_they_say_is_refused_with_the_reason() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let server = nbdkit(&certificates.server(), &["memory", "16M"]);
    let text = refusal(&secure(&server, &others.path("anonymous")));
    assert!(
        text.contains("TLS with the server failed") && text.contains("invalid peer certificate"),
        "{text}"
    );
    let anonymous = secure(&server, &certificates.path("anonymous"));
    let text = refusal(&format!("{anonymous}&tls-hostname=elsewhere"));
    assert!(text.contains("not valid for name \"elsewhere\""), "{text}");
    let text = refusal(&secure(&server, &certificates.path("nowhere")));
    assert!(
        text.contains("TLS cannot be set up") && text.contains("nowhere/ca-cert.pem"),
        "{text}"
    );
    let text = refusal(&server.uri());
    assert!(text.contains("the server requires TLS: use nbds://"), "{text}");
    exercise(&anonymous, options(1, HOUR));

    let server = nbdkit(&certificates.strict(), &["memory", "16M"]);
    let uri = secure(&server, &certificates.path("anonymous"));
    let spec = uri.parse().unwrap();
    let opened = OpenLeg::open(&spec, Default::default(), Purpose::Serve);
    opened.expect_err("the server wants a certificate");
    let server = Nbdkit::start(&["--tls=off", "memory", "16M"]);
    let text = refusal(&secure(&server, &certificates.path("client")));
    assert!(text.contains("TLS is wanted but the server refuses it"), "{text}");
}

#[test]
fn the_table_of_a_configuration_says_what_the_uri_leaves_open() {
    let certificates = Certificates::new();
    let server = nbdkit(&certificates.strict(), &["memory", "16M"]);
    let file = |name: &str| Some(certificates.folder.path().join(name));
    let tls = LegTls {
        ca: file("server/ca-cert.pem"),
        cert: file("client/client-cert.pem"),
        key: file("client/client-key.pem"),
        hostname: Some("localhost".into()),
    };
    let uri = server.uri().replacen("nbd", "nbds", 1);
    let config = LegConfig { tls: Some(tls), ..options(1, HOUR) };
    exercise(&uri, config.clone());
    let plain = LegConfig { path: "nbd://host/".parse().unwrap(), ..config.clone() };
    let text = plain.check("legs[0]").unwrap_err().to_string();
    assert!(text.contains("legs[0].tls") && text.contains("nbds://"), "{text}");
    let half = LegTls { key: None, ..config.tls.clone().unwrap() };
    let half = LegConfig { path: uri.parse().unwrap(), tls: Some(half), ..config };
    let text = half.check("legs[0]").unwrap_err().to_string();
    assert!(text.contains("cert and key go together"), "{text}");
}
