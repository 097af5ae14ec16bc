//! Sockets through which virtual machines use the volume as a disk.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::EXPORTS_MAX;
use crate::control::socket::check_path;
use hemi_io::config::ConfigError;

/// A socket for one virtual machine (vhost-user-blk).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct VhostConfig {
    /// Path of the unix socket. A stale socket file there is replaced.
    pub socket: PathBuf,
    /// True if writes are refused. Default: false.
    #[serde(default)]
    pub read_only: bool,
}

/// Checks every socket, and that no two are equal.
///
/// # Errors
/// [`ConfigError::Conflict`], which names the first invalid socket.
pub(super) fn check(sockets: &[VhostConfig]) -> Result<(), ConfigError> {
    if sockets.len() > EXPORTS_MAX {
        let reason = format!("{} are named; at most {EXPORTS_MAX}", sockets.len());
        return Err(ConfigError::conflict("vhost", reason));
    }
    for (index, socket) in sockets.iter().enumerate() {
        let key = format!("vhost[{index}].socket");
        check_path(&socket.socket).map_err(|reason| ConfigError::conflict(&key, reason))?;
        if sockets[..index].iter().any(|earlier| earlier.socket == socket.socket) {
            let path = socket.socket.display();
            let reason =
                format!("{path} is named twice; each virtual machine needs its own socket");
            return Err(ConfigError::conflict(key, reason));
        }
    }
    Ok(())
}
