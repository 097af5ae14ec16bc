//! The medium of a leg: versions per sector with a volatile cache, and metadata bytes.

use hemi_engine::io::LegOperation;
use hemi_units::Extent;

use super::script::Landing;
use super::{Pending, Random};

#[derive(Clone)]
pub struct Disk {
    pub metadata: Vec<u8>,
    data_start: u64,
    durable: Vec<u64>,
    /// Versions written since the last flush, oldest first, each with the count of writes that the
    /// disk had completed by then.
    cached: Vec<Vec<(u64, u64)>>,
    completed: u64,
}

impl Disk {
    pub fn new(metadata: Vec<u8>, data_start: u64, sectors: usize) -> Disk {
        Disk {
            metadata,
            data_start,
            durable: vec![0; sectors],
            cached: vec![Vec::new(); sectors],
            completed: 0,
        }
    }

    pub fn mark(&self) -> u64 {
        self.completed
    }

    fn sector(&self, leg_sector: u64) -> usize {
        (leg_sector - self.data_start) as usize
    }

    fn current(&self, sector: usize) -> u64 {
        self.cached[sector].last().map_or(self.durable[sector], |(version, _)| *version)
    }

    pub fn read(&self, extent: Extent) -> Vec<u64> {
        (extent.start..extent.end).map(|s| self.current(self.sector(s))).collect()
    }

    pub fn contents(&self) -> Vec<u64> {
        (0..self.durable.len()).map(|s| self.current(s)).collect()
    }

    /// Changes a sector without anybody's knowledge.
    pub fn corrupt(&mut self, sector: usize, version: u64) {
        self.cached[sector].clear();
        self.durable[sector] = version;
    }

    pub fn land(&mut self, pending: &Pending) {
        match pending.io.operation {
            LegOperation::Write { fua } | LegOperation::WriteZeroes { fua, .. } => {
                self.completed += 1;
                for (leg_sector, &version) in
                    (pending.io.extent.start..pending.io.extent.end).zip(&pending.data)
                {
                    let sector = self.sector(leg_sector);
                    if fua {
                        self.cached[sector].clear();
                        self.durable[sector] = version;
                    } else {
                        self.cached[sector].push((version, self.completed));
                    }
                }
            }
            LegOperation::Flush => {
                for (durable, cached) in self.durable.iter_mut().zip(&mut self.cached) {
                    while let Some(&(version, mark)) = cached.first() {
                        if mark > pending.flush_mark {
                            break;
                        }
                        *durable = version;
                        cached.remove(0);
                    }
                }
            }
            LegOperation::WriteMetadata => {
                let start = pending.io.extent.start as usize * 512;
                let bytes = pending.metadata.as_ref().expect("metadata writes carry bytes");
                self.metadata[start..start + 4096].copy_from_slice(&bytes[..]);
            }
            LegOperation::Read => {}
        }
    }

    /// Lands a write that was in flight at a crash as `landing` says.
    pub fn land_as(&mut self, pending: &Pending, landing: Landing) {
        let lands = |part: usize| match landing {
            Landing::Whole => true,
            Landing::Not => false,
            Landing::Torn(parts) => parts >> (part % 8) & 1 == 1,
        };
        match pending.io.operation {
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => {
                self.completed += 1;
                let sectors = pending.io.extent.start..pending.io.extent.end;
                for (part, (leg_sector, &version)) in sectors.zip(&pending.data).enumerate() {
                    let sector = self.sector(leg_sector);
                    if lands(part) {
                        self.cached[sector].push((version, self.completed));
                    }
                }
            }
            LegOperation::WriteMetadata => {
                let start = pending.io.extent.start as usize * 512;
                let bytes = pending.metadata.as_ref().expect("metadata writes carry bytes");
                for part in (0..8).filter(|&part| lands(part)) {
                    let (from, to) = (part * 512, part * 512 + 512);
                    self.metadata[start + from..start + to].copy_from_slice(&bytes[from..to]);
                }
            }
            LegOperation::Flush | LegOperation::Read => {}
        }
    }

    /// Cuts power and keeps the whole cache, or nothing of it.
    pub fn settle_cache(&mut self, kept: bool) {
        for (durable, cached) in self.durable.iter_mut().zip(&mut self.cached) {
            if let Some(&(version, _)) = cached.last().filter(|_| kept) {
                *durable = version;
            }
            cached.clear();
        }
    }

    /// Lands each sector or not, at random.
    pub fn land_partly(&mut self, pending: &Pending, random: &mut Random) {
        let all = random.below(4);
        let lands = |random: &mut Random| match all {
            0 => true,
            1 => false,
            _ => random.one_in(2),
        };
        match pending.io.operation {
            LegOperation::Write { .. } | LegOperation::WriteZeroes { .. } => {
                self.completed += 1;
                for (leg_sector, &version) in
                    (pending.io.extent.start..pending.io.extent.end).zip(&pending.data)
                {
                    let sector = self.sector(leg_sector);
                    if lands(random) {
                        self.cached[sector].push((version, self.completed));
                    }
                }
            }
            LegOperation::WriteMetadata => {
                let start = pending.io.extent.start as usize * 512;
                let bytes = pending.metadata.as_ref().expect("metadata writes carry bytes");
                for part in (0..4096).step_by(512) {
                    if lands(random) {
                        self.metadata[start + part..start + part + 512]
                            .copy_from_slice(&bytes[part..part + 512]);
                    }
                }
            }
            LegOperation::Flush | LegOperation::Read => {}
        }
    }

    /// Cuts power: each sector keeps any of its unflushed versions.
    pub fn lose_cache(&mut self, random: &mut Random) {
        for (durable, cached) in self.durable.iter_mut().zip(&mut self.cached) {
            if !cached.is_empty() {
                let keep = random.below(cached.len() as u64 + 1) as usize;
                if keep > 0 {
                    *durable = cached[keep - 1].0;
                }
                cached.clear();
            }
        }
    }
}
