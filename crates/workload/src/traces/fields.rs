//! Fields of a line.

/// The remedy for a number beyond 64 bits.
pub(super) const TOO_LARGE: &str = "write a smaller number: it goes beyond 64 bits";

/// The most characters of a field or line that an error quotes.
const QUOTED: usize = 100;

/// An error in a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) field: &'static str,
    pub(super) value: String,
    pub(super) right: &'static str,
}

impl Wrong {
    /// Creates an error that quotes the beginning of `value`.
    pub(super) fn new(field: &'static str, value: &str, right: &'static str) -> Wrong {
        let mut quoted: String = value.chars().take(QUOTED).collect();
        if quoted.len() < value.len() {
            quoted.push('…');
        }
        Wrong { field, value: quoted, right }
    }
}

/// A field's text and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) text: &'a str,
}

/// The fields of a line, separated by commas or by white space.
pub(super) struct Fields<'a> {
    rest: Option<&'a str>,
    commas: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn by_commas(line: &'a str) -> Fields<'a> {
        Fields { rest: Some(line), commas: true }
    }

    pub(super) fn by_space(line: &'a str) -> Fields<'a> {
        let line = line.trim();
        Fields { rest: (!line.is_empty()).then_some(line), commas: false }
    }

    /// Returns the next field, if there is one.
    pub(super) fn optional(&mut self, name: &'static str) -> Option<Field<'a>> {
        let rest = self.rest?;
        let text = if self.commas {
            match rest.split_once(',') {
                Some((text, rest)) => {
                    self.rest = Some(rest);
                    text.trim()
                }
                None => {
                    self.rest = None;
                    rest.trim()
                }
            }
        } else {
            let (text, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let rest = rest.trim_start();
            self.rest = (!rest.is_empty()).then_some(rest);
            text
        };
        Some(Field { name, text })
    }

    /// Returns the next field, or an error if the line ends.
    pub(super) fn next(&mut self, name: &'static str) -> Result<Field<'a>, Wrong> {
        self.optional(name).ok_or_else(|| Wrong::new(name, "", "the line ends before this field"))
    }

    /// Returns an error if more fields follow.
    pub(super) fn end(&self) -> Result<(), Wrong> {
        match self.rest {
            None => Ok(()),
            Some(rest) => {
                Err(Wrong::new("end of the line", rest, "the format has no more fields; check it"))
            }
        }
    }
}

impl Field<'_> {
    pub(super) fn wrong(&self, right: &'static str) -> Wrong {
        Wrong::new(self.name, self.text, right)
    }

    /// Parses a whole number.
    pub(super) fn number(&self) -> Result<u64, Wrong> {
        // Signs and everything else that `parse` accepts besides digits are refused.
        let digits = self.text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { self.text.parse().ok() } else { None };
        number.ok_or_else(|| self.wrong("write a whole number below 2^64"))
    }

    /// Parses a whole number and multiplies it by `unit`.
    pub(super) fn number_of(&self, unit: u64) -> Result<u64, Wrong> {
        let product = self.number()?.checked_mul(unit);
        product.ok_or_else(|| self.wrong(TOO_LARGE))
    }

    /// Parses a number with or without a fraction, in units of `unit` nanoseconds (a power of
    /// ten), and returns whole nanoseconds. Finer digits are truncated. Floating point is
    /// avoided so that large times stay exact.
    pub(super) fn decimal(&self, unit: u64) -> Result<u64, Wrong> {
        let right = "write a time as a number, as in 12.345";
        let (whole, fraction) = self.text.split_once('.').unwrap_or((self.text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return Err(self.wrong(right));
        }
        let whole: u64 = match whole {
            "" => 0,
            whole => whole.parse().map_err(|_| self.wrong(right))?,
        };
        let (mut place, mut nanoseconds) = (unit, 0);
        for digit in fraction.bytes() {
            place /= 10;
            if place == 0 {
                break;
            }
            nanoseconds += u64::from(digit - b'0') * place;
        }
        whole
            .checked_mul(unit)
            .and_then(|whole| whole.checked_add(nanoseconds))
            .ok_or_else(|| self.wrong(TOO_LARGE))
    }

    /// Parses R or W, in either case.
    pub(super) fn read_or_write(&self) -> Result<hemi_units::Operation, Wrong> {
        use hemi_units::Operation;
        match self.text {
            "R" | "r" => Ok(Operation::Read),
            "W" | "w" => Ok(Operation::Write { fua: false }),
            _ => Err(self.wrong("write R or W")),
        }
    }
}
