//! Files named by operators.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size in bytes of a configuration, a spec or a preset.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file of at most [`FILE_BYTES_MAX`] bytes.
///
/// # Errors
/// The system's errors, [`io::ErrorKind::FileTooLarge`] above the bound, and
/// [`io::ErrorKind::InvalidData`] if the file is not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    read_up_to(path, FILE_BYTES_MAX)
}

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// As [`read`].
pub fn read_up_to(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("it has more than {most} bytes, the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes).map_err(|error| {
        let position = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("byte {position} is not UTF-8"))
    })
}

/// Reads a file of the kernel's, which may have names in it that are not UTF-8, as those of mount points
/// and processes. Each such byte becomes `\u{FFFD}`.
///
/// # Errors
/// The system's errors.
pub fn read_lossy(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_an_error() {
        let error = read(Path::new("/dev/zero")).expect_err("it has no end");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn what_is_no_text_is_told_with_its_place() {
        let path = std::env::temp_dir().join(format!("hemi-text-{}", std::process::id()));
        std::fs::write(&path, b"ab\xFFc").expect("the temporary directory can be written");
        let error = read(&path).expect_err("0xFF is never UTF-8");
        let told = read_lossy(&path);
        std::fs::remove_file(&path).expect("it was written");
        assert_eq!(error.to_string(), "byte 2 is not UTF-8");
        assert_eq!(told.expect("any bytes are read"), "ab\u{FFFD}c");
    }
}
