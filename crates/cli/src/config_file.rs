//! The configuration file of a served volume, and its lines that have to change.
//!
//! hemi does not save its configuration by itself. A command that changes a served volume shows
//! which lines of the file would have to change to make that permanent. It can also write them, and
//! then keeps all comments and the order.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use hemi_io::config::legs::{LegConfig, LegSpec};
use hemi_server::config::Config;
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value, value,
};

use crate::failure::{Failure, Kind};

/// A configuration file that is being changed.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    /// The path as the server reports it.
    path: PathBuf,
    /// The text as it was read.
    before: String,
    document: DocumentMut,
    /// The outcome of each change, for a person to read.
    hunks: String,
}

impl ConfigFile {
    /// Reads a file.
    pub(crate) fn open(path: &Path) -> Result<ConfigFile> {
        let before = hemi_text::read(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        ConfigFile::parse(path, before)
    }

    fn parse(path: &Path, before: String) -> Result<ConfigFile> {
        let document = before
            .parse()
            .with_context(|| format!("{} is no configuration any more", path.display()))?;
        Ok(ConfigFile { path: path.to_owned(), before, document, hunks: String::new() })
    }

    /// Returns true if no line has to change.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.hunks.is_empty()
    }

    /// Returns the lines that change, block by block, with their numbers.
    pub(crate) fn hunks(&self) -> &str {
        &self.hunks
    }

    /// Returns true if the file has its legs looked for.
    pub(crate) fn scans(&self) -> bool {
        self.document.contains_key("scan")
    }

    /// Sets a key to a value, both as on the command line.
    pub(crate) fn set(&mut self, key: &str, text: &str) -> Result<()> {
        self.change(|document| set(document, key, text))
    }

    /// Adds a leg, unless it is in the file.
    pub(crate) fn add_leg(&mut self, leg: &LegConfig) -> Result<()> {
        self.change(|document| {
            let mut legs = Legs::of(document)?;
            if legs.find(&leg.path).is_none() {
                legs.push(leg);
            }
            Ok(())
        })
    }

    /// Replaces a leg by another, or adds the new one if the old one is not in the file.
    pub(crate) fn replace_leg(&mut self, old: &LegSpec, new: &LegConfig) -> Result<()> {
        self.change(|document| {
            let mut legs = Legs::of(document)?;
            match legs.find(old) {
                Some(index) => legs.replace(index, new),
                None if legs.find(&new.path).is_none() => legs.push(new),
                None => {}
            }
            Ok(())
        })
    }

    /// Removes a leg, if it is in the file.
    pub(crate) fn remove_leg(&mut self, leg: &LegSpec) -> Result<()> {
        self.change(|document| {
            if document.contains_key("legs") {
                let mut legs = Legs::of(document)?;
                if let Some(index) = legs.find(leg) {
                    legs.remove(index);
                }
            }
            Ok(())
        })
    }

    fn change(&mut self, how: impl FnOnce(&mut DocumentMut) -> Result<()>) -> Result<()> {
        let before = self.document.to_string();
        how(&mut self.document)
            .with_context(|| format!("cannot change the configuration {}", self.path.display()))?;
        self.hunks.push_str(&hunk(&before, &self.document.to_string()));
        Ok(())
    }

