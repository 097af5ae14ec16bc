//! Tests of the loader with the three descriptions in the repository, with one that has all that
//! those have not, and with broken ones.

use super::{Description, load};
use crate::disksim::preset;
use crate::hdd::Hdd;
use crate::hdd::geometry::Layout;
use crate::hdd::seek::SeekCurve;
use crate::preset::{Model, Preset};
use hemi_units::{Rate, Time};

fn read(name: &str) -> Result<String, String> {
    let path = format!("{}/data/disksim/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[test]
fn the_described_disks_have_the_sectors_they_are_said_to_have() {
    let said = [("cheetah9LP", 17_783_240), ("ibm18es", 17_916_240), ("atlas10k", 17_938_986)];
    for (name, sectors) in said {
        let description = load(&format!("{name}.diskspecs"), &read).expect("a disk");
        let disk = Hdd::new(description.parameters).expect("possible");
        assert_eq!(disk.mechanism().geometry.sectors(), sectors, "{name}");
    }
}

#[test]
fn sectors_slip_past_defects() {
    let parameters = load("cheetah9LP.diskspecs", &read).expect("a disk").parameters;
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

/// A made-up disk on a slow shared bus, with a controller before it.
const SETUP: &str = include_str!("tests/shared_bus.parv");
const SPECS: &str = include_str!("tests/shared_bus.diskspecs");

/// Loads the made-up disk with `from` replaced by `to` in one of its files.
fn made_up(file: &str, changes: &[(&str, &str)]) -> Result<Description, String> {
    let read = |name: &str| {
        let mut text = match name {
            "shared_bus.parv" => SETUP.to_owned(),
            "shared_bus.diskspecs" => SPECS.to_owned(),
            _ => return Err("there is no such file".to_owned()),
        };
        for (from, to) in changes.iter().filter(|_| name == file) {
            assert!(text.contains(from), "{from} is not in {name}");
            text = text.replacen(from, to, 1);
        }
        Ok(text)
    };
    load("shared_bus.parv", &read).map_err(|error| error.to_string())
}

/// Moves the block that begins with `begin` out of a text. Returns its own text.
fn move_out(text: &mut String, begin: &str, name: &str) -> String {
    let start = text.find(begin).expect(begin);
    let mut open = 0;
    let end = text[start..].find(|c| {
        open += i32::from(c == '{') - i32::from(c == '}');
        c == '}' && open == 0
    });
    let end = start + end.expect("it is closed") + 1;
    let block = text[start..end].to_owned();
    text.replace_range(start..end, &format!("source {name}"));
    block
}

#[test]
fn any_block_may_be_in_a_file_of_its_own() {
    let mut specs = SPECS.replace(
        "Max queue length = 1",
        "Max queue length = 2, Scheduler = disksim_ioqueue { Scheduling policy = 3 }",
    );
    let whole = move |specs: &str, files: &[(&str, String)]| {
        let read = |name: &str| match name {
            "shared_bus.parv" => Ok(SETUP.to_owned()),
            "shared_bus.diskspecs" => Ok(specs.to_owned()),
            _ => {
                let file = files.iter().find(|(file, _)| *file == name);
                file.map(|(_, text)| text.clone()).ok_or_else(|| "there is none".to_owned())
            }
        };
        load("shared_bus.parv", &read).map_err(|error| error.to_string())
    };
    let expected = whole(&specs, &[]).expect("a disk");
    let mut files = Vec::new();
    let mut layout = move_out(&mut specs, "dm_layout_g1 {", "layout");
    files.push(("zone", move_out(&mut layout, "dm_layout_g1_zone {", "zone")));
    files.push(("layout", layout));
    files.push(("mechanics", move_out(&mut specs, "dm_mech_g1 {", "mechanics")));
    files.push(("scheduler", move_out(&mut specs, "disksim_ioqueue {", "scheduler")));
    files.push(("model", move_out(&mut specs, "dm_disk ", "model")));
    let found = whole(&specs, &files).expect("a disk");
    assert_eq!(found.parameters, expected.parameters);
    let said = |description: &Description| {
        let ignored = description.ignored.iter();
        ignored.map(|one| (one.key.clone(), one.instead.clone())).collect::<Vec<_>>()
    };
    assert!(said(&expected).iter().any(|(key, _)| key == "Scheduling policy"));
    assert_eq!(said(&found), said(&expected));
    // What a file has instead is said of that file.
    files[1].1 = "# extracted\ndm_layout_g4 { TP = [ 0, 1087, 1088 ] }".to_owned();
    let wrong = whole(&specs, &files).expect_err("another kind of layout");
    let expected = "layout, line 2: `Layout Model`: is a `dm_layout_g4`, which is not supported; a \
                    `dm_layout_g1` is";
    assert_eq!(wrong, expected);
    files[1].1 = "dm_layout_g1 { Zones = source layout }".to_owned();
    let wrong = whole(&specs, &files).expect_err("a file in itself");
    assert!(wrong.contains("more than 64 files: does a file name itself?"), "{wrong}");
    files.remove(1);
    let wrong = whole(&specs, &files).expect_err("a missing file");
    assert_eq!(wrong, "layout, line 0: the file: there is none");
}

#[test]
fn the_bus_of_a_parameter_file_and_its_rules_are_read() {
    let parameters = made_up("", &[]).expect("a disk").parameters;
    // The bus takes 0.2 and 0.25 ms a sector; the disk's own 0.1 and the controller's 0.22 ms
    // do not limit it where they are less.
    assert_eq!(parameters.host_rate, Rate(2_327_273));
    assert_eq!(parameters.bus.write_rate, Some(Rate(2_048_000)));
    assert_eq!(parameters.bus.data_preparation, Time::micros(25));
    assert_eq!(parameters.bus.read_completion, Time::micros(56));
    let rules = parameters.bus.disconnection.expect("it leaves the bus");
    assert_eq!(rules.after_read_command.after_write, Time::micros(45));
    assert_eq!(rules.reselection, Time::micros(160));
    assert!((rules.read_watermark - 0.75).abs() < 1e-9 && !rules.watermark_of_segment);
    let split = rules.split_writes.expect("writes are split");
    assert_eq!((split.command, split.pause), (Time::micros(640), Time::micros(430)));
    assert_eq!(parameters.least_write_seek, Time::micros(600));
    // A disk on its own has no bus, and so only its own rate.
    let read = |_: &str| Ok(SPECS.to_owned());
    let alone = load("shared_bus.diskspecs", &read).expect("a disk").parameters;
    assert_eq!((alone.host_rate, alone.bus.write_rate), (Rate(5_120_000), None));
}

#[test]
fn a_negative_write_settle_lets_writes_begin_sooner() {
    let parameters = made_up("", &[]).expect("a disk").parameters;
    assert_eq!((parameters.write_settle, parameters.write_advance), (Time(0), Time(483_000)));
    let disk = Hdd::new(parameters).expect("possible");
    let at = |cylinder| crate::hdd::mechanism::Arm { cylinder, head: 0 };
    let mechanism = disk.mechanism();
    assert_eq!(mechanism.travel(at(0), at(1), false), 1_000_000);
    assert_eq!(mechanism.travel(at(0), at(1), true), 517_000);
    assert_eq!(mechanism.travel(at(1), at(1), true), 0);
    // More than the head switch would be a movement back in time.
    let wrong = made_up("shared_bus.diskspecs", &[("-0.483", "-0.9")]).expect_err("too much");
    assert!(wrong.contains("`write_advance` comes out as 900000 ns"), "{wrong}");
}

#[test]
fn spares_at_the_end_of_each_track_are_left_out_of_the_empty_space() {
    let parameters = made_up("", &[]).expect("a disk").parameters;
    let disk = Hdd::new(parameters).expect("possible");
    let geometry = &disk.mechanism().geometry;
    // 114 sectors of empty space are two tracks of 57 used sectors, which have 58.
    assert_eq!((geometry.place(0).cylinder, geometry.place(0).head), (1, 0));
    assert_eq!((geometry.place(0).slot, geometry.place(56).slot), (0, 56));
    assert_eq!((geometry.place(57).head, geometry.place(57).slot), (1, 0));
}

#[test]
fn values_without_effect_are_named() {
    let ignored = |changes| {
        let description = made_up("shared_bus.diskspecs", changes).expect("a disk");
        description.ignored.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(ignored(&[]), Vec::<String>::new());
    let some = ignored(&[
        ("Hold bus entire read xfer = 1", "Hold bus entire read xfer = 0"),
        ("Minimum read-ahead (blks) = 0", "Minimum read-ahead (blks) = 8"),
        ("Allow write prebuffering = 0", "Allow write prebuffering = 1"),
        ("Print stats = 1", "Prints tats = 1"),
        ("defects = []", "defects = [ 12, 34, 56, 78 ]"),
    ]);
    let expected = [
        "`Hold bus entire read xfer` = 0: the bus is kept until a read is over",
        "`Prints tats` = 1: is not known here",
        "`Minimum read-ahead (blks)` = 8: reading ahead gives way at once",
        "`defects` = 2: sectors that were moved for a defect lie where they would without it",
    ];
    assert_eq!(some.len(), expected.len(), "{some:?}");
    for (said, expected) in some.iter().zip(expected) {
        assert!(said.starts_with("shared_bus.diskspecs, line "), "{said}");
        assert!(said.ends_with(expected), "{said}");
    }
    // With one request at a time there is nothing to prebuffer; with two there is.
    let queued = ignored(&[
        ("Max queue length = 1", "Max queue length = 2"),
        ("Allow write prebuffering = 0", "Allow write prebuffering = 1"),
    ]);
    assert!(queued.iter().any(|one| one.contains("Allow write prebuffering")), "{queued:?}");
}

#[test]
fn a_preset_made_of_a_description_has_the_same_parameters() {
    let mut all = vec![made_up("", &[]).expect("a disk")];
    for name in ["cheetah9LP", "ibm18es", "atlas10k"] {
        all.push(load(&format!("{name}.diskspecs"), &read).expect("a disk"));
    }
    for description in all {
        let text = preset::text(&description, Some("some disk")).expect("a preset");
        let preset = Preset::parse("some.toml", &text).expect("it can be read");
        assert_eq!(preset.title, "some disk");
        assert_eq!(preset.model, Model::Hdd(Box::new(description.parameters)));
        assert!(preset.sources["seek"].contains("dm_mech_g1"), "{:?}", preset.sources);
        assert!(preset.sources["overheads"].contains(&description.name));
    }
}

#[test]
fn formulas_of_seek_curves_are_read() {
    let change = ("Seek type = const", "Seek type = hpl");
    let parameters = made_up("shared_bus.diskspecs", &[change]).expect("a disk").parameters;
    let SeekCurve::Points(points) = &parameters.seek else { panic!("points") };
    assert_eq!(points[0], (1, Time(4_080_000)));
    assert_eq!(points[3], (4, Time(4_410_000)));
    let broken = made_up("shared_bus.diskspecs", &[change, ("3.75, 0.33", "3.75")]);
    let wrong = broken.expect_err("five numbers");
    assert!(wrong.contains("`HPL seek equation values`: is a list of 5"), "{wrong}");
}

#[test]
fn broken_parameter_files_are_refused_by_line() {
    let refused = |from, to| made_up("shared_bus.parv", &[(from, to)]).expect_err(to);
    let wrong = refused("as BUS1", "BUS1");
    assert!(wrong.starts_with("shared_bus.parv, line 22: `instantiate`: expected `as`"), "{wrong}");
    let wrong = refused("instantiate [ bus1 ] as BUS1", "");
    assert!(wrong.contains("`bus1`: expected `instantiate [ bus1 ] as`"), "{wrong}");
    let wrong = refused("source shared_bus.diskspecs", "source other.diskspecs");
    assert_eq!(wrong, "other.diskspecs, line 0: the file: there is no such file");
    let wrong = refused("disksim_disk disk0", "disksim_tape disk0");
    assert_eq!(wrong, "shared_bus.parv, line 1: the topology: expected a `disksim_disk` in it");
    let wrong = refused("Write block transfer time = 0.25", "Write block transfer time = fast");
    assert!(wrong.contains("`Write block transfer time`: is fast, expected a number"), "{wrong}");
    let deep = format!("topology {}", "disksim_bus b [ ".repeat(100));
    let wrong = refused("topology", &deep);
    assert!(wrong.contains("at most 16 components within each other"), "{wrong}");
}

#[test]
fn a_defect_among_the_spares_takes_no_sector_from_the_host() {
    // Track 199 is among the last three, of which two are spare and one makes up for track 10.
    let change = [
        ("Sparing scheme used = 3", "Sparing scheme used = 1"),
        ("Empty space at zone front = 114", "Empty space at zone front = 0"),
        ("Number of spares = 1", "Number of spares = 3"),
        ("slips = []", "slips = [ 10, 199 ]"),
        ("Block count = 11000", "Block count = 20000"),
    ];
    let parameters = made_up("shared_bus.diskspecs", &change).expect("a disk").parameters;
    let disk = Hdd::new(parameters).expect("possible");
    let geometry = &disk.mechanism().geometry;
    assert_eq!(geometry.sectors(), 197 * 58);
    let track = |sector| {
        let place = geometry.place(sector);
        place.cylinder * 2 + u32::from(place.head)
    };
    assert_eq!((track(10 * 58 - 1), track(10 * 58), track(197 * 58 - 1)), (9, 11, 197));
}
