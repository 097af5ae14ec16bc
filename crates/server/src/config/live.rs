//! The options that can change while the volume is served, and the code that changes them.
//!
//! One list holds every key of the configuration, with the reason if it is fixed. A new value is parsed and
//! checked together with all others, as at a start.

use serde::{Deserialize, Serialize};

use super::Config;

/// Fixed: memory is allocated at the start.
const MEMORY: &str = "its memory is allocated at the start";
/// Fixed: sockets are bound at the start.
const BOUND: &str = "it is bound at the start";
/// Fixed: it only affects a start.
const AT_START: &str = "it only affects a start";

/// Every key in the order of docs/configuration.md, with the reason if it cannot change.
const KEYS: [(&str, Option<&str>); 41] = [
    ("volume", Some("it names the volume that a start may serve")),
    ("control", Some(BOUND)),
    ("http", Some(BOUND)),
    ("http_token_file", Some("the token is read at the start")),
    (
        "http_public",
        Some("it guards against a listener that others reach, and no command may lift it"),
    ),
    ("device", Some("hemi attach makes the block device, hemi detach-device removes it")),
    ("buffer_budget", Some("the memory is allocated and registered at the start")),
    ("allow_inject", Some("it guards against hemi inject, and no command may lift it")),
    ("wait_for_legs", Some(AT_START)),
    ("start_degraded", Some(AT_START)),
    ("scan", Some(AT_START)),
    ("ledger", Some("the legs name the ledger that the volume is served with")),
    ("state", Some("the files in it are opened at the start")),
    ("smart", Some("it is read at the start")),
    ("drain_on_stop", None),
    ("legs", Some("hemi leg changes the legs of a served volume")),
    ("exports", Some("their sockets are bound at the start")),
    ("vhost", Some("their sockets are bound at the start")),
    ("engine.policy", None),
    ("engine.flush_copies", None),
    ("engine.out_after", None),
    ("engine.leg_window", Some(MEMORY)),
    ("engine.leg_window_bytes", None),
    ("engine.drain_bytes", None),
    ("engine.clean_after", None),
    (
        "engine.resync_bytes",
        Some("memory for the records of that many regions is allocated at the start"),
    ),
    ("engine.requests_max", Some(MEMORY)),
    ("engine.dirty_regions_max", Some(MEMORY)),
    ("engine.owed_extents_max", Some(MEMORY)),
    ("engine.copies_reserve", None),
    ("engine.hedge_permille", None),
    ("engine.read_hysteresis_percent", None),
    ("engine.paper_wait_permille", None),
    ("engine.slow_leg", None),
    ("engine.write_behind_limit", None),
    ("engine.exposure.bytes", None),
    ("engine.exposure.age", None),
    ("engine.exposure.mode", None),
    ("engine.wait.floor", None),
    ("engine.wait.ceiling", None),
    ("engine.wait.multiple", None),
];

/// One key of the configuration, as `GET /v1/settings` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key, with dots between tables.
    pub key: String,
    /// Its value in the form of `KEY=VALUE`; `null` if it has none.
    pub value: Option<String>,
    /// True if it can change while the volume is served.
    pub live: bool,
    /// The reason why it cannot; `null` if it can.
    pub why_not: Option<String>,
}

/// The reason why a value was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There is no such key.
    #[error("there is no key {key}{}", suggestion(.meant.as_deref()))]
    Unknown {
        /// The key as given.
        key: String,
        /// The key that may have been meant.
        meant: Option<String>,
    },
    /// The key cannot change.
    #[error("{key} cannot change while the volume is served: {why}")]
    Fixed {
        /// The key.
        key: String,
        /// The reason.
        why: String,
    },
    /// The value is not valid, by itself or together with the others.
    #[error("{0}")]
    Bad(String),
}

fn suggestion(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |key| format!("; did you mean {key}?"))
}

