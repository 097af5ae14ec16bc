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
pub(super) const BUILT_IN: &[(&str, &str)] =
    &built_in!["gp2-100gb", "gp3", "gp3-16k", "hyperdisk-balanced", "pd-ssd-500gb",];
