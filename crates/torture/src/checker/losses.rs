//! P3: where a lost cache took acknowledged data that no other leg has, the next flush of each
//! connection fails. Until then no flush may succeed.

use hemi_engine::engine::Engine;
use hemi_engine::io::Operation;

use crate::world::{Pending, World};

/// A write that was acknowledged, not flushed, and is on no disk any more.
struct Loss {
    sector: usize,
    version: u64,
    /// The request that wrote it.
    id: u32,
    /// The time of its acknowledgement, by the register's clock. A client that has been told since
    /// then of lost flushed data knows of this loss too, even if it happened later.
    answered: u32,
}

/// The losses that flushes have to report.
pub struct Losses {
    all: Vec<Loss>,
    /// The time at which each client was last told, indexed by its number.
    told: [u32; 256],
    /// The number of losses in this run.
    pub(crate) count: u64,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { all: Vec::new(), told: [0; 256], count: 0 }
    }
}

impl Losses {
    /// Forgets all losses at a start: recovery reports what there is, and nobody waits to be told.
    pub(crate) fn reset(&mut self) {
        self.all.clear();
        self.told = [0; 256];
    }
}

impl World {
    /// Notes the data that a lost cache took. Called before the register hears of the loss.
    pub(crate) fn note_losses(&mut self) {
        let members: Vec<usize> = self.members().into_iter().map(usize::from).collect();
        for sector in 0..self.sectors() as usize {
            let Some((version, id, answered)) = self.register.certain_unflushed(sector) else {
                continue;
            };
            if members.iter().all(|&leg| self.disks[leg].contents()[sector] != version) {
                self.losses.all.push(Loss { sector, version, id, answered });
                self.losses.count += 1;
            }
        }
    }

    /// Checks the answer to a request. A flush that succeeds covers only what is still there, or
    /// its client has been told of the loss (by a flush, or by a write with FUA, which ends in
    /// one).
    pub(crate) fn check_loss_told(&mut self, pending: &Pending, succeeded: bool) {
        let client = usize::from(pending.client);
        let flushes = pending.asked.operation == Operation::Flush;
        if !succeeded && (flushes || pending.asked.fua) {
            self.losses.told[client] = self.register.now();
        }
        if !succeeded || !flushes {
            return;
        }
        let told = self.losses.told[client];
        let members = self.members();
        // Extents recorded as lost, because a leg is gone for good, return errors: that is a report
        // too.
        let recorded = self.engine.as_ref().map_or(&[][..], Engine::lost_extents);
        let is_recorded = |sector: usize| {
            let at = sector as u64;
            recorded.iter().any(|extent| extent.start <= at && at < extent.end)
        };
        let is_untold = |loss: &&Loss| {
            loss.answered > told
                && !is_recorded(loss.sector)
                && self.register.is_covered_newest(loss.sector, loss.id, pending.asked.sent)
                && members.iter().all(|&leg| {
                    self.disks[usize::from(leg)].contents()[loss.sector] != loss.version
                })
        };
        if let Some(loss) = self.losses.all.iter().find(is_untold) {
            let Loss { sector, version, .. } = *loss;
            let text = format!(
                "flush #{} was answered well, though version {version} of sector {sector} went \
                 with a cache and nobody was told",
                pending.asked.id
            );
            let sector = Some(sector as u64);
            self.violate(hemi_world::Violation { promise: "P3", text, sector });
        }
    }
}
