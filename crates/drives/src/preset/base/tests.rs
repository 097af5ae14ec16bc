//! Tests of presets with a base.

use std::path::Path;

use crate::array;
use crate::preset::{Model, Preset, PresetError};

const FASTER: &str = r#"
title = "A faster gp3"
base = "gp3"
[parameters]
iops = { sustained = 6000 }
window = "50 ms"
[sources]
iops = "a test"
window = "a test"
"#;

fn refused(text: &str) -> String {
    Preset::parse("mine.toml", text).unwrap_err().to_string()
}

#[test]
fn a_preset_with_a_base_changes_what_it_names_and_nothing_else() {
    let base = Preset::built_in("gp3").unwrap();
    let mine = Preset::parse("mine.toml", FASTER).unwrap();
    let (Model::Network(of), Model::Network(mut expected)) = (mine.model, base.model) else {
        panic!("gp3 is a network volume")
    };
    expected.iops.sustained = 6000;
    expected.window.0 = 50_000_000;
    assert_eq!(of, expected);
    assert_eq!(mine.title, "A faster gp3");
    assert!(mine.card.is_empty() && !base.card.is_empty(), "its figures are of another drive");
    assert_eq!(mine.sources["window"], "a test");
    assert_eq!(mine.sources["capacity"], base.sources["capacity"]);
}

#[test]
fn what_is_wrong_with_a_change_is_said_at_its_key() {
    let wrong = |from: &str, to: &str| {
        assert!(FASTER.contains(from), "{from}");
        refused(&FASTER.replacen(from, to, 1))
    };
    let equal = wrong("sustained = 6000", "sustained = 3000");
    assert_eq!(
        equal,
        "mine.toml:5:10: `parameters.iops.sustained`: is 3000 in the base already: leave it out"
    );
    let both = FASTER.replace("window", "widow");
    let unknown = refused(&both);
    assert!(
        unknown.starts_with("mine.toml:6:1: `parameters.widow`: unknown field `widow`"),
        "{unknown}"
    );
    let range = wrong("sustained = 6000", "sustained = 0");
    assert_eq!(range, "mine.toml:5:10: `parameters.iops.sustained`: 0: a rate above zero");
    let source = wrong("window = \"a test\"", "");
    assert!(source.contains("`parameters.window`: has no source"), "{source}");
    let base = wrong("\"gp3\"", "\"gp4\"");
    assert!(base.starts_with("mine.toml:3:8: `base`: no preset is named `gp4`; did"), "{base}");
    let path = wrong("\"gp3\"", "\"gp3.toml\"");
    assert!(path.contains("`gp3.toml`: only a file may name its base by path"), "{path}");
    let model = wrong("base =", "model = \"ssd\"\nbase =");
    assert!(model.contains("`model`: its base is of the model `network`"), "{model}");
    let key = wrong("base =", "bass = 1\nbase =");
    assert!(key.contains("`bass`: unknown field"), "{key}");
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn a_base_may_be_a_file_beside_it_and_brings_its_members() {
    let folder = tempfile::tempdir().unwrap();
    let (below, here) = (folder.path().join("below"), folder.path());
    std::fs::create_dir(&below).unwrap();
    write(&below, "volume.toml", FASTER);
    let stripe = "title = \"four\"\nbase = \"gp3-4-raid0-host\"\n[parameters]\n\
                  member = \"volume.toml\"\n[sources]\nmember = \"a test\"\n";
    write(&below, "stripe.toml", stripe);
    let wider = "title = \"eight\"\nbase = \"below/stripe.toml\"\n[parameters]\n\
                 count = 8\n[sources]\ncount = \"a test\"\n";
    write(here, "wider.toml", wider);
    let wider = Preset::load(&here.join("wider.toml")).unwrap();
    let Model::Array(array::Parameters { count, .. }) = wider.model else { panic!("an array") };
    assert_eq!(count, 8);
    assert_eq!(wider.member().unwrap().unwrap().title, "A faster gp3");
}

#[test]
fn a_base_of_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "one.toml", "title = \"one\"\nbase = \"two.toml\"\n");
    write(folder.path(), "two.toml", "title = \"two\"\nbase = \"one.toml\"\n");
    let error = Preset::load(&folder.path().join("one.toml")).unwrap_err();
    let PresetError::Wrong { file, key, problem, .. } = error else { panic!("{error}") };
    assert!(file.ends_with("two.toml") && key == "base", "{file} {key}");
    assert!(problem.starts_with("a preset cannot be its own base: "), "{problem}");
    assert_eq!(problem.matches("one.toml").count(), 2, "{problem}");
}
