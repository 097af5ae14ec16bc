//! `hemi set`: changes the settings of a served volume.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use hemi_server::config::live::{self, Setting};
use hemi_server::control::api::{self, VolumeStatus};

use crate::client::{Client, Which};
use crate::config_file::Keeping;
use crate::failure::{Failure, Kind};
use crate::text;

/// Change the settings of a served volume, or list them.
///
/// Keys and values are those of the configuration; `engine.` may be left out. The change lasts until
/// hemi is started again. The lines of the configuration file that would keep it are printed, or
/// written with --write-config. Without arguments, every key is listed with its value and whether it
/// can change while the volume is served.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi set
  hemi set engine.exposure.bytes=128MiB
  hemi set wait.floor=10ms wait.ceiling=500ms --write-config

docs/commands/set.md lists the keys.")]
pub(crate) struct SetArgs {
    /// A key of the configuration and its new value. Of several, all change or none.
    #[arg(value_name = "KEY=VALUE")]
    assignments: Vec<String>,

    /// Write the change into the configuration file that the volume was started from.
    #[arg(long, requires = "assignments")]
    write_config: bool,

    /// List the keys as JSON, as in the control API.
    #[arg(long, conflicts_with = "assignments")]
    json: bool,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &SetArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    if arguments.assignments.is_empty() {
        return list(&client, arguments.json);
    }
    let mut values = BTreeMap::new();
    for assignment in &arguments.assignments {
        let (key, value) = assignment.split_once('=').ok_or_else(|| {
            Failure::error(
                Kind::Usage,
                format!("{assignment} is no KEY=VALUE"),
                "Write, for example, engine.exposure.bytes=128MiB.",
            )
        })?;
        // Unknown keys are for the server to judge, which may be of another version.
        let key = live::key(key.trim()).unwrap_or(key.trim()).to_owned();
        if values.insert(key.clone(), serde_json::Value::from(value)).is_some() {
            let what = format!("{key} is given twice");
            return Err(Failure::error(Kind::Usage, what, "Give it one value."));
        }
    }
    let status: VolumeStatus = client.block_on(client.get("/v1/status"))?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let keeping =
        Keeping::prepare(status.config_file.as_deref(), arguments.write_config, |file| {
            values.iter().try_for_each(|(key, value)| file.set(key, &text(value)))
        })?;
    let request = api::Set { values: values.clone(), ..api::Set::default() };
    client.block_on(client.post("/v1/set", &request))?;
    let settings: Vec<Setting> = client.block_on(client.get("/v1/settings"))?;
    let mut out = std::io::stdout().lock();
    let mut flags = String::from("with\n  hemi serve …");
    for (key, value) in &values {
        let now = settings.iter().find(|setting| setting.key == *key);
        let now = now.and_then(|setting| setting.value.as_deref()).unwrap_or_default();
        writeln!(out, "{key} = {now}")?;
        flags.push_str(&format!(" --set {key}={}", text(value)));
    }
    drop(out);
    keeping.finish(&flags)
}

fn list(client: &Client, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let settings: serde_json::Value = client.block_on(client.get("/v1/settings"))?;
        writeln!(out, "{settings:#}")?;
    } else {
        let settings: Vec<Setting> = client.block_on(client.get("/v1/settings"))?;
        out.write_all(text::settings(&settings).as_bytes())?;
    }
    Ok(())
}
