//! A drive of which only a part is simulated.
//!
//! The capacity of flash is divided to save time and memory, but a volume may span the addresses
//! of the whole drive. Then the addresses wrap around: an address beyond the end of the model is
//! the one at its remainder. Flash takes the same time wherever data is, so what changes is only
//! how much is overwritten: two addresses with the same remainder are one. A disk must not be
//! folded, since its arm would move too short a way.

use hemi_units::{Extent, Instant};

use crate::drive::{Completion, Counters, Drive, Presence, Request};

/// A drive that takes the addresses of a larger one.
#[derive(Clone, Debug)]
pub struct Folded<D> {
    drive: D,
    sectors: u64,
}

impl<D: Drive> Folded<D> {
    /// Creates a drive of `sectors` sectors, but never fewer than the model has.
    pub fn new(drive: D, sectors: u64) -> Folded<D> {
        let sectors = sectors.max(drive.sectors());
        Folded { drive, sectors }
    }

    /// Returns the drive that is simulated.
    pub fn drive_mut(&mut self) -> &mut D {
        &mut self.drive
    }
}

/// Returns the place of an extent on a model of `sectors` sectors. An extent that would cross the
/// end of the model moves down to where it fits; one longer than the model is cut.
fn place(extent: Extent, sectors: u64) -> Extent {
    let count = extent.sectors().min(sectors);
    if count == 0 {
        return extent;
    }
    Extent::new((extent.start % sectors).min(sectors - count), count)
}

impl<D: Drive> Drive for Folded<D> {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn submit(&mut self, now: Instant, request: Request) {
        let extent = place(request.extent, self.drive.sectors());
        self.drive.submit(now, Request { extent, ..request });
    }

    fn next_event(&self) -> Instant {
        self.drive.next_event()
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        self.drive.advance(now, done);
    }

    fn counters(&self) -> Counters {
        self.drive.counters()
    }

    fn presence(&self) -> Option<Presence> {
        self.drive.presence()
    }

    fn cycles(&self) -> f64 {
        self.drive.cycles()
    }
}

#[cfg(test)]
mod tests {
    use super::place;
    use hemi_units::Extent;

    #[test]
    fn addresses_wrap_around_and_stay_within() {
        assert_eq!(place(Extent::new(5, 8), 100), Extent::new(5, 8));
        assert_eq!(place(Extent::new(305, 8), 100), Extent::new(5, 8));
        assert_eq!(place(Extent::new(196, 8), 100), Extent::new(92, 8));
        assert_eq!(place(Extent::new(7, 500), 100), Extent::new(0, 100));
        assert_eq!(place(Extent::default(), 100), Extent::default());
    }
}
