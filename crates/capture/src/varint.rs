//! Numbers of variable length (LEB128), and signed differences (zigzag).

/// Appends a number: seven bits a byte, lowest first; the high bit means that more follow.
pub(crate) fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a number from the beginning of `from`. Returns `None` if there is none, or if it
/// exceeds 64 bits.
pub(crate) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7F);
        if place == 9 && bits > 1 {
            return None;
        }
        number |= bits << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Returns the difference from `from` to `to`, small in either direction.
pub(crate) fn difference(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Applies a [`difference`] to `from`.
pub(crate) fn apply(from: u64, difference: u64) -> u64 {
    let signed = (difference >> 1) as i64 ^ -((difference & 1) as i64);
    from.wrapping_add(signed as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, from: u64) {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
            prop_assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
            prop_assert_eq!(apply(from, difference(from, number)), number);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        assert_eq!(take(&mut &[0xFF; 10][..]), None);
        assert_eq!(difference(5, 4), 1);
    }
}
