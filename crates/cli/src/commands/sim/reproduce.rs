//! `hemi sim reproduce`: repeats published measurements on the models.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use hemi_simulate::reproduce::{self, Reproduction, Results, page, picture};

use super::cases::run_all;
use super::snapshots::SnapshotArgs;
use crate::failure::{Failure, Kind};

/// Repeat published measurements, and write a page for each.
///
/// Each reproduction is a file of specs and published figures. Its page has pictures, a table of
/// published and simulated figures, the fitted values, and the misses with their reasons. Without
/// a name, all reproductions run, on all cores. A miss does not change the exit status.
#[derive(Debug, Args)]
pub(super) struct ReproduceArgs {
    /// Names of reproductions [default: all of them].
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Directory of the reproductions' files.
    #[arg(long, value_name = "FOLDER", default_value = "crates/simulate/reproductions")]
    from: PathBuf,

    /// Directory for pages and pictures.
    #[arg(long, value_name = "FOLDER", default_value = "docs/reproductions")]
    out: PathBuf,

    /// Cases run at a time [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,

    #[command(flatten)]
    snapshots: SnapshotArgs,
}

pub(super) fn run(arguments: &ReproduceArgs) -> Result<()> {
    let files = files(arguments)?;
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot create {}", arguments.out.display()))?;
    let mut out = std::io::stdout().lock();
    let (mut met, mut all) = (0, 0);
    for file in files {
        let name = name(&file);
        let page = reproduce(&file, &name, arguments)?;
        let (figures, orders) = (page.figures, page.orders);
        writeln!(
            out,
            "{name}: {} of {} figures within bounds, {} of {} orderings hold",
            figures.0, figures.1, orders.0, orders.1
        )?;
        met += figures.0 + orders.0;
        all += figures.1 + orders.1;
    }
    writeln!(out, "{met} of {all}; pages in {}", arguments.out.display())?;
    Ok(())
}

fn name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn files(arguments: &ReproduceArgs) -> Result<Vec<PathBuf>> {
    let from = &arguments.from;
    let mut files = reproduce::files(from).map_err(|error| {
        Failure::error(
            Kind::Usage,
            format!("cannot read {}: {error}", from.display()),
            "Run it in hemi's source tree, or say where the reproductions are with --from.",
        )
    })?;
    for wanted in &arguments.names {
        if !files.iter().any(|file| name(file) == *wanted) {
            let known: Vec<String> = files.iter().map(|file| name(file)).collect();
            return Err(Failure::error(
                Kind::Usage,
                format!("{wanted}: no such reproduction in {}", from.display()),
                format!("There are: {}.", known.join(", ")),
            ));
        }
    }
    if !arguments.names.is_empty() {
        files.retain(|file| arguments.names.contains(&name(file)));
    }
    Ok(files)
}

fn reproduce(file: &Path, name: &str, arguments: &ReproduceArgs) -> Result<page::Page> {
    let usage = |error: String| {
        let shown = file.display();
        Failure::error(Kind::Usage, format!("{shown}: {error}"), "Correct the reproduction's file.")
    };
    let reproduction = Reproduction::load(file).map_err(|error| usage(error.to_string()))?;
    let cases = reproduction.cases(&file.display().to_string());
    let cases = cases.map_err(|error| usage(error.to_string()))?;
    let (names, cases): (Vec<String>, Vec<_>) = cases.into_iter().unzip();
    let reports = run_all(&cases, &arguments.from, None, arguments.jobs, &arguments.snapshots)?;
    let results = Results::new(&names, &reports);
    let page = page::write(name, &reproduction, &results).map_err(|e| usage(e.to_string()))?;
    for spec in &reproduction.picture {
        let svg = picture::draw(spec, &results).map_err(|error| usage(error.to_string()))?;
        save(&arguments.out.join(format!("{name}-{}.svg", spec.name)), &svg)?;
    }
    save(&arguments.out.join(format!("{name}.md")), &page.text)?;
    Ok(page)
}

fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