/// Returns the key that `text` names. The prefix `engine.` may be left out, and `exposure` means
/// `engine.exposure.bytes`.
///
/// # Errors
/// [`ChangeError::Unknown`].
pub fn key(text: &str) -> Result<&'static str, ChangeError> {
    /// Minimum similarity of a key that is suggested.
    const ALIKE: f64 = 0.8;
    let wanted = if text == "exposure" { "exposure.bytes" } else { text };
    let names = |key: &&str| *key == wanted || key.strip_prefix("engine.") == Some(wanted);
    let mut keys = KEYS.iter().map(|(key, _)| *key);
    keys.find(names).ok_or_else(|| {
        let alike = |key: &str| {
            let short = key.strip_prefix("engine.").unwrap_or(key);
            strsim::jaro_winkler(key, wanted).max(strsim::jaro_winkler(short, wanted))
        };
        let short = ("exposure", "engine.exposure.bytes");
        let names = KEYS.iter().map(|(key, _)| (*key, *key)).chain([short]);
        let best = names.map(|(name, key)| (alike(name), key));
        let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(how, _)| *how >= ALIKE);
        let meant = best.map(|(_, key)| key.to_owned());
        ChangeError::Unknown { key: text.to_owned(), meant }
    })
}

/// Returns every key with its value, and whether it can change while the volume is served.
pub fn settings(config: &Config) -> Vec<Setting> {
    let table = toml::Table::try_from(config).expect("every option has a TOML form");
    let list = |texts: Vec<String>| (!texts.is_empty()).then(|| texts.join(", "));
    let value = |key: &str| match key {
        "legs" => list(config.legs.iter().map(|leg| leg.path.to_string()).collect()),
        "exports" => list(config.exports.iter().map(|export| export.nbd.to_string()).collect()),
        "vhost" => list(config.vhost.iter().map(|one| one.socket.display().to_string()).collect()),
        "scan" => config.scan.as_ref().map(|scan| scan.volume.clone()),
        // This key is not written if it follows from the exposure bound.
        "engine.owed_extents_max" => Some(config.engine.settings().owed_extents_max.to_string()),
        _ => value_at(&table, key).map(printed),
    };
    KEYS.iter()
        .map(|(key, why)| Setting {
            key: (*key).to_owned(),
            value: value(key),
            live: why.is_none(),
            why_not: why.map(str::to_owned),
        })
        .collect()
}

fn value_at<'a>(table: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = table.get(first)?;
    if rest.is_empty() { Some(value) } else { value_at(value.as_table()?, rest) }
}

