//! A drive of any kind.

use hemi_core::units::Instant;

use crate::array::Array;
use crate::drive::{Completion, Counters, Drive, Request};
use crate::hdd::Hdd;
use crate::network::Network;
use crate::preset::Precondition;
use crate::ssd::Ssd;

/// A drive of any kind: one match, where a `dyn Drive` would hide the model from the compiler.
#[derive(Clone, Debug)]
pub enum AnyDrive {
    /// A hard disk.
    Hdd(Box<Hdd>),
    /// A flash drive.
    Ssd(Box<Ssd>),
    /// A network volume.
    Network(Box<Network>),
    /// An array of such drives.
    Array(Box<Array<AnyDrive>>),
}

/// Does the same with whichever drive it is.
macro_rules! with {
    ($any:expr, $drive:ident => $what:expr) => {
        match $any {
            AnyDrive::Hdd($drive) => $what,
            AnyDrive::Ssd($drive) => $what,
            AnyDrive::Network($drive) => $what,
            AnyDrive::Array($drive) => $what,
        }
    };
}

impl AnyDrive {
    /// Brings an idle drive into the state it has after so much use, without waiting for it.
    /// Only flash has a state that use changes.
    pub fn precondition(&mut self, state: Precondition, seed: u64) {
        match self {
            AnyDrive::Ssd(drive) => {
                drive.precondition(state, seed);
            }
            AnyDrive::Array(array) => {
                for (member, drive) in (0_u64..).zip(array.members_mut()) {
                    drive.precondition(state, seed.wrapping_add(member));
                }
            }
            AnyDrive::Hdd(_) | AnyDrive::Network(_) => {}
        }
    }
}

impl Drive for AnyDrive {
    fn sectors(&self) -> u64 {
        with!(self, drive => drive.sectors())
    }

    fn submit(&mut self, now: Instant, request: Request) {
        with!(self, drive => drive.submit(now, request));
    }

    fn next_event(&self) -> Instant {
        with!(self, drive => drive.next_event())
    }

    fn advance(&mut self, now: Instant, done: &mut Vec<Completion>) {
        with!(self, drive => drive.advance(now, done));
    }

    fn counters(&self) -> Counters {
        with!(self, drive => drive.counters())
    }
}
