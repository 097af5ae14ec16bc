//! The aftermath of a halt of the engine: hemi is gone as after a kill, and the operator either
//! brings the missing drive back, or lets another leg decide.

use hemi_engine::io::Notice;

use crate::plan::{Ending, Start};
use crate::world::World;

impl World {
    /// Notes that the engine reports a halt.
    pub(crate) fn take_halt(&mut self, notice: Notice) {
        if let Notice::Halted { leg, regions } = notice {
            self.halted = Some(leg.0);
            if regions == 0 {
                self.broken("P7", format!("halted for no region of leg {}", leg.0));
            }
        }
    }

    /// Starts hemi again if it has halted, which it may do only for a leg that was removed. Returns
    /// true if it had.
    pub(crate) fn end_halt(&mut self) -> bool {
        let Some(leg) = self.halted.take() else { return false };
        if !self.legs[usize::from(leg)].is_gone {
            self.broken("P7", format!("halted for leg {leg}, which is there"));
        }
        let mut others = self.members();
        others.retain(|&other| other != leg && self.opened >> other & 1 == 1);
        let start = match self.random.below(3) {
            0 if !others.is_empty() => {
                let leg = self.random.pick(&others);
                Start::Promote { leg, together: self.random.one_in(2), cut: false }
            }
            1 => Start::Without(leg),
            _ => Start::All,
        };
        let were_paused = self.clients.paused;
        self.restart(Ending::Kill, start, self.settings, false);
        self.clients.paused = were_paused;
        true
    }
}
