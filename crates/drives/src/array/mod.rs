//! Arrays of drives.
