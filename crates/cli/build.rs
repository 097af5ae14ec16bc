//! Tells the command which commit it is built from.
//!
//! Reruns only when HEAD moves, so that a rebuild does not relink for its sake. For the same reason
//! it ignores uncommitted changes: it would not notice when they appear and disappear.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of digits of the commit's hash that are shown.
const HASH_DIGITS: usize = 8;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // For packagers, who build from an archive but know its commit.
    println!("cargo::rerun-if-env-changed=HEMI_COMMIT");
    let given = std::env::var("HEMI_COMMIT").ok().filter(|hash| !hash.is_empty());
    let commit = given.or_else(checked_out).unwrap_or_default();
    let shown: String = commit.chars().take(HASH_DIGITS).collect();
    println!("cargo::rustc-env=HEMI_COMMIT_SHOWN={shown}");
}

/// Returns the hash of HEAD, and makes cargo rerun this when HEAD moves. Returns `None` without
/// git, and in an archive unpacked inside the checkout of something else.
fn checked_out() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        // Cargo would rerun this every time for a file that does not exist.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&root, &["rev-parse", "HEAD"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
