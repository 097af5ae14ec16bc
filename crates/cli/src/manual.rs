//! Man pages, made from the pages in `docs/`, so that each sentence exists once.
//!
//! `docs/commands/NAME.md` becomes hemi-NAME(1), with the sections that the page has. The page's
//! links become SEE ALSO. `docs/commands/hemi.md` becomes hemi(1), with the list of all commands,
//! and `docs/configuration.md` becomes hemi.toml(5).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use roff::{Inline, Roff, bold, italic, roman};

use markdown::{Page, Section};

mod markdown;

/// The manual page of the command as a whole.
const WHOLE: &str = "hemi";
/// The configuration's page below `docs/`, and the text that replaces its first paragraph.
const CONFIGURATION: (&str, &str) = ("configuration.md", "configuration of a volume");

/// The sources of man pages, and the words that all of them contain.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The pages.
    pub(crate) docs: &'a Path,
    /// The directory of the installed pages, for those that become no man page.
    pub(crate) installed: &'a str,
    /// The date, as in 2026-11-26, or empty for none.
    pub(crate) date: &'a str,
}

/// Writes a man page for each of `commands`, for hemi itself and for its configuration into
/// `directory`.
///
/// # Errors
///
/// Fails if a page is missing, or lacks what every page has: a first paragraph and a synopsis.
pub(crate) fn write(source: &Source<'_>, directory: &Path, commands: &[&str]) -> Result<()> {
    let read = |name: &str| -> Result<Page> {
        let path = source.docs.join(name);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {} (--docs)", path.display()))?;
        Ok(markdown::parse(name, &text))
    };
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let mut pages = vec![];
    let mut list = Section::new("COMMANDS");
    for command in commands {
        let file = format!("commands/{command}.md");
        let page = read(&file)?;
        let name = format!("hemi-{command}");
        list.body.control("TP", []).text(reference(&name, 1));
        list.body.text([roman(page.about.clone())]);
        pages.push(Manual { name, section: 1, file, page });
    }
    let file = format!("commands/{WHOLE}.md");
    let mut whole = read(&file)?;
    let place = whole.sections.iter().position(|section| section.title == "DESCRIPTION");
    whole.sections.insert(place.map_or(whole.sections.len(), |at| at + 1), list);
    whole.links.extend(commands.iter().map(|command| format!("commands/{command}.md")));
    whole.links.insert(CONFIGURATION.0.to_owned());
    pages.push(Manual { name: WHOLE.to_owned(), section: 1, file, page: whole });

    let mut configuration = read(CONFIGURATION.0)?;
    configuration.sections.insert(0, Section::code("SYNOPSIS", "/etc/hemi/NAME.toml"));
    // The first paragraph says more than a name, and begins the description.
    configuration.about = CONFIGURATION.1.to_owned();
    let file = CONFIGURATION.0.to_owned();
    pages.push(Manual { name: "hemi.toml".to_owned(), section: 5, file, page: configuration });

    for manual in pages {
        let path = directory.join(format!("{}.{}", manual.name, manual.section));
        let text = manual.render(source)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A man page on its way to the file.
struct Manual {
    name: String,
    section: u8,
    /// Its page below `docs/`.
    file: String,
    page: Page,
}

impl Manual {
    fn render(mut self, source: &Source<'_>) -> Result<String> {
        if self.page.about.is_empty() || self.page.sections[0].title != "SYNOPSIS" {
            bail!("docs/{} needs a first paragraph, and ## Synopsis behind it", self.file);
        }
        let mut roff = Roff::new();
        let section = self.section.to_string();
        let version = format!("hemi {}", env!("CARGO_PKG_VERSION"));
        let date = if source.date.is_empty() { "\"\"" } else { source.date };
        roff.control("TH", [self.name.as_str(), &section, date, &version, "hemi manual"]);
        roff.control("SH", ["NAME"]);
        roff.text([roman(format!("{} - {}", self.name, self.page.about))]);
        let see_also = self.see_also(source.installed);
        for section in self.page.sections.drain(..).chain([see_also]) {
            roff.control("SH", [section.title.as_str()]);
            roff.extend([section.body]);
        }
        Ok(roff.render())
    }

    /// Lists the man pages that the page links to, and then the other pages.
    fn see_also(&self, installed: &str) -> Section {
        let mut manuals = BTreeSet::new();
        let mut others: BTreeSet<&String> = BTreeSet::new();
        if self.name != WHOLE {
            manuals.insert((WHOLE.to_owned(), 1));
        }
        for link in self.page.links.iter().filter(|link| **link != self.file) {
            match manual_of(link) {
                Some(manual) => drop(manuals.insert(manual)),
                None => drop(others.insert(link)),
            }
        }
        let mut section = Section::new("SEE ALSO");
        let mut line: Vec<Inline> = vec![];
        for (name, number) in &manuals {
            if !line.is_empty() {
                line.push(roman(", "));
            }
            line.extend(reference(name, *number));
        }
        section.body.text(line);
        if !others.is_empty() {
            let mut line = vec![roman("In "), italic(installed), roman(": ")];
            for (index, name) in others.into_iter().enumerate() {
                line.extend((index > 0).then(|| roman(", ")));
                line.push(italic(name.as_str()));
            }
            section.body.control("PP", []).text(line);
        }
        section
    }
}

/// Returns the man page that a page below `docs/` becomes.
fn manual_of(file: &str) -> Option<(String, u8)> {
    if file == CONFIGURATION.0 {
        return Some(("hemi.toml".to_owned(), 5));
    }
    let command = file.strip_prefix("commands/")?.strip_suffix(".md")?;
    let name = if command == WHOLE { WHOLE.to_owned() } else { format!("hemi-{command}") };
    Some((name, 1))
}

/// Returns a reference to a man page, as in **hemi-status**(1).
fn reference(name: &str, section: u8) -> [Inline; 2] {
    [bold(name), roman(format!("({section})"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source<'static> {
        Source { docs: Path::new(""), installed: "/usr/share/doc/hemi", date: "2026-11-26" }
    }

    fn page(file: &str, text: &str) -> String {
        let page = markdown::parse(file, text);
        let (name, section) = manual_of(file).expect("the test names a page that becomes one");
        let manual = Manual { name, section, file: file.to_owned(), page };
        manual.render(&source()).expect("the page has what every page has")
    }

    #[test]
    fn a_page_becomes_sections_and_its_links_see_also() {
        let text = "# hemi grow\n\nLet it grow.\n\n## Synopsis\n\n```\nhemi grow --size SIZE\n```\n\n\
            ## Options\n\n| option | meaning |\n| --- | --- |\n| `--size SIZE` | As [status](status.md) \
            has it, or [elsewhere](../nbd.md#a). |\n";
        let made = page("commands/grow.md", text);
        for expected in [
            concat!(
                ".TH hemi-grow 1 2026-11-26 \"hemi ",
                env!("CARGO_PKG_VERSION"),
                "\" \"hemi manual\"\n"
            ),
            ".SH NAME\nhemi\\-grow \\- let it grow\n",
            ".SH SYNOPSIS\n.EX\nhemi grow \\-\\-size SIZE\n.EE\n",
            ".SH OPTIONS\n.TP\n\\fB\\-\\-size SIZE\\fR\nAs \\fBhemi\\-status\\fR(1) has it, or elsewhere.\n",
            ".SH \"SEE ALSO\"\n\\fBhemi\\fR(1), \\fBhemi\\-status\\fR(1)\n.PP\n",
            "\\fInbd.md\\fR\n",
        ] {
            assert!(made.contains(expected), "no {expected:?} in\n{made}");
        }
    }

    #[test]
    fn a_wide_table_keeps_every_column() {
        let text = "# hemi x\n\nDo.\n\n## Synopsis\n\n## Options\n\n| key | default | meaning |\n\
            | --- | --- | --- |\n| `a` | 1 | First. |\n";
        let made = page("commands/x.md", text);
        assert!(made.contains(".TP\n\\fBa\\fR\nFirst.\n.br\nDefault: 1\n"), "{made}");
    }

    #[test]
    fn a_page_without_a_synopsis_is_named() {
        let page = markdown::parse("commands/x.md", "# hemi x\n\nDo.\n\n## Options\n");
        let file = "commands/x.md".to_owned();
        let manual = Manual { name: "hemi-x".to_owned(), section: 1, file, page };
        let error = manual.render(&source()).expect_err("a page needs a synopsis").to_string();
        assert!(error.contains("docs/commands/x.md"), "{error}");
    }
}
