//! The thread that watches the drives.
//!
//! It looks at the legs every few seconds. The disks of a leg that is new or due are found and queried. A
//! drive that hangs holds up this thread for the timeout of one query, and nothing else.

use std::collections::HashMap;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::disks::{Disk, Machine};
use super::keep::Memory;
use super::pace::Pace;
use super::smart::Reading;
use super::tool::{self, ToolError};
use super::{DriveKind, DriveStatus, Drives, LegDrives, nvme, smart};
use crate::config::place::Place;
use crate::config::smart::SmartPolling;
use crate::control::volume::{Phase, Snapshot, Volume};
use hemi_io::clock::unix_ms;
use hemi_io::config::legs::LegSpec;

/// Interval between two looks at the legs.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The running thread. Dropping this tells it to stop but does not wait for it: it may hang in a file system
/// that does not answer.
#[derive(Debug)]
pub(crate) struct Watching {
    stop: Arc<AtomicBool>,
    thread: Thread,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Starts the thread, which writes its results to `drives`.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn spawn(
    volume: Arc<dyn Volume>,
    polling: SmartPolling,
    state: Place,
    drives: Arc<Drives>,
) -> std::io::Result<Watching> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let run = move || {
        let memory = Memory::of_volume(&state, volume.snapshot().identity.id);
        let mut watch = Watch::new(polling, memory, stopped);
        while !watch.is_stopped() {
            watch.look(&volume.snapshot(), &drives);
            // The stopping thread unparks it.
            std::thread::park_timeout(LOOK_EVERY);
        }
    };
    let handle = std::thread::Builder::new().name("hemi-drives".into()).spawn(run)?;
    Ok(Watching { stop, thread: handle.thread().clone() })
}

/// The state of the thread.
#[derive(Debug)]
struct Watch {
    machine: Machine,
    polling: SmartPolling,
    memory: Memory,
    pace: Pace,
    stop: Arc<AtomicBool>,
    /// Time of the last query of each leg, by its spec.
    asked: HashMap<String, Instant>,
    /// The last figures of each disk, by its device.
    known: HashMap<String, DriveStatus>,
    /// Programs that could not be killed, by the device in which they hang.
    stuck: HashMap<String, Child>,
}