    /// Replaces the file atomically. Its owner and its mode stay.
    pub(crate) fn save(&self) -> Result<()> {
        if self.is_unchanged() {
            return Ok(());
        }
        self.write().with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn write(&self) -> Result<()> {
        let text = self.document.to_string();
        Config::parse(&text, &self.path, &[])?.check()?;
        if hemi_text::read(&self.path)? != self.before {
            return Err(Failure::error(
                Kind::Failed,
                format!("{} was changed by somebody else meanwhile", self.path.display()),
                "Run the command again.",
            ));
        }
        // The target of a link is replaced, not the link.
        let real = fs::canonicalize(&self.path)?;
        let folder = real.parent().unwrap_or(Path::new("/"));
        let known = fs::metadata(&real)?;
        let mut aside = tempfile::Builder::new().prefix(".hemi-").tempfile_in(folder)?;
        aside.write_all(text.as_bytes())?;
        aside.as_file().set_permissions(known.permissions())?;
        let made = aside.as_file().metadata()?;
        if (made.uid(), made.gid()) != (known.uid(), known.gid()) {
            fchown(aside.as_file(), Some(known.uid()), Some(known.gid()))?;
        }
        aside.as_file().sync_all()?;
        aside.persist(&real).map_err(|error| error.error)?;
        fs::File::open(folder).and_then(|folder| folder.sync_all())?;
        Ok(())
    }
}

/// Parses a value of TOML, or else takes plain text, as `--set` does.
fn parsed(text: &str) -> Value {
    text.parse::<Value>().unwrap_or_else(|_| Value::from(text)).decorated("", "")
}

fn set(document: &mut DocumentMut, key: &str, text: &str) -> Result<()> {
    let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
    let mut table: &mut dyn TableLike = document.as_table_mut();
    let mut inline = false;
    for part in tables.split('.').filter(|part| !part.is_empty()) {
        let fresh = || match inline {
            true => value(InlineTable::new()),
            false => {
                let mut fresh = Table::new();
                fresh.set_implicit(true);
                Item::Table(fresh)
            }
        };
        let item = table.entry(part).or_insert_with(fresh);
        inline = item.is_inline_table();
        table = item.as_table_like_mut().with_context(|| format!("`{part}` is no table"))?;
    }
    let mut fresh = parsed(text);
    match table.get_mut(last) {
        Some(Item::Value(known)) => {
            // The text around it stays, above all a comment behind it.
            fresh.decor_mut().clone_from(known.decor());
            *known = fresh;
        }
        _ => {
            table.insert(last, Item::Value(fresh.decorated(" ", if inline { " " } else { "" })));
        }
    }
    Ok(())
}

/// The legs of a file, as a list or as a table each.
enum Legs<'a> {
    List(&'a mut Array),
    Tables(&'a mut ArrayOfTables),
}

impl Legs<'_> {
    fn of(document: &mut DocumentMut) -> Result<Legs<'_>> {
        let item = document.entry("legs").or_insert_with(|| value(Array::new()));
        match item {
            Item::Value(Value::Array(list)) => Ok(Legs::List(list)),
            Item::ArrayOfTables(tables) => Ok(Legs::Tables(tables)),
            _ => anyhow::bail!("`legs` is no list"),
        }
    }

    fn find(&self, leg: &LegSpec) -> Option<usize> {
        let is = |spec: Option<&str>| spec.is_some_and(|spec| is_same(spec, leg));
        match self {
            Legs::List(list) => list.iter().position(|entry| {
                is(entry.as_str().or_else(|| entry.as_inline_table()?.get("path")?.as_str()))
            }),
            Legs::Tables(tables) => {
                tables.iter().position(|table| is(table.get("path").and_then(Item::as_str)))
            }
        }
    }

    fn replace(&mut self, index: usize, leg: &LegConfig) {
        match self {
            Legs::List(list) => {
                list.replace(index, entry(leg));
            }
            Legs::Tables(tables) => {
                if let Some(table) = tables.get_mut(index) {
                    table.clear();
                    fill(table, leg);
                }
            }
        }
    }

    fn push(&mut self, leg: &LegConfig) {
        let list = match self {
            Legs::List(list) => list,
            Legs::Tables(tables) => {
                let mut table = Table::new();
                fill(&mut table, leg);
                return tables.push(table);
            }
        };
        let mut fresh = entry(leg);
        let trailing = text_of(list.trailing());
        let last = list.len().checked_sub(1).and_then(|last| list.get_mut(last));
        let Some(last) = last else { return list.push_formatted(fresh) };
        let decor = last.decor_mut();
        let prefix = decor.prefix().and_then(|raw| raw.as_str()).unwrap_or_default();
        let indent = prefix.rfind('\n').map_or(prefix, |line| &prefix[line..]);
        let indent = if prefix.is_empty() { " ".to_owned() } else { indent.to_owned() };
        let suffix = decor.suffix().and_then(|raw| raw.as_str()).unwrap_or_default().to_owned();
        decor.set_suffix("");
        // A comment behind the last leg stays behind it.
        let (comment, rest) = split_comment(&trailing);
        let (own, suffix) = split_comment(&suffix);
        fresh.decor_mut().set_prefix(format!("{own}{comment}{indent}"));
        fresh.decor_mut().set_suffix(suffix);
        let rest = rest.to_owned();
        list.push_formatted(fresh);
        list.set_trailing(rest);
    }

