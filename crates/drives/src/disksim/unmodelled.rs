//! Values of a description that have no effect in [`crate::hdd`].
//!
//! Each key is used, or has no effect on a disk's times in DiskSim either, or is listed in
//! [`DISK`] and its like with the value at which leaving it out changes nothing. What is none of
//! these is unknown, and so ignored as well.

use std::fmt;

use super::drive::Parts;
use super::text::{Block, Value};
use crate::hdd::parameters::Parameters;

/// A value that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The behaviour of the model instead.
    pub instead: String,
}

impl fmt::Display for Ignored {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ignored { file, line, key, value, instead } = self;
        write!(formatter, "{file}, line {line}: `{key}` = {value}: {instead}")
    }
}

impl Ignored {
    /// Returns the entry for another disk of a parameter file.
    pub(super) fn disk(file: &str, name: &str) -> Ignored {
        Ignored {
            file: file.to_owned(),
            line: 1,
            key: "topology".to_owned(),
            value: name.to_owned(),
            instead: "only the first disk is read".to_owned(),
        }
    }
}

/// A key that the model leaves out: the value at which this changes nothing, the behaviour of
/// the model, and the condition under which it matters.
type LeftOut = (&'static str, f64, &'static str, When);

/// The condition under which a value matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// If the drive takes several requests at a time.
    Queued,
    /// If leaving the bus takes time.
    Disconnecting,
}

const DISK: &[LeftOut] = &[
    ("Hold bus entire read xfer", 1.0, "the bus is kept until a read is over", When::Disconnecting),
    (
        "Hold bus entire write xfer",
        1.0,
        "the bus is kept until the data of a write is over",
        When::Disconnecting,
    ),
    (
        "Low (write) water mark",
        0.0,
        "a write larger than a segment crosses the bus in one go",
        When::Disconnecting,
    ),
    (
        "Allow sneaky partial read hits",
        0.0,
        "a read that the cache holds in part waits for the arm",
        When::Queued,
    ),
    (
        "Allow sneaky intermediate read hits",
        0.0,
        "a read is looked up in the cache when it comes and when its turn comes",
        When::Queued,
    ),
    (
        "Allow write prebuffering",
        0.0,
        "the data of a write crosses the bus as soon as its command is worked out",
        When::Queued,
    ),
    ("Preseeking level", 2.0, "the arm moves as soon as it is free", When::Queued),
    ("Enable caching in buffer", 1.0, "the buffer is a cache", When::Always),
    ("Minimum read-ahead (blks)", 0.0, "reading ahead gives way at once", When::Always),
    ("Fast write level", 2.0, "the cache takes writes that continue none", When::Always),
    ("Combine seq writes", 1.0, "writes that touch are one run of the cache", When::Always),
    ("Disconnect write if seek", 0.0, "a movement of the arm always ends", When::Always),
    ("Write hit stop prefetch", 1.0, "a write ends reading ahead", When::Always),
    ("Read directly to buffer", 1.0, "a sector is in the buffer once it has passed", When::Always),
    (
        "Immed transfer partial hit",
        1.0,
        "what the cache holds of a read crosses the bus at once",
        When::Always,
    ),
];

const DISK_USED: &[&str] = &[
    "Model",
    "Scheduler",
    "Per-request overhead time",
    "Time scale for overheads",
    "Bulk sector transfer time",
    "Allow almost read hits",
    "Allow sneaky full read hits",
    "Allow read hits on write data",
    "Never disconnect",
    "Max queue length",
    "Number of buffer segments",
    "Maximum number of write segments",
    "Segment size (in blks)",
    "Use separate write segment",
    "High (read) water mark",
    "Set watermark by reqsize",
    "Buffer continuous read",
    "Maximum read-ahead (blks)",
    "Read-ahead over requested",
    "Read-ahead on idle hit",
    "Read any free blocks",
    "Immediate buffer read",
    "Immediate buffer write",
    "Stop prefetch in sector",
    "Read hit over. after read",
    "Read hit over. after write",
    "Read miss over. after read",
    "Read miss over. after write",
    "Write hit over. after read",
    "Write hit over. after write",
    "Write miss over. after read",
    "Write miss over. after write",
    "Read completion overhead",
    "Write completion overhead",
    "Data preparation overhead",
    "First reselect overhead",
    "Other reselect overhead",
    "Read disconnect afterread",
    "Read disconnect afterwrite",
    "Write disconnect overhead",
    "Extra write disconnect",
    "Extradisc command overhead",
    "Extradisc disconnect overhead",
    "Extradisc inter-disconnect delay",
    "Extradisc 2nd disconnect overhead",
    "Extradisc seek delta",
    "Minimum seek delay",
    // These have no effect on a disk's times in DiskSim either.
    "Print stats",
    "Avg sectors per cylinder",
    "Calc sector by sector",
];

