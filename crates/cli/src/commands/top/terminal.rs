//! The terminal while a live screen owns it: no echo, no line editing, a screen of its own. It is
//! restored however the program ends.

use std::io::{self, Write as _};
use std::sync::Mutex;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Switches to the alternate screen, without a cursor and with lines that do not wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
const LEAVE: &str = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Between these a terminal that knows them shows nothing half drawn.
const BEGIN_FRAME: &str = "\x1b[?2026h\x1b[H";
const END_FRAME: &str = "\x1b[J\x1b[?2026l";

/// The terminal's previous state, or `None` while it is not taken.
static BEFORE: Mutex<Option<Option<Termios>>> = Mutex::new(None);

/// The terminal while it is taken.
#[derive(Debug)]
pub(super) struct Terminal;

impl Terminal {
    /// Takes the terminal. `keys` tells that standard input is the terminal, too.
    ///
    /// # Errors
    /// Fails if it cannot be set up.
    pub(super) fn take(keys: bool) -> io::Result<Terminal> {
        let mut before = None;
        if keys {
            let known = tcgetattr(io::stdin())?;
            let mut raw = known.clone();
            raw.make_raw();
            tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
            before = Some(known);
        }
        *lock() = Some(before);
        let next = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // The panic message has to be visible afterwards.
            give_back();
            next(panic);
        }));
        let terminal = Terminal;
        show(ENTER)?;
        Ok(terminal)
    }

    /// Shows a screen in one write.
    pub(super) fn frame(&mut self, lines: &[String]) -> io::Result<()> {
        let body = lines.join("\x1b[K\r\n");
        show(&format!("{BEGIN_FRAME}{body}\x1b[K{END_FRAME}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Returns columns and rows, or `None` if standard output is no terminal.
pub(super) fn size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

fn lock() -> std::sync::MutexGuard<'static, Option<Option<Termios>>> {
    BEFORE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn give_back() {
    let Some(before) = lock().take() else { return };
    // Nothing can be done about a terminal that is gone.
    let _ = show(LEAVE);
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
