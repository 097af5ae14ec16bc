//! Counts the descriptors a configuration may need and compares that with the process's limit.
//!
//! A server that runs out of descriptors can neither accept a client nor reconnect a leg. So
//! such a configuration is refused at the start and not when clients come.

use rustix::process::{Resource, getrlimit};

use crate::config::Config;
use crate::config::exports::{ExportConfig, ExportLimits, Listen};
use crate::control::connections::CONNECTIONS_MAX as CONTROL_CONNECTIONS_MAX;
use crate::vhost::{QUEUES_MAX, REGIONS_MAX};
use hemi_io::config::legs::{LegConfig, LegSpec};

/// Descriptors for the ring, its event counters, timers, signals, standard streams, ledger,
/// recording, files that are reread, and those that libraries open briefly.
const RESERVED: u64 = 64;
/// Descriptors of a virtual machine's disk: its socket, four for its connection, one for a
/// refused one, an event counter for the thread, the files of one message, and two event
/// counters for each queue.
const GUEST: u64 = 7 + REGIONS_MAX as u64 + 2 * QUEUES_MAX as u64;
/// Number of addresses that a host of a TCP export usually has.
const ADDRESSES_PER_HOST: u64 = 2;

/// An error: a configuration may need more descriptors than the process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "clients and legs may take {needed} descriptors, and the limit is {limit}: lower \
     limits.connections_max of the exports, or raise RLIMIT_NOFILE (LimitNOFILE= in a unit file)"
)]
pub struct TooFew {
    /// Maximum number of descriptors that can be open at a time.
    pub needed: u64,
    /// The hard limit of this process.
    pub limit: u64,
}

/// Checks that a configuration does not need more descriptors than this process may have.
///
/// # Errors
/// Returns [`TooFew`] with both numbers.
pub fn check(config: &Config) -> Result<(), TooFew> {
    check_within(config, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
}

fn check_within(config: &Config, limit: u64) -> Result<(), TooFew> {
    let needed = needed(config);
    if needed > limit { Err(TooFew { needed, limit }) } else { Ok(()) }
}

/// Returns the maximum number of descriptors that a served configuration has open at a time.
fn needed(config: &Config) -> u64 {
    let exports: u64 = match &config.exports[..] {
        // The default export: a unix socket in the run directory.
        [] => of_listener(1, &ExportLimits::default()),
        exports => exports.iter().map(of_export).sum(),
    };
    let legs: u64 = config.legs.iter().map(of_leg).sum();
    let control = 1 + u64::from(config.http.is_some());
    let guests = config.vhost.len() as u64 * GUEST;
    exports + guests + legs + control * (1 + CONTROL_CONNECTIONS_MAX as u64) + RESERVED
}

fn of_export(export: &ExportConfig) -> u64 {
    let addresses = match &export.nbd {
        Listen::Unix(_) => 1,
        Listen::Tcp { .. } => ADDRESSES_PER_HOST,
    };
    of_listener(addresses, &export.limits)
}

/// Returns the descriptors of a listener. One more connection is accepted in order to be
/// refused.
fn of_listener(addresses: u64, limits: &ExportLimits) -> u64 {
    addresses * (2 + u64::from(limits.connections_max))
}

/// Returns the descriptors of a leg: a device and its lock, or connections. A lost connection
/// can be open while the next is made.
fn of_leg(leg: &LegConfig) -> u64 {
    match &leg.path {
        LegSpec::Path(_) | LegSpec::End(_) => 2,
        LegSpec::External { paths } => 2 * paths.len() as u64,
        LegSpec::Stripe { paths, .. } => 2 * paths.len() as u64,
        LegSpec::NbdTcp { .. } | LegSpec::NbdUnix { .. } => {
            2 * u64::from(leg.connections.unwrap_or(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(connections: u32) -> Config {
        let text = format!(
            "legs = [{{ path = \"/x/a\" }}, {{ path = \"nbd://b\", connections = 4 }}]\n\
             [[exports]]\nnbd = \"unix:/x/s\"\nlimits = {{ connections_max = {connections} }}\n\
             [[exports]]\nnbd = \"tcp:localhost\"\n"
        );
        Config::parse(&text, Path::new("test.toml"), &[]).expect("it is sound")
    }

    #[test]
    fn every_connection_and_leg_counts() {
        // Two legs, two exports, of which one has two addresses, and the control socket.
        let expected = 2 + 8 + (100 + 2) + 2 * (64 + 2) + (128 + 1) + 64;
        assert_eq!(needed(&config(100)), expected);
    }

    #[test]
    fn more_than_the_limit_is_refused_with_the_way_out() {
        assert_eq!(check_within(&config(64), 1024), Ok(()));
        let refused = check_within(&config(4096), 1024).expect_err("it does not fit");
        assert_eq!(refused, TooFew { needed: 4433, limit: 1024 });
        let text = refused.to_string();
        assert!(text.contains("limits.connections_max") && text.contains("LimitNOFILE"), "{text}");
    }
}
