//! Text from outside hemi: files named by operators, and text from other programs.
//!
//! Neither is trusted. A path can name an endless device, so a file is read up to a bound
//! (`read`). Text from a server across the network, or from a disk somebody brought, reaches
//! terminals and logs only as plain text ([`Plain`]): a control character could clear a screen
//! or forge a line, and a character that changes the direction of text could make one name look
//! like another.
//!
//! ```
//! use hemi_text::Plain;
//!
//! assert_eq!(Plain("no space left").to_string(), "no space left");
//! assert_eq!(Plain("a\u{1B}[2Jb").to_string(), "a\u{FFFD}[2Jb");
//! ```

#![cfg_attr(not(feature = "std"), no_std)]

use core::fmt;

#[cfg(feature = "std")]
pub use file::{FILE_BYTES_MAX, read, read_lossy, read_up_to};

#[cfg(feature = "toml")]
pub use places::{Place, Places, for_each_key};

#[cfg(feature = "std")]
mod file;
#[cfg(feature = "toml")]
mod places;

/// Maximum number of characters of another program's text that are shown.
pub const SHOWN_MAX: usize = 256;

/// Returns true if a character is plain: it neither controls a terminal, ends a line, nor
/// changes the direction of the text around it.
pub fn is_plain(character: char) -> bool {
    let directs = matches!(
        character,
        '\u{61C}' | '\u{200E}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    );
    let separates = matches!(character, '\u{2028}' | '\u{2029}');
    !(character.is_control() || directs || separates)
}

/// A wrapper that displays another program's text: at most [`SHOWN_MAX`] characters, and
/// `\u{FFFD}` for each that is not plain.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(SHOWN_MAX) {
            let shown = if is_plain(character) { character } else { char::REPLACEMENT_CHARACTER };
            formatter.write_char(shown)?;
        }
        if characters.next().is_some() { formatter.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn words_of_others_cannot_steer_a_terminal() {
        let shown = |text: &str| Plain(text).to_string();
        assert_eq!(shown("no space left"), "no space left");
        assert_eq!(shown("Größe → 1"), "Größe → 1");
        assert_eq!(
            shown("\x1b[2Ja\x07\n\u{202E}b\u{9B}"),
            "\u{FFFD}[2Ja\u{FFFD}\u{FFFD}\u{FFFD}b\u{FFFD}"
        );
        assert_eq!(shown(&"x".repeat(300)).chars().count(), SHOWN_MAX + 1);
    }
}
