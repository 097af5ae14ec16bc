//! One step of the history: its columns, and the merging of steps into longer ones.

use hemi_engine::histogram::{BUCKETS, LatencyHistogram, bucket_upper_bound};
use hemi_engine::identifiers::LEGS_MAX;

/// Number of buckets of the heat map.
pub(crate) const HEAT_BUCKETS: usize = 24;
/// Upper bound of the first bucket of the heat map in nanoseconds, as a power of two: 8 µs. The bound of each
/// further bucket is twice as high, and the last one holds 68 s and above.
const HEAT_FIRST: u32 = 13;
/// Number of columns of each leg.
pub(crate) const LEG_COLUMNS: usize = 11;
/// Number of columns before those of the heat map.
const PLAIN_COLUMNS: usize = 15;
/// Number of columns before those of the legs.
pub(crate) const COMMON_COLUMNS: usize = PLAIN_COLUMNS + HEAT_BUCKETS;

/// A column of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Column {
    /// Reads per second.
    Reads,
    /// Writes per second.
    Writes,
    /// Bytes read per second.
    ReadBytes,
    /// Bytes written per second.
    WrittenBytes,
    /// Requests in flight.
    InFlight,
    /// Median latency.
    P50,
    /// 99 % quantile.
    P99,
    /// 99.9 % quantile.
    P999,
    /// Maximum latency.
    Max,
    /// Exposure in bytes.
    Exposure,
    /// Age of the exposure.
    ExposureAge,
    /// Share of the time during which writers were held back.
    Throttled,
    /// Hidden stall time.
    Hidden,
    /// Processor time.
    Cpu,
    /// Resident memory.
    Resident,
}

/// A column of each leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum LegColumn {
    /// Median latency of reads and writes.
    P50,
    /// 99 % quantile.
    P99,
    /// Maximum latency.
    Max,
    /// Share of the time during which it was frozen.
    Frozen,
    /// Share of the time during which it was out or gone.
    Out,
    /// Bytes it owes.
    Owed,
    /// I/O in flight.
    InFlight,
    /// Reads per second.
    Reads,
    /// Writes per second.
    Writes,
    /// Bytes read per second.
    ReadBytes,
    /// Bytes written per second.
    WrittenBytes,
}

/// The way in which the values of several steps become one.
#[derive(Clone, Copy)]
enum Merge {
    Mean,
    Max,
    Sum,
}

const COMMON_MERGES: [Merge; PLAIN_COLUMNS] = {
    use Merge::{Max, Mean, Sum};
    [Mean, Mean, Mean, Mean, Mean, Mean, Max, Max, Max, Max, Max, Mean, Sum, Mean, Max]
};
const LEG_MERGES: [Merge; LEG_COLUMNS] = {
    use Merge::{Max, Mean};
    [Mean, Max, Max, Mean, Mean, Max, Mean, Mean, Mean, Mean, Mean]
};

/// One step. An unknown value is NaN. Single precision has seven digits, more than any chart shows, and takes
/// half the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The end of the step, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    common: [f32; COMMON_COLUMNS],
    legs: [[f32; LEG_COLUMNS]; LEGS_MAX],
}

impl Row {
    /// Returns a step whose values are all unknown.
    pub(crate) fn unknown(at_ms: u64) -> Row {
        Row { at_ms, common: [f32::NAN; COMMON_COLUMNS], legs: [[f32::NAN; LEG_COLUMNS]; LEGS_MAX] }
    }

    /// Returns a value of the volume.
    pub(crate) fn get(&self, column: Column) -> f32 {
        self.common[column as usize]
    }

    /// Sets a value of the volume.
    pub(crate) fn set(&mut self, column: Column, value: f32) {
        self.common[column as usize] = value;
    }

    /// Returns the number of client requests with a latency in each bucket of the heat map.
    pub(crate) fn heat(&self) -> &[f32] {
        &self.common[PLAIN_COLUMNS..]
    }

