//! Keys, from the bytes that a terminal sends.

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Pause,
    Sort,
    Detail,
    Help,
    /// Back from the help or the detail.
    Back,
    /// The leg above or below.
    Up,
    Down,
    /// The volume before or after.
    Left,
    Right,
}

const ESCAPE: u8 = 0x1b;
/// The bytes of Ctrl-C and Ctrl-D where the terminal raises no signal.
const INTERRUPT: u8 = 3;
const END: u8 = 4;

/// Reads keys from bytes that arrived together. An escape sequence arrives in one piece. Unknown
/// sequences are skipped whole.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        let key = match first {
            ESCAPE => match rest {
                [b'[' | b'O', sequence @ ..] => {
                    let is_end = |byte: &u8| (0x40..=0x7e).contains(byte);
                    let end = sequence.iter().position(is_end).unwrap_or(sequence.len());
                    bytes = sequence.get(end + 1..).unwrap_or_default();
                    match sequence.get(end) {
                        Some(b'A') => Some(Key::Up),
                        Some(b'B') => Some(Key::Down),
                        Some(b'C') => Some(Key::Right),
                        Some(b'D') => Some(Key::Left),
                        _ => None,
                    }
                }
                _ => Some(Key::Back),
            },
            b'q' | b'Q' | INTERRUPT | END => Some(Key::Quit),
            b'p' | b' ' => Some(Key::Pause),
            b's' => Some(Key::Sort),
            b'd' | b'\r' | b'\n' => Some(Key::Detail),
            b'?' | b'h' => Some(Key::Help),
            b'k' => Some(Key::Up),
            b'j' => Some(Key::Down),
            b'v' | b'\t' => Some(Key::Right),
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        assert_eq!(keys(b"qp?"), [Key::Quit, Key::Pause, Key::Help]);
        assert_eq!(keys(b"\x1b[A\x1b[B\x1bOC\x1b[D"), [Key::Up, Key::Down, Key::Right, Key::Left]);
        assert_eq!(keys(b"\x1b"), [Key::Back]);
        assert_eq!(keys(b"\x03"), [Key::Quit]);
        assert_eq!(keys(b"\x1b[1;5Ad\x1b[15~x"), [Key::Up, Key::Detail]);
        assert_eq!(keys(b"\x1b["), []);
        assert_eq!(keys("ä\u{1f600}".as_bytes()), []);
    }
}
