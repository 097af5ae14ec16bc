//! The record of a run: always a hash of everything that happened, and on demand the lines for a
//! reader.

use hemi_units::{Extent, Instant};

/// The topic of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A client's request or its answer.
    Client,
    /// An I/O of a leg.
    Leg,
    /// A fault, a restart, an operator's command.
    Fault,
    /// A notice of the engine.
    Notice,
    /// The checker's verdict.
    Verdict,
}

/// A line of the trace.
#[derive(Clone, Debug)]
pub struct Line {
    /// The virtual time.
    pub time: Instant,
    /// The topic.
    pub topic: Topic,
    /// The extent of the volume concerned, if any.
    pub extent: Option<Extent>,
    /// The text.
    pub text: String,
}

/// The record of a run.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    /// Lines are kept.
    pub keeps_lines: bool,
    /// The lines kept.
    pub lines: Vec<Line>,
}

impl Trace {
    /// Starts a new record.
    pub fn reset(&mut self, keeps_lines: bool) {
        self.hash = 0xCBF2_9CE4_8422_2325;
        self.keeps_lines = keeps_lines;
        self.lines.clear();
    }

    /// Mixes an event into the hash.
    pub fn mix(&mut self, what: u64) {
        self.hash = (self.hash ^ what).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Returns the hash of the run so far: the same for the same seed and the same code.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a line, if lines are kept. Otherwise `text` is not called.
    pub fn line(
        &mut self,
        time: Instant,
        topic: Topic,
        extent: Option<Extent>,
        text: impl FnOnce() -> String,
    ) {
        if self.keeps_lines {
            self.lines.push(Line { time, topic, extent, text: text() });
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>14.6} ms  {}", self.time.0 as f64 / 1e6, self.text)
    }
}
