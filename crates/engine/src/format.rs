//! The on-disk format: what hemi keeps on each leg beside the volume's data.
//!
//! A leg begins with 1 MiB that holds the [`superblock`] (who this leg is, which volume,
//! which legs, which history) and the [`lost`] list, each in two slots, and on a remote leg
//! its [`stamp`]s; then the region
//! table in [`page`]s, each in two slots; then the data area, a plain disk image. [`layout`]
//! says where, as a function of the volume's size and region size alone, so that every leg
//! of a volume is laid out alike.
//!
//! Everything but the data is kept in [`block`]s of 4 KiB whose eight sectors certify
//! themselves one by one: an interrupted write is told from a damaged medium, which matters
//! because the first may be ignored and the second may hide something acknowledged.
//!
//! This module turns values into bytes and back and judges bytes; it neither reads nor
//! writes a leg, and it never decides which slot or leg is right. `docs/design/disk-format.md`
//! draws every byte. All integers are little-endian.

pub mod block;
pub mod create;
pub mod description;
pub mod layout;
pub mod ledger;
pub mod lost;
pub mod page;
pub mod stamp;
pub mod standby;
pub mod superblock;

pub use block::{BLOCK_BYTES, Block, BlockState, Kind};
pub use description::LegDescription;
pub use layout::{Layout, LayoutError};
pub use ledger::{Ledger, LedgerMark, LedgerMemory, ledger_bytes};
pub use page::RegionEntry;
pub use stamp::Stamp;
pub use standby::Standby;
pub use superblock::{LegRecord, Membership, Superblock, SuperblockError};

/// A random 128-bit name: of a volume, a leg or a generation. All zeros means none.
pub type Id = [u8; 16];