    fn remove(&mut self, index: usize) {
        let list = match self {
            Legs::List(list) => list,
            Legs::Tables(tables) => {
                tables.remove(index);
                return;
            }
        };
        let gone = list.remove(index);
        let before = gone.decor().prefix().and_then(|raw| raw.as_str()).unwrap_or_default();
        let (of_leg_before, _) = split_comment(before);
        // Text that begins on its line goes with it. Text behind the leg before it stays.
        let Some(next) = list.get_mut(index) else {
            let trailing = text_of(list.trailing());
            let (_, rest) = split_comment(&trailing);
            list.set_trailing(format!("{of_leg_before}{rest}"));
            if let Some(last) = list.len().checked_sub(1).and_then(|last| list.get_mut(last)) {
                let suffix = gone.decor().suffix().and_then(|raw| raw.as_str());
                last.decor_mut().set_suffix(suffix.unwrap_or_default());
            }
            return;
        };
        let prefix = next.decor().prefix().and_then(|raw| raw.as_str()).unwrap_or_default();
        let (_, rest) = split_comment(prefix);
        let rest = if index == 0 && !before.contains('\n') { before } else { rest };
        let kept = format!("{of_leg_before}{rest}");
        next.decor_mut().set_prefix(kept);
    }
}

fn text_of(raw: &toml_edit::RawString) -> String {
    raw.as_str().unwrap_or_default().to_owned()
}

/// Splits the text between two legs into a comment that ends the first one's line, and the rest.
fn split_comment(between: &str) -> (&str, &str) {
    match between.find('\n') {
        Some(end) if between[..end].contains('#') => between.split_at(end),
        _ => ("", between),
    }
}

/// Returns true if the file's spec names this leg. Relative paths are resolved in this directory.
fn is_same(spec: &str, leg: &LegSpec) -> bool {
    let Ok(spec) = spec.parse::<LegSpec>() else { return false };
    let whole = |spec: &LegSpec| spec.absolute().ok();
    spec == *leg || whole(&spec).is_some_and(|spec| Some(spec) == whole(leg))
}

/// Returns the options of a leg as in a file, or none if its spec is enough.
fn options(leg: &LegConfig) -> Vec<(&'static str, Value)> {
    let LegConfig { path, name, quarantine, connections, direct, tls: _ } = leg;
    let mut options = vec![("path", Value::from(path.to_string()))];
    options.extend(name.as_ref().map(|name| ("name", Value::from(name.as_str()))));
    options.extend(quarantine.map(|time| ("quarantine", Value::from(time.to_string()))));
    options.extend(connections.map(|count| ("connections", Value::from(i64::from(count)))));
    if !direct {
        options.push(("direct", Value::from(false)));
    }
    options
}

fn entry(leg: &LegConfig) -> Value {
    let mut options = options(leg);
    match &options[..] {
        [_] => options.remove(0).1,
        _ => Value::from(options.into_iter().collect::<InlineTable>()),
    }
}

fn fill(table: &mut Table, leg: &LegConfig) {
    for (name, of_leg) in options(leg) {
        table.insert(name, value(of_leg));
    }
}

/// Returns a leg as it is written into a list.
pub(crate) fn leg_entry(leg: &LegConfig) -> String {
    entry(leg).to_string().trim().to_owned()
}

/// Returns the lines in which two texts differ, with the number of the first.
fn hunk(before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = old[same..].iter().rev().zip(new[same..].iter().rev());
    let behind = rest.take_while(|(old, new)| old == new).count();
    let mut text = format!("  line {}\n", same + 1);
    for line in &old[same..old.len() - behind] {
        let _ = writeln!(text, "  - {line}");
    }
    for line in &new[same..new.len() - behind] {
        let _ = writeln!(text, "  + {line}");
    }
    text
}

/// A planned change of the configuration. It is prepared before the volume is changed, so that a
/// file that cannot be changed is noticed in time.
#[derive(Debug)]
pub(crate) struct Keeping {
    file: Option<PathBuf>,
    change: Result<ConfigFile>,
    write: bool,
}

impl Keeping {
    /// Prepares a change of the file, if there is one.
    ///
    /// # Errors
    /// Fails with `write` if there is no file or it cannot be changed.
    pub(crate) fn prepare(
        file: Option<&Path>,
        write: bool,
        change: impl FnOnce(&mut ConfigFile) -> Result<()>,
    ) -> Result<Keeping> {
        let Some(path) = file else {
            if write {
                return Err(Failure::error(
                    Kind::Usage,
                    "the volume was not started from a configuration file",
                    "Leave out --write-config; the command says how to start the volume then.",
                ));
            }
            let change = Err(io::Error::from(io::ErrorKind::NotFound).into());
            return Ok(Keeping { file: None, change, write });
        };
        let mut changed = ConfigFile::open(path);
        if let Ok(file) = &mut changed
            && let Err(error) = change(file)
        {
            changed = Err(error);
        }
        match changed {
            Err(error) if write => Err(error),
            change => Ok(Keeping { file: Some(path.to_owned()), change, write }),
        }
    }

