//! P3: where a cache that was lost took acknowledged data with it that no other leg has, the next
//! flush of each connection says so. Until it has, none may be answered well.

use hemi_engine::engine::Engine;
use hemi_engine::io::Operation;

use crate::world::{Pending, World};

/// A write that was acknowledged, not flushed, and is on no disk any more.
struct Loss {
    sector: usize,
    version: u64,
    /// The request that wrote it.
    id: u32,
    /// The moment at which it was acknowledged, by the register's clock. Whoever has been told
    /// since that flushed data may be gone knows it of this, too, even if it went later.
    answered: u32,
}

/// The losses that flushes have to tell.
pub struct Losses {
    all: Vec<Loss>,
    /// The moment at which each client was last told, by its number.
    told: [u32; 256],
    /// Losses in this run.
    pub(crate) count: u64,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { all: Vec::new(), told: [0; 256], count: 0 }
    }
}

impl Losses {
    /// A start: recovery tells what there is, and nobody is waiting to be told.
    pub(crate) fn reset(&mut self) {
        self.all.clear();
        self.told = [0; 256];
    }
}

impl World {
    /// A cache is gone, and the register has not heard of it yet: notes what went with it.
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

    /// A request is answered. A flush that is, and well, covers only what is still there, or its
    /// client has been told of the loss (by a flush, or by a write with FUA, which ends in one).
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
        // What is recorded as lost, because a leg is gone for good, answers errors: that is told.
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
            self.violate(crate::checker::Violation { promise: "P3", text, sector });
        }
    }
}
