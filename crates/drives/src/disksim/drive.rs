//! Conversion of a DiskSim description to parameters of [`crate::hdd`].

use super::text::{Block, DescriptionError, Value, parse};
use crate::hdd::geometry::{HeadOrder, Layout, Zone};
use crate::hdd::parameters::{
    Order, Overhead, Overheads, Parameters, PowerStates, Queue, ReadAhead, ReadCache, WriteCache,
};
use crate::hdd::seek::SeekCurve;
use hemi_units::{Rate, Size, Time};

/// A function that reads a file named by a description. Returns its text, or the reason it
/// cannot be read.
pub type Reader<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

const HUGE: f64 = 1e12;

/// Loads the drive that the file `specs` describes; `read` reads it and the files it names.
pub fn load(specs: &str, read: &Reader<'_>) -> Result<Parameters, DescriptionError> {
    let file = |name: &str| -> Result<String, DescriptionError> {
        read(name).map_err(|problem| DescriptionError {
            file: name.to_owned(),
            line: 0,
            key: "the file".to_owned(),
            problem,
        })
    };
    let disk = parse(specs, &file(specs)?)?;
    if disk.kind != "disksim_disk" {
        let problem = format!("is a `{}`, expected a `disksim_disk`", disk.kind);
        let (file, line) = (disk.file, disk.line);
        return Err(DescriptionError { file, line, key: "the block".to_owned(), problem });
    }
    let model = match disk.need("Model", "a `dm_disk`, or `source` and its file")? {
        (_, Value::Block(block)) => block.clone(),
        (_, Value::Source(name)) => parse(name, &file(name)?)?,
        _ => return Err(disk.refuse("Model", "a `dm_disk`, or `source` and its file")),
    };
    let part = |key: &str, kind: &str| match model.need(key, kind)? {
        (_, Value::Block(block)) if block.kind == kind => Ok(block.clone()),
        _ => Err(model.refuse(key, &format!("a `{kind}`"))),
    };
    let mechanics = part("Mechanical Model", "dm_mech_g1")?;
    let layout = layout(&model, &part("Layout Model", "dm_layout_g1")?)?;
    let kind = "Access time type";
    let expected = "trackSwitchPlusRotation";
    match mechanics.need(kind, expected)? {
        (_, Value::Word(word)) if word == expected => {}
        _ => return Err(mechanics.refuse(kind, expected)),
    }
    let rpm = mechanics.number("Rotation speed (in rpms)", (1e3, 6e4), None)?;
    let blocks = |key: &str| disk.whole(key, (0, 1 << 32), Some(0));
    let size = |blocks: u64| Size(blocks * 512);
    let (segments, segment) =
        (blocks("Number of buffer segments")?, blocks("Segment size (in blks)")?);
    let apart = disk.flag("Use separate write segment", false)?;
    let runs = disk.whole("Maximum number of write segments", (0, 65_536), Some(1))?;
    let fast = disk.whole("Fast write level", (0, 2), Some(0))?;
    let ahead = disk.whole("Maximum read-ahead (blks)", (0, 1 << 32), Some(0))?;
    let bus = disk.number("Bulk sector transfer time", (0.0, HUGE), None)?;
    let sneaky = disk.flag("Allow sneaky full read hits", false)?;
    let read_ahead = match disk.whole("Buffer continuous read", (0, 4), Some(0))? {
        0 => ReadAhead::None,
        1 => ReadAhead::Track,
        2 => ReadAhead::Cylinder,
        3 => ReadAhead::Segment,
        _ => ReadAhead::GrowingTrack,
    };
    Ok(Parameters {
        revolutions_per_minute: libm::round(rpm) as u32,
        speed_tolerance: 0.0,
        seek: seek(&mechanics, &file)?,
        layout,
        head_switch: time(&mechanics, "Head switch time", None)?,
        write_settle: time(&mechanics, "Add. write settling delay", Some(0.0))?,
        host_rate: Rate(if bus > 0.0 { libm::round(512e3 / bus) as u64 } else { 1 << 40 }),
        overheads: overheads(&disk)?,
        access_on_arrival: disk.flag("Immediate buffer read", false)?,
        read_cache: ReadCache {
            segments: (segments - u64::from(apart && segments > 1)).max(1) as u32,
            segment_size: size(segment.max(1)),
            read_ahead,
            maximum_read_ahead: Some(size(if ahead > 0 { ahead } else { segment })),
            keeps_passing_sectors: disk.flag("Read any free blocks", false)?,
            hits_while_busy: sneaky,
            restarts_on_hit: disk.flag("Read-ahead on idle hit", false)?,
            continues_at_end: disk.flag("Allow almost read hits", false)?,
        },
        write_cache: WriteCache {
            enabled: fast > 0,
            size: size(segment.max(1) * runs.max(1)),
            runs: runs.max(1) as u32,
            answers_reads: disk.flag("Allow read hits on write data", false)?,
            shares_segments: !apart,
            delay: Time(0),
            urgent_at: 1.0,
            age_limit: Time(u64::MAX / 4),
        },
        queue: Queue {
            depth: disk.whole("Max queue length", (1, 65_536), Some(1))? as u32,
            order: Order::FirstComeFirstServed,
            age_limit: Time(u64::MAX / 4),
            // The measured disks are SCSI.
            flush_is_queued: true,
        },
        power: PowerStates::default(),
        shingles: None,
    })
}