    /// Writes the file, or prints what has to change in it. `otherwise` is printed where there is
    /// no file, or this user may not read it.
    pub(crate) fn finish(self, otherwise: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        let Some(path) = &self.file else {
            return Ok(writeln!(out, "To keep it, start the volume {otherwise}")?);
        };
        let path = path.display();
        match &self.change {
            Ok(file) if file.is_unchanged() => {
                if self.write {
                    writeln!(out, "nothing to change in {path}")?;
                }
            }
            Ok(file) if self.write => {
                file.save()?;
                writeln!(out, "written to {path}")?;
                out.write_all(file.hunks().as_bytes())?;
            }
            Ok(file) => {
                writeln!(out, "To keep it, change {path} (--write-config does it)")?;
                out.write_all(file.hunks().as_bytes())?;
            }
            Err(error) => {
                let error = error.root_cause();
                writeln!(
                    out,
                    "To keep it, change {path} ({error}), or start the volume {otherwise}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, change: impl FnOnce(&mut ConfigFile) -> Result<()>) -> (String, String) {
        let mut file = ConfigFile::parse(Path::new("x.toml"), text.into()).expect("it is TOML");
        change(&mut file).unwrap_or_else(|error| panic!("{error:#}"));
        let after = file.document.to_string();
        if !text.contains("dots") {
            Config::parse(&after, Path::new("x.toml"), &[])
                .unwrap_or_else(|error| panic!("{error}: {after}"));
        }
        (after, file.hunks)
    }

    fn leg(spec: &str) -> LegConfig {
        LegConfig::new(spec.parse().expect("it is a spec"))
    }

    fn named(spec: &str, name: &str) -> LegConfig {
        LegConfig { name: Some(name.into()), ..leg(spec) }
    }

    #[test]
    fn a_value_changes_where_it_stands() {
        let text = "# volume\nlegs = [\"/a\"]\n\n[engine.exposure]\nage = \"5s\" # old\nbytes = \"1GiB\"\n";
        let (after, hunks) = changed(text, |file| file.set("engine.exposure.age", "9s"));
        assert_eq!(after, text.replace("\"5s\"", "\"9s\""));
        assert_eq!(hunks, "  line 5\n  - age = \"5s\" # old\n  + age = \"9s\" # old\n");
        let (same, hunks) = changed(text, |file| file.set("engine.exposure.age", "5s"));
        assert_eq!((same.as_str(), hunks.as_str()), (text, ""));
    }

    #[test]
    fn a_new_value_finds_its_table() {
        for (text, key, value, expected) in [
            (
                "legs = [\"/a\"]\n",
                "drain_on_stop",
                "9s",
                "legs = [\"/a\"]\ndrain_on_stop = \"9s\"\n",
            ),
            (
                "legs = [\"/a\"]\n[engine]\npolicy = \"all\"\n",
                "engine.wait.multiple",
                "5",
                "legs = [\"/a\"]\n[engine]\npolicy = \"all\"\n\n[engine.wait]\nmultiple = 5\n",
            ),
            (
                "engine.wait.floor = \"5ms\"\nlegs = [\"/a\"]\n",
                "engine.wait.ceiling",
                "1s",
                "engine.wait.floor = \"5ms\"\nengine.wait.ceiling = \"1s\"\nlegs = [\"/a\"]\n",
            ),
            (
                "legs = [\"/a\"]\nengine = { wait = { floor = \"5ms\" } }\n",
                "engine.wait.floor",
                "6ms",
                "legs = [\"/a\"]\nengine = { wait = { floor = \"6ms\" } }\n",
            ),
        ] {
            let (after, hunks) = changed(text, |file| file.set(key, value));
            assert_eq!(after, expected);
            assert!(hunks.contains("  + "), "{hunks}");
        }
        let (after, _) = changed("engine = { policy = \"all\" }\n", |file| {
            file.set("engine.wait.multiple", "5")
        });
        let read = Config::parse(&after, Path::new("x"), &[]).expect("it is one");
        assert_eq!(read.engine.wait.multiple, 5, "{after}");
    }

    const LIST: &str = "\
volume = \"db\"
legs = [
    # the fast one
    \"/dev/a\", # ssd
    { path = \"/dev/b\", name = \"b\" }, # hdd
]
";

    #[test]
    fn legs_of_a_list_come_and_go() {
        let (after, hunks) = changed(LIST, |file| file.add_leg(&leg("/dev/c")));
        assert_eq!(after, LIST.replace("# hdd\n", "# hdd\n    \"/dev/c\",\n"));
        assert_eq!(hunks, "  line 6\n  +     \"/dev/c\",\n");
        let (after, _) = changed(LIST, |file| file.add_leg(&named("/dev/a", "a")));
        assert_eq!(after, LIST, "it is there");
        let (after, _) = changed(LIST, |file| file.remove_leg(&leg("/dev/b").path));
        assert_eq!(after, LIST.replace("    { path = \"/dev/b\", name = \"b\" }, # hdd\n", ""));
        let (after, _) = changed(LIST, |file| file.remove_leg(&leg("/dev/a").path));
        assert!(after.contains("# hdd") && !after.contains("ssd"), "{after}");
        let (after, _) =
            changed(LIST, |file| file.replace_leg(&leg("/dev/b").path, &named("/dev/c", "c")));
        let replaced = "{ path = \"/dev/c\", name = \"c\" }, # hdd";
        assert_eq!(after, LIST.replace("{ path = \"/dev/b\", name = \"b\" }, # hdd", replaced));
        for (text, expected) in [
            ("legs = [\"/a\", \"/b\"]\n", "legs = [\"/a\", \"/b\", \"/c\"]\n"),
            ("legs = [\"/a\"]\n", "legs = [\"/a\", \"/c\"]\n"),
            ("legs = []\n", "legs = [\"/c\"]\n"),
            ("legs = [\n  \"/a\",\n  \"/b\"\n]\n", "legs = [\n  \"/a\",\n  \"/b\",\n  \"/c\"\n]\n"),
            ("legs = [\n  \"/a\",\n]\n", "legs = [\n  \"/a\",\n  \"/c\",\n]\n"),
        ] {
            let (after, _) = changed(text, |file| file.add_leg(&leg("/c")));
            assert_eq!(after, expected);
            let (back, _) = changed(expected, |file| file.remove_leg(&leg("/c").path));
            assert_eq!(back, text);
        }
        let (after, _) =
            changed("legs = [\"/a\", \"/b\"]\n", |file| file.remove_leg(&leg("/a").path));
        assert_eq!(after, "legs = [\"/b\"]\n");
    }

    #[test]
    fn legs_in_tables_come_and_go() {
        let text = "[[legs]]\npath = \"/a\"\n\n[[legs]]\npath = \"/b\" # slow\nname = \"b\"\n";
        let (after, _) = changed(text, |file| file.add_leg(&named("/c", "c")));
        assert_eq!(after, format!("{text}\n[[legs]]\npath = \"/c\"\nname = \"c\"\n"));
        let (after, _) = changed(text, |file| file.remove_leg(&leg("/b").path));
        assert_eq!(after, "[[legs]]\npath = \"/a\"\n");
        let (after, _) = changed(text, |file| file.replace_leg(&leg("/a").path, &leg("/c")));
        assert_eq!(after, text.replace("/a", "/c"));
    }

    #[test]
    fn the_file_is_replaced_with_its_mode_and_through_a_link() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let (real, link) = (folder.path().join("real.toml"), folder.path().join("link.toml"));
        fs::write(&real, LIST).expect("it can be written");
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("it is ours");
        std::os::unix::fs::symlink("real.toml", &link).expect("it can be linked");
        let mut file = ConfigFile::open(&link).expect("it can be read");
        file.set("engine.policy", "all").expect("it can be set");
        file.save().expect("it can be written");
        assert!(fs::symlink_metadata(&link).is_ok_and(|link| link.is_symlink()));
        let mode = fs::metadata(&real).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let text = fs::read_to_string(&real).expect("it can be read");
        assert_eq!(text, format!("{LIST}\n[engine]\npolicy = \"all\"\n"));
        let mut file = ConfigFile::open(&real).expect("it can be read");
        file.set("engine.policy", "often").expect("it is TOML");
        assert!(file.save().is_err(), "no start would take it");
        let mut late = ConfigFile::open(&real).expect("it can be read");
        late.set("engine.policy", "first").expect("it can be set");
        fs::write(&real, LIST).expect("it can be written");
        assert!(late.save().is_err(), "somebody else was there");
        assert_eq!(fs::read_to_string(&real).expect("it can be read"), LIST);
        let left = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(left, 2, "nothing is left aside");
    }
}
