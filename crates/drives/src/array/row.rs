//! Plans a write to part of a row: the members to read, the members to write, and the bytes
//! that pass the parity engine.

use hemi_units::{Extent, SECTOR_BYTES};

use super::layout::{Layout, Piece, Run};
use super::parameters::PartialWrites;

/// A way to a row's new parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Uses the old parity and the old contents of everything that is written.
    Modify,
    /// Uses all data of the row, of which the rest is read.
    Reconstruct,
    /// Reads all that is left of the row, which first gives what the members that are out had.
    Recover,
}

/// Plans the write of `runs`, which are in order and do not touch one another, to a row with
/// parity. `out` tells the members that are out, if there are any. Puts the requests to the
/// other members into `reads` and `writes`, and returns the bytes that the parity engine takes
/// in.
pub(super) fn plan(
    layout: &Layout,
    row: u64,
    runs: &[Run],
    partial: PartialWrites,
    out: Option<&dyn Fn(usize) -> bool>,
    reads: &mut Vec<Piece>,
    writes: &mut Vec<Piece>,
) -> u64 {
    reads.clear();
    writes.clear();
    // Parity is computed for all sectors between the first and the last that change anywhere.
    let start = runs.iter().map(|run| run.start).min().unwrap_or(0);
    let end = runs.iter().map(|run| run.end).max().unwrap_or(0);
    let piece = |index: usize, start, end| Piece {
        member: layout.data_member(row, index),
        extent: layout.on_member(row, start, end),
    };
    writes.extend(runs.iter().map(|run| piece(run.index, run.start, run.end)));
    for which in 0..layout.parity() {
        let member = layout.parity_member(row, which);
        writes.push(Piece { member, extent: layout.on_member(row, start, end) });
    }
    let hull = end - start;
    let mut method = preferred(layout, runs, partial, hull);
    let mut parities = layout.parity();
    if let Some(out) = out {
        writes.retain(|piece| !out(piece.member));
        parities -= layout.parities_of(row).filter(|&member| out(member)).count();
        if parities == 0 {
            return 0;
        }
        let lost = |index: &usize| out(layout.data_member(row, *index));
        let can_modify = !runs.iter().any(|run| lost(&run.index));
        let can_reconstruct = !not_whole(layout, runs, start, end).any(|index| lost(&index));
        method = match (method, can_modify, can_reconstruct) {
            (_, false, false) => Method::Recover,
            (Method::Modify, true, _) | (_, true, false) => Method::Modify,
            _ => Method::Reconstruct,
        };
    }
    let sectors = |pieces: &[Piece]| pieces.iter().map(|p| Extent::sectors(p.extent)).sum::<u64>();
    let row_sectors = layout.data as u64 * hull;
    // Each parity takes its own pass, and so does what is recovered.
    let sectors = match method {
        Method::Modify => {
            // Reads the old contents of everything that will be written.
            reads.extend_from_slice(writes);
            let written: u64 = runs.iter().map(|run| run.end - run.start).sum();
            (sectors(reads) + written) * parities as u64
        }
        Method::Reconstruct => {
            reads.extend(not_whole(layout, runs, start, end).map(|index| piece(index, start, end)));
            row_sectors * parities as u64
        }
        Method::Recover => {
            let extent = layout.on_member(row, start, end);
            let left = layout.left_of(row, |member| out.is_some_and(|out| out(member)));
            reads.extend(left.map(|member| Piece { member, extent }));
            row_sectors * (1 + parities as u64)
        }
    };
    sectors * SECTOR_BYTES
}

/// Returns the method that the controller takes if all members are there.
fn preferred(layout: &Layout, runs: &[Run], partial: PartialWrites, hull: u64) -> Method {
    let whole = runs.iter().filter(|run| run.end - run.start == hull).count();
    let reconstruct = layout.data - whole;
    let modify = runs.len() + layout.parity();
    let written: u64 = runs.iter().map(|run| run.end - run.start).sum();
    let modifies = match partial {
        PartialWrites::FewestReads => {
            let sectors = written + layout.parity() as u64 * hull;
            (modify, sectors) < (reconstruct, reconstruct as u64 * hull)
        }
        PartialWrites::ReadModifyWrite => reconstruct > 0,
        PartialWrites::Reconstruct => false,
    };
    if modifies { Method::Modify } else { Method::Reconstruct }
}

