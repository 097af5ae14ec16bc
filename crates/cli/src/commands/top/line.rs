//! Lines of a screen: pieces of text, each in a style, cut to the width of the terminal.

use std::fmt::Write as _;

/// The look of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    #[default]
    Plain,
    Bold,
    Faint,
    Good,
    Warning,
    Bad,
    /// The selected line, or the head of a table.
    Reverse,
}

impl Style {
    /// Returns the escape sequence that begins the style.
    fn begin(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Faint => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Warning => "\x1b[33m",
            Style::Bad => "\x1b[1;31m",
            Style::Reverse => "\x1b[7m",
        }
    }
}

/// A line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pieces: Vec<(Style, String)>,
}

impl Line {
    pub(super) fn plain(text: impl Into<String>) -> Line {
        Line::styled(Style::Plain, text)
    }

    pub(super) fn styled(style: Style, text: impl Into<String>) -> Line {
        Line::default().with(style, text)
    }

    /// Returns the line with one more piece.
    pub(super) fn with(mut self, style: Style, text: impl Into<String>) -> Line {
        self.pieces.push((style, text.into()));
        self
    }

    /// Returns the line with one more piece that ends at the right edge, if there is room.
    pub(super) fn right(self, style: Style, text: &str, width: usize) -> Line {
        let room = width.saturating_sub(self.len() + text.chars().count());
        if room == 0 {
            return self;
        }
        self.with(Style::Plain, " ".repeat(room)).with(style, text)
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Renders the line for a terminal of this width, without an end of line. Without `color` there
    /// are no escape sequences and no trailing blanks.
    pub(super) fn render(&self, width: usize, color: bool) -> String {
        let mut out = String::new();
        let mut room = width;
        for (style, text) in &self.pieces {
            // Names of drives and volumes come from outside: none of their sequences may reach a
            // terminal.
            let clean = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
            let text: String = clean.take(room).collect();
            room -= text.chars().count();
            if color && !text.is_empty() && *style != Style::Plain {
                let _ = write!(out, "{}{text}\x1b[0m", style.begin());
            } else {
                out.push_str(&text);
            }
        }
        if color { out } else { out.trim_end().to_owned() }
    }
}

/// Returns a bar of this width, filled to `permille` thousandths.
pub(super) fn bar(permille: u64, width: usize, unicode: bool) -> String {
    let (full, empty) = if unicode { ('█', '░') } else { ('#', '.') };
    let filled = (permille.min(1000) as usize * width + 500) / 1000;
    // A small share still shows.
    let filled = if permille > 0 { filled.max(1) } else { 0 }.min(width);
    std::iter::repeat_n(full, filled).chain(std::iter::repeat_n(empty, width - filled)).collect()
}

/// Returns a bar for each of the last figures, as high as it is relative to the highest, and blank
/// where there is none.
pub(super) fn sparkline(figures: &[u64], width: usize, unicode: bool) -> String {
    let levels: &[char] = match unicode {
        true => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => &['_', '.', '-', '=', '+', '*', '#', '@'],
    };
    let shown = &figures[figures.len().saturating_sub(width)..];
    let most = shown.iter().copied().max().unwrap_or(0).max(1);
    let level = |figure: u64| {
        let height = u128::from(figure) * (levels.len() as u128 - 1) / u128::from(most);
        if figure == 0 { ' ' } else { levels[height as usize] }
    };
    let blank = std::iter::repeat_n(' ', width - shown.len());
    blank.chain(shown.iter().map(|&figure| level(figure))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_and_its_style_ends() {
        let line = Line::styled(Style::Bad, "abc").with(Style::Plain, "def");
        assert_eq!(line.render(80, true), "\x1b[1;31mabc\x1b[0mdef");
        assert_eq!(line.render(2, true), "\x1b[1;31mab\x1b[0m");
        assert_eq!(line.render(4, false), "abcd");
        assert_eq!(Line::plain("a").right(Style::Plain, "z", 4).render(80, false), "a  z");
        assert_eq!(Line::plain("abcd").right(Style::Plain, "z", 4).render(80, false), "abcd");
    }

    #[test]
    fn no_sequence_from_outside_reaches_the_terminal() {
        let text = Line::plain("a\x1b[2Jb\n").render(80, true);
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}");
    }

    #[test]
    fn bars_and_sparklines_have_their_width() {
        assert_eq!(bar(0, 4, false), "....");
        assert_eq!(bar(1, 4, false), "#...");
        assert_eq!(bar(500, 4, false), "##..");
        assert_eq!(bar(2000, 4, false), "####");
        assert_eq!(sparkline(&[0, 1, 4, 8], 6, true), "   ▁▄█");
        assert_eq!(sparkline(&[9, 1, 4, 8], 3, false), "_=@");
        assert_eq!(sparkline(&[], 2, true), "  ");
    }
}
