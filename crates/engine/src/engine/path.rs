//! The path of a request: in, to the legs, and back to its reply.

pub(super) mod abandon;
pub(super) mod acknowledge;
pub(super) mod copies;
pub(super) mod exposure;
pub(super) mod failed_write;
pub(super) mod flush;
pub(super) mod intent;
pub(super) mod landing;
pub(super) mod late;
pub(super) mod leg_io;
pub(super) mod moves;
pub(super) mod owe;
pub(super) mod read;
pub(super) mod submit;
pub(super) mod write;
