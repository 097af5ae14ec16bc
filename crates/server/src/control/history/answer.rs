//! The answer to `GET /v1/history`: columns with the oldest step first.

use serde::{Serialize, Serializer};

use super::rings::Stretch;
use super::row::{Column, LegColumn, Row, heat_bounds};
use crate::control::volume::LegIdentity;

/// A value in the answer: `null` if unknown, an integer if it is large, else with two decimals.
#[derive(Clone, Copy, Debug)]
struct Value(f32);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = f64::from(self.0);
        if !value.is_finite() {
            serializer.serialize_none()
        } else if value >= 100.0 || value.fract() == 0.0 {
            serializer.serialize_u64(value.round() as u64)
        } else {
            serializer.serialize_f64((value * 100.0).round() / 100.0)
        }
    }
}

/// The answer to `GET /v1/history`.
#[derive(Debug, Serialize)]
pub(in crate::control) struct HistoryAnswer {
    from_at_ms: u64,
    step_ms: u64,
    times_ms: Vec<u64>,
    clients: Clients,
    exposure: Exposure,
    hidden_ns: Vec<Value>,
    process: Process,
    legs: Vec<Leg>,
    heat: Heat,
}

#[derive(Debug, Serialize)]
struct Clients {
    reads: Vec<Value>,
    writes: Vec<Value>,
    read_bytes: Vec<Value>,
    written_bytes: Vec<Value>,
    in_flight: Vec<Value>,
    p50_ns: Vec<Value>,
    p99_ns: Vec<Value>,
    p999_ns: Vec<Value>,
    max_ns: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Exposure {
    bytes: Vec<Value>,
    age_ns: Vec<Value>,
    throttled_permille: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Process {
    cpu_permille: Vec<Value>,
    resident_bytes: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Leg {
    leg: u8,
    name: String,
    p50_ns: Vec<Value>,
    p99_ns: Vec<Value>,
    max_ns: Vec<Value>,
    frozen_permille: Vec<Value>,
    out_permille: Vec<Value>,
    owed_bytes: Vec<Value>,
    in_flight: Vec<Value>,
    reads: Vec<Value>,
    writes: Vec<Value>,
    read_bytes: Vec<Value>,
    written_bytes: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Heat {
    bounds_ns: Vec<u64>,
    counts: Vec<Option<Vec<Value>>>,
}

impl HistoryAnswer {
    /// Makes the answer for a stretch. `legs` are the volume's current legs. Of former legs only the slot is
    /// known.
    pub(in crate::control) fn new(stretch: &Stretch, legs: &[LegIdentity]) -> HistoryAnswer {
        let rows = &stretch.rows[..];
        let column = |column: Column| rows.iter().map(|row| Value(row.get(column))).collect();
        let clients = Clients {
            reads: column(Column::Reads),
            writes: column(Column::Writes),
            read_bytes: column(Column::ReadBytes),
            written_bytes: column(Column::WrittenBytes),
            in_flight: column(Column::InFlight),
            p50_ns: column(Column::P50),
            p99_ns: column(Column::P99),
            p999_ns: column(Column::P999),
            max_ns: column(Column::Max),
        };
        let exposure = Exposure {
            bytes: column(Column::Exposure),
            age_ns: column(Column::ExposureAge),
            throttled_permille: column(Column::Throttled),
        };
        let process =
            Process { cpu_permille: column(Column::Cpu), resident_bytes: column(Column::Resident) };
        let heat = |row: &Row| {
            let is_known = row.heat().iter().any(|count| !count.is_nan());
            is_known.then(|| row.heat().iter().map(|&count| Value(count)).collect())
        };
        HistoryAnswer {
            from_at_ms: stretch.from_ms,
            step_ms: stretch.step_ms,
            times_ms: rows.iter().map(|row| row.at_ms).collect(),
            clients,
            exposure,
            hidden_ns: column(Column::Hidden),
            process,
            legs: (0..hemi_engine::identifiers::LEGS_MAX as u8)
                .filter(|&slot| {
                    legs.iter().any(|known| known.leg == slot)
                        || rows.iter().any(|row| row.has_leg(usize::from(slot)))
                })
                .map(|slot| leg(rows, slot, legs))
                .collect(),
            heat: Heat {
                bounds_ns: heat_bounds().to_vec(),
                counts: rows.iter().map(heat).collect(),
            },
        }
    }
}

fn leg(rows: &[Row], slot: u8, legs: &[LegIdentity]) -> Leg {
    let column = |column: LegColumn| {
        rows.iter().map(|row| Value(row.leg(usize::from(slot), column))).collect()
    };
    Leg {
        leg: slot,
        name: crate::notices::name(legs, hemi_engine::identifiers::LegIndex(slot)),
        p50_ns: column(LegColumn::P50),
        p99_ns: column(LegColumn::P99),
        max_ns: column(LegColumn::Max),
        frozen_permille: column(LegColumn::Frozen),
        out_permille: column(LegColumn::Out),
        owed_bytes: column(LegColumn::Owed),
        in_flight: column(LegColumn::InFlight),
        reads: column(LegColumn::Reads),
        writes: column(LegColumn::Writes),
        read_bytes: column(LegColumn::ReadBytes),
        written_bytes: column(LegColumn::WrittenBytes),
    }
}
