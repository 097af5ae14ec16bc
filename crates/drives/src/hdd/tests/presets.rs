//! The presets of hard disks.

use super::preset;
use crate::drive::Drive;
use crate::hdd::Hdd;

#[test]
fn every_preset_is_possible_has_its_size_and_a_source_for_everything() {
    let sizes = [
        ("sata-250gb-2008", 250e9),
        ("wd-1tb-2009", 1e12),
        ("cheetah-15k5-300gb", 294e9),
        ("hdd-20tb", 20e12),
        ("smr-hdd", 8e12),
    ];
    for (name, size) in sizes {
        let preset = preset(name);
        assert_eq!(preset.model, "hdd", "{name}");
        assert!(!preset.title.is_empty() && preset.cards.len() < 20);
        let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect(name);
        let table: toml::Table = text.parse().expect(name);
        let parameters = table["parameters"].as_table().expect(name);
        let keys: Vec<&String> = parameters.keys().collect();
        let sources: Vec<&String> = preset.sources.keys().collect();
        assert_eq!(keys, sources, "{name}: a source for every parameter, and for no other");
        let disk = Hdd::new(preset.parameters).expect(name);
        let bytes = disk.sectors() as f64 * 512.0;
        assert!((bytes / size - 1.0).abs() < 0.002, "{name}: {bytes}");
    }
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut crate::hdd::parameters::Parameters)| {
        let mut parameters = preset("wd-1tb-2009").parameters;
        change(&mut parameters);
        Hdd::new(parameters).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(
        refused(&|p| p.revolutions_per_minute = 10),
        "`revolutions_per_minute` is 10: 1000 to 60000"
    );
    assert!(refused(&|p| p.speed_tolerance = 0.1).contains("`speed_tolerance` is 0.1"));
    assert!(refused(&|p| p.queue.depth = 0).contains("`queue.depth` is 0"));
    assert!(refused(&|p| p.host_rate.0 = 0).contains("`host_rate`"));
    assert!(refused(&|p| p.read_cache.segments = 0).contains("`read_cache.segments`"));
    assert!(refused(&|p| p.write_cache.urgent_at = 2.0).contains("`write_cache.urgent_at`"));
    assert!(refused(&|p| p.head_switch.0 = 1 << 40).contains("`head_switch`"));
}
