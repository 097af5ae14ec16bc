//! `hemi events`: the events of a served volume.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_server::control::events::{EVENTS_PER_ANSWER, Event};
use serde::Deserialize;

use crate::client::{Client, Which};

/// The pause before a broken stream of events is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// The number of failed tries in a row after which the volume counts as gone.
const TRIES: u32 = 20;

/// Show what happened to a served volume.
///
/// Prints one event per line, oldest first: its time, its severity, and what happened with its
/// cause. Events are kept across restarts of hemi. Times are in UTC.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi events
  hemi events -f --volume db
  hemi events --json | jq 'select(.kind == \"freeze\")'")]
pub(crate) struct EventsArgs {
    /// Go on with events as they happen, until interrupted or the volume is gone.
    #[arg(short, long)]
    follow: bool,

    /// Print each event as a line of JSON, as in the control API.
    #[arg(long)]
    json: bool,

    /// Number of past events to show, 0 to 1000.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u16).range(0..=i64::from(EVENTS_PER_ANSWER)))]
    lines: u16,

    #[command(flatten)]
    which: Which,
}

/// An answer of `GET /v1/events`. Events stay raw JSON, because fields may be added.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) events: Vec<serde_json::Value>,
    /// The id to go on after.
    pub(crate) next: u64,
}

pub(crate) fn run(arguments: &EventsArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    client.block_on(async {
        // Without past events, the id to go on after is needed all the same.
        let limit = arguments.lines.max(1);
        let page: Page = client.get(&format!("/v1/events?limit={limit}")).await?;
        for event in page.events.iter().take(arguments.lines.into()) {
            show(serde_json::to_string(event)?.as_bytes(), arguments.json)?;
        }
        if !arguments.follow {
            return Ok(());
        }
        follow(&client, page.next, arguments.json).await
    })
}

/// Shows events as they happen. Waits out an upgrade or a quick restart of hemi.
async fn follow(client: &Client, mut after: u64, json: bool) -> Result<()> {
    let mut failures = 0;
    loop {
        let path = format!("/v1/events/stream?after={after}");
        let mut is_shown = true;
        let streamed = client
            .lines(&path, |line| {
                failures = 0;
                let event: Event =
                    serde_json::from_slice(line).context("a line of the event stream")?;
                after = event.id;
                is_shown = false;
                show(line, json)?;
                is_shown = true;
                Ok(ControlFlow::Continue(()))
            })
            .await;
        failures += 1;
        match streamed {
            Err(error) if failures >= TRIES || !is_shown => return Err(error),
            _ => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Prints one event.
fn show(line: &[u8], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        out.write_all(line)?;
        out.write_all(b"\n")?;
    } else {
        let event: Event = serde_json::from_slice(line).context("an event")?;
        writeln!(out, "{}", text(&event))?;
    }
    out.flush()?;
    Ok(())
}

/// Returns an event as a line of text.
fn text(event: &Event) -> String {
    let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(event.at));
    // Text of other programs, quoted in an error, must not steer the terminal.
    let plain: String = event.text.chars().filter(|letter| !letter.is_control()).collect();
    format!("{at} {:8} {plain}", event.severity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_lines_is_bounded_as_the_server_has_it() {
        #[derive(clap::Parser)]
        struct Events {
            #[command(flatten)]
            events: EventsArgs,
        }
        let parse = |count: &str| {
            let parsed = <Events as clap::Parser>::try_parse_from(["events", "-n", count]);
            parsed.map(|parsed| parsed.events.lines).map_err(|error| error.to_string())
        };
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse(&EVENTS_PER_ANSWER.to_string()), Ok(EVENTS_PER_ANSWER));
        for count in ["1001", "99999"] {
            let refused = parse(count).expect_err("it is more than an answer has");
            assert!(refused.contains(&format!("{count} is not in 0..=1000")), "{refused}");
        }
    }

    #[test]
    fn an_event_is_one_plain_line() {
        let json = r#"{"id":7,"at":1700000000123,"severity":"warning","kind":"freeze","leg":1,
            "name":"hdd","text":"hdd\u001b[2J does not\nanswer.","values":{},"later":"field"}"#;
        let event: Event = serde_json::from_str(json).expect("fields may be added");
        assert_eq!(text(&event), "2023-11-14T22:13:20Z warning  hdd[2J does notanswer.");
    }
}
