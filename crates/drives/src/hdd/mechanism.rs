//! Arm and platters: the time an access takes, track by track.

use hemi_units::Instant;

use super::bus::Arrival;
use super::geometry::{Geometry, Place, Switching};
use super::parameters::Parameters;
use super::rotation::{Angle, Spindle};
use super::seek::SeekTable;

/// The position of the arm and the head in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arm {
    /// The cylinder.
    pub cylinder: u32,
    /// The head.
    pub head: u16,
}

/// A part of an access that stays on one track.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// First sector.
    pub sector: u64,
    /// One past the last sector.
    pub end_sector: u64,
    /// Time at which the arm has arrived and settled.
    pub arrived: Instant,
    /// Time at which the first sector begins to pass.
    pub begin: Instant,
    /// Time at which the last sector has passed.
    pub end: Instant,
    /// Position of the arm.
    pub arm: Arm,
    /// Time a sector takes to pass, in nanoseconds × 2¹⁶. Defective sectors inside the piece
    /// add to it; `end` includes them.
    pub sector_time: u64,
}

impl Piece {
    /// Returns the time at which sector `nth` of the piece, counted from 0, has passed.
    #[inline]
    pub fn passed(&self, nth: u64) -> Instant {
        if self.sector + nth + 1 >= self.end_sector {
            return self.end;
        }
        self.end.min(self.begin + (((nth + 1) * self.sector_time) >> 16))
    }

    /// Returns the sector that is the first to have been read before those in front of it, if
    /// access began on arrival in the middle of the piece; otherwise the last.
    pub fn landing(&self) -> u64 {
        let in_order = (self.end.since(self.begin) << 16) / self.sector_time;
        (self.sector + in_order).min(self.end_sector - 1)
    }

    /// Returns the number of sectors that have passed at `at`.
    pub fn done(&self, at: Instant) -> u64 {
        let sectors = self.end_sector - self.sector;
        if at >= self.end {
            return sectors;
        }
        let nth = ((at.since(self.begin) << 16) / self.sector_time).min(sectors - 1);
        // `passed` rounds down, so that the sector which has passed just now is one more.
        if self.passed(nth) <= at { nth + 1 } else { nth }
    }
}

/// Returns the time a sector takes to pass, by zone; see [`Piece::sector_time`].
fn sector_times(geometry: &Geometry, revolution: f64) -> Vec<u64> {
    (0..geometry.zones())
        .map(|zone| revolution * 65536.0 / f64::from(geometry.sectors_per_track(zone)))
        .map(|time| libm::round(time).max(1.0) as u64)
        .collect()
}

/// The constant part of a disk: platters, seek curve and switching times.
#[derive(Clone, Debug)]
pub struct Mechanism {
    /// Map from sectors to places.
    pub geometry: Geometry,
    /// Rotation of the platters.
    pub spindle: Spindle,
    seeks: SeekTable,
    /// Passing time by zone; see [`Piece::sector_time`].
    sector_times: Vec<u64>,
    head_switch: u32,
    write_settle: u32,
    write_advance: u32,
    access_on_arrival: bool,
    write_on_arrival: bool,
}

impl Mechanism {
    /// Builds the mechanism of a disk whose parameters have been checked.
    pub fn new(parameters: &Parameters) -> Mechanism {
        let settle = parameters.write_settle.0;
        let revolution = parameters.revolution();
        // A skew has to suffice for writes too.
        let switching = |one_cylinder: u64| Switching {
            head: hemi_units::Time(parameters.head_switch.0 + settle),
            cylinder: hemi_units::Time(one_cylinder.max(parameters.head_switch.0) + settle),
        };
        // The number of cylinders does not depend on the skews, but the seek curve may depend
        // on that number.
        let geometry = Geometry::new(&parameters.layout, revolution, switching(0));
        let one = parameters.seek.time(1, geometry.cylinders());
        let geometry = Geometry::new(&parameters.layout, revolution, switching(one));
        Mechanism {
            sector_times: sector_times(&geometry, revolution),
            seeks: SeekTable::new(&parameters.seek, geometry.cylinders()),
            geometry,
            spindle: Spindle::new(parameters.revolutions_per_minute),
            head_switch: parameters.head_switch.0 as u32,
            write_settle: settle as u32,
            write_advance: parameters.write_advance.0 as u32,
            access_on_arrival: parameters.access_on_arrival,
            write_on_arrival: parameters.write_on_arrival.unwrap_or(parameters.access_on_arrival),
        }
    }

