//! TLS of an export, as a configuration has it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ConfigError;

/// TLS of an export (PEM files).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct TlsConfig {
    /// The server's certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities whose client certificates are accepted; without it clients need none. It
    /// needs `required`, or whoever does not start TLS would be let in without a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Lists of certificates that those authorities have revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_crl: Option<PathBuf>,
    /// Clients and their rights; others are turned away. Without any, every client with a
    /// certificate of the authorities may do what the export allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<TlsClient>,
    /// True if clients that do not start TLS are turned away. Default true.
    #[serde(default = "yes")]
    pub required: bool,
}

/// A client that TLS knows by its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct TlsClient {
    /// A name or address that its certificate is good for (a subject alternative name).
    pub name: String,
    /// Its rights.
    pub access: Access,
}

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read.
    Read,
    /// Read and write, if the export is not read-only.
    Write,
}

fn yes() -> bool {
    true
}

impl TlsConfig {
    /// Adds the faults of options that make no sense beside each other. `prefix` is the export's key.
    pub fn faults(&self, prefix: &str, faults: &mut Vec<ConfigError>) {
        if self.client_ca.is_some() && !self.required {
            faults.push(ConfigError::conflict(
                format!("{prefix}.tls.required"),
                "`false` lets in clients without TLS, which show no certificate, though \
                 client_ca asks for one; leave `required` out, or serve them on an export of \
                 their own without client_ca",
            ));
        }
        if self.client_ca.is_none() && (self.client_crl.is_some() || !self.clients.is_empty()) {
            let name = if self.client_crl.is_some() { "client_crl" } else { "clients" };
            faults.push(ConfigError::conflict(
                format!("{prefix}.tls.{name}"),
                "it speaks of client certificates, and none are asked for: set client_ca",
            ));
        }
        for (index, client) in self.clients.iter().enumerate() {
            let key = format!("{prefix}.tls.clients[{index}].name");
            let name = &client.name;
            if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() {
                let reason = format!("`{name}` is no host name or address that a certificate has");
                faults.push(ConfigError::conflict(key.clone(), reason));
            }
            if self.clients[..index].iter().any(|other| other.name == *name) {
                faults.push(ConfigError::conflict(key, format!("`{name}` is listed twice")));
            }
        }
    }
}
