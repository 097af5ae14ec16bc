//! Random bytes from the system, for ids and for the engine's seed.

use std::io;

/// Returns unpredictable bytes.
///
/// # Errors
/// The system's: it has none.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
