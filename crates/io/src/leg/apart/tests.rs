use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn maps() -> impl Strategy<Value = Map> {
    (2_u64..80, 0_u64..1000, any::<bool>()).prop_map(|(metadata, data, at_end)| {
        let data_offset = metadata * MIB;
        let place = if at_end { Place::End(data_offset + data * MIB) } else { Place::External };
        Map { data_offset, place }
    })
}

proptest! {
    /// Pieces tile the extent, and no two addresses share a place.
    #[test]
    fn every_address_has_a_place_of_its_own(
        map in maps(), offset in 0_u64..90 * MIB, length in 1_u64..90 * MIB,
    ) {
        let mut at = 0;
        let mut seen: Vec<(u8, u64, u64)> = Vec::new();
        for piece in map.pieces(offset, length) {
            prop_assert_eq!(piece.at, at);
            let (device, place, _) = map.place_of(offset + at);
            prop_assert_eq!((piece.device, piece.offset), (device, place));
            let (device, last, _) = map.place_of(offset + at + piece.length - 1);
            prop_assert_eq!((piece.device, piece.offset + piece.length - 1), (device, last));
            let end = piece.offset + piece.length;
            if map.place == Place::External || offset + length <= map.data_offset {
                for (other, start, stop) in &seen {
                    prop_assert!(*other != device || end <= *start || *stop <= piece.offset);
                }
            }
            seen.push((device, piece.offset, end));
            at += piece.length;
        }
        prop_assert_eq!(at, length);
    }
}

#[test]
fn metadata_at_the_end_takes_the_last_bytes_and_data_the_first() {
    let (end, data_offset) = (100 * MIB, 3 * MIB);
    let map = Map { data_offset, place: Place::End(end) };
    let whole: Vec<_> = map.pieces(0, end).collect();
    let piece = |offset, length, at| Piece { device: 0, offset, length, at };
    assert_eq!(
        whole,
        [
            piece(end - MIB, MIB, 0),
            piece(end - 3 * MIB, 2 * MIB, MIB),
            piece(0, end - 3 * MIB, 3 * MIB),
        ]
    );
    assert_eq!(head_at_end(end), Some(end - MIB));
    assert_eq!(head_at_end(end + MIB - 1), Some(end - MIB));
    assert_eq!(head_at_end(2 * MIB - 1), None);
    assert_eq!(size_for(end + 4096), 101 * MIB);
}