/// Reads a time given in milliseconds.
fn time(block: &Block, key: &str, default: Option<f64>) -> Result<Time, DescriptionError> {
    let milliseconds = block.number(key, (0.0, 1e6), default)?;
    Ok(Time(libm::round(milliseconds * 1e6) as u64))
}

fn overheads(disk: &Block) -> Result<Overheads, DescriptionError> {
    let scale = disk.number("Time scale for overheads", (0.0, HUGE), Some(1.0))?;
    let each = disk.number("Per-request overhead time", (0.0, HUGE), Some(0.0))?;
    let one = |key: String| {
        let milliseconds = disk.number(&key, (0.0, 1e6), Some(0.0))?;
        Ok(Time(libm::round((milliseconds * scale + each) * 1e6) as u64))
    };
    let both = |name: &str| {
        Ok(Overhead {
            after_read: one(format!("{name} over. after read"))?,
            after_write: one(format!("{name} over. after write"))?,
        })
    };
    Ok(Overheads {
        read_hit: both("Read hit")?,
        read_miss: both("Read miss")?,
        write_hit: both("Write hit")?,
        write_miss: both("Write miss")?,
        flush: Time(0),
    })
}

fn seek(
    mechanics: &Block,
    file: &dyn Fn(&str) -> Result<String, DescriptionError>,
) -> Result<SeekCurve, DescriptionError> {
    let expected = "extracted, hpl, hplplus10 or const";
    let formula = |key: &str, count: usize| -> Result<Vec<f64>, DescriptionError> {
        let wrong = || mechanics.refuse(key, &format!("a list of {count} numbers"));
        let (_, value) = mechanics.need(key, &format!("a list of {count} numbers"))?;
        let Value::List(list) = value else { return Err(wrong()) };
        let numbers = list.iter().map(|value| match value {
            Value::Number(number) => Ok(*number),
            _ => Err(wrong()),
        });
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        if numbers.len() == count { Ok(numbers) } else { Err(wrong()) }
    };
    let ms = |milliseconds: f64| Time(libm::round(milliseconds.max(0.0) * 1e6) as u64);
    let (_, kind) = mechanics.need("Seek type", expected)?;
    match kind {
        Value::Word(kind) if kind == "extracted" => {
            match mechanics.need("Full seek curve", "the file with the seek curve")? {
                (_, Value::Word(name)) => points(name, &file(name)?),
                _ => Err(mechanics.refuse("Full seek curve", "a file's name")),
            }
        }
        Value::Word(kind) if kind == "const" => {
            let one = time(mechanics, "Average seek time", None)?;
            Ok(SeekCurve::Points(vec![(1, one), (2, one)]))
        }
        // The formula of Ruemmler and Wilkes; the first distances are measured.
        Value::Word(kind) if kind == "hpl" || kind == "hplplus10" => {
            let hpl = formula("HPL seek equation values", 6)?;
            let mut first = Vec::new();
            if kind == "hplplus10" {
                first = formula("First ten seek times", 10)?;
            } else if hpl[5] >= 0.0 {
                first.push(hpl[5]);
            }
            let mut curve: Vec<(u32, Time)> =
                first.iter().enumerate().map(|(i, &time)| (i as u32 + 1, ms(time))).collect();
            let mut distance = curve.len() as u32 + 1;
            while distance < 1 << 20 {
                let d = f64::from(distance);
                let short = hpl[1] + hpl[2] * libm::sqrt(d);
                curve.push((distance, ms(if d < hpl[0] { short } else { hpl[3] + hpl[4] * d })));
                distance += 1 + distance / 64;
            }
            Ok(SeekCurve::Points(curve))
        }
        _ => Err(mechanics.refuse("Seek type", expected)),
    }
}