impl Watch {
    fn new(polling: SmartPolling, memory: Memory, stop: Arc<AtomicBool>) -> Watch {
        Watch {
            machine: Machine::default(),
            polling,
            memory,
            pace: Pace::default(),
            stop,
            asked: HashMap::new(),
            known: HashMap::new(),
            stuck: HashMap::new(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Looks at the legs and queries the drives of those that are due.
    fn look(&mut self, snapshot: &Arc<Snapshot>, drives: &Drives) {
        if snapshot.phase == Phase::Opening {
            return;
        }
        drives.lock().retain(|slot, _| snapshot.legs.iter().any(|leg| leg.leg == *slot));
        self.asked.retain(|spec, _| snapshot.legs.iter().any(|leg| leg.path == *spec));
        let pause = match self.polling {
            SmartPolling::Off => Duration::from_nanos(crate::config::smart::SMART_MAX.0),
            SmartPolling::Every(pause) => pause.duration(),
        };
        // Legs that are due at the same time share the answers of their disks.
        let mut round = HashMap::new();
        for leg in snapshot.legs.iter() {
            let is_due = self.asked.get(&leg.path).is_none_or(|at| at.elapsed() >= pause);
            if !is_due || self.is_stopped() {
                continue;
            }
            let found = self.drives_of(&leg.path, &mut round);
            self.asked.insert(leg.path.clone(), Instant::now());
            let mut known = drives.lock();
            let before = known.remove(&leg.leg).filter(|known| known.spec == leg.path);
            let verdict = before.and_then(|known| known.verdict);
            known.insert(leg.leg, LegDrives { spec: leg.path.clone(), drives: found, verdict });
        }
        self.pace.look(snapshot, drives, &mut self.memory, unix_ms());
        self.memory.save();
    }

    fn drives_of(
        &mut self,
        spec: &str,
        round: &mut HashMap<String, DriveStatus>,
    ) -> Vec<DriveStatus> {
        let spec: LegSpec = match spec.parse() {
            Ok(spec) => spec,
            Err(error) => return vec![DriveStatus::unknown(error.to_string())],
        };
        if spec.is_remote() {
            let why = "a remote leg: its server has the drive";
            return vec![DriveStatus { kind: DriveKind::Network, ..DriveStatus::unknown(why) }];
        }
        let mut disks: Vec<Disk> = Vec::new();
        let mut found = Vec::new();
        for path in spec.paths() {
            match self.machine.disks(path) {
                Ok(more) => {
                    for disk in more {
                        if !disks.contains(&disk) {
                            disks.push(disk);
                        }
                    }
                }
                Err(why) => found.push(DriveStatus::unknown(why)),
            }
        }
        for disk in disks {
            let device = disk.device();
            let drive = match round.get(&device) {
                Some(drive) => drive.clone(),
                None => self.ask(&disk, &device),
            };
            round.insert(device, drive.clone());
            found.push(drive);
        }
        found
    }

    /// Queries one drive.
    fn ask(&mut self, disk: &Disk, device: &str) -> DriveStatus {
        let identity = self.machine.identity(disk);
        if self.polling == SmartPolling::Off {
            let why = Some("drives are not queried (smart = \"off\")".to_owned());
            return DriveStatus { why_unknown: why, ..identity };
        }
        let now_ms = unix_ms();
        let drive = match self.question(device) {
            Reading::Figures(figures) => self.told(identity, *figures, now_ms),
            Reading::Asleep => {
                self.silent(identity, "the disk sleeps and is not woken for this".into())
            }
            Reading::Nothing(why) => self.silent(identity, why),
        };
        self.known.insert(device.to_owned(), drive.clone());
        drive
    }

    /// Combines the figures of the machine with those of the drive.
    fn told(&mut self, identity: DriveStatus, figures: DriveStatus, now_ms: u64) -> DriveStatus {
        let mut drive = DriveStatus {
            device: identity.device,
            kind: identity.kind,
            rotational: identity.rotational,
            // The drive's own strings are complete, and the kernel's may be truncated.
            model: figures.model.clone().or(identity.model),
            serial: figures.serial.clone().or(identity.serial),
            firmware: figures.firmware.clone().or(identity.firmware),
            read_at_ms: Some(now_ms),
            ..figures
        };
        if let Some(used) = drive.used_permille {
            match &drive.serial {
                Some(serial) => {
                    let outlook = self.memory.wear(serial, now_ms, used).outlook(now_ms);
                    drive.wear_permille_per_year = outlook.permille_per_year;
                    drive.rated_end_at_ms = outlook.end_at_ms;
                    drive.why_no_rated_end = outlook.why_no_end;
                }
                None => {
                    let why = "the drive has no serial number by which to recognise it";
                    drive.why_no_rated_end = Some(why.to_owned());
                }
            }
        }
        drive
    }

    /// Returns the last figures of the same drive, if any, with the reason why they are not newer.
    fn silent(&self, identity: DriveStatus, why: String) -> DriveStatus {
        let known = identity.device.as_ref().and_then(|device| self.known.get(device));
        let is_same = |known: &&DriveStatus| {
            // The model is not compared, because the kernel may truncate its name.
            known.read_at_ms.is_some()
                && (identity.serial.is_none() || known.serial == identity.serial)
        };
        match known.filter(is_same) {
            Some(known) => DriveStatus { why_unknown: Some(why), ..known.clone() },
            None => DriveStatus { why_unknown: Some(why), ..identity },
        }
    }

    fn question(&mut self, device: &str) -> Reading {
        if let Some(child) = self.stuck.get_mut(device) {
            match child.try_wait() {
                Ok(None) => {
                    return Reading::Nothing(
                        "the last question to the drive hangs in the kernel".into(),
                    );
                }
                _ => self.stuck.remove(device),
            };
        }
        let asked = self.run(smart::PROGRAM, &smart::arguments(device), device, smart::read);
        let is_nvme = device.starts_with("/dev/nvme");
        match asked {
            Some(reading) => reading,
            None if is_nvme => self
                .run(nvme::PROGRAM, &nvme::arguments(device), device, nvme::read)
                .unwrap_or_else(|| missing("neither smartctl (smartmontools) nor nvme (nvme-cli)")),
            None => missing("smartctl (smartmontools)"),
        }
    }

    /// Runs one program. Returns `None` if it is not installed.
    fn run(
        &mut self,
        program: &str,
        arguments: &[&str],
        device: &str,
        read: fn(&[u8], u8) -> Reading,
    ) -> Option<Reading> {
        Some(match tool::run(program, arguments, tool::TIME_MAX, &self.stop) {
            Ok((output, code)) => read(&output, code),
            Err(ToolError::Missing) => return None,
            Err(ToolError::Late(child)) => {
                if let Some(child) = child {
                    self.stuck.insert(device.to_owned(), child);
                }
                let seconds = tool::TIME_MAX.as_secs();
                Reading::Nothing(format!("{program} had no answer of the drive in {seconds} s"))
            }
            Err(ToolError::TooLong) => Reading::Nothing(format!(
                "{program} wrote more than {} bytes",
                tool::OUTPUT_BYTES_MAX
            )),
            Err(ToolError::Stopped) => Reading::Nothing("hemi stops".into()),
            Err(ToolError::Failed(error)) => {
                Reading::Nothing(format!("{program} cannot be run: {error}"))
            }
        })
    }
}

fn missing(what: &str) -> Reading {
    let verb = if what.starts_with("neither") { "is" } else { "is not" };
    Reading::Nothing(format!("{what} {verb} installed"))
}

#[cfg(test)]
mod tests {
    use super::super::disks::tests::Made;
    use super::*;

    fn watch(machine: Machine) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let memory = Memory::at(None);
        Watch { machine, ..Watch::new(SmartPolling::Off, memory, stop) }
    }

    #[test]
    fn legs_without_a_drive_of_their_own_say_so() {
        let made = Made::new();
        let mut watch = watch(made.machine.clone());
        let mut round = HashMap::new();
        let remote = watch.drives_of("nbd://storage/disk", &mut round);
        assert_eq!(remote.len(), 1);
        assert_eq!(remote[0].kind, DriveKind::Network);
        assert!(remote[0].why_unknown.as_deref().is_some_and(|why| why.contains("remote")));
        let absent = watch.drives_of("/dev/hemi-none", &mut round);
        let why = absent[0].why_unknown.as_deref().unwrap_or_default();
        assert!(why.contains("/dev/hemi-none"), "{why}");
    }

    #[test]
    fn a_drive_that_sleeps_keeps_its_figures_and_another_one_does_not() {
        let mut watch = watch(Machine::default());
        let identity = |serial: &str| DriveStatus {
            device: Some("/dev/sdx".into()),
            serial: Some(serial.into()),
            ..DriveStatus::default()
        };
        let figures = DriveStatus { temperature_celsius: Some(30), ..DriveStatus::default() };
        let told = watch.told(identity("A"), figures, 1000);
        assert_eq!((told.read_at_ms, told.why_unknown.as_deref()), (Some(1000), None));
        watch.known.insert("/dev/sdx".into(), told);
        let asleep = watch.silent(identity("A"), "it sleeps".into());
        assert_eq!((asleep.temperature_celsius, asleep.read_at_ms), (Some(30), Some(1000)));
        assert_eq!(asleep.why_unknown.as_deref(), Some("it sleeps"));
        let other = watch.silent(identity("B"), "no".into());
        assert_eq!((other.temperature_celsius, other.serial.as_deref()), (None, Some("B")));
    }
}
