use std::path::Path;

use hemi_drives::preset::Precondition;

use super::*;
use crate::stock::Stock;

#[derive(Deserialize)]
struct File {
    faults: Vec<FaultSpec>,
}

fn checked(text: &str) -> Result<(), String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    check(&file.faults, 2).map_err(|error| error.to_string())
}

/// Lays faults on leg 0, a drive of this preset.
fn laid(preset: &str, text: &str) -> Result<(), String> {
    let text = format!("[[faults]]\nleg = 0\n{text}");
    let file: File = toml::from_str(&text).map_err(|error| error.to_string())?;
    check(&file.faults, 1).map_err(|error| error.to_string())?;
    let stock = Stock::default();
    let drive = stock.drive(preset, Path::new(""), 16, Precondition::None, 1);
    let laid = lay(&file.faults, 0, drive.map_err(|error| error.to_string())?, 1);
    laid.map(drop).map_err(|error| error.to_string())
}

#[test]
fn every_form_is_taken() {
    let right = r#"
        [[faults]]
        leg = 1
        at = "10 s"
        freeze = "2 s"
        every = "1 min"

        [[faults]]
        leg = 0
        seed = 3
        stall = [
          { reads = 0.5, writes = 1, by = "500 ms", for = "15 min" },
          { for = "1 min" },
          { reads = 0.001, by = "20 ms..2 s", for = "1 min" },
          { writes = 0.1, by = "200 ms~0.8" },
        ]

        [[faults]]
        leg = 1
        experiment = "ebs-intermittent"
        time_scale = 0.1

        [[faults]]
        leg = 1
        experiment = "perseus-intermittent"
        time_scale = 0.1

        [[faults]]
        leg = 0
        at = "10 min"
        slow = 4
        over = "1 h"
        for = "3 h"
        every = "6 h"
        of = "reads"

        [[faults]]
        leg = 0
        at = "1 min"
        absent = "30 s"
        every = "5 min"
        error_after = "10 ms"

        [[faults]]
        leg = 0
        at = "1 h"
        dies = true

        [[faults]]
        leg = 0
        bad = [{ from = "1 GiB", length = "64 KiB" }, { from = 0, length = 512 }]

        [[faults]]
        leg = 1
        bad = { ranges = 100, length = "4 KiB", over = "1 h", span = "2 GiB" }
        seed = 1

        [[faults]]
        leg = 1
        errors = { reads = 0.001 }
        for = "1 min"
        error_after = "7 s"

        [[faults]]
        leg = 1
        worn = "99.9%"
        read_only = "110 %"
        fails_after = "1 h"
    "#;
    assert_eq!(checked(right), Ok(()));
}

