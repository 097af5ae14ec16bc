//! The largest volume that legs can hold (`--size max`).

use hemi_engine::format::Layout;
use hemi_engine::format::layout::{
    REGION_BYTES_MAX, REGION_BYTES_MIN, VOLUME_BYTES_MAX, VOLUME_GRAIN, default_region_bytes,
};

/// Room that legs have for a volume. Each figure is the minimum over all legs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes for metadata and data together.
    pub(super) leg: u64,
    /// Bytes for data, on a device of its own.
    pub(super) data: u64,
    /// Bytes for metadata, on a device of its own.
    pub(super) metadata: u64,
}

impl Room {
    /// Unlimited room.
    pub(super) const ANY: Room = Room { leg: u64::MAX, data: u64::MAX, metadata: u64::MAX };

    /// Returns the room that both have.
    pub(super) fn least(self, other: Room) -> Room {
        Room {
            leg: self.leg.min(other.leg),
            data: self.data.min(other.data),
            metadata: self.metadata.min(other.metadata),
        }
    }

    fn holds(self, layout: &Layout) -> bool {
        layout.leg_bytes() <= self.leg
            && layout.volume_bytes() <= self.data
            && layout.data_offset() <= self.metadata
    }
}

/// Returns the size in bytes of the largest volume that fits, with regions of `region_bytes` or of the
/// volume's default size; `None` if not even the smallest fits.
pub(super) fn largest_volume(room: Room, region_bytes: Option<u64>) -> Option<u64> {
    if let Some(region_bytes) = region_bytes {
        return largest_with(room, region_bytes, |_| true);
    }
    // Metadata grows with the volume, but shrinks when the default region size grows. So each default is
    // searched by itself, the largest first.
    let mut region_bytes = REGION_BYTES_MAX;
    while region_bytes >= REGION_BYTES_MIN {
        let found =
            largest_with(room, region_bytes, |volume| default_region_bytes(volume) <= region_bytes);
        if let Some(volume) = found
            && default_region_bytes(volume) == region_bytes
        {
            return Some(volume);
        }
        region_bytes /= 2;
    }
    None
}

/// Returns the largest volume that fits with regions of this size and is `allowed`. It bisects: if a volume
/// is too large, so is every larger one.
fn largest_with(room: Room, region_bytes: u64, allowed: impl Fn(u64) -> bool) -> Option<u64> {
    let fits = |grains: u64| {
        let volume = grains * VOLUME_GRAIN;
        allowed(volume) && Layout::new(volume, region_bytes).is_ok_and(|layout| room.holds(&layout))
    };
    let (mut fitting, mut too_large) = (0, VOLUME_BYTES_MAX / VOLUME_GRAIN + 1);
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_large = middle;
        }
    }
    (fitting > 0).then_some(fitting * VOLUME_GRAIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn of_leg(leg: u64) -> Room {
        Room { leg, ..Room::ANY }
    }

    /// Checks that the size found fits and that no larger one does. Metadata takes at least 2 MiB, which
    /// bounds the sizes to try.
    fn check(leg: u64, region_bytes: Option<u64>) {
        let bytes = |volume| {
            let region = region_bytes.unwrap_or_else(|| default_region_bytes(volume));
            Layout::new(volume, region).map_or(u64::MAX, |layout| layout.leg_bytes())
        };
        let found = largest_volume(of_leg(leg), region_bytes);
        let mut above = found.unwrap_or(0);
        assert!(above == 0 || bytes(above) <= leg, "{above} does not fit into {leg}");
        while above + VOLUME_GRAIN + 2 * MIB <= leg {
            above += VOLUME_GRAIN;
            assert!(bytes(above) > leg, "{above} fits into {leg}, not only {found:?}");
        }
    }

    #[test]
    fn sizes_where_the_metadata_changes_are_exact() {
        assert_eq!(largest_volume(of_leg(2 * MIB), None), None);
        assert_eq!(largest_volume(of_leg(2 * MIB + 4095), None), None);
        assert_eq!(largest_volume(of_leg(2 * MIB + 4096), None), Some(4096));
        assert_eq!(largest_volume(of_leg(10 * GIB), None), Some(10 * GIB - 2 * MIB));
        assert_eq!(largest_volume(of_leg(u64::MAX), None), Some(VOLUME_BYTES_MAX));
        // A page of the table holds 1736 regions, and one mebibyte holds 128 pages.
        let table = 128 * 1736 * MIB;
        for around in [table, 256 * GIB, 512 * GIB, 2 * table, 4 * table] {
            for offset in 0..6 {
                for ragged in [0, 512, 4096, MIB - 4096, MIB - 512] {
                    check(around + offset * MIB + ragged, None);
                    check(around + offset * MIB + ragged, Some(MIB));
                }
            }
        }
    }

    #[test]
    fn room_for_metadata_alone_bounds_it_too() {
        let room = Room { data: 500 * GIB + 4095, ..Room::ANY };
        assert_eq!(largest_volume(room, None), Some(500 * GIB));
        // Two mebibytes hold a table of 128 pages.
        let room = Room { metadata: 2 * MIB, ..room };
        assert_eq!(largest_volume(room, Some(MIB)), Some(128 * 1736 * MIB));
        assert_eq!(largest_volume(Room { metadata: MIB, ..room }, None), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn no_larger_volume_fits(leg in 4096_u64..40_u64 << 40) {
            check(leg, None);
        }
    }
}
