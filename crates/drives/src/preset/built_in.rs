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
    "cheetah-15k5-300gb",
    "gp2-100gb",
    "gp3",
    "gp3-16k",
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
    "sata-dramless",
    "slc-early",
    "smr-hdd",
    "ssd-sata-32gb-2009",
    "warpdrive-slp300",
    "wd-1tb-2009",
    "x25e-32gb",
    "z-drive-r4",
];