#[test]
fn what_is_wrong_is_named() {
    for (wrong, part) in [
        ("leg = 2\nfreeze = \"1 s\"", "leg = 2: the legs are 0 to 1"),
        ("leg = 0", "one of freeze, stall, experiment"),
        ("leg = 0", "none is given"),
        ("leg = 0\nfreeze = \"1 s\"\nslow = 2", "freeze and slow are given"),
        ("leg = 0\nfreeze = \"0 s\"", "freeze: the length must be above zero"),
        (
            "leg = 0\nfreeze = \"2 s\"\nevery = \"2 s\"",
            "every = 2s: has to be longer than `freeze`",
        ),
        ("leg = 0\nfreeze = \"2 s\"\nseed = 1", "`seed` goes with stall, experiment"),
        ("leg = 0\nstall = []", "0 phases"),
        ("leg = 0\nstall = [{ reads = 2, by = \"1 s\" }]", "phase 1: reads: a share of 2"),
        ("leg = 0\nstall = [{ reads = 1, by = \"1 parsec\" }]", "1 parsec"),
        ("leg = 0\nstall = [{ flushes = 1 }]", "flushes"),
        ("leg = 0\nexperiment = \"ebs\"", "`ebs`: use one of ebs-sustained"),
        ("leg = 0\nexperiment = \"ebs\"", "perseus-sustained"),
        ("leg = 0\nexperiment = \"ebs-sustained\"\ntime_scale = 0", "time scale of 0"),
        ("leg = 0\nexperiment = \"perseus-sustained\"\ntime_scale = 0", "time scale of 0"),
        ("leg = 0\nslow = 0.5", "slow = 0.5: a factor from 1 to 1000000"),
        ("leg = 0\nslow = nan", "slow = NaN"),
        ("leg = 0\nslow = 2\nover = \"2 s\"\nfor = \"1 s\"", "over = 2s: longer than `for`, 1s"),
        ("leg = 0\nslow = 2\nevery = \"2 s\"", "every: needs `for`"),
        ("leg = 0\nslow = 2\nof = \"trims\"", "unknown variant `trims`"),
        (
            "leg = 0\nfreeze = \"2 s\"\nfor = \"2 s\"",
            "`for` goes with slow, errors, not with freeze",
        ),
        ("leg = 0\ndies = false", "dies = false"),
        ("leg = 0\ndies = true\nabsent = \"1 s\"", "absent and dies are given"),
        ("leg = 0\nabsent = \"0 s\"", "absent: the length must be above zero"),
        ("leg = 0\nabsent = \"1 s\"\nerror_after = \"0 s\"", "error_after: must be above zero"),
        ("leg = 0\nbad = []", "at least one range"),
        ("leg = 0\nbad = [{ from = 0, length = 1001 }]", "length = 1001"),
        ("leg = 0\nbad = [{ from = 100, length = 512 }]", "from = 100"),
        ("leg = 0\nbad = { ranges = 0, length = 512 }", "ranges = 0: 1 to 100000"),
        ("leg = 0\nbad = { ranges = 5 }", "such as [{ from"),
        ("leg = 0\nerrors = { reads = 2 }", "errors: reads: a share of 2"),
        ("leg = 0\nerrors = {}", "no request fails"),
        ("leg = 0\nworn = 95", "a percentage in quotes"),
        ("leg = 0\nworn = \"much\"", "`much` is not a percentage"),
        ("leg = 0\nworn = \"1001 %\"", "worn = 1001 %: 0 % to 1000 %"),
        ("leg = 0\nworn = \"10 %\"\nat = \"1 s\"", "leave out `at`"),
    ] {
        let error = checked(&format!("[[faults]]\n{wrong}")).expect_err(wrong);
        assert!(error.contains(part), "{wrong}: {error}");
    }
}

#[test]
fn what_does_not_fit_the_drive_is_named() {
    let bad = |from: &str| format!("bad = [{{ from = \"{from}\", length = \"4 KiB\" }}]");
    for (preset, wrong, part) in [
        ("gp3", "worn = \"95%\"", "worn: it has no flash of known endurance: `rated_cycles`"),
        ("gp3", "slow = 2\nmember = 0", "member = 0: it is not an array"),
        ("gp3-4-raid0-host", "slow = 2\nmember = 4", "member = 4: the members are 0 to 3"),
        ("gp3", &bad("8 PiB"), "4KiB from 8PiB on: it has"),
        ("gp3", "bad = { ranges = 1, length = \"8 PiB\" }", "longer than the span"),
    ] {
        let error = laid(preset, wrong).expect_err(wrong);
        assert!(error.contains("leg 0: ") && error.contains(part), "{wrong}: {error}");
    }
    for (preset, right) in [
        ("nvme-enterprise", "worn = \"95%\""),
        ("x25e-4-raid5-b", "worn = \"95%\""),
        ("gp3-4-raid0-host", "slow = 2\nmember = 3"),
        ("gp3-4-raid0-host", "dies = true\nmember = 0"),
        ("x25e-8-raid5-a", "worn = \"99%\"\nmember = 7"),
        ("gp3", &bad("1 GiB")),
    ] {
        assert_eq!(laid(preset, right), Ok(()), "{preset}: {right}");
    }
}