    /// Returns the mechanism with its platters turned by `angle` at time 0 and faster by
    /// `faster` parts per billion. Skews stay as they were written, at nominal speed.
    #[must_use]
    pub fn spinning(mut self, angle: Angle, faster: i32) -> Mechanism {
        self.spindle = self.spindle.turned(angle).faster(faster);
        self.sector_times = sector_times(&self.geometry, self.spindle.exact_revolution());
        self
    }

    /// Returns the time to move from one track to another and settle, in nanoseconds.
    #[inline]
    pub fn travel(&self, from: Arm, to: Arm, write: bool) -> u64 {
        if from == to {
            return 0;
        }
        let switch = if from.head == to.head { 0 } else { self.head_switch };
        let seek = self.seeks.time(from.cylinder.abs_diff(to.cylinder)).max(switch);
        if write {
            u64::from(seek.saturating_sub(self.write_advance)) + u64::from(self.write_settle)
        } else {
            u64::from(seek)
        }
    }

    /// Returns the time that a write settles after a movement, in nanoseconds.
    #[inline]
    pub fn write_settle(&self) -> u64 {
        u64::from(self.write_settle)
    }

    /// Returns a distance in cylinders from which on every travel takes at least `time`
    /// nanoseconds.
    #[inline]
    pub fn reach(&self, time: u64) -> u32 {
        self.seeks.reach(time.saturating_add(u64::from(self.write_advance)))
    }

    /// Returns the travel and rotation time until `place` can be accessed, starting at `at`.
    #[inline]
    pub fn positioning(&self, at: Instant, from: Arm, place: &Place, write: bool) -> u64 {
        let travel = self.travel(from, Arm { cylinder: place.cylinder, head: place.head }, write);
        travel + self.spindle.wait(at.0 + travel, place.angle)
    }

    /// Returns the first piece of an access that begins at `at` and reaches at most to
    /// `end_sector`. For a write, `write` is the arrival of its data.
    pub(super) fn piece(
        &self,
        at: Instant,
        from: Arm,
        sector: u64,
        end_sector: u64,
        write: Option<&Arrival>,
    ) -> Piece {
        let stretch = self.geometry.stretch(sector, end_sector - sector);
        let place = stretch.place;
        let arm = Arm { cylinder: place.cylinder, head: place.head };
        let settled = at + self.travel(from, arm, write.is_some());
        let sector_time = self.sector_times[usize::from(place.zone)];
        let data = write.map(|data| data.lets_pass(sector, sector + stretch.sectors, sector_time));
        let arrived = settled.max(data.unwrap_or_default());
        let begin = arrived + self.spindle.wait(arrived.0, place.angle);
        let width = self.geometry.width(place.zone, stretch.slots);
        let mut end = begin + self.spindle.time(width);
        let on_arrival =
            if write.is_some() { self.write_on_arrival } else { self.access_on_arrival };
        if on_arrival {
            let into = self.spindle.angle(arrived.0).wrapping_sub(place.angle);
            if u64::from(into) < width {
                // From the head's position to the end, and the part before it during the next
                // turn.
                let one = self.spindle.time(self.geometry.width(place.zone, 1));
                end = end.min(arrived + self.spindle.revolution() + one);
            }
        }
        let end_sector = sector + stretch.sectors;
        Piece { sector, end_sector, arrived, begin, end, arm, sector_time }
    }

    /// Returns the number of sectors before `piece` that passed under the head between its
    /// arrival and its beginning.
    pub fn passing(&self, piece: &Piece) -> u64 {
        let waited = piece.begin.since(piece.arrived);
        let start = self.geometry.track_start(piece.sector);
        ((waited << 16) / piece.sector_time).min(piece.sector - start)
    }
}
