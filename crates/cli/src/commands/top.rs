//! `hemi top`: shows a served volume live on a terminal.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_server::control::api::VolumeStatus;
use hemi_server::control::socket::run_directories;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use crate::client::{Client, RunSockets, Which};
use frame::View;
use keys::{Key, keys};
use terminal::Terminal;

mod frame;
mod keys;
mod line;
mod terminal;

/// The width in columns where there is no terminal.
const COLUMNS: usize = 110;
/// The pause between two tries to reach a volume that is gone.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Show a served volume live on the terminal.
///
/// Shows, every second, whether all promises hold, the clients' requests and latencies, the exposure and
/// its bound, rebuilds and scrubs with the time left, and each leg with its latencies, its queue and
/// what it owes. Keys: q quits, p pauses, up and down select a leg, d shows it in detail, s sorts the
/// legs, v shows the next volume, ? explains.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi top
  hemi top --volume db
  hemi top --once | mail -s 'volume db' admin")]
pub(crate) struct TopArgs {
    /// Print one screen and exit (the default without a terminal).
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    which: Which,
}

/// A key, a new size of the terminal, or news of a volume.
enum Event {
    Status { tap: u64, status: Box<VolumeStatus> },
    Gone { tap: u64, why: String },
    Key(Key),
    Resized,
    Stopped,
}

pub(crate) fn run(arguments: &TopArgs) -> Result<()> {
    let unicode = is_unicode();
    if arguments.once || !std::io::stdout().is_terminal() {
        return once(&arguments.which.socket()?, unicode);
    }
    let sockets = volumes(&arguments.which)?;
    Top::new(sockets, unicode).run()
}

/// Returns the control sockets that can be shown, the one that is meant first.
fn volumes(which: &Which) -> Result<Vec<PathBuf>> {
    if which.volume.is_some() || which.control.is_some() {
        return Ok(vec![which.socket()?]);
    }
    let served = RunSockets::look(&run_directories()).served;
    match served.len() {
        // It fails with the reason.
        0 => Ok(vec![which.socket()?]),
        _ => Ok(served.into_iter().map(|(_, path)| path).collect()),
    }
}

/// Prints one screen. Rates are those of one second.
fn once(socket: &std::path::Path, unicode: bool) -> Result<()> {
    let client = Client::at(socket.to_owned());
    let mut view = View { unicode, volume: (0, 1), ..View::default() };
    view.note(client.block_on(client.get("/v1/status"))?);
    std::thread::sleep(Duration::from_secs(1));
    view.note(client.block_on(client.get("/v1/status"))?);
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let width = terminal::size().map(|(width, _)| width).or(columns).unwrap_or(COLUMNS);
    let mut out = std::io::stdout().lock();
    for line in view.page(width) {
        writeln!(out, "{}", line.render(width, false))?;
    }
    Ok(())
}

/// Returns true if the locale says that the terminal shows more than ASCII.
fn is_unicode() -> bool {
    let set = |name: &&str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name));
    let value = locale.and_then(|name| std::env::var(name).ok()).unwrap_or_default();
    let value = value.to_lowercase();
    value.contains("utf-8") || value.contains("utf8")
}

/// The live screen.
struct Top {
    sockets: Vec<PathBuf>,
    view: View,
    color: bool,
    /// The channel of events.
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// The number of the current stream. Streams of other numbers end.
    tap: Arc<AtomicU64>,
}

impl Top {
    fn new(sockets: Vec<PathBuf>, unicode: bool) -> Top {
        let (sender, events) = channel();
        let view = View { unicode, volume: (0, sockets.len()), ..View::default() };
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Top { sockets, view, color, sender, events, tap: Arc::default() }
    }

    fn run(mut self) -> Result<()> {
        let has_keys = std::io::stdin().is_terminal();
        self.watch_signals()?;
        let mut terminal = Terminal::take(has_keys).context("cannot set up the terminal")?;
        if has_keys {
            self.read_keys()?;
        }
        self.open()?;
        loop {
            self.draw(&mut terminal)?;
            let Ok(event) = self.events.recv() else { return Ok(()) };
            if self.take(event)?.is_break() {
                return Ok(());
            }
        }
    }

