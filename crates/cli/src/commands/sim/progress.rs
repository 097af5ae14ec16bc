//! The progress of long work, shown on a terminal only.

use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for all of the work, and a line for each item in progress.
#[derive(Clone)]
pub(crate) struct Bars {
    many: MultiProgress,
    all: ProgressBar,
}

impl Bars {
    /// Creates the bar of `count` `things`, such as cases or cards.
    pub(crate) fn new(count: usize, things: &str) -> Bars {
        let many = MultiProgress::new();
        if !std::io::stderr().is_terminal() {
            many.set_draw_target(ProgressDrawTarget::hidden());
        }
        let all = many.add(ProgressBar::new(count as u64));
        let style = format!("{{bar:30}} {{pos}} of {{len}} {things}, {{elapsed}}");
        all.set_style(ProgressStyle::with_template(&style).expect("a good template"));
        Bars { many, all }
    }

    /// Adds a line for an item that has begun.
    pub(crate) fn one(&self, name: String) -> ProgressBar {
        let bar = self.many.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{spinner} {prefix} {msg}");
        bar.set_style(style.expect("a good template"));
        bar.set_prefix(name);
        bar.tick();
        bar
    }

    /// Removes the line of an item that has ended.
    pub(crate) fn end(&self, one: &ProgressBar) {
        one.finish_and_clear();
        self.all.inc(1);
    }

    /// Adds `count` items to the work.
    pub(crate) fn more(&self, count: usize) {
        self.all.inc_length(count as u64);
        self.all.tick();
    }

    /// Counts an item without a line of its own as done.
    pub(crate) fn done_one(&self) {
        self.all.inc(1);
    }

    /// Removes the bar at the end.
    pub(crate) fn clear(&self) {
        self.all.finish_and_clear();
    }

    /// Prints a line on standard error, above the bars.
    pub(crate) fn say(&self, line: &str) {
        self.many.suspend(|| eprintln!("{line}"));
    }
}