    /// Counts the latencies of a histogram into the heat map.
    pub(crate) fn set_heat(&mut self, latencies: &LatencyHistogram) {
        let heat = &mut self.common[PLAIN_COLUMNS..];
        heat.fill(0.0);
        for (bucket, &count) in latencies.buckets().iter().enumerate() {
            heat[heat_bucket(bucket)] += count as f32;
        }
    }

    /// Returns a value of a leg.
    pub(crate) fn leg(&self, slot: usize, column: LegColumn) -> f32 {
        self.legs[slot][column as usize]
    }

    /// Sets a value of a leg.
    pub(crate) fn set_leg(&mut self, slot: usize, column: LegColumn, value: f32) {
        self.legs[slot][column as usize] = value;
    }

    /// Returns true if any value of a leg is known.
    pub(crate) fn has_leg(&self, slot: usize) -> bool {
        self.legs[slot].iter().any(|value| !value.is_nan())
    }

    /// Appends the values as bytes, without legs of which all values are unknown.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.at_ms.to_le_bytes());
        let legs = (0..LEGS_MAX).filter(|&slot| self.has_leg(slot));
        into.push(legs.clone().fold(0, |mask, slot| mask | 1 << slot));
        let values = self.common.iter().chain(legs.flat_map(|slot| &self.legs[slot]));
        into.extend(values.flat_map(|value| value.to_le_bytes()));
    }

    /// Returns the step that [`Row::encode`] encoded as these bytes; `None` if they are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Row> {
        let (at_ms, rest) = bytes.split_first_chunk()?;
        let (&mask, rest) = rest.split_first()?;
        let mut row = Row::unknown(u64::from_le_bytes(*at_ms));
        let (values, rest) = rest.as_chunks();
        if !rest.is_empty()
            || values.len() != COMMON_COLUMNS + LEG_COLUMNS * mask.count_ones() as usize
        {
            return None;
        }
        let legs = row.legs.iter_mut().enumerate().filter(|(slot, _)| mask >> slot & 1 == 1);
        let places = row.common.iter_mut().chain(legs.flat_map(|(_, leg)| leg));
        for (place, value) in places.zip(values) {
            *place = f32::from_le_bytes(*value);
        }
        Some(row)
    }
}

/// Returns the bucket of the heat map that contains a bucket of the engine's histogram.
fn heat_bucket(bucket: usize) -> usize {
    // The highest bucket has no upper bound.
    if bucket + 1 == BUCKETS {
        return HEAT_BUCKETS - 1;
    }
    let bits = u64::BITS - bucket_upper_bound(bucket).leading_zeros();
    (bits.saturating_sub(HEAT_FIRST) as usize).min(HEAT_BUCKETS - 1)
}

/// Returns the upper bounds of the heat map's buckets in nanoseconds. The last has no end.
pub(crate) fn heat_bounds() -> [u64; HEAT_BUCKETS] {
    std::array::from_fn(|bucket| (1 << (HEAT_FIRST + bucket as u32)) - 1)
}

/// Several steps that are being merged. A merged value is the mean, maximum or sum of the known values. A
/// quantile is the highest of them, except the median, which is their mean.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    row: Row,
    known: [u32; COMMON_COLUMNS],
    known_legs: [[u32; LEG_COLUMNS]; LEGS_MAX],
}

impl Merged {
    /// Returns a merged step without any part yet.
    pub(crate) fn new(at_ms: u64) -> Merged {
        Merged {
            row: Row::unknown(at_ms),
            known: [0; COMMON_COLUMNS],
            known_legs: [[0; LEG_COLUMNS]; LEGS_MAX],
        }
    }

