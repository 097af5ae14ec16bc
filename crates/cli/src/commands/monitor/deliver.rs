//! The delivery of events by mail and by a program.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hemi_server::control::events::Event;

/// The longest run of the program, or of sendmail, after which it is killed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest subject of a mail, in characters.
const SUBJECT_MAX: usize = 120;

/// An event of a volume.
#[derive(Clone, Debug)]
pub(super) struct Happened {
    pub(super) volume: String,
    pub(super) event: Event,
    /// True if it is to be mailed.
    pub(super) is_news: bool,
}

/// The means of delivery.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The address, and the program that takes the mail.
    mail: Option<(String, PathBuf)>,
    program: Option<PathBuf>,
}

impl Delivery {
    pub(super) fn new(mail: Option<(String, PathBuf)>, program: Option<PathBuf>) -> Delivery {
        Delivery { mail, program }
    }

    /// Runs the program for an event, and waits for its end.
    ///
    /// # Errors
    /// Fails if it cannot be run, fails, or takes too long.
    pub(super) fn run_program(&self, happened: &Happened) -> io::Result<()> {
        let Some(program) = &self.program else { return Ok(()) };
        let event = &happened.event;
        let leg = event.leg.map(|leg| leg.to_string()).unwrap_or_default();
        let mut command = Command::new(program);
        command
            .args([&*event.kind, &happened.volume, &leg])
            .env("HEMI_EVENT", &*event.kind)
            .env("HEMI_VOLUME", &happened.volume)
            .env("HEMI_LEG", leg)
            .env("HEMI_LEG_NAME", plain(event.name.as_deref().unwrap_or_default()))
            .env("HEMI_SEVERITY", event.severity.to_string())
            .env("HEMI_TEXT", plain(&event.text))
            .env("HEMI_ID", event.id.to_string())
            .env("HEMI_AT", event.at.to_string())
            .env("HEMI_JSON", serde_json::to_string(event).unwrap_or_default());
        run(command, program, None)
    }

    /// Mails some events.
    ///
    /// # Errors
    /// Fails if the mail is not taken.
    pub(super) fn mail(&self, news: &[&Happened]) -> io::Result<()> {
        let Some((address, sendmail)) = &self.mail else { return Ok(()) };
        let mut command = Command::new(sendmail);
        // The address is in the mail, so that it cannot be taken for an option.
        command.args(["-i", "-t"]);
        run(command, sendmail, Some(letter(address, news).as_bytes()))
    }
}

/// Runs a command with some input, and waits for its end.
fn run(mut command: Command, program: &Path, input: Option<&[u8]>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::other(format!("{}: {error}", program.display()));
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(named)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A mail fits into a pipe. A program that does not read it reports failure by its exit
        // code.
        let _ = stdin.write_all(input);
    }
    let begun = Instant::now();
    loop {
        match child.try_wait().map_err(named)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(named(io::Error::other(status.to_string()))),
            None if begun.elapsed() > PATIENCE => {
                // Killing fails if it has just ended, which is harmless.
                let _ = child.kill();
                let _ = child.wait();
                let text =
                    format!("it was killed, since it had not ended after {} s", PATIENCE.as_secs());
                return Err(named(io::Error::other(text)));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Returns a mail with its headers.
fn letter(address: &str, news: &[&Happened]) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let subject = match news {
        [only] => format!("hemi on {}: {}: {}", host.trim(), only.volume, only.event.text),
        _ => {
            let mut volumes: Vec<&str> = news.iter().map(|one| &*one.volume).collect();
            volumes.sort_unstable();
            volumes.dedup();
            format!("hemi on {}: {} events of {}", host.trim(), news.len(), volumes.join(", "))
        }
    };
    let mut text = format!(
        "To: {}\nSubject: {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n",
        plain(address),
        header(&subject)
    );
    for Happened { volume, event, .. } in news {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(event.at));
        text.push_str(&format!(
            "{at} {} {}: {}\n",
            event.severity,
            plain(volume),
            plain(&event.text)
        ));
    }
    text.push_str(
        "\nhemi status shows how each volume is now, hemi events what happened before.\n",
    );
    text
}

/// Returns a text without characters that could end a line or steer a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

/// Returns a text as a header: in ASCII, and not too long.
fn header(text: &str) -> String {
    let plain = text.chars().filter(|letter| !letter.is_control());
    let ascii = plain.map(|letter| match letter {
        'µ' => 'u',
        letter if letter.is_ascii() => letter,
        _ => '?',
    });
    ascii.take(SUBJECT_MAX).collect()
}

/// Returns the time in Unix milliseconds.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happened(volume: &str, text: &str) -> Happened {
        let event = Event {
            kind: "out".into(),
            text: text.into(),
            at: 1_700_000_000_000,
            ..Event::default()
        };
        Happened { volume: volume.into(), event, is_news: true }
    }

    #[test]
    fn a_letter_has_no_headers_but_its_own() {
        let evil = happened("db\nBcc: all@example.org", "It — is out.\n.\nBcc: x");
        let letter = letter("root", &[&evil]);
        let (head, body) = letter.split_once("\n\n").expect("a head and a body");
        assert_eq!(head.lines().count(), 6, "{head}");
        assert!(head.lines().all(|line| line.is_ascii() && !line.starts_with("Bcc")), "{head}");
        assert!(
            body.contains(
                "2023-11-14T22:13:20Z info dbBcc: all@example.org: It — is out..Bcc: x\n"
            )
        );
    }

    #[test]
    fn several_events_are_one_letter() {
        let letter =
            letter("root", &[&happened("a", "x"), &happened("b", "y"), &happened("a", "z")]);
        assert!(letter.contains(": 3 events of a, b\n"), "{letter}");
    }

    #[test]
    fn a_program_that_fails_is_named() {
        let delivery = Delivery::new(None, Some("/bin/false".into()));
        let error = delivery.run_program(&happened("db", "x")).expect_err("it fails");
        assert!(error.to_string().contains("/bin/false"), "{error}");
        let delivery = Delivery::new(Some(("root".into(), "/nowhere".into())), None);
        assert!(delivery.run_program(&happened("db", "x")).is_ok(), "there is none");
        assert!(delivery.mail(&[&happened("db", "x")]).is_err());
    }
}
