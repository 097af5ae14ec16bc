//! The syntax of DiskSim's descriptions: `kind name { key = value, … }`. A value is a number, a
//! word, a list `[ … ]`, a block, or `source FILE` for a block in another file. `#` begins a
//! comment.

/// An error in a description, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {key}: {problem}")]
pub struct DescriptionError {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The key, or another name for the place.
    pub key: String,
    /// The error and the expected form.
    pub problem: String,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A word: a name or a file.
    Word(String),
    /// A list.
    List(Vec<Value>),
    /// A block.
    Block(Block),
    /// A block in another file.
    Source(String),
}

/// A block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The file that holds it.
    pub file: String,
    /// The line at which it begins.
    pub line: usize,
    /// The kind of object described, for example `disksim_disk`.
    pub kind: String,
    /// The name given to it; empty if there is none.
    pub name: String,
    /// Keys, their lines and their values.
    pub entries: Vec<(String, usize, Value)>,
}

impl Block {
    /// Returns an error about a key.
    pub fn error(&self, line: usize, key: &str, problem: String) -> DescriptionError {
        DescriptionError { file: self.file.clone(), line, key: format!("`{key}`"), problem }
    }

    /// Returns the value of a key and its line.
    pub fn get(&self, key: &str) -> Option<(usize, &Value)> {
        let entry = self.entries.iter().find(|entry| entry.0 == key)?;
        Some((entry.1, &entry.2))
    }

    /// Returns the value of a mandatory key and its line.
    pub fn need(&self, key: &str, expected: &str) -> Result<(usize, &Value), DescriptionError> {
        let missing = || {
            let problem = format!("is missing in this `{}`: {expected}", self.kind);
            self.error(self.line, key, problem)
        };
        self.get(key).ok_or_else(missing)
    }

    /// Returns an error about a key's value.
    pub fn refuse(&self, key: &str, expected: &str) -> DescriptionError {
        let (line, value) = match self.get(key) {
            Some((line, Value::Number(number))) => (line, number.to_string()),
            Some((line, Value::Word(word) | Value::Source(word))) => (line, word.clone()),
            Some((line, Value::List(list))) => (line, format!("a list of {}", list.len())),
            Some((line, Value::Block(block))) => (line, format!("a `{}`", block.kind)),
            None => (self.line, "nothing".to_owned()),
        };
        self.error(line, key, format!("is {value}, expected {expected}"))
    }

    /// Returns a number within bounds, or `default` if the key is absent.
    pub fn number(
        &self,
        key: &str,
        bounds: (f64, f64),
        default: Option<f64>,
    ) -> Result<f64, DescriptionError> {
        let expected = format!("a number from {} to {}", bounds.0, bounds.1);
        match (self.get(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => self.need(key, &expected).map(|_| 0.0),
            (Some((_, Value::Number(number))), _) if (bounds.0..=bounds.1).contains(number) => {
                Ok(*number)
            }
            _ => Err(self.refuse(key, &expected)),
        }
    }

    /// Returns a whole number within bounds, or `default` if the key is absent.
    pub fn whole(
        &self,
        key: &str,
        bounds: (u64, u64),
        default: Option<u64>,
    ) -> Result<u64, DescriptionError> {
        let limits = (bounds.0 as f64, bounds.1 as f64);
        let number = self.number(key, limits, default.map(|default| default as f64))?;
        if number != libm::floor(number) {
            return Err(self.refuse(key, "a whole number"));
        }
        Ok(number as u64)
    }

    /// Returns a flag, written as 1 (true) or 0 (false).
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, DescriptionError> {
        Ok(self.whole(key, (0, 1), Some(u64::from(default)))? == 1)
    }

    /// Returns a list of whole numbers, empty if the key is absent.
    pub fn whole_list(&self, key: &str) -> Result<Vec<u64>, DescriptionError> {
        let wrong = || self.refuse(key, "a list of sector numbers");
        match self.get(key) {
            None => Ok(Vec::new()),
            Some((_, Value::List(list))) => list
                .iter()
                .map(|value| match value {
                    Value::Number(number) if *number >= 0.0 && *number < 1e15 => Ok(*number as u64),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }
}

/// The most blocks and lists within each other; descriptions have five.
const BLOCKS_DEEP_MAX: usize = 32;

/// A reader of a file's text.
pub(super) struct Parser<'a> {
    file: &'a str,
    rest: &'a str,
    line: usize,
}

/// Parses the first block of a file's text.
pub fn parse(file: &str, text: &str) -> Result<Block, DescriptionError> {
    Parser::new(file, text).block()
}

impl<'a> Parser<'a> {
    /// Creates a reader at the beginning of `text`, which errors call `file`.
    pub(super) fn new(file: &'a str, text: &'a str) -> Parser<'a> {
        Parser { file, rest: text, line: 1 }
    }

    /// Returns the line of the next character to be read.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Returns an error at the current line.
    pub(super) fn error(&self, key: &str, problem: &str) -> DescriptionError {
        DescriptionError {
            file: self.file.to_owned(),
            line: self.line,
            key: key.to_owned(),
            problem: problem.to_owned(),
        }
    }

    /// Skips blanks and comments and returns the next character.
    pub(super) fn peek(&mut self) -> Option<char> {
        loop {
            let c = self.rest.chars().next()?;
            if c == '#' {
                self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]);
            } else if c.is_whitespace() {
                self.line += usize::from(c == '\n');
                self.rest = &self.rest[c.len_utf8()..];
            } else {
                return Some(c);
            }
        }
    }

    /// Skips an expected character.
    pub(super) fn expect(&mut self, expected: char, place: &str) -> Result<(), DescriptionError> {
        if self.peek() == Some(expected) {
            self.rest = &self.rest[1..];
            return Ok(());
        }
        Err(self.error(place, &format!("expected `{expected}`")))
    }