    fn draw(&self, terminal: &mut Terminal) -> Result<()> {
        let (width, height) = terminal::size().unwrap_or((COLUMNS, 40));
        let lines = self.view.frame(width, height);
        let lines: Vec<String> = lines.iter().map(|line| self.render(line, width)).collect();
        Ok(terminal.frame(&lines)?)
    }

    fn render(&self, line: &line::Line, width: usize) -> String {
        line.render(width, self.color)
    }

    fn take(&mut self, event: Event) -> Result<ControlFlow<()>> {
        let tap = self.tap.load(Ordering::Relaxed);
        match event {
            Event::Status { tap: of, status } if of == tap && !self.view.paused => {
                self.view.note(*status);
            }
            Event::Gone { tap: of, why } if of == tap => self.view.gone = Some(why),
            Event::Status { .. } | Event::Gone { .. } | Event::Resized => {}
            Event::Stopped | Event::Key(Key::Quit) => return Ok(ControlFlow::Break(())),
            Event::Key(Key::Pause) => self.view.paused = !self.view.paused,
            Event::Key(Key::Sort) => self.view.order = self.view.order.next(),
            Event::Key(Key::Detail) => {
                self.view.detail = !self.view.detail;
                if self.view.selected.is_none() {
                    self.view.select(0);
                }
            }
            Event::Key(Key::Help) => self.view.help = !self.view.help,
            Event::Key(Key::Back) => (self.view.help, self.view.detail) = (false, false),
            Event::Key(Key::Up) => self.view.select(-1),
            Event::Key(Key::Down) => self.view.select(1),
            Event::Key(Key::Right) => self.turn(1)?,
            Event::Key(Key::Left) => self.turn(self.sockets.len() - 1)?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Switches to the volume `further` places on.
    fn turn(&mut self, further: usize) -> Result<()> {
        let (now, count) = self.view.volume;
        if count < 2 {
            return Ok(());
        }
        let View { unicode, order, .. } = self.view;
        let volume = ((now + further) % count, count);
        self.view = View { unicode, order, volume, ..View::default() };
        self.open()
    }

    /// Opens the stream of the shown volume, and keeps trying while it is gone.
    fn open(&self) -> Result<()> {
        let tap = self.tap.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Client::at(self.sockets[self.view.volume.0].clone());
        let (sender, newest) = (self.sender.clone(), Arc::clone(&self.tap));
        let listen = move || {
            let is_wanted = || newest.load(Ordering::Relaxed) == tap;
            while is_wanted() {
                let lines = client.lines("/v1/status/stream", |line| {
                    let status = serde_json::from_slice(line).context("a line of the stream")?;
                    let sent = sender.send(Event::Status { tap, status });
                    let goes_on = sent.is_ok() && is_wanted();
                    Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
                });
                let why = match client.block_on(lines) {
                    Ok(()) => "The volume is not served any more. Waiting for it.".to_owned(),
                    Err(error) => format!("{error:#}. Trying again."),
                };
                if sender.send(Event::Gone { tap, why }).is_err() {
                    return;
                }
                std::thread::sleep(AGAIN_AFTER);
            }
        };
        std::thread::Builder::new().name("stream".into()).spawn(listen)?;
        Ok(())
    }

    fn read_keys(&self) -> Result<()> {
        let sender = self.sender.clone();
        let read = move || {
            let mut bytes = [0; 64];
            loop {
                let count = match std::io::stdin().read(&mut bytes) {
                    // The terminal is gone.
                    Ok(0) | Err(_) => return drop(sender.send(Event::Stopped)),
                    Ok(count) => count,
                };
                for key in keys(&bytes[..count]) {
                    if sender.send(Event::Key(key)).is_err() {
                        return;
                    }
                }
            }
        };
        std::thread::Builder::new().name("keys".into()).spawn(read)?;
        Ok(())
    }

    fn watch_signals(&self) -> Result<()> {
        let caught = [SIGWINCH, SIGTERM, SIGINT, SIGHUP];
        let mut signals = signal_hook::iterator::Signals::new(caught)?;
        let sender = self.sender.clone();
        let watch = move || {
            for signal in signals.forever() {
                let event = if signal == SIGWINCH { Event::Resized } else { Event::Stopped };
                if sender.send(event).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch)?;
        Ok(())
    }
}
