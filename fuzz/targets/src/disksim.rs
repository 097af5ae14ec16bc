//! The fuzz target for descriptions of disks in DiskSim's format.

use hemi_drives::disksim::{drive, preset};
use hemi_drives::preset::{Model, Preset};

/// Loads a description. The input is files with a NUL between them: the first is the one to load,
/// and each other begins with a line that is its name. Parameters that are accepted come back the
/// same from the preset made of them.
pub(crate) fn disksim(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut files = text.split('\0');
    let first = files.next().unwrap_or_default();
    let others: Vec<(&str, &str)> = files.filter_map(|file| file.split_once('\n')).collect();
    for name in ["first.parv", "first.diskspecs"] {
        let read = |wanted: &str| {
            let other = others.iter().find(|(name, _)| *name == wanted);
            let text = if wanted == name { Some(first) } else { other.map(|(_, text)| *text) };
            text.map(str::to_owned).ok_or_else(|| "there is no such file".to_owned())
        };
        match drive::load(name, &read) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(description) => {
                for ignored in &description.ignored {
                    assert!(!ignored.to_string().is_empty());
                }
                let text = preset::text(&description, None).expect("what is loaded is a preset");
                let preset = Preset::parse("again.toml", &text).expect("it can be read");
                assert_eq!(preset.model, Model::Hdd(Box::new(description.parameters)));
            }
        }
    }
}
