//! Cards: bursts, and the page generated from them.

use std::collections::BTreeMap;
use std::path::Path;

use hemi_drives::preset::{Class, Preset};
use hemi_simulate::card;
use hemi_simulate::stock::Stock;

/// Checks `docs/drives.md`, which is generated from the presets and must be regenerated when
/// they change.
#[test]
fn the_page_has_every_preset_and_every_figure() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drives.md");
    let page = std::fs::read_to_string(path).unwrap();
    let made_by = "make it with: hemi sim presets --cards --markdown > docs/drives.md";
    let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        // Skip the header and the line below it.
        let rows = rest.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
        sections.insert(name, rows);
    }
    let there: Vec<&str> = sections.keys().copied().collect();
    assert_eq!(there, Preset::names().collect::<Vec<_>>(), "{made_by}");
    for (name, rows) in sections {
        let preset = Preset::built_in(name).unwrap();
        let section = page.split(&format!("\n## {name}\n")).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap().to_lowercase();
        let marked = preset.validation().mark().is_some();
        assert_eq!(section.contains("**not validated"), marked, "{name}: {made_by}");
        let card = preset.card;
        assert_eq!(rows.len(), card.len(), "{name}: {made_by}");
        for (row, figure) in rows.iter().zip(&card) {
            assert!(row.starts_with(&format!("| {} |", figure.figure)), "{name}: {made_by}");
            assert_eq!(row.contains("| fitted"), figure.fitted, "{name}: {made_by}");
        }
    }
}

#[test]
fn a_burst_ends_within_the_cache_that_a_longer_load_fills() {
    let preset = Preset::built_in("qlc").unwrap().scaled(8);
    let mut figure = preset.card[0].clone();
    assert!(figure.load.bytes.is_some(), "{}", figure.figure);
    let stock = Stock::default();
    let burst = card::model(&preset, &figure, &stock, 1).unwrap();
    assert!((burst / figure.published - 1.0).abs() < 0.15, "{burst}");
    // The whole drive, several times, so that most of it bypasses the cache.
    figure.load.bytes = None;
    let long = card::model(&preset, &figure, &stock, 1).unwrap();
    assert!(long < 0.3 * burst, "{burst} and {long}");
}

#[test]
fn a_measure_after_some_time_finds_credit_used_up() {
    let preset = Preset::built_in("gp2-100gb").unwrap();
    let rows = card::rows(&preset, &Stock::default(), 1, |_| {}).unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(card::Row::is_within), "{rows:?}");
    // Reads, then writes.
    assert!(rows[0].model > 9.0 * rows[1].model, "{rows:?}");
    assert!(rows[2].model > 9.0 * rows[3].model, "{rows:?}");
}

/// Checks `crates/drives/figures.tsv`, which is generated from the cards, on two of them.
#[test]
fn the_figures_that_are_compiled_in_are_the_models() {
    for name in ["gp2-100gb", "hdd-20tb"] {
        let preset = Preset::built_in(name).unwrap();
        let rows = card::rows(&preset, &Stock::default(), 1, |_| {}).unwrap();
        for class in Class::ALL {
            let its = rows.iter().filter(|row| class.has(&row.figure)).map(card::Row::deviation);
            let worst = its.max_by(|one, other| one.beyond().total_cmp(&other.beyond()));
            let made_by =
                "make it with: hemi sim presets --cards --figures > crates/drives/figures.tsv";
            assert_eq!(preset.validation().of(class).worst, worst, "{name}: {made_by}");
        }
    }
}

#[test]
fn cards_that_make_no_sense_are_refused_by_name() {
    let card = r#"
[[card]]
figure = "a burst"
load = { read_percent = 0, size = "4 KiB", pattern = "random", queue_depth = 1, LOAD }
measure = "iops"
published = 1
source = "nobody"
fitted = false
"#;
    let gp3 = include_str!("../../../drives/presets/gp3.toml");
    let refused = |load: &str| {
        let card = card.replace("LOAD", load);
        Preset::parse("test.toml", &format!("{gp3}\n{card}")).unwrap_err().to_string()
    };
    let error = refused("bytes = \"1 KiB\"");
    assert!(error.contains("load.bytes") && error.contains("at least one request"), "{error}");
    let error = refused("bytes = \"1 MiB\", after = \"1 s\"");
    assert!(error.contains("load.after") && error.contains("`bytes`"), "{error}");
}
