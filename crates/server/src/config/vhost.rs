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

/// Adds the faults of sockets that are invalid or equal.
pub(super) fn faults(sockets: &[VhostConfig], faults: &mut Vec<ConfigError>) {
    if sockets.len() > EXPORTS_MAX {
        let reason = format!("{} are named; at most {EXPORTS_MAX}", sockets.len());
        faults.push(ConfigError::conflict("vhost", reason));
    }
    for (index, socket) in sockets.iter().enumerate() {
        let key = format!("vhost[{index}].socket");
        let refused = check_path(&socket.socket).err();
        faults.extend(refused.map(|reason| ConfigError::conflict(&key, reason)));
        if sockets[..index].iter().any(|earlier| earlier.socket == socket.socket) {
            let path = socket.socket.display();
            let reason =
                format!("{path} is named twice; each virtual machine needs its own socket");
            faults.push(ConfigError::conflict(key, reason));
        }
    }
}
