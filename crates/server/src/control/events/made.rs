//! A served volume for the tests of events.

use std::sync::Arc;

use hemi_engine::status::{LegState, LegStatus};

use crate::control::volume::{Identity, LegIdentity, Phase, Snapshot};

/// Returns a snapshot of a volume with two healthy legs, `ssd` and `hdd`, after a change to it.
pub(super) fn snapshot(change: impl FnOnce(&mut Snapshot)) -> Arc<Snapshot> {
    let legs = [(0, "ssd"), (1, "hdd")];
    let identity = |(leg, name): (u8, &str)| LegIdentity {
        leg,
        name: name.to_owned(),
        path: format!("/dev/{name}"),
    };
    let mut snapshot = Snapshot::opening(
        Identity { name: "db".into(), size_bytes: 1 << 30, ..Identity::default() },
        legs.map(identity).to_vec(),
    );
    snapshot.phase = Phase::Serving;
    let state = LegState::Healthy;
    snapshot.status.legs =
        [0, 1].map(|leg| LegStatus { leg, state, ..LegStatus::default() }).to_vec();
    change(&mut snapshot);
    Arc::new(snapshot)
}