    /// Adds a part.
    pub(crate) fn add(&mut self, part: &Row) {
        let heat = [Merge::Sum; HEAT_BUCKETS];
        let merges = COMMON_MERGES.iter().chain(&heat);
        let common = self.row.common.iter_mut().zip(&mut self.known).zip(&part.common);
        for ((place, value), merge) in common.zip(merges) {
            merge.take(place, *value);
        }
        let legs = self.row.legs.iter_mut().zip(&mut self.known_legs).zip(&part.legs);
        for ((leg, known), part) in legs {
            for (((place, known), value), merge) in
                leg.iter_mut().zip(known).zip(part).zip(&LEG_MERGES)
            {
                merge.take((place, known), *value);
            }
        }
    }

    /// Returns the merged step.
    pub(crate) fn finish(mut self) -> Row {
        let mean = |place: &mut f32, known: u32, merge: &Merge| {
            if matches!(merge, Merge::Mean) && known > 0 {
                *place /= known as f32;
            }
        };
        for ((place, &known), merge) in
            self.row.common.iter_mut().zip(&self.known).zip(&COMMON_MERGES)
        {
            mean(place, known, merge);
        }
        for (leg, known) in self.row.legs.iter_mut().zip(&self.known_legs) {
            for ((place, &known), merge) in leg.iter_mut().zip(known).zip(&LEG_MERGES) {
                mean(place, known, merge);
            }
        }
        self.row
    }
}

impl Merge {
    fn take(self, (place, known): (&mut f32, &mut u32), value: f32) {
        if value.is_nan() {
            return;
        }
        *place = match (*known, self) {
            (0, _) => value,
            (_, Merge::Max) => place.max(value),
            (_, Merge::Sum | Merge::Mean) => *place + value,
        };
        *known += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seed: f32) -> Row {
        let mut row = Row::unknown(1_000);
        row.set(Column::Reads, seed);
        row.set(Column::Max, seed * 10.0);
        row.set(Column::Hidden, seed);
        row.set_leg(3, LegColumn::Owed, seed * 2.0);
        row
    }

    #[test]
    fn a_row_reads_as_it_was_written() {
        let row = sample(7.0);
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        let again = Row::decode(&bytes).expect("these bytes are of a row");
        let mut second = Vec::new();
        again.encode(&mut second);
        assert_eq!(bytes, second);
        assert_eq!(again.leg(3, LegColumn::Owed), 14.0);
        assert!(again.get(Column::P50).is_nan() && !again.has_leg(2));
        for cut in 0..bytes.len() {
            assert!(Row::decode(&bytes[..cut]).is_none(), "{cut} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn rows_merge_by_what_their_columns_mean() {
        let mut merged = Merged::new(5_000);
        merged.add(&Row::unknown(0));
        merged.add(&sample(1.0));
        merged.add(&sample(3.0));
        let whole = merged.finish();
        assert_eq!(whole.get(Column::Reads), 2.0, "a rate is a mean");
        assert_eq!(whole.get(Column::Max), 30.0, "the greatest latency of all");
        assert_eq!(whole.get(Column::Hidden), 4.0, "times add up");
        assert_eq!(whole.leg(3, LegColumn::Owed), 6.0);
        assert!(whole.get(Column::P99).is_nan(), "what nothing knows stays unknown");
    }

    #[test]
    fn every_latency_is_in_the_bucket_of_the_heat_map_that_bounds_it() {
        let bounds = heat_bounds();
        assert!(bounds.is_sorted());
        for nanoseconds in [0, 8191, 8192, 20_000, 1_000_000, 40_000_000_000, 1 << 40] {
            let mut histogram = LatencyHistogram::default();
            histogram.record(nanoseconds);
            let mut row = Row::unknown(0);
            row.set_heat(&histogram);
            let bucket = row.heat().iter().position(|&count| count == 1.0).expect("it is counted");
            assert!(nanoseconds <= bounds[bucket] || bucket + 1 == HEAT_BUCKETS, "{nanoseconds}");
            assert!(bucket == 0 || nanoseconds > bounds[bucket - 1], "{nanoseconds}");
        }
    }
}