/// Returns the indices of the data chunks that the runs do not wholly write from `start` to
/// `end`, in order.
fn not_whole(layout: &Layout, runs: &[Run], start: u64, end: u64) -> impl Iterator<Item = usize> {
    let mut rest = runs;
    (0..layout.data).filter(move |&index| {
        let of = rest.iter().take_while(|run| run.index == index).count();
        let (of_index, behind) = rest.split_at(of);
        rest = behind;
        !of_index.iter().any(|run| run.start == start && run.end == end)
    })
}

#[cfg(test)]
mod tests {
    use super::super::parameters::{Level, PartialWrites};
    use super::{Layout, Run, plan};

    /// Returns the reads, writes and parity bytes of a write to `runs`, given as (chunk, start,
    /// end).
    fn planned(
        level: Level,
        members: usize,
        partial: PartialWrites,
        runs: &[(usize, u64, u64)],
    ) -> (usize, usize, u64) {
        let layout = Layout::new(level, members, 128, 1 << 20);
        let runs: Vec<Run> =
            runs.iter().map(|&(index, start, end)| Run { index, start, end }).collect();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let bytes = plan(&layout, 7, &runs, partial, None, &mut reads, &mut writes);
        for pieces in [&reads, &writes] {
            for (at, piece) in pieces.iter().enumerate() {
                assert!(piece.extent.start >= 7 * 128 && piece.extent.end <= 8 * 128);
                let again = pieces[..at].iter().any(|other| {
                    other.member == piece.member && other.extent.overlaps(piece.extent)
                });
                assert!(!again, "{piece:?} twice");
            }
        }
        (reads.len(), writes.len(), bytes)
    }

    const FEWEST: PartialWrites = PartialWrites::FewestReads;

    #[test]
    fn a_full_row_is_written_without_reading() {
        let all: Vec<_> = (0..7).map(|index| (index, 0, 128)).collect();
        for partial in [FEWEST, PartialWrites::Reconstruct, PartialWrites::ReadModifyWrite] {
            assert_eq!(planned(Level::Raid5, 8, partial, &all), (0, 8, 7 * 65536));
        }
        assert_eq!(planned(Level::Raid6, 9, FEWEST, &all), (0, 9, 2 * 7 * 65536));
        // Writing the same slice of each chunk needs no reads either.
        let slice: Vec<_> = (0..7).map(|index| (index, 8, 16)).collect();
        assert_eq!(planned(Level::Raid5, 8, FEWEST, &slice), (0, 8, 7 * 4096));
    }

    #[test]
    fn a_small_write_reads_and_writes_data_and_parity() {
        let small = [(3, 16, 24)];
        assert_eq!(planned(Level::Raid5, 8, FEWEST, &small), (2, 2, 3 * 4096));
        assert_eq!(planned(Level::Raid6, 8, FEWEST, &small), (3, 3, 2 * 4 * 4096));
        let reconstruct = PartialWrites::Reconstruct;
        assert_eq!(planned(Level::Raid5, 8, reconstruct, &small), (6, 2, 7 * 4096));
    }

    #[test]
    fn whichever_reads_less_is_taken() {
        // Of seven chunks: four to read against three …
        let three: Vec<_> = (0..3).map(|index| (index, 0, 128)).collect();
        assert_eq!(planned(Level::Raid5, 8, FEWEST, &three).0, 4);
        // … and three against five.
        let four: Vec<_> = (0..4).map(|index| (index, 0, 128)).collect();
        assert_eq!(planned(Level::Raid5, 8, FEWEST, &four).0, 3);
        let modify = PartialWrites::ReadModifyWrite;
        assert_eq!(planned(Level::Raid5, 8, modify, &four).0, 5);
        // With three members, reading the other data chunk takes fewer reads than data and parity.
        assert_eq!(planned(Level::Raid5, 3, FEWEST, &[(0, 0, 8)]).0, 1);
    }

    #[test]
    fn runs_of_a_chunk_apart_are_written_apart() {
        let (reads, writes, _) = planned(Level::Raid5, 8, FEWEST, &[(2, 0, 8), (2, 64, 72)]);
        assert_eq!((reads, writes), (3, 3));
    }
}
