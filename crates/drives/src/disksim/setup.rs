//! A DiskSim parameter file (`.parv`): components, and how they are connected.
//!
//! The file describes components (`disksim_bus BUS1 { … }`, or `source FILE` with a component in
//! it), gives each a name (`instantiate [ bus1 ] as BUS1`) and connects them
//! (`topology disksim_iodriver driver0 [ disksim_bus bus1 [ disksim_disk disk0 [] ] ]`). It
//! matters here because the rate of a disk's bus is not in the disk's own description.

use super::sources::Files;
use super::text::{Block, DescriptionError, Parser, parse};

/// The most components within each other in a topology.
const COMPONENTS_DEEP_MAX: usize = 16;

/// A disk, and the components it is connected through.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The disk.
    pub(super) disk: Block,
    /// Buses and controllers between the host and the disk, from the host on.
    pub(super) path: Vec<Block>,
    /// Names of the other disks of the file.
    pub(super) others: Vec<String>,
}

/// A component and those connected below it.
struct Component {
    line: usize,
    kind: String,
    name: String,
    below: Vec<Component>,
}

/// Contents of a parameter file.
#[derive(Default)]
struct Contents {
    blocks: Vec<Block>,
    /// Names of components, and the names of their descriptions.
    instances: Vec<(String, String)>,
    topology: Vec<Component>,
}

/// Reads the parameter file `file` and returns its first disk.
pub(super) fn read(file: &str, files: &Files<'_>) -> Result<Setup, DescriptionError> {
    let contents = contents(file, &files.text(file)?, files)?;
    let mut disks = Vec::new();
    for component in &contents.topology {
        find_disks(component, &mut Vec::new(), &mut disks);
    }
    let Some((disk, path)) = disks.first() else {
        let problem = "expected a `disksim_disk` in it".to_owned();
        let (file, key) = (file.to_owned(), "the topology".to_owned());
        return Err(DescriptionError { file, line: 1, key, problem });
    };
    let described =
        |component: &Component| files.followed(contents.description(file, component)?.clone());
    Ok(Setup {
        disk: described(disk)?,
        path: path.iter().map(|component| described(component)).collect::<Result<_, _>>()?,
        others: disks[1..].iter().map(|(other, _)| other.name.clone()).collect(),
    })
}

/// Collects the disks at and below `component`, each with the buses and controllers above it.
fn find_disks<'c>(
    component: &'c Component,
    above: &mut Vec<&'c Component>,
    disks: &mut Vec<(&'c Component, Vec<&'c Component>)>,
) {
    match component.kind.as_str() {
        "disksim_disk" => disks.push((component, above.clone())),
        "disksim_bus" | "disksim_ctlr" => above.push(component),
        _ => {}
    }
    for below in &component.below {
        find_disks(below, above, disks);
    }
    if matches!(component.kind.as_str(), "disksim_bus" | "disksim_ctlr") {
        above.pop();
    }
}

impl Contents {
    /// Returns the description of a component of the topology in `file`.
    fn description(&self, file: &str, component: &Component) -> Result<&Block, DescriptionError> {
        let instance = self.instances.iter().find(|(name, _)| *name == component.name);
        let of = instance.map(|(_, of)| of.as_str());
        let found = self.blocks.iter().find(|block| Some(block.name.as_str()) == of);
        found.ok_or_else(|| {
            let problem = match of {
                Some(of) => format!("expected a description of `{of}`"),
                None => format!("expected `instantiate [ {} ] as` its description", component.name),
            };
            let key = format!("`{}`", component.name);
            DescriptionError { file: file.to_owned(), line: component.line, key, problem }
        })
    }
}

fn contents(file: &str, text: &str, files: &Files<'_>) -> Result<Contents, DescriptionError> {
    let mut contents = Contents::default();
    let mut parser = Parser::new(file, text);
    while parser.peek().is_some() {
        match parser.word() {
            "source" => {
                let name = parser.until(&[]);
                contents.blocks.push(parse(name, &files.text(name)?)?);
            }
            "instantiate" => instantiate(&mut parser, &mut contents.instances)?,
            "topology" => contents.topology.push(component(&mut parser, 0)?),
            kind => {
                let kind = kind.to_owned();
                contents.blocks.push(parser.block_of_kind(&kind)?);
            }
        }
    }
    Ok(contents)
}

/// Reads `[ a, b0 .. b3 ] as NAME`.
fn instantiate(
    parser: &mut Parser<'_>,
    instances: &mut Vec<(String, String)>,
) -> Result<(), DescriptionError> {
    parser.expect('[', "after `instantiate`")?;
    let mut names = Vec::new();
    while parser.peek() != Some(']') {
        let text = parser.until(&[',', ']']).to_owned();
        match text.split_once("..") {
            Some((first, last)) => names.extend(range(parser, first.trim(), last.trim())?),
            None if text.is_empty() => return Err(parser.error("`instantiate`", "expected `]`")),
            None => names.push(text),
        }
        if parser.peek() == Some(',') {
            parser.expect(',', "between names")?;
        }
    }
    parser.expect(']', "after the names")?;
    if parser.word() != "as" {
        return Err(parser.error("`instantiate`", "expected `as` and the name of a description"));
    }
    let of = parser.word().to_owned();
    instances.extend(names.into_iter().map(|name| (name, of.clone())));
    Ok(())
}

/// The most names that a range may stand for.
const NAMES_MAX: u32 = 10_000;

/// Returns the names `disk0` to `disk3` of a range.
fn range(parser: &Parser<'_>, first: &str, last: &str) -> Result<Vec<String>, DescriptionError> {
    let split = |name: &str| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        name[stem.len()..].parse::<u32>().ok().map(|number| (stem.to_owned(), number))
    };
    match (split(first), split(last)) {
        (Some((stem, from)), Some((same, to)))
            if stem == same && from <= to && to - from < NAMES_MAX =>
        {
            Ok((from..=to).map(|number| format!("{stem}{number}")).collect())
        }
        _ => Err(parser.error(
            &format!("`{first} .. {last}`"),
            "expected a range of names, as in `disk0 .. disk3`",
        )),
    }
}

/// Reads `KIND NAME [ COMPONENTS ]`, within `depth` others.
fn component(parser: &mut Parser<'_>, depth: usize) -> Result<Component, DescriptionError> {
    if depth > COMPONENTS_DEEP_MAX {
        let problem =
            format!("expected at most {COMPONENTS_DEEP_MAX} components within each other");
        return Err(parser.error("the topology", &problem));
    }
    let kind = parser.word().to_owned();
    let line = parser.line();
    let name = parser.word().to_owned();
    if kind.is_empty() || name.is_empty() {
        return Err(parser.error("the topology", "expected the kind and the name of a component"));
    }
    parser.expect('[', &format!("after `{name}`"))?;
    let mut below = Vec::new();
    loop {
        match parser.peek() {
            Some(']') => {
                parser.expect(']', "after the components")?;
                return Ok(Component { line, kind, name, below });
            }
            Some(',') => parser.expect(',', "between components")?,
            Some(_) => below.push(component(parser, depth + 1)?),
            None => return Err(parser.error("the topology", "expected `]`")),
        }
    }
}
