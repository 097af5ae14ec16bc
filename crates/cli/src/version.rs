//! The version as `hemi --version` prints it.

use std::sync::LazyLock;

use hemi_engine::format::superblock::VERSION as DISK_FORMAT;

/// The commit that the command is built from, or empty if it was not built from a checkout.
const COMMIT: &str = env!("HEMI_COMMIT_SHOWN");

/// The version, commit and disk format.
static LONG: LazyLock<String> = LazyLock::new(|| long(COMMIT));

/// Returns the version with commit and disk format, as in
/// `0.2.0 (commit 1a2b3c4d, disk format 1)`.
pub(crate) fn version() -> &'static str {
    &LONG
}

fn long(commit: &str) -> String {
    let number = env!("CARGO_PKG_VERSION");
    let commit = match commit {
        "" => "commit unknown: not built from a git checkout".to_owned(),
        hash => format!("commit {hash}"),
    };
    format!("{number} ({commit}, disk format {DISK_FORMAT})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_git_says_so() {
        let number = env!("CARGO_PKG_VERSION");
        assert_eq!(long("1a2b3c4d"), format!("{number} (commit 1a2b3c4d, disk format 1)"));
        let unknown = long("");
        assert!(unknown.contains("commit unknown: not built from a git checkout"), "{unknown}");
        assert!(unknown.contains("disk format 1"), "{unknown}");
    }
}
