//! The presets compiled in: the files of `presets/`, by name.

/// Each name with the text of its file.
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
    "cheetah-8-raid0-b",
    "gp2-100gb",
    "gp3",
    "gp3-16k",
    "gp3-4-raid0-host",
    "hyperdisk-balanced",
    "pd-ssd-500gb",
    "wd-16-raid0-b",
    "x25e-1-b",
    "x25e-4-raid5-a",
    "x25e-4-raid5-b",
    "x25e-4-raid5-host",
    "x25e-8-raid10-a",
    "x25e-8-raid10-b",
    "x25e-8-raid5-a",
    "x25e-8-raid5-b",
    "x25e-8-raid5-host",
];
