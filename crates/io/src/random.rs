//! Random bytes from the system: for ids, and for what the engine starts from.

use std::io;

/// Returns bytes that nobody can foretell.
///
/// # Errors
/// The system's: it has none.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
