//! The systems to choose from, made of the drives that have a price.

use std::collections::BTreeSet;
use std::path::Path;

use hemi_drives::preset::{Model, Preset, Purchase};
use hemi_simulate::stock;
use hemi_units::prose;
use serde::Serialize;

use crate::error::AdviseError;
use crate::load::Load;
use crate::request::Request;
use crate::units::{Stocked, Unit};

/// Least size of the volume that is simulated: one too small for hemi's layout helps nobody.
const LEAST_VOLUME: u64 = 1 << 30;
/// A volume has a multiple of this.
const BLOCK: u64 = 4096;
/// Most drives of a stripe.
const WIDEST: u64 = 16;

/// A system: one unit, or a pair under hemi's engine.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its units, in the order of the legs.
    pub units: Vec<Unit>,
}

/// Something that was not considered, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftOut {
    /// The preset or system.
    pub name: String,
    /// The reason, as half a sentence.
    pub why: String,
}

/// The systems to choose from.
#[derive(Clone, Debug)]
pub struct Candidates {
    /// The systems.
    pub systems: Vec<Candidate>,
    /// Presets that are in none of them.
    pub left_out: Vec<LeftOut>,
    /// Currency of all prices.
    pub currency: String,
    /// Bytes of the volume.
    pub volume: u64,
}

impl Candidate {
    /// Returns the name: those of its units, with `+` between.
    pub fn name(&self) -> String {
        let names: Vec<String> = self.units.iter().map(Unit::name).collect();
        names.join(" + ")
    }

    /// Returns the number of copies of everything.
    pub fn copies(&self) -> u32 {
        self.units.iter().map(Unit::copies).sum()
    }

    /// Returns true if hemi's engine mirrors it over two legs.
    pub fn is_pair(&self) -> bool {
        self.units.len() > 1
    }
}

impl Candidates {
    /// Returns the systems for a load.
    ///
    /// # Errors
    /// Fails if a preset cannot be read, a price is wrong, or no system is left.
    pub fn of(request: &Request, load: &Load) -> Result<Candidates, AdviseError> {
        let currency = request.prices.currency()?.unwrap_or(super::CURRENCY).to_owned();
        let volume = load.end.max(request.capacity.map_or(0, |size| size.0));
        let mut all = Candidates { systems: Vec::new(), left_out: Vec::new(), currency, volume };
        let drives = all.drives(request, load)?;
        match &request.have {
            None => all.combine(&drives, request.wide),
            Some(have) => all.beside(have, &drives, request, load)?,
        }
        all.systems.retain(|system| system.copies() >= request.copies);
        if all.systems.is_empty() {
            return Err(AdviseError::Nothing { reasons: reasons(&all.left_out) });
        }
        Ok(all)
    }

    /// Returns the bytes of the volume as it is simulated.
    pub fn simulated_volume(&self) -> u64 {
        self.volume.max(LEAST_VOLUME).next_multiple_of(BLOCK)
    }

    /// Returns the drives that have a price.
    fn drives(&mut self, request: &Request, load: &Load) -> Result<Vec<Stocked>, AdviseError> {
        let named = &request.candidates;
        let names: Vec<String> = match named.is_empty() {
            true => Preset::names().map(str::to_owned).collect(),
            false => named.clone(),
        };
        for name in request.prices.names() {
            let known = names.iter().any(|known| known == name)
                || Preset::names().any(|known| known == name)
                || request.have.as_deref() == Some(name);
            if !known {
                return Err(request.prices.unknown(name));
            }
        }
        let mut seen = BTreeSet::new();
        let mut drives = Vec::new();
        for name in names {
            if !seen.insert(name.clone()) {
                continue;
            }
            let mut preset = stock::preset(&name, Path::new(""))?;
            preset.name.clone_from(&name);
            match price(&preset, request)? {
                Ok(purchase) if purchase.currency != self.currency => self.leave_out(
                    &name,
                    format!("is priced in {}, not in {}", purchase.currency, self.currency),
                ),
                Ok(purchase) => {
                    drives.push(Stocked::new(preset, purchase, load, request.flash_scale)?);
                }
                Err(why) => self.leave_out(&name, why),
            }
        }
        Ok(drives)
    }

    fn leave_out(&mut self, name: &str, why: String) {
        self.left_out.push(LeftOut { name: name.to_owned(), why });
    }

