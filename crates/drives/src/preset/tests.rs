//! Tests that the built-in presets are sound and that errors are reported at their place.

use std::path::Path;

use hemi_random::Rng;
use hemi_units::{Extent, Operation};
use proptest::prelude::*;

use super::{BUILT_IN, Figure, Measure, Model, Pattern, Preset, PresetError};
use crate::any::AnyDrive;
use crate::drive::Drive;
use crate::testing::closed_loop;

#[test]
fn all_presets_of_the_folder_are_compiled_in_and_sorted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| file.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, Preset::names().collect::<Vec<_>>());
}

#[test]
fn every_preset_is_understood_and_is_a_drive() {
    for name in Preset::names() {
        let preset = Preset::built_in(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(preset.name, name);
        let preset = preset.scaled(16);
        let mut drive = preset.drive(1).unwrap_or_else(|error| panic!("{name}: {error}"));
        let load = [(Operation::Read, Extent::new(drive.sectors() - 8, 8)); 10];
        closed_loop(&mut drive, 2, &load);
        assert_eq!(drive.counters().reads, 10, "{name}");
    }
}

/// Returns the card's figure according to the model: rates and the mean only.
fn modelled(drive: &mut AnyDrive, figure: &Figure) -> Option<f64> {
    let load = &figure.load;
    let sectors = load.size.0 / 512;
    let places = drive.sectors() / sectors;
    let mut rng = Rng::new(5, 0);
    let requests: Vec<_> = (0..40_000)
        .map(|index| {
            let place = match load.pattern {
                Pattern::Random => rng.below(places),
                Pattern::Sequential => index % places,
            };
            let read = rng.below(100) < u64::from(load.read_percent);
            let operation = if read { Operation::Read } else { Operation::Write { fua: false } };
            (operation, Extent::new(place * sectors, sectors))
        })
        .collect();
    let lives = closed_loop(drive, load.queue_depth as usize, &requests);
    // The first half uses the tokens saved up in the buckets.
    let half = lives.len() / 2;
    let span = lives[lives.len() - 1].done.since(lives[half].done);
    let rate = half as f64 / (span as f64 / 1e9);
    match figure.measure {
        Measure::Iops => Some(rate),
        Measure::Bandwidth => Some(rate * load.size.0 as f64),
        Measure::Mean => Some(f64::from(load.queue_depth) / rate),
        _ => None,
    }
}

#[test]
fn network_volumes_keep_what_their_cards_say() {
    for name in Preset::names() {
        let preset = Preset::built_in(name).unwrap();
        if !matches!(preset.model, Model::Network(_)) {
            continue;
        }
        for figure in preset.card.iter().filter(|f| f.load.after.is_none()) {
            let modelled = modelled(&mut preset.drive(1).unwrap(), figure).unwrap();
            let ratio = modelled / figure.published;
            assert!((0.95..1.05).contains(&ratio), "{name}, {}: {modelled}", figure.figure);
        }
    }
}

#[test]
fn a_name_that_is_not_there_is_refused_with_what_may_be_meant() {
    let refused = |name| Preset::built_in(name).unwrap_err().to_string();
    assert_eq!(refused("gp3x"), "no preset is named `gp3x`; did you mean `gp3`?");
    assert!(refused("GP3-16").contains("did you mean `gp3-16k`"), "{}", refused("GP3-16"));
    let error = refused("tape");
    assert!(error.starts_with("no preset is named `tape`; there are: "), "{error}");
    assert!(error.contains("gp3, gp3-16k"), "{error}");
}

fn gp3() -> &'static str {
    BUILT_IN.iter().find(|(name, _)| *name == "gp3").unwrap().1
}