    /// Returns the text up to one of these characters or the end of the line.
    pub(super) fn until(&mut self, ends: &[char]) -> &'a str {
        self.peek();
        let end = self
            .rest
            .find(|c| ends.contains(&c) || c == '\n' || c == '#')
            .unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.trim()
    }

    /// Returns the next word: letters, digits and what is no punctuation of the syntax.
    pub(super) fn word(&mut self) -> &'a str {
        self.peek();
        let ends = |c: char| c.is_whitespace() || "{}[]=,#".contains(c);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Reads the rest of a block whose kind has been read.
    pub(super) fn block_of_kind(&mut self, kind: &str) -> Result<Block, DescriptionError> {
        let line = self.line;
        let name = self.until(&['{', '=', ',']);
        if kind.is_empty() {
            return Err(self.error("block", "expected what it describes, as in `disksim_disk X {`"));
        }
        self.block_of(&format!("{kind} {name}"), line, 0)
    }

    /// Reads a block.
    pub(super) fn block(&mut self) -> Result<Block, DescriptionError> {
        self.peek();
        let kind = self.word().to_owned();
        self.block_of_kind(&kind)
    }

    /// Reads the rest of a block that begins with `words`, its kind and its name, within `depth`
    /// others.
    fn block_of(
        &mut self,
        words: &str,
        line: usize,
        depth: usize,
    ) -> Result<Block, DescriptionError> {
        self.check_depth(depth)?;
        let mut words = words.split_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (kind, name) = (kind.to_owned(), name.to_owned());
        self.expect('{', &format!("after `{kind}`"))?;
        let mut entries: Vec<(String, usize, Value)> = Vec::new();
        loop {
            match self.peek() {
                Some('}') => {
                    self.rest = &self.rest[1..];
                    let file = self.file.to_owned();
                    return Ok(Block { file, line, kind, name, entries });
                }
                Some(',') => self.rest = &self.rest[1..],
                Some(_) => {
                    let line = self.line;
                    let key = self.until(&['=', '{', '}', ',']).to_owned();
                    self.expect('=', &format!("after `{key}`"))?;
                    let value = self.value(&key, depth + 1)?;
                    entries.push((key, line, value));
                }
                None => return Err(self.error(&format!("block `{kind}`"), "expected `}`")),
            }
        }
    }

    /// Refuses a block or list within more others than any description has.
    fn check_depth(&self, depth: usize) -> Result<(), DescriptionError> {
        if depth <= BLOCKS_DEEP_MAX {
            return Ok(());
        }
        let problem =
            format!("expected at most {BLOCKS_DEEP_MAX} blocks or lists within each other");
        Err(self.error("block", &problem))
    }

    fn value(&mut self, key: &str, depth: usize) -> Result<Value, DescriptionError> {
        self.check_depth(depth)?;
        if self.peek() == Some('[') {
            self.rest = &self.rest[1..];
            let mut list = Vec::new();
            loop {
                match self.peek() {
                    Some(']') => {
                        self.rest = &self.rest[1..];
                        return Ok(Value::List(list));
                    }
                    Some(',') => self.rest = &self.rest[1..],
                    Some(_) => list.push(self.value(key, depth + 1)?),
                    None => return Err(self.error(&format!("`{key}`"), "expected `]`")),
                }
            }
        }
        let line = self.line;
        let text = self.until(&[',', '}', ']', '{']);
        if self.peek() == Some('{') {
            return self.block_of(text, line, depth + 1).map(Value::Block);
        }
        if let Some(file) = text.strip_prefix("source ") {
            return Ok(Value::Source(file.trim().to_owned()));
        }
        if text.is_empty() {
            return Err(self.error(&format!("`{key}`"), "expected a value"));
        }
        Ok(text.parse().map_or_else(|_| Value::Word(text.to_owned()), Value::Number))
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, parse};

    const TEXT: &str = "
disksim_disk SOME {   # a comment
   Model = source some.model,
   Bulk sector transfer time = 0.105,
   Scheduler = disksim_ioqueue {
      Scheduling policy = 1
   }, # end
   Zones = [ zone { slips = [ 1, 2,
      3 ] }, zone { slips = [] } ],
   Seek type = extracted
}";

    #[test]
    fn blocks_lists_and_comments_are_read() {
        let block = parse("some.diskspecs", TEXT).expect("a block");
        assert_eq!(block.kind, "disksim_disk");
        assert_eq!(block.get("Model"), Some((3, &Value::Source("some.model".to_owned()))));
        assert_eq!(block.number("Bulk sector transfer time", (0.0, 1.0), None), Ok(0.105));
        let Some((8, Value::List(zones))) = block.get("Zones") else { panic!("{block:?}") };
        let Value::Block(zone) = &zones[0] else { panic!("{zones:?}") };
        assert_eq!(zone.whole_list("slips"), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_is_right() {
        let block = parse("some.diskspecs", TEXT).expect("a block");
        let wrong = block.whole("Seek type", (0, 9), None).expect_err("a word").to_string();
        assert_eq!(
            wrong,
            "some.diskspecs, line 10: `Seek type`: is extracted, expected a number from 0 to 9"
        );
        let missing = block.number("Heads", (0.0, 9.0), None).expect_err("missing").to_string();
        assert!(missing.contains("`Heads`: is missing in this `disksim_disk`"), "{missing}");
        let torn = parse("x", "a b {\n c = 1,\n d 2\n}").expect_err("no =").to_string();
        assert_eq!(torn, "x, line 4: after `d 2`: expected `=`");
    }
}
