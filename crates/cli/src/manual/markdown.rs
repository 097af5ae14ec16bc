//! Turns a page of Markdown into the sections of a man page.

use std::collections::BTreeSet;
use std::mem::take;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

use super::{manual_of, reference};

/// The indentation of code, in columns.
const INDENT: &str = "4";
/// The distance of a list's text from its marks, in columns.
const BULLET_INDENT: &str = "2";
const NUMBER_INDENT: &str = "3";

/// A page, cut at its headings.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The first paragraph as a man page's NAME has it: `serve a volume`.
    pub(super) about: String,
    /// The sections. Text before the first heading becomes the DESCRIPTION, unless it is only that
    /// first paragraph.
    pub(super) sections: Vec<Section>,
    /// The pages that it links to, relative to `docs/`.
    pub(super) links: BTreeSet<String>,
}

/// The text under one heading.
#[derive(Debug)]
pub(super) struct Section {
    /// The heading, in capitals.
    pub(super) title: String,
    pub(super) body: Roff,
}

impl Section {
    /// Returns an empty section.
    pub(super) fn new(title: &str) -> Section {
        Section { title: title.to_owned(), body: Roff::new() }
    }

    /// Returns a section that is one line of code.
    pub(super) fn code(title: &str, line: &str) -> Section {
        let mut section = Section::new(title);
        section.body.control("EX", []).text([roman(line)]).control("EE", []);
        section
    }
}

/// Turns the page `file` (relative to `docs/`) into sections.
pub(super) fn parse(file: &str, text: &str) -> Page {
    let mut writer = Writer::new(file);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        writer.event(event);
    }
    writer.page
}

/// A table while it is read.
#[derive(Debug, Default)]
struct Table {
    head: Vec<Vec<Inline>>,
    row: Vec<Vec<Inline>>,
}

#[derive(Debug)]
struct Writer<'a> {
    file: &'a str,
    page: Page,
    /// The line that is being assembled.
    line: Vec<Inline>,
    /// The number of strong and emphasised parts that are open.
    strong: usize,
    emphasised: usize,
    /// The open lists: the next number, or `None` with bullets.
    lists: Vec<Option<u64>>,
    /// The next paragraph follows a macro that has begun it.
    begun: bool,
    /// The title of the page is being read.
    in_title: bool,
    code: Option<String>,
    table: Table,
    /// The target of the open link, and the place in `line` at which its text begins.
    link: Option<(String, usize)>,
}

