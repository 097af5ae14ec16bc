//! Hard disks.
