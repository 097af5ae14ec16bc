//! The wait for the last writes of a process that did not close its volume.
//!
//! Local legs stay locked until their last write has ended. Nothing guarantees that for remote legs: a
//! server may still carry out what it had received, and a late write must not meet ours (P2).

use hemi_io::leg::OpenLeg;

/// Waits for the longest quarantine of these legs, and tells so. Returns true if it waited: what was
/// read from the legs before may be out of date.
pub(crate) fn wait_out<'a>(legs: impl Iterator<Item = &'a OpenLeg>) -> bool {
    let quarantine = legs.filter_map(OpenLeg::quarantine).max().unwrap_or_default();
    if quarantine.is_zero() {
        return false;
    }
    let seconds = quarantine.as_secs_f64();
    tracing::info!(
        seconds,
        "the volume was not closed: waiting until the last writes to its remote legs have landed \
         (the leg's `quarantine`)"
    );
    std::thread::sleep(quarantine);
    true
}