impl<'a> Writer<'a> {
    fn new(file: &'a str) -> Writer<'a> {
        Writer {
            file,
            page: Page::default(),
            line: vec![],
            strong: 0,
            emphasised: 0,
            lists: vec![],
            begun: true,
            in_title: false,
            code: None,
            table: Table::default(),
            link: None,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(text) => self.line.push(bold(text.as_ref())),
            Event::SoftBreak => self.line.push(roman(" ")),
            Event::HardBreak => self.line.push(Inline::LineBreak),
            // Comments. The rest is of extensions that are not asked for.
            Event::Html(_)
            | Event::InlineHtml(_)
            | Event::Rule
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::FootnoteReference(_)
            | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush();
                self.in_title = level == HeadingLevel::H1;
            }
            Tag::Paragraph => self.paragraph(),
            Tag::CodeBlock(_) => {
                self.flush();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                if !self.lists.is_empty() {
                    self.body().control("RS", []);
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Strong => self.strong += 1,
            Tag::Emphasis => self.emphasised += 1,
            Tag::Link { dest_url, .. } => {
                self.link = Some((dest_url.into_string(), self.line.len()));
            }
            Tag::Table(_) => self.flush(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::Paragraph => self.end_of_paragraph(),
            TagEnd::CodeBlock => self.end_of_code(),
            TagEnd::Item => self.flush(),
            TagEnd::List(_) => {
                self.lists.pop();
                if !self.lists.is_empty() {
                    self.body().control("RE", []);
                }
                self.begun = false;
            }
            TagEnd::Strong => self.strong -= 1,
            TagEnd::Emphasis => self.emphasised -= 1,
            TagEnd::Link => self.end_of_link(),
            TagEnd::TableCell => {
                let cell = take(&mut self.line);
                self.table.row.push(cell);
            }
            TagEnd::TableHead => self.table.head = take(&mut self.table.row),
            TagEnd::TableRow => self.row(),
            TagEnd::Table => {
                self.table = Table::default();
                self.begun = false;
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        self.line.push(if self.strong > 0 {
            bold(text)
        } else if self.emphasised > 0 {
            italic(text)
        } else {
            roman(text)
        });
    }

    /// The body of the section that is being written.
    fn body(&mut self) -> &mut Roff {
        if self.page.sections.is_empty() {
            self.page.sections.push(Section::new("DESCRIPTION"));
            self.begun = true;
        }
        let last = self.page.sections.last_mut().expect("one has just been made if there was none");
        &mut last.body
    }

    /// Writes the line that has been put together.
    fn flush(&mut self) {
        let line = take(&mut self.line);
        if !line.is_empty() {
            self.body().text(line);
            self.begun = false;
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let title = plain(&take(&mut self.line));
        self.begun = true;
        match level {
            HeadingLevel::H1 => self.in_title = false,
            HeadingLevel::H2 => {
                let title = match title.to_uppercase().as_str() {
                    "EXAMPLE" => "EXAMPLES".to_owned(),
                    title => title.to_owned(),
                };
                self.page.sections.push(Section::new(&title));
            }
            _ => drop(self.body().control("SS", [title.as_str()])),
        }
    }

    fn paragraph(&mut self) {
        self.flush();
        let first = self.page.about.is_empty();
        if !first && !take(&mut self.begun) {
            let macro_name = if self.lists.is_empty() { "PP" } else { "IP" };
            self.body().control(macro_name, []);
        }
    }

    fn end_of_paragraph(&mut self) {
        if self.page.about.is_empty() {
            self.page.about = name_line(&plain(&self.line));
            // The page of a command has no other text before its first heading.
            if self.file.starts_with("commands/") {
                self.line.clear();
            }
        }
        self.flush();
    }

    fn item(&mut self) {
        self.flush();
        let list = self.lists.last_mut().expect("an item is in a list");
        let (mark, indent) = match list {
            Some(number) => {
                let mark = format!("{number}.");
                *number += 1;
                (mark, NUMBER_INDENT)
            }
            None => ("\\(bu".to_owned(), BULLET_INDENT),
        };
        self.body().control("IP", [mark.as_str(), indent]);
        self.begun = true;
    }

    fn end_of_code(&mut self) {
        let code = self.code.take().expect("code that ends has begun");
        let synopsis = self.page.sections.last().is_some_and(|last| last.title == "SYNOPSIS");
        let begun = take(&mut self.begun);
        let in_list = !self.lists.is_empty();
        let body = self.body();
        if !begun {
            body.control(if in_list { "IP" } else { "PP" }, []);
        }
        if !synopsis {
            body.control("RS", [INDENT]);
        }
        body.control("EX", []);
        for line in code.lines() {
            body.text([roman(line)]);
        }
        body.control("EE", []);
        if !synopsis {
            body.control("RE", []);
        }
    }

    /// Writes a row of a table: its first cell, and below it the last one. Cells in between follow
    /// with their columns' titles.
    fn row(&mut self) {
        let mut cells = take(&mut self.table.row);
        let head: Vec<String> = self.table.head.iter().map(|cell| plain(cell)).collect();
        let meaning = if cells.len() > 1 { cells.pop() } else { None };
        let mut between = vec![];
        for (title, cell) in head.iter().zip(&cells).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            let separator = if between.is_empty() { "" } else { "; " };
            let title = if between.is_empty() { capital(title) } else { title.clone() };
            between.push(roman(format!("{separator}{title}: ")));
            between.extend(cell.iter().cloned());
        }
        let term = if cells.is_empty() { vec![] } else { cells.swap_remove(0) };
        let body = self.body();
        body.control("TP", []).text(term).text(meaning.unwrap_or_default());
        if !between.is_empty() {
            body.control("br", []).text(between);
        }
    }

    fn end_of_link(&mut self) {
        let Some((to, begin)) = self.link.take() else { return };
        if to.contains("://") {
            self.line.push(roman(format!(" <{to}>")));
            return;
        }
        let Some(page) = target(self.file, &to) else { return };
        let text = plain(&self.line[begin..]);
        if let Some((name, section)) = manual_of(&page)
            && (name.replacen('-', " ", 1) == text
                || name.strip_prefix("hemi-").is_some_and(|name| name.eq_ignore_ascii_case(&text))
                || page == text)
        {
            self.line.truncate(begin);
            self.line.extend(reference(&name, section));
        }
        self.page.links.insert(page);
    }
}

/// Returns the text without its fonts.
fn plain(line: &[Inline]) -> String {
    line.iter()
        .map(|part| match part {
            Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.as_str(),
            Inline::LineBreak => " ",
        })
        .collect()
}

/// Returns a sentence as NAME has it: without its capital and its full stop.
fn name_line(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

/// Returns the word with a capital.
fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}

/// Resolves a link in `file` to a page below `docs/`. Returns `None` for a place in the same page,
/// and for a target outside `docs/`.
fn target(file: &str, to: &str) -> Option<String> {
    let path = to.split('#').next().filter(|path| !path.is_empty())?;
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_their_page() {
        assert_eq!(
            target("commands/serve.md", "status.md#x").as_deref(),
            Some("commands/status.md")
        );
        assert_eq!(target("commands/serve.md", "../nbd.md").as_deref(), Some("nbd.md"));
        assert_eq!(target("commands/serve.md", "#scan"), None);
        assert_eq!(target("commands/serve.md", "../../packaging/"), None);
    }

    #[test]
    fn lists_keep_their_numbers_and_their_levels() {
        let page =
            parse("commands/x.md", "# x\n\nDo.\n\n## A\n\n1. one\n2. two\n   - inner\n\nEnd.\n");
        let made = page.sections[0].body.to_roff();
        let expected = ".IP 1. 3\none\n.IP 2. 3\ntwo\n.RS\n.IP \\(bu 2\ninner\n.RE\n.PP\nEnd.\n";
        assert_eq!(made, expected);
    }

    #[test]
    fn what_roff_would_take_for_its_own_is_text() {
        let page = parse("commands/x.md", "# x\n\nDo.\n\n## A\n\n```\n.SH \\x\n'y\n```\n");
        let made = page.sections[0].body.to_roff();
        assert!(made.contains("\n\\&.SH \\\\x\n\\&'y\n"), "{made}");
    }
}