/// Reads a measured curve: a first line with the number of points, then lines `distance,
/// milliseconds`.
fn points(name: &str, text: &str) -> Result<SeekCurve, DescriptionError> {
    let wrong = |line: usize, key: &str, problem: &str| DescriptionError {
        file: name.to_owned(),
        line,
        key: format!("`{key}`"),
        problem: problem.to_owned(),
    };
    let mut points: Vec<(u32, Time)> = Vec::new();
    for (i, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let expected = "expected a distance in cylinders above the one before, a comma, and \
                        milliseconds";
        let pair = line.split_once(',');
        let point = pair.and_then(|(distance, time)| {
            Some((distance.trim().parse::<u32>().ok()?, time.trim().parse::<f64>().ok()?))
        });
        match point {
            Some((distance, time))
                if distance > points.last().map_or(0, |last| last.0)
                    && (0.0..1e6).contains(&time) =>
            {
                points.push((distance, Time(libm::round(time * 1e6) as u64)));
            }
            _ => return Err(wrong(i + 1, line.trim(), expected)),
        }
    }
    let first = text.lines().next().unwrap_or_default();
    let said = first.rsplit(':').next().and_then(|count| count.trim().parse().ok());
    if said != Some(points.len()) || points.len() < 2 {
        let problem = format!("expected the number of points, which is {}", points.len());
        return Err(wrong(1, first.trim(), &problem));
    }
    Ok(SeekCurve::Points(points))
}

