//! The machine that hemi runs on, as far as it outlives hemi: the memory of the ledger, which
//! survives kills but not power cuts, and the number of the present boot.

use hemi_engine::format::Ledger;
use hemi_engine::format::ledger::{SimulatedMemory, ledger_bytes};
use hemi_engine::recovery::{Opening, Outlived};

/// A machine.
pub struct Machine {
    /// The memory of the ledger, if there is one.
    pub ledger: Option<SimulatedMemory>,
    /// The operator accepts the loss that a ledger could have prevented.
    pub accepts_loss: bool,
    boot: u8,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { ledger: None, accepts_loss: false, boot: 1 }
    }
}

/// A clone has a memory of its own, unlike a clone of [`SimulatedMemory`].
impl Clone for Machine {
    fn clone(&self) -> Machine {
        let ledger = self.ledger.as_ref().map(|kept| SimulatedMemory::of_bytes(&kept.bytes()));
        Machine { ledger, accepts_loss: self.accepts_loss, boot: self.boot }
    }
}

impl Machine {
    /// Returns the number of the present boot, as the ledger names it.
    pub fn boot(&self) -> [u8; 16] {
        [self.boot; 16]
    }

    /// Cuts the machine's power, and with it loses its memory.
    pub fn lose_power(&mut self) {
        self.ledger = None;
        self.boot = self.boot.wrapping_add(1).max(1);
    }

    /// Calls `then` with what recovery is given beside the legs.
    pub fn with_outlived<T>(&self, then: impl FnOnce(&Outlived) -> T) -> T {
        let bytes = self.ledger.as_ref().map(SimulatedMemory::bytes);
        let accept_loss = self.accepts_loss;
        then(&Outlived { boot: self.boot(), ledger: bytes.as_deref(), accept_loss })
    }

    /// Returns the ledger that a start goes on with: the one that recovery relied on, or else a new
    /// one if the volume is to have one.
    pub fn ledger_for(&mut self, opening: &Opening, is_wanted: bool) -> Option<Ledger> {
        let layout = &opening.superblock.layout;
        if let Some(memory) = self.ledger.as_ref().filter(|_| opening.ledger.is_some()) {
            memory.stop_after(u64::MAX);
            return Some(Ledger::adopt(Box::new(memory.clone()), layout, self.boot()));
        }
        if !is_wanted {
            return None;
        }
        let memory = SimulatedMemory::new(ledger_bytes(layout));
        self.ledger = Some(memory.clone());
        let volume_id = opening.superblock.volume_id;
        Some(Ledger::begin(Box::new(memory), layout, volume_id, self.boot()))
    }
}