/// Returns the error, without its place, if `to` replaces `from` in the gp3 preset.
fn refused(from: &str, to: &str) -> String {
    assert!(gp3().contains(from), "{from}");
    let text = gp3().replacen(from, to, 1);
    match Preset::parse("mine.toml", &text).unwrap_err() {
        PresetError::Wrong { file, line, column, key, problem } => {
            assert_eq!(file, "mine.toml");
            let at = text.lines().nth(line - 1).unwrap();
            let rest: String = at.chars().skip(column - 1).collect();
            let word = rest.split([' ', '}']).next().unwrap();
            format!("{key} at {word}: {problem}")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_wrong_is_said_where_it_is() {
    let unknown = refused("window = ", "widow = \"1 s\"\nwindow = ");
    assert!(
        unknown.starts_with("parameters.widow at widow: unknown field `widow`, expected one"),
        "{unknown}"
    );
    let deep = refused("sustained = 3000", "sustained = 3000, peek = 4000");
    assert!(deep.starts_with("parameters.iops.peek at peek: unknown field"), "{deep}");
    let unit = refused("window = \"100 ms\"", "window = \"100 mm\"");
    assert!(unit.starts_with("parameters.window at \"100: `100 mm` is not a duration"), "{unit}");
    let bare = refused("window = \"100 ms\"", "window = 100");
    assert!(bare.starts_with("parameters.window at 100: invalid value: integer `100`"), "{bare}");
    assert!(bare.ends_with("a duration with its unit such as \"20ms\" or \"5s\""), "{bare}");
    let range = refused("sustained = 3000", "sustained = 0");
    assert_eq!(range, "parameters.iops.sustained at sustained: 0: a rate above zero");
    let missing = refused("window = \"100 ms\"\n", "");
    assert!(missing.contains("missing field `window`"), "{missing}");
    let syntax = refused("window = ", "window ");
    assert!(syntax.ends_with(": key with no value, expected `=`"), "{syntax}");
}

#[test]
fn sources_and_parameters_have_to_match() {
    let none = refused("window = \"estimate", "# \"estimate");
    assert!(
        none.starts_with("parameters.window at window: has no source: say in `[sources]`"),
        "{none}"
    );
    let over = refused("[sources]\n", "[sources]\nwidow = \"nobody\"\n");
    assert!(over.starts_with("sources.widow at widow: is the source of no parameter"), "{over}");
    let empty = refused("[sources]\ncapacity = \"", "[sources]\ncapacity = \"\" # ");
    assert!(empty.starts_with("sources.capacity at \"\": a source is a text"), "{empty}");
    // A table of parameters may have a table of sources, which has to match as well.
    let from = "\niops = \"";
    let table = "\niops = { sustained = \"here\", peak = \"there\" } # ";
    let inner = refused(from, table);
    assert!(inner.starts_with("sources.iops.peak at peak: is the source of no"), "{inner}");
    let table = gp3().replacen(from, "\niops = { sustained = \"here\" } # ", 1);
    let preset = Preset::parse("mine.toml", &table).unwrap();
    assert_eq!(preset.sources["iops.sustained"], "here");
}

#[test]
fn models_and_cards_are_checked() {
    let model = refused("model = \"network\"", "model = \"nework\"");
    assert!(model.starts_with("model at \"nework\": `nework` is not a model: "), "{model}");
    assert!(model.contains("`network`"), "{model}");
    let depth = refused("queue_depth = 64 }", "queue_depth = 0 }");
    assert_eq!(depth, "card[0].load.queue_depth at queue_depth: at least 1");
    let measure = refused("measure = \"iops\"", "measure = \"iopses\"");
    assert!(measure.starts_with("card[0].measure at \"iopses\": unknown variant"), "{measure}");
    assert!(measure.contains("expected one of `iops`, `bandwidth`"), "{measure}");
    let published = refused("published = 3000", "published = -1.0");
    assert_eq!(published, "card[0].published at published: a number above zero");
}

#[test]
fn a_file_of_the_users_is_read_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let missing = Preset::load(&path).unwrap_err().to_string();
    assert!(missing.contains("mine.toml"), "{missing}");
    std::fs::write(&path, gp3()).unwrap();
    let mine = Preset::load(&path).unwrap();
    let Model::Network(parameters) = &mine.model else { panic!("{mine:?}") };
    assert_eq!(parameters.iops.sustained, 3000);
    assert_eq!(mine.card, Preset::built_in("gp3").unwrap().card);
}

const STRIPE: &str = r#"
title = "A stripe"
model = "array"
[parameters]
member = "volume.toml"
count = 4
level = "raid0"
chunk = "64 KiB"
[sources]
member = "a test"
count = "a test"
level = "a test"
chunk = "a test"
"#;

#[test]
fn an_array_of_the_users_has_members_beside_it_or_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("volume.toml"), gp3()).unwrap();
    std::fs::write(path("stripe.toml"), STRIPE).unwrap();
    let mirror = STRIPE.replace("volume.toml", "stripe.toml").replace("raid0", "raid10");
    std::fs::write(path("mirror.toml"), mirror).unwrap();
    let volume = Preset::built_in("gp3").unwrap().drive(1).unwrap().sectors();
    let mut drive = Preset::load(&path("mirror.toml")).unwrap().drive(1).unwrap();
    assert_eq!(drive.sectors(), 2 * 4 * volume);
    // Sixteen volumes of 3,000 requests per second, after the tokens initially in their
    // buckets.
    let mut rng = Rng::new(5, 0);
    let load: Vec<_> =
        (0..200_000).map(|_| (Operation::Read, Extent::new(rng.below(volume) & !7, 8))).collect();
    let lives = closed_loop(&mut drive, 256, &load);
    let rate = 100_000.0 / (lives[199_999].done.since(lives[99_999].done) as f64 / 1e9);
    assert!((40_000.0..49_000.0).contains(&rate), "{rate}");
    let unknown = STRIPE.replace("volume.toml", "nothing");
    let error = Preset::parse("mine.toml", &unknown).unwrap().drive(1).unwrap_err().to_string();
    assert!(error.starts_with("no preset is named `nothing`"), "{error}");
}