const MODEL_USED: &[&str] = &[
    "Number of data surfaces",
    "Number of cylinders",
    "Block count",
    "Mechanical Model",
    "Layout Model",
];

const MECHANICS: &[LeftOut] =
    &[("Percent error in rpms", 0.0, "every disk turns at the same speed", When::Always)];

const MECHANICS_USED: &[&str] = &[
    "Access time type",
    "Seek type",
    "Full seek curve",
    "HPL seek equation values",
    "First ten seek times",
    "Average seek time",
    "Head switch time",
    "Rotation speed (in rpms)",
    "Add. write settling delay",
    // These belong to kinds of curves that are refused.
    "Single cylinder seek time",
    "Full strobe seek time",
];

const LAYOUT_USED: &[&str] = &[
    "LBN-to-PBN mapping scheme",
    "Sparing scheme used",
    "Rangesize for sparing",
    "Skew units",
    "Zones",
];

const BUS: &[LeftOut] = &[("Arbitration time", 0.0, "the disk is alone on its bus", When::Always)];

const BUS_USED: &[&str] = &[
    "type",
    "Arbitration type",
    "Read block transfer time",
    "Write block transfer time",
    "Print stats",
];

/// Returns the values of a description that have no effect on `parameters`.
pub(super) fn in_parts(parts: &Parts, parameters: &Parameters) -> Vec<Ignored> {
    let matters = |when: When| match when {
        When::Always => true,
        When::Queued => parameters.queue.depth > 1,
        When::Disconnecting => {
            parameters.bus.disconnection.as_ref().is_some_and(|rules| rules.reselection.0 > 0)
        }
    };
    let mut all = Vec::new();
    let mut look = |block: &Block, left_out: &[LeftOut], used: &[&str]| {
        for (key, line, value) in &block.entries {
            let known = left_out.iter().find(|one| one.0 == key);
            let instead = match known {
                Some(&(_, harmless, instead, when)) => {
                    if !matters(when) || is_harmless(key, value, harmless) {
                        continue;
                    }
                    instead
                }
                None if used.contains(&key.as_str()) => continue,
                None => "is not known here",
            };
            all.push(entry(block, key, *line, &shown(value), instead));
        }
    };
    look(&parts.disk, DISK, DISK_USED);
    look(&parts.model, &[], MODEL_USED);
    look(&parts.mechanics, MECHANICS, MECHANICS_USED);
    look(&parts.layout, &[], LAYOUT_USED);
    for bus in parts.path.iter().filter(|one| one.kind == "disksim_bus") {
        look(bus, BUS, BUS_USED);
    }
    all.extend(policy(&parts.disk, parameters));
    all.extend(defects(&parts.layout));
    all
}

/// Returns true if leaving the value out changes nothing.
fn is_harmless(key: &str, value: &Value, harmless: f64) -> bool {
    let Value::Number(value) = value else { return false };
    match key {
        // 2 is the same as 1, and a drive that caches no writes has no level.
        "Enable caching in buffer" => *value >= harmless,
        "Fast write level" => *value != 1.0,
        _ => (value - harmless).abs() < f64::EPSILON,
    }
}

fn entry(block: &Block, key: &str, line: usize, value: &str, instead: &str) -> Ignored {
    Ignored {
        file: block.file.clone(),
        line,
        key: key.to_owned(),
        value: value.to_owned(),
        instead: instead.to_owned(),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Word(word) | Value::Source(word) => word.clone(),
        Value::List(list) => format!("a list of {}", list.len()),
        Value::Block(block) => format!("a `{}`", block.kind),
    }
}

/// Returns an entry if the disk orders its requests otherwise than first come, first served.
fn policy(disk: &Block, parameters: &Parameters) -> Option<Ignored> {
    let Some((_, Value::Block(scheduler))) = disk.get("Scheduler") else { return None };
    let key = "Scheduling policy";
    match scheduler.get(key) {
        Some((line, Value::Number(policy))) if *policy != 1.0 && parameters.queue.depth > 1 => {
            let instead = "requests are served first come, first served";
            Some(entry(scheduler, key, line, &policy.to_string(), instead))
        }
        _ => None,
    }
}

/// Returns an entry for defective sectors that were moved elsewhere, if there are any.
fn defects(layout: &Block) -> Option<Ignored> {
    let Some((_, Value::List(zones))) = layout.get("Zones") else { return None };
    let mut first = None;
    let mut count = 0;
    for zone in zones {
        let Value::Block(zone) = zone else { continue };
        if let Some((line, Value::List(defects))) = zone.get("defects") {
            // Pairs of a sector and its new place.
            count += defects.len() / 2;
            if !defects.is_empty() {
                first.get_or_insert(line);
            }
        }
    }
    let instead = "sectors that were moved for a defect lie where they would without it";
    first.map(|line| entry(layout, "defects", line, &count.to_string(), instead))
}
