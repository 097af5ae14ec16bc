//! A drive of any kind.

use hemi_core::units::Instant;

use crate::array::Array;
use crate::drive::{Completion, Counters, Drive, Request};
use crate::network::Network;

/// A drive of any kind: one match, where a `dyn Drive` would hide the model from the compiler.
#[derive(Clone, Debug)]
pub enum AnyDrive {
    /// A network volume.
    Network(Box<Network>),
    /// An array of such drives.
    Array(Box<Array<AnyDrive>>),
}

/// Does the same with whichever drive it is.
macro_rules! with {
    ($any:expr, $drive:ident => $what:expr) => {
        match $any {
            AnyDrive::Network($drive) => $what,
            AnyDrive::Array($drive) => $what,
        }
    };
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
