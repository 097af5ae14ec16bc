//! Tests of the loader with the three descriptions in the repository and with broken ones.

use super::load;
use crate::hdd::Hdd;
use crate::hdd::geometry::Layout;

fn read(name: &str) -> Result<String, String> {
    let path = format!("{}/data/disksim/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[test]
fn the_described_disks_have_the_sectors_they_are_said_to_have() {
    let said = [("cheetah9LP", 17_783_240), ("ibm18es", 17_916_240), ("atlas10k", 17_938_986)];
    for (name, sectors) in said {
        let parameters = load(&format!("{name}.diskspecs"), &read).expect("a disk");
        let disk = Hdd::new(parameters).expect("possible");
        assert_eq!(disk.mechanism().geometry.sectors(), sectors, "{name}");
    }
}

#[test]
fn sectors_slip_past_defects() {
    let parameters = load("cheetah9LP.diskspecs", &read).expect("a disk");
    let Layout::Zones { zones, .. } = &parameters.layout else { panic!("zones") };
    assert_eq!(zones[0].holes[0], (168_317, 1));
    let disk = Hdd::new(parameters).expect("possible");
    let geometry = &disk.mechanism().geometry;
    // 662 tracks of 254 sectors, and 169 more: the next sector there is skipped.
    assert_eq!(geometry.place(168_316).slot, 168_316 % 254);
    assert_eq!(geometry.place(168_317).slot, 168_318 % 254);
}

#[test]
fn broken_descriptions_are_refused_by_file_line_and_key() {
    let with = |file: &'static str, from: &'static str, to: &'static str| {
        let changed = move |name: &str| {
            let text = read(name)?;
            let changed = if name == file { text.replacen(from, to, 1) } else { text.clone() };
            assert!(name != file || changed != text, "nothing was replaced");
            Ok(changed)
        };
        load("ibm18es.diskspecs", &changed).expect_err(to).to_string()
    };
    let wrong = with("ibm18es.diskspecs", "Fast write level = 2", "Fast write level = 7");
    assert!(wrong.starts_with("ibm18es.diskspecs, line 49: `Fast write level`: is 7"), "{wrong}");
    let wrong = with("ibm18es.model", "Rotation speed", "Rotation sped");
    assert!(wrong.contains("`Rotation speed (in rpms)`: is missing in this `dm_mech_g1`"));
    let wrong = with("ibm18es.seek", "2,", "1,");
    assert!(wrong.starts_with("ibm18es.seek, line 3: "), "{wrong}");
    let wrong = with("ibm18es.diskspecs", "ibm18es.model", "nowhere.model");
    assert!(wrong.starts_with("nowhere.model, line 0: the file: "), "{wrong}");
}
