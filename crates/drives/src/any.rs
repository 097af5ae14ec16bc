//! A drive of any kind.

use crate::array::Array;
use crate::drive_of_variants;
use crate::faulty::Faulty;
use crate::folded::Folded;
use crate::hdd::Hdd;
use crate::network::Network;
use crate::preset::Precondition;
use crate::ssd::Ssd;

/// A drive of any kind.
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
    /// A drive behind scripted faults.
    Faulty(Box<Faulty<AnyDrive>>),
    /// A drive of which only a part is simulated.
    Folded(Box<Folded<AnyDrive>>),
}

drive_of_variants!(AnyDrive: Hdd, Ssd, Network, Array, Faulty, Folded);

impl AnyDrive {
    /// Brings an idle drive into the state that a given amount of use would leave it in,
    /// without simulating that use. Only flash changes state with use.
    pub fn precondition(&mut self, state: Precondition, seed: u64) {
        self.each_flash(seed, &mut |drive, seed| {
            drive.precondition(state, seed);
        });
    }

    /// Calls `each` with every flash drive inside, including an array's members, and with the
    /// seed that drive is preconditioned with. `seed` is the seed of the whole.
    pub fn each_flash(&mut self, seed: u64, each: &mut dyn FnMut(&mut Ssd, u64)) {
        match self {
            AnyDrive::Ssd(drive) => each(drive, seed),
            AnyDrive::Array(array) => {
                for (member, drive) in (0_u64..).zip(array.members_mut()) {
                    drive.each_flash(seed.wrapping_add(member), each);
                }
            }
            AnyDrive::Faulty(faulty) => faulty.drive_mut().each_flash(seed, each),
            AnyDrive::Folded(folded) => folded.drive_mut().each_flash(seed, each),
            AnyDrive::Hdd(_) | AnyDrive::Network(_) => {}
        }
    }
}
