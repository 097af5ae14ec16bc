//! Settings that change while the volume is served.
//!
//! The engine reads its settings at each decision, so a new value holds from the next one on. What has
//! been decided stays decided: a write let in under a higher exposure bound is not taken back, and a
//! leg that was frozen under a shorter wait limit stays frozen until what it is late with has ended.
//! Whatever waits is looked at again at once, since a new setting may be what it waits for.

use crate::command::CommandError;
use core::ops::Deref;

use crate::engine::Engine;
use crate::io::Buffers;
use crate::settings::Settings;

/// The settings in force. Everybody reads them, and nobody else replaces them.
pub(in crate::engine) struct InForce(Settings);

impl InForce {
    pub(in crate::engine) fn new(settings: Settings) -> InForce {
        InForce(settings)
    }
}

impl Deref for InForce {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

impl<B: Buffers> Engine<B> {
    /// Goes on with other settings.
    ///
    /// # Errors
    /// As [`Settings::change`]. Nothing has changed then.
    pub(super) fn configure(&mut self, token: u64, wanted: &Settings) -> Result<(), CommandError> {
        let settings = self.settings.change(wanted)?;
        self.settings = InForce(settings);
        for leg in self.legs.slots() {
            let state = &mut self.legs[leg];
            state.pace.refresh_limits(&settings);
            if self.ios.any_on(leg) {
                // Its next look was set by the wait limits from before.
                state.watch.look_by(self.clock.now());
            }
        }
        self.revisits.look_at_all();
        self.consider_flushes();
        self.outbox.command_done(token, Ok(()));
        Ok(())
    }
}
