//! The offer of a server: exports, TLS policy, limits.

use alloc::string::String;
use alloc::vec::Vec;

use crate::codec::{BlockSize, BlockSizeError, TransmissionFlags};
use crate::limits::{CONTEXTS_MAX, EXPORTS_MAX, STRING_BYTES_MAX};

/// One export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name clients ask for, at most 4096 bytes.
    pub name: String,
    /// Text for humans, at most 4096 bytes. Empty for none.
    pub description: String,
    /// Size in bytes.
    pub size: u64,
    /// Features of the export. `HAS_FLAGS`, `SEND_DF` and `BLOCK_STATUS_PAYLOAD` are set by the
    /// session and ignored here.
    pub features: TransmissionFlags,
    /// Block sizes. Requests that break `minimum` or `maximum_payload` are refused.
    pub block_size: BlockSize,
    /// Names of the meta contexts for block status, at most [`CONTEXTS_MAX`]. A context's id is
    /// its index plus one.
    pub contexts: Vec<String>,
}

/// The use of TLS by connections, section "TLS support".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// `STARTTLS` is refused.
    #[default]
    Off,
    /// The client chooses.
    Allowed,
    /// Only `STARTTLS` and `ABORT` work before TLS.
    Required,
}

/// The configuration that all sessions of a server share. It is checked when built.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    exports: Vec<Export>,
    tls: TlsMode,
}

impl ServerConfig {
    /// Returns the configuration of a server with these exports. The empty name chooses the
    /// export of that name, or else the first.
    ///
    /// # Errors
    /// Returns the first rule of the protocol that an export breaks.
    pub fn new(exports: Vec<Export>, tls: TlsMode) -> Result<ServerConfig, ConfigError> {
        if exports.is_empty() || exports.len() > EXPORTS_MAX {
            return Err(ConfigError::ExportCount { count: exports.len() });
        }
        for (index, export) in exports.iter().enumerate() {
            validate(export)?;
            if exports[..index].iter().any(|other| other.name == export.name) {
                return Err(ConfigError::DuplicateName { name: export.name.clone() });
            }
        }
        Ok(ServerConfig { exports, tls })
    }

    /// Returns the exports.
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// Returns the TLS policy.
    pub fn tls(&self) -> TlsMode {
        self.tls
    }

    /// Returns the index of the export that a client means by `name`.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let named = self.exports.iter().position(|export| export.name.as_bytes() == name);
        named.or(name.is_empty().then_some(0))
    }
}

fn validate(export: &Export) -> Result<(), ConfigError> {
    let name = || export.name.clone();
    for (what, text) in [("name", &export.name), ("description", &export.description)] {
        if text.len() > STRING_BYTES_MAX || text.contains('\0') {
            return Err(ConfigError::BadString { what, bytes: text.len(), export: name() });
        }
    }
    if export.size > i64::MAX as u64 {
        return Err(ConfigError::TooLarge { export: name(), size: export.size });
    }
    export
        .block_size
        .validate()
        .map_err(|source| ConfigError::BlockSize { export: name(), source })?;
    if export.contexts.len() > CONTEXTS_MAX {
        return Err(ConfigError::ContextCount { export: name(), count: export.contexts.len() });
    }
    for context in &export.contexts {
        let well_formed = context
            .split_once(':')
            .is_some_and(|(namespace, leaf)| !namespace.is_empty() && !leaf.is_empty());
        if !well_formed || context.len() > STRING_BYTES_MAX {
            return Err(ConfigError::BadContext { export: name(), context: context.clone() });
        }
    }
    Ok(())
}

/// An error in a server's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no export, or there are too many.
    #[error("a server offers 1 to {EXPORTS_MAX} exports, not {count}")]
    ExportCount {
        /// Number of exports given.
        count: usize,
    },
    /// Two exports share a name.
    #[error("two exports are named {name:?}; give each its own name")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name or description is too long or contains NUL.
    #[error(
        "{what} of export {export:?} ({bytes} bytes) must be at most {STRING_BYTES_MAX} bytes without NUL"
    )]
    BadString {
        /// Name or description.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
        /// The export.
        export: String,
    },
    /// The export is larger than signed 64-bit offsets reach, which clients use.
    #[error("export {export:?} of {size} bytes is larger than the 2^63 - 1 clients can address")]
    TooLarge {
        /// The export.
        export: String,
        /// Its size in bytes.
        size: u64,
    },
    /// Its block sizes break a rule.
    #[error("export {export:?}: {source}")]
    BlockSize {
        /// The export.
        export: String,
        /// The rule that they break.
        source: BlockSizeError,
    },
    /// The export has too many meta contexts.
    #[error("export {export:?} offers {count} meta contexts; at most {CONTEXTS_MAX} are possible")]
    ContextCount {
        /// The export.
        export: String,
        /// Number of contexts given.
        count: usize,
    },
    /// A meta context's name is not `namespace:leaf`.
    #[error("meta context {context:?} of export {export:?} is not of the form namespace:leaf")]
    BadContext {
        /// The export.
        export: String,
        /// The context's name.
        context: String,
    },
}
