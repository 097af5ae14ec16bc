//! The built-in presets: the files of `presets/`, by name.

/// Expands to each name with the text of its file.
macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/presets/", $name, ".toml")),
        )),*]
    };
}

/// Names and texts, sorted by name.
pub(super) const BUILT_IN: &[(&str, &str)] = &built_in![
    "cheetah-10-raid10-b",
    "cheetah-15k5-300gb",
    "cheetah-8-raid0-b",
    "gp2-100gb",
    "gp3",
    "gp3-16k",
    "gp3-4-raid0-host",
    "hdd-20tb",
    "hyperdisk-balanced",
    "iodrive-80gb",
    "iodrive-duo-640gb",
    "iodrive-duo-640gb-op36",
    "nvme-consumer",
    "nvme-enterprise",
    "ocz-vertex-2009",
    "pd-ssd-500gb",
    "qlc",
    "sata-250gb-2008",
    "sata-250gb-2008-1500",
    "sata-250gb-2008-no-cache",
    "sata-dramless",
    "slc-early",
    "smr-hdd",
    "ssd-sata-32gb-2009",
    "ssd-sata-32gb-2009-log-blocks",
    "ssd-sata-32gb-2009-no-cache",
    "warpdrive-slp300",
    "wd-16-raid0-b",
    "wd-1tb-2009",
    "x25e-1-b",
    "x25e-32gb",
    "x25e-4-raid5-a",
    "x25e-4-raid5-b",
    "x25e-4-raid5-host",
    "x25e-8-raid10-a",
    "x25e-8-raid10-b",
    "x25e-8-raid5-a",
    "x25e-8-raid5-b",
    "x25e-8-raid5-host",
    "z-drive-r4",
];

/// Maximum number of names suggested for a misspelt one.
const SUGGESTIONS_MAX: usize = 3;

/// Returns the suggestion for an unknown name: the names that differ by a few letters, or else
/// all names.
pub(super) fn instead_of(name: &str) -> String {
    let most = (name.chars().count() / 3).max(1);
    let name = name.to_lowercase();
    let mut close: Vec<(usize, &str)> = BUILT_IN
        .iter()
        .map(|(known, _)| (strsim::damerau_levenshtein(known, &name), *known))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    close.sort_unstable();
    close.truncate(SUGGESTIONS_MAX);
    if close.is_empty() {
        let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
        return format!("there are: {}, and files by their path", known.join(", "));
    }
    let close: Vec<String> = close.iter().map(|(_, known)| format!("`{known}`")).collect();
    format!("did you mean {}?", close.join(" or "))
}
