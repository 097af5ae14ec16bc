//! What a run tells of itself: always a hash of everything that happened, and on demand the
//! lines a person reads.

use hemi_units::{Extent, Instant};

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A client's request or its answer.
    Client,
    /// An I/O of a leg.
    Leg,
    /// A fault, a restart, an operator's command.
    Fault,
    /// What the engine gave notice of.
    Notice,
    /// The checker's word.
    Verdict,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// When.
    pub time: Instant,
    /// What about.
    pub topic: Topic,
    /// Where in the volume, if anywhere.
    pub extent: Option<Extent>,
    /// What.
    pub text: String,
}

/// The record of a run.
#[derive(Default)]
pub struct Trace {
    hash: u64,
    /// Whether lines are kept.
    pub keeps_lines: bool,
    /// The lines kept.
    pub lines: Vec<Line>,
}

impl Trace {
    /// Starts anew.
    pub fn reset(&mut self, keeps_lines: bool) {
        self.hash = 0xCBF2_9CE4_8422_2325;
        self.keeps_lines = keeps_lines;
        self.lines.clear();
    }

    /// Mixes something that happened into the hash.
    pub fn mix(&mut self, what: u64) {
        self.hash = (self.hash ^ what).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// The hash of the run so far: the same for the same seed and the same code.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Keeps a line, if lines are kept; `text` is not called otherwise.
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