#[test]
fn an_array_of_itself_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("self.toml");
    std::fs::write(&path, STRIPE.replace("volume.toml", "self.toml")).unwrap();
    let error = Preset::load(&path).unwrap().drive(1).unwrap_err();
    assert!(matches!(error, PresetError::Nested { deepest: 4, .. }), "{error}");
}

#[test]
fn a_controllers_sources_may_be_given_one_by_one() {
    let controller = r#"
[parameters.controller]
command = "5 us"
member_command = "5 us"
bandwidth = "1 GB/s"
member_bandwidth = "1 GB/s"
parity = "1 GB/s"
partial_writes = "reconstruct"
cache = { size = "256 MiB", protected = true, destage_from = 0.5, destage_depth = 8, linger = "1 s" }
[sources]"#;
    let text = STRIPE.replace("[sources]", controller);
    let error = Preset::parse("mine.toml", &text).unwrap_err().to_string();
    assert!(
        error.starts_with("mine.toml:10:13: `parameters.controller`: has no source"),
        "{error}"
    );
    let whole = format!("{text}controller = \"a test\"\n");
    assert!(Preset::parse("mine.toml", &whole).is_ok());
    let one = format!("{text}[sources.controller]\ncommand = \"a test\"\n");
    let error = Preset::parse("mine.toml", &one).unwrap_err().to_string();
    assert!(error.contains("has no source: say in `[sources.controller]`"), "{error}");
}

proptest! {
    #[test]
    fn nothing_panics_on_damaged_text(at in 0_usize..4000, with in "\\PC{0,3}", cut in 0_usize..40) {
        let text = gp3();
        let at = text.floor_char_boundary(at % text.len());
        let end = text.floor_char_boundary((at + cut).min(text.len()));
        let damaged = format!("{}{with}{}", &text[..at], &text[end..]);
        if let Err(PresetError::Wrong { line, column, .. }) = Preset::parse("mine.toml", &damaged) {
            prop_assert!(line >= 1 && line <= damaged.split('\n').count());
            prop_assert!(column >= 1);
        }
    }
}

#[test]
fn the_scale_of_flash_is_known_through_arrays_too() {
    let scale = |name: &str| Preset::built_in(name).unwrap().scaled(4).flash_scale().unwrap();
    let own = |name: &str| Preset::built_in(name).unwrap().flash_scale().unwrap();
    assert_eq!(scale("nvme-enterprise"), 4 * own("nvme-enterprise"));
    assert!(own("nvme-enterprise") > 1);
    assert_eq!(scale("x25e-8-raid5-a"), 4 * own("x25e-32gb"));
    assert_eq!((scale("wd-1tb-2009"), scale("gp3"), scale("wd-16-raid0-b")), (1, 1, 1));
}

#[test]
fn a_load_divides_flash_as_far_as_the_drive_stays_itself() {
    for name in Preset::names() {
        let preset = Preset::built_in(name).unwrap();
        let divisor = preset.divisor_for(0).unwrap();
        assert_eq!(preset.too_small(divisor).unwrap(), None, "{name} by {divisor}");
        let Some(most) = preset.flash_scale_most().unwrap() else {
            assert_eq!(divisor, 1, "{name} has no flash");
            continue;
        };
        let beyond = preset.too_small(divisor + 1).unwrap().unwrap();
        assert_eq!(beyond.most, divisor, "{name}");
        assert!(beyond.total > most, "{name}");
        // A load that writes more than half of what is left needs more of it.
        let flash = |divisor: u64| {
            let drive = preset.clone().scaled(divisor).drive(1).unwrap();
            drive.sectors() * 512
        };
        let more = preset.divisor_for(flash(divisor)).unwrap();
        assert!(more <= divisor / 2 || more == 1, "{name}: {more} of {divisor}");
        assert_eq!(preset.divisor_for(u64::MAX).unwrap(), 1, "{name}");
    }
}

#[test]
fn what_flash_frees_while_idle_is_divided_with_it() {
    let blocks = |name: &str, scale: u64| {
        let Model::Ssd(of) = Preset::built_in(name).unwrap().scaled(scale).model else {
            panic!("{name} is flash")
        };
        (of.scale, of.background_blocks - of.collection_start)
    };
    let own = blocks("nvme-consumer", 1);
    assert_eq!(own, (8, 9));
    assert_eq!(blocks("nvme-consumer", 4), (32, 2));
    // A cache of flash keeps a block; without one, none is needed.
    assert_eq!(blocks("nvme-consumer", 64), (512, 1));
    assert_eq!(blocks("nvme-enterprise", 1), (32, 2));
    assert_eq!(blocks("nvme-enterprise", 4), (128, 0));
    let array = Preset::built_in("x25e-8-raid5-a").unwrap();
    let scaled = array.clone().scaled(4);
    assert_eq!(scaled.flash_scale().unwrap(), 4 * array.flash_scale().unwrap());
}
