//! Every flash preset is complete; impossible parameters are refused by name.

use super::super::parameters::Parameters;
use super::{SMALL, small};
use hemi_units::Size;

#[test]
fn every_preset_is_whole() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/presets");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect(folder) {
        let path = entry.expect(folder).path();
        let text = std::fs::read_to_string(&path).expect(folder);
        let table: toml::Table = toml::from_str(&text).expect("TOML");
        if table["model"].as_str() != Some("ssd") {
            continue;
        }
        count += 1;
        let parameters: Parameters = table["parameters"]
            .clone()
            .try_into()
            .unwrap_or_else(|error| panic!("{path:?}: {error}"));
        parameters.check().unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let keys = |name: &str| -> Vec<String> {
            table[name].as_table().expect("a table").keys().cloned().collect()
        };
        assert_eq!(keys("parameters"), keys("sources"), "{path:?}: a source for each parameter");
    }
    assert!(count >= 13, "{count} presets of flash drives");
}

#[test]
fn over_provisioning_has_both_its_names() {
    let parameters = small(|_| {});
    assert!((parameters.spare_of_raw() - 0.2).abs() < 1e-12);
    assert!((parameters.spare_of_user() - 0.25).abs() < 1e-12);
}

#[test]
fn impossible_parameters_are_named() {
    type Change = fn(&mut Parameters);
    let cases: [(&str, Change); 12] = [
        ("alpha", |of| of.alpha = 1.0),
        ("alpha", |of| of.alpha = f64::NAN),
        ("raw_loss", |of| of.raw_loss = 1.0),
        ("alpha", |of| of.raw_loss = 0.25),
        ("scale", |of| of.scale = 0),
        ("gang", |of| of.gang = 3),
        ("mapping_unit", |of| of.mapping_unit = Size(3 * 512)),
        ("page", |of| of.page = Size(1000)),
        ("reserve", |of| of.hot_cold = true),
        ("collection_start", |of| of.collection_start = 1),
        ("collection_share", |of| of.collection_share = 1.0),
        ("buffer", |of| of.buffer = Size(512)),
    ];
    for (name, change) in cases {
        let error = small(change).check().expect_err(name);
        assert_eq!(error.parameter, name, "{error}");
    }
    assert!(small(|_| {}).check().is_ok());
    let unknown = format!("{SMALL}\nspeed = 1");
    let error = toml::from_str::<Parameters>(&unknown).expect_err("an unknown key").to_string();
    assert!(error.contains("speed"), "{error}");
}
