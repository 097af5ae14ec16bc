//! Network volumes.