    /// Adds every single unit, stripe and pair of these drives that holds the volume. If `wide`,
    /// a leg of a pair may have twice as many drives as it needs.
    fn combine(&mut self, drives: &[Stocked], wide: bool) {
        let mut legs = Vec::new();
        for drive in drives {
            if let Some(least) = self.least(drive, self.volume) {
                for times in [1, 2, 4] {
                    if least * times <= WIDEST {
                        self.add([Unit::stripe(drive.clone(), (least * times) as u32)]);
                    }
                }
                // A cloud volume has its copies in the cloud.
                let local = !matches!(drive.preset.model, Model::Network(_));
                if local && least * 4 <= WIDEST {
                    self.add([Unit::mirrored_stripe(drive.clone(), (least * 4) as u32)]);
                }
            }
            let Some(leg) = self.leg(drive) else { continue };
            let twice = leg.count * 2;
            legs.push(leg);
            if wide && u64::from(twice) <= WIDEST {
                legs.push(Unit::stripe(drive.clone(), twice));
            }
        }
        for (number, first) in legs.iter().enumerate() {
            for second in &legs[number..] {
                self.add([first.clone(), second.clone()]);
            }
        }
    }

    /// Adds the drive one has, alone and with every second leg.
    fn beside(
        &mut self,
        have: &str,
        drives: &[Stocked],
        request: &Request,
        load: &Load,
    ) -> Result<(), AdviseError> {
        let mut preset = stock::preset(have, Path::new(""))?;
        have.clone_into(&mut preset.name);
        // What one has costs nothing more, whether its price is known or not.
        let purchase = price(&preset, request)?.unwrap_or_else(|_| Purchase {
            price: Some(f64::MIN_POSITIVE),
            monthly: None,
            currency: self.currency.clone(),
            date: "undated".to_owned(),
            source: "the drive is there".to_owned(),
            endurance: None,
            endurance_source: None,
            workload: None,
            workload_source: None,
        });
        self.left_out.retain(|left| left.name != have);
        let drive = Stocked::new(preset, purchase, load, request.flash_scale)?;
        if drive.capacity < self.volume {
            let right = format!(
                "a drive that holds the volume: it has {}, and {} are needed",
                prose::bytes(drive.capacity),
                prose::bytes(self.volume)
            );
            return Err(AdviseError::option("--have", have, right));
        }
        let own = Unit { owned: 1, ..Unit::one(drive) };
        self.add([own.clone()]);
        for drive in drives {
            if let Some(second) = self.leg(drive) {
                self.add([own.clone(), second]);
            }
        }
        Ok(())
    }

    /// Returns the least unit of a drive that can be a leg of the volume.
    fn leg(&mut self, drive: &Stocked) -> Option<Unit> {
        let room = self.volume + self.volume / METADATA + METADATA_LEAST;
        self.least(drive, room).map(|count| Unit::stripe(drive.clone(), count as u32))
    }

    /// Returns the least number of a drive that holds `bytes`.
    fn least(&mut self, drive: &Stocked, bytes: u64) -> Option<u64> {
        let count = bytes.div_ceil(drive.capacity).max(1);
        if count <= WIDEST {
            return Some(count);
        }
        let why = format!(
            "{count} would be needed to hold {}, more than the {WIDEST} of a stripe",
            prose::bytes(bytes)
        );
        let name = drive.preset.name.clone();
        if !self.left_out.iter().any(|left| left.name == name) {
            self.left_out.push(LeftOut { name, why });
        }
        None
    }

    fn add(&mut self, units: impl Into<Vec<Unit>>) {
        self.systems.push(Candidate { units: units.into() });
    }
}

/// Share of a volume that its metadata may take, and the least.
const METADATA: u64 = 50;
const METADATA_LEAST: u64 = 64 << 20;

/// Returns the purchase of a preset, or why there is none.
fn price(preset: &Preset, request: &Request) -> Result<Result<Purchase, String>, AdviseError> {
    let own = request.prices.of(&preset.name, preset.purchase.as_ref())?;
    if let Some(purchase) = own {
        return Ok(Ok(purchase));
    }
    let Model::Array(array) = &preset.model else {
        return Ok(Err("has no price of a known source: give one with --prices".into()));
    };
    if array.controller.is_some() {
        return Ok(Err("has a controller without a known price: give one with --prices".into()));
    }
    let Some(member) = preset.member()? else {
        return Ok(Err("has no members".into()));
    };
    Ok(match price(&member, request)? {
        Ok(purchase) => Ok(purchase.times(array.count)),
        Err(_) => Err(format!("its members, {}, have no price of a known source", member.name)),
    })
}

fn reasons(left_out: &[LeftOut]) -> String {
    let mut all: Vec<String> =
        left_out.iter().take(5).map(|left| format!("{} {}", left.name, left.why)).collect();
    if all.is_empty() {
        all.push("none of the systems has as many copies as asked for".into());
    }
    all.join("; ")
}
