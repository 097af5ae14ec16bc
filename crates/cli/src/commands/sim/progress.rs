//! What a person who waits sees; nothing where nobody looks.

use std::io::IsTerminal as _;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar for everything, and a line for each thing under way.
#[derive(Clone)]
pub(super) struct Bars {
    many: MultiProgress,
    all: ProgressBar,
}

impl Bars {
    /// Of so many `things`: cases, cards.
    pub(super) fn new(count: usize, things: &str) -> Bars {
        let many = MultiProgress::new();
        if !std::io::stderr().is_terminal() {
            many.set_draw_target(ProgressDrawTarget::hidden());
        }
        let all = many.add(ProgressBar::new(count as u64));
        let style = format!("{{bar:30}} {{pos}} of {{len}} {things}, {{elapsed}}");
        all.set_style(ProgressStyle::with_template(&style).expect("a good template"));
        Bars { many, all }
    }

    /// A line for one that has begun.
    pub(super) fn one(&self, name: String) -> ProgressBar {
        let bar = self.many.add(ProgressBar::new_spinner());
        let style = ProgressStyle::with_template("{spinner} {prefix} {msg}");
        bar.set_style(style.expect("a good template"));
        bar.set_prefix(name);
        bar.tick();
        bar
    }

    /// It has ended.
    pub(super) fn end(&self, one: &ProgressBar) {
        one.finish_and_clear();
        self.all.inc(1);
    }

    /// Everything has.
    pub(super) fn clear(&self) {
        self.all.finish_and_clear();
    }

    /// Says something on standard error, above the bars.
    pub(super) fn say(&self, line: &str) {
        self.many.suspend(|| eprintln!("{line}"));
    }
}
