//! Decides how many writes a leg is given at once.
//!
//! `leg_window` writes keep any drive busy. A leg whose every write takes half a second, though it could
//! take many more in that time, gets no further with so few: 64 in flight are 128 a second. So the
//! window is doubled on trial while it is all that holds the leg back. If its usual write takes as long
//! as before, the leg completes twice as much, and the window stays. A drive that is busy takes twice as
//! long instead: its window is what it was, and the next trial comes later each time. Nothing is tried
//! with a leg that is fast: its window is no bound.

use crate::planted::{self, Planted};
use crate::settings::Settings;
use hemi_units::{Instant, MILLISECOND, SECOND};

/// The window grows to this many times `leg_window` …
const MOST_TIMES: u32 = 8;
/// … but, beyond `leg_window` itself, to no more than this: what is in flight is scanned.
const MOST: u32 = 1024;
/// Between two changes: this, and twice a usual write. What is usual is judged anew meanwhile.
const JUDGED_AFTER: u64 = SECOND;
/// In a wider window the usual write takes so much longer at most, per cent …
const KEEP_PERCENT: u64 = 125;
/// … and a window is narrowed again in which it takes this much longer.
const NARROW_PERCENT: u64 = 200;
/// The first pause after a trial that failed; it doubles with each …
const PAUSE_FIRST: u64 = 5 * SECOND;
/// … up to this.
const PAUSE_MAX: u64 = 600 * SECOND;
/// Nothing is tried where a usual write takes less: `leg_window` is thousands of writes a second then.
const SLOW: u64 = 20 * MILLISECOND;

/// The window of one leg.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: u32,
    least: u32,
    most: u32,
    /// The usual write when the window began to grow, nanoseconds.
    usual: u64,
    /// It has been doubled, and not been judged since.
    on_trial: bool,
    /// The time it was last changed, or last was not full.
    since: Instant,
    pause: u64,
    next_trial: Instant,
}

impl Window {
    pub(crate) fn new(settings: &Settings) -> Window {
        Window {
            size: settings.leg_window,
            least: settings.leg_window,
            most: Window::most(settings),
            usual: 0,
            on_trial: false,
            since: Instant(0),
            pause: PAUSE_FIRST,
            next_trial: Instant(0),
        }
    }

    /// The most writes that any leg is given at once.
    pub(crate) fn most(settings: &Settings) -> u32 {
        let least = settings.leg_window;
        least.saturating_mul(MOST_TIMES).min(MOST).max(least)
    }

    /// Writes the leg is given at once.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The leg fell silent: it begins anew.
    pub(crate) fn reset(&mut self, now: Instant) {
        (self.size, self.on_trial, self.since) = (self.least, false, now);
    }

    /// Judges the window at a background tick. `usual` is the usual time of a write of the leg. `full` is
    /// true if the window keeps it from being given more.
    pub(crate) fn refresh(&mut self, now: Instant, usual: u64, full: bool) {
        if usual < SLOW || planted::is(Planted::WindowFixed) {
            self.reset(now);
            return;
        }
        if !full && !self.on_trial && self.size == self.least {
            self.since = now;
            return;
        }
        if now.since(self.since) < JUDGED_AFTER + 2 * usual {
            return;
        }
        let takes = |percent: u64| usual.saturating_mul(100) > self.usual.saturating_mul(percent);
        let failed = self.on_trial && takes(KEEP_PERCENT);
        if self.size > self.least && (failed || takes(NARROW_PERCENT)) {
            (self.size, self.on_trial, self.since) = ((self.size / 2).max(self.least), false, now);
            self.next_trial = now + self.pause;
            self.pause = (2 * self.pause).min(PAUSE_MAX);
            return;
        }
        if core::mem::take(&mut self.on_trial) {
            self.pause = PAUSE_FIRST;
        }
        if full && self.size < self.most && now >= self.next_trial {
            if self.size == self.least {
                self.usual = usual;
            }
            self.size = self.size.saturating_mul(2).min(self.most);
            (self.on_trial, self.since) = (true, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = SECOND / 10;

    /// Runs a leg for so long that is always given as much as its window allows, and a write of which
    /// takes so long in a window of that size.
    fn run(window: &mut Window, from: u64, seconds: u64, takes: impl Fn(u32) -> u64) -> u32 {
        let mut widest = 0;
        for tick in from * 10..(from + seconds) * 10 {
            window.refresh(Instant(tick * TICK), takes(window.size()), true);
            widest = widest.max(window.size());
        }
        widest
    }

    fn window() -> Window {
        Window::new(&Settings { leg_window: 64, ..Settings::default() })
    }

    #[test]
    fn a_leg_that_is_late_with_every_write_is_given_more() {
        let mut window = window();
        run(&mut window, 0, 20, |_| SECOND / 2);
        assert_eq!(window.size(), 512);
    }

    #[test]
    fn a_busy_leg_keeps_its_window_and_is_tried_ever_less_often() {
        let mut window = window();
        let busy = |size: u32| u64::from(size) * 5 * MILLISECOND;
        assert_eq!(run(&mut window, 0, 600, busy), 128);
        let mut tried = 0;
        for second in 600..1200 {
            tried += u64::from(run(&mut window, second, 1, busy) > 64);
        }
        assert!(tried < 20, "it is given more than its window in {tried} of 600 seconds");
    }

    #[test]
    fn a_window_in_which_writes_take_longer_is_narrowed() {
        let mut window = window();
        run(&mut window, 0, 20, |_| SECOND / 4);
        run(&mut window, 20, 20, |size| u64::from(size) * 5 * MILLISECOND);
        assert!(window.size() <= 128, "{}", window.size());
    }

    #[test]
    fn a_fast_leg_and_one_that_is_not_held_back_keep_it() {
        let mut window = window();
        assert_eq!(run(&mut window, 0, 20, |_| MILLISECOND), 64);
        for tick in 200..400 {
            window.refresh(Instant(tick * TICK), SECOND, false);
            assert_eq!(window.size(), 64);
        }
    }
}