fn layout(model: &Block, layout: &Block) -> Result<Layout, DescriptionError> {
    let heads = model.whole("Number of data surfaces", (1, 256), None)?;
    let blocks = model.whole("Block count", (1, 1 << 40), None)?;
    let scheme = layout.whole("Sparing scheme used", (0, 10), Some(0))?;
    let range = layout.whole("Rangesize for sparing", (1, 1 << 20), Some(1))?;
    let head_order = match layout.whole("LBN-to-PBN mapping scheme", (0, 2), Some(0))? {
        0 => HeadOrder::Forward,
        1 => HeadOrder::SerpentineInZone,
        _ => HeadOrder::Serpentine,
    };
    let in_revolutions = match layout.get("Skew units") {
        None => false,
        Some((_, Value::Word(word))) if word == "sectors" || word == "revolutions" => {
            word == "revolutions"
        }
        Some(_) => return Err(layout.refuse("Skew units", "sectors or revolutions")),
    };
    let expected = "a list of `dm_layout_g1_zone`";
    let (_, Value::List(list)) = layout.need("Zones", expected)? else {
        return Err(layout.refuse("Zones", expected));
    };
    let mut zones: Vec<Zone> = Vec::with_capacity(list.len());
    for value in list {
        let Value::Block(block) = value else { return Err(layout.refuse("Zones", expected)) };
        let first = block.whole("First cylinder number", (0, 10_000_000), None)?;
        let last = block.whole("Last cylinder number", (first, 10_000_000), None)?;
        let per_track = block.whole("Blocks per track", (1, 1_000_000), None)?;
        let unit = if in_revolutions { per_track as f64 } else { 1.0 };
        let skew = |key: &str| Ok(block.number(key, (0.0, 1e6), None)? * unit);
        let spares = Spares {
            scheme,
            range,
            heads,
            per_track,
            cylinders: last - first + 1,
            spares: block.whole("Number of spares", (0, 1 << 32), Some(0))?,
            front: block.whole("Empty space at zone front", (0, 1 << 32), Some(0))?,
            slips: block.whole_list("slips")?,
        };
        let zone = Zone {
            first_cylinder: Some(first as u32),
            cylinders: (last - first + 1) as u32,
            sectors_per_track: per_track as u32,
            track_skew: Some(skew("Skew for track switch")?),
            cylinder_skew: Some(skew("Skew for cylinder switch")?),
            first_angle: skew("Offset of first block")? / per_track as f64,
            holes: spares.holes(),
        };
        zones.push(zone);
        let so_far = Layout::Zones {
            heads: heads as u32,
            zones: zones.split_off(zones.len() - 1),
            head_order,
            sectors: None,
        };
        if let Err(wrong) = so_far.check() {
            return Err(block.refuse("slips", &wrong.right));
        }
        if let Layout::Zones { zones: one, .. } = so_far {
            zones.extend(one);
        }
    }
    Ok(Layout::Zones { heads: heads as u32, zones, head_order, sectors: Some(blocks) })
}

/// A zone's spare sectors, and the defective ones that sectors slip past. (Defects remapped
/// elsewhere are ignored: they are few, and no description here has any.)
struct Spares {
    scheme: u64,
    range: u64,
    heads: u64,
    per_track: u64,
    cylinders: u64,
    spares: u64,
    front: u64,
    slips: Vec<u64>,
}

impl Spares {
    /// Returns the runs of slots that hold no host sector.
    fn holes(mut self) -> Vec<(u64, u64)> {
        let all = self.cylinders * self.heads * self.per_track;
        self.slips.sort_unstable();
        self.slips.dedup();
        let cylinder = self.heads * self.per_track;
        let (unit, at_front) = match self.scheme {
            2 | 4 => (cylinder, false),
            5 | 6 => (cylinder, true),
            3 => (self.per_track, false),
            8 => (cylinder * self.range, false),
            _ => (all, false),
        };
        let mut holes: Vec<(u64, u64)> = Vec::new();
        if self.front > 0 {
            holes.push((0, self.front));
        }
        match self.scheme {
            0 => {}
            // Whole tracks, numbered within the zone.
            1 => {
                for track in &self.slips {
                    holes.push((track * self.per_track, self.per_track));
                }
                let spare = self.spares.saturating_sub(self.slips.len() as u64) * self.per_track;
                holes.push((all.saturating_sub(spare), spare));
            }
            _ => {
                holes.extend(self.slips.iter().map(|&slip| (slip, 1)));
                // Slips use up their unit's spares, unless they shift the rest of the zone.
                let to_end = matches!(self.scheme, 4 | 6 | 7 | 10);
                let mut start = 0;
                while start < all && self.spares > 0 {
                    let end = (start + unit).min(all);
                    let slips = self.slips.partition_point(|&slip| slip < end)
                        - self.slips.partition_point(|&slip| slip < start);
                    let used = if to_end { 0 } else { slips as u64 };
                    let left = self.spares.saturating_sub(used).min(end - start);
                    holes.push((if at_front { start } else { end - left }, left));
                    start = end;
                }
            }
        }
        holes.retain(|&(start, count)| count > 0 && start < all);
        holes.sort_unstable();
        // Overlapping runs (a slip among the spares) are joined.
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(holes.len());
        for (start, count) in holes {
            let count = count.min(all - start);
            match joined.last_mut() {
                Some(last) if start <= last.0 + last.1 => {
                    last.1 = last.1.max(start + count - last.0);
                }
                _ => joined.push((start, count)),
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests;