/// Prints a value in the form of `KEY=VALUE`.
fn printed(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the configuration with new values, each a key and its value as text. Either all change or none.
/// The result is checked as at a start.
///
/// # Errors
/// [`ChangeError`] for the first key that cannot change, or the first value that is not valid.
pub fn changed(config: &Config, values: &[(String, String)]) -> Result<Config, ChangeError> {
    let mut table = toml::Table::try_from(config).expect("every option has a TOML form");
    let mut read = config.clone();
    for (text, value) in values {
        let key = key(text)?;
        let why = KEYS.iter().find(|(known, _)| *known == key).and_then(|(_, why)| *why);
        if let Some(why) = why {
            return Err(ChangeError::Fixed { key: key.to_owned(), why: why.to_owned() });
        }
        let bad = |reason: &str| ChangeError::Bad(format!("{key}={value}: {}", reason.trim_end()));
        super::assign(&mut table, &format!("{key}={value}")).map_err(|reason| bad(&reason))?;
        read = Config::deserialize(table.clone()).map_err(|error| bad(error.message()))?;
    }
    read.file.clone_from(&config.file);
    // It follows from the exposure bound unless it is configured, but its memory is allocated already.
    let bound = |config: &Config| config.engine.settings().owed_extents_max;
    if bound(&read) != bound(config) {
        read.engine.owed_extents_max = Some(bound(config));
    }
    let faults: Vec<String> = read.faults().iter().map(ToString::to_string).collect();
    if faults.is_empty() { Ok(read) } else { Err(ChangeError::Bad(faults.join("; "))) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config() -> Config {
        Config::parse("legs = [\"/a\", \"/b\"]\ndevice = \"auto\"", Path::new("x"), &[])
            .expect("it is good")
    }

    fn set(config: &Config, values: &[(&str, &str)]) -> Result<Config, ChangeError> {
        let values: Vec<_> =
            values.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        changed(config, &values)
    }

    /// Collects the keys of the file. Tables are expanded, and a list of tables stays one key.
    fn keys(table: &toml::Table, prefix: &str, into: &mut Vec<String>) {
        for (name, value) in table {
            match value {
                toml::Value::Table(inner) => keys(inner, &format!("{prefix}{name}."), into),
                _ => into.push(format!("{prefix}{name}")),
            }
        }
    }

    #[test]
    fn every_key_has_its_place() {
        let text = r#"
            volume = "v"
            control = "/c"
            http = "h:1"
            http_token_file = "/t"
            http_public = true
            scan = "v"
            legs = ["/a"]
            [[exports]]
            nbd = "unix:/s"
            [[vhost]]
            socket = "/v"
            [engine]
            owed_extents_max = 2000
        "#;
        let config = Config::parse(text, Path::new("x"), &[]).expect("it is good");
        let mut written = Vec::new();
        keys(&toml::Table::try_from(&config).expect("it is one"), "", &mut written);
        let mut known: Vec<String> = KEYS.iter().map(|(key, _)| (*key).to_owned()).collect();
        written.sort();
        known.sort();
        assert_eq!(written, known);
        for setting in settings(&config) {
            assert!(setting.value.is_some(), "{}", setting.key);
            assert_ne!(setting.live, setting.why_not.is_some(), "{}", setting.key);
        }
    }

    /// Every value that is shown can be given back.
    #[test]
    fn a_value_is_taken_as_it_is_shown() {
        let config = config();
        for setting in settings(&config).into_iter().filter(|setting| setting.live) {
            let value = setting.value.expect("what can change has a value");
            let same = set(&config, &[(&setting.key, &value)]);
            assert_eq!(same.as_ref(), Ok(&config), "{}={value}", setting.key);
        }
    }

    #[test]
    fn a_change_is_judged_as_at_a_start_and_whole() {
        let now = config();
        let changed = set(&now, &[("exposure", "64MiB"), ("wait.floor", "10ms")]);
        let changed = changed.expect("both may change");
        assert_eq!(changed.settings().exposure_bytes, 64 << 20);
        assert_eq!(changed.settings().wait_floor, 10_000_000);
        let says = |values: &[(&str, &str)], part: &str| {
            let error = set(&now, values).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        says(&[("engine.exposure.bytes", "1K")], "allowed are 1MiB to 64GiB");
        says(&[("exposure.mode", "often")], "engine.exposure.mode=often: ");
        says(&[("engine.wait.floor", "2s")], "below engine.wait.floor");
        says(&[("engine.leg_window", "8")], "its memory is allocated at the start");
        says(&[("expsure.bytes", "8")], "did you mean engine.exposure.bytes?");
        says(&[("colour", "8")], "there is no key colour");
        let both = [("engine.wait.floor", "2s"), ("engine.wait.ceiling", "3s")];
        set(&now, &both).expect("one after the other would be refused");
    }

    /// The bound on debts follows the exposure bound at a start only, when its memory is allocated.
    #[test]
    fn memory_of_the_start_does_not_follow_the_exposure_bound() {
        let now = config();
        let before = now.settings().owed_extents_max;
        let raised = set(&now, &[("exposure", "2GiB")]).expect("it may be raised");
        assert_eq!(raised.settings().owed_extents_max, before);
        let again = set(&raised, &[("exposure", "1MiB")]).expect("it may be lowered");
        assert_eq!(again.settings().owed_extents_max, before);
    }

    /// The command's page lists every key and says whether it can change.
    #[test]
    fn the_documentation_agrees() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands/set.md");
        let text = std::fs::read_to_string(page).expect("docs/commands/set.md");
        for (key, why) in KEYS {
            let row = format!("| `{key}` | {} |", why.unwrap_or("yes"));
            assert!(text.contains(&row), "docs/commands/set.md lacks {row}");
        }
    }
}
