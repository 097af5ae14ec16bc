//! Fuzz targets for text that people write: configuration files, `--set` assignments, and the short
//! forms of legs, exports, sizes and durations on the command line.

use std::fmt::{Debug, Display};
use std::path::Path;
use std::str::FromStr;

use hemi_engine::format::superblock::Name;
use hemi_io::config::legs::LegSpec;
use hemi_nbd::uri::NbdUri;
use hemi_server::config::Config;
use hemi_server::config::exports::{Listen, host_and_port};
use hemi_units::{Size, Time};

/// Parses a file, followed by a `--set` assignment after each NUL. A configuration that is accepted
/// reads back the same from the file that `--print-config` would write.
pub(crate) fn config(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut parts = text.split('\0');
    let file = parts.next().unwrap_or_default();
    let overrides: Vec<String> = parts.map(str::to_owned).collect();
    let path = Path::new("hemi.toml");
    match Config::parse(file, path, &overrides) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(config) => {
            let checked = config.check().map_err(|error| error.to_string());
            let printed = config.to_toml();
            let again = Config::parse(&printed, path, &[])
                .unwrap_or_else(|error| panic!("{error}, of\n{printed}"));
            assert_eq!(again, config);
            if checked.is_ok() {
                // The engine takes these from a checked configuration.
                let _ = config.settings();
            }
        }
    }
}

/// Parses a text as each kind of value that is one word on the command line.
pub(crate) fn leg_spec(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    comes_back::<LegSpec>(text);
    comes_back::<NbdUri>(text);
    comes_back::<Listen>(text);
    comes_back::<Size>(text);
    comes_back::<Time>(text);
    let _ = NbdUri::is_nbd(text);
    for default in [None, Some(10809)] {
        if let Ok((host, _)) = host_and_port(text, default) {
            assert!(!host.is_empty());
        }
    }
    if let Ok(name) = Name::new(text) {
        assert_eq!(name.as_str(), text);
    }
}

/// Checks that a value that is accepted reads back the same from its printed form.
fn comes_back<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(value) => {
            let shown = value.to_string();
            let again = shown.parse::<T>().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
            assert_eq!(again, value, "shown as {shown:?}");
        }
    }
}
