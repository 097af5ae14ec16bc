use super::*;

fn leg(slot: u8, id: &str, path: &str, sequence: u64, members: &[Member]) -> FoundLeg {
    FoundLeg {
        spec: path.parse().expect("a leg"),
        name: "db".into(),
        volume: "f90ba9a9-63b2-e6cd-ed83-6fa9d7c15c81".into(),
        size_bytes: 1 << 30,
        leg: slot,
        id: id.into(),
        sequence,
        open: false,
        members: members.to_vec(),
    }
}

fn member(slot: u8, id: &str, path: &str) -> Member {
    Member {
        leg: slot,
        id: id.into(),
        out: false,
        detached: false,
        path: path.into(),
        last: path.into(),
    }
}

fn scan(legs: Vec<FoundLeg>) -> Scan {
    Scan { legs, looked_at: vec!["/dev/sda".into(), "/dev/sdb".into()], ..Scan::default() }
}

#[test]
fn a_volume_is_found_by_name_and_by_id() {
    let scan = scan(vec![leg(0, "a", "/dev/sda", 1, &[])]);
    for wanted in ["db", "f90ba9a9-63b2-e6cd-ed83-6fa9d7c15c81", "F90BA9A963B2E6CDED836FA9D7C15C81"]
    {
        assert_eq!(legs_of(&scan, wanted).expect("it is one").found.len(), 1, "{wanted}");
    }
    assert!(legs_of(&scan, "other").expect("nothing contradicts").found.is_empty());
    let text = scan.nothing_of("other");
    for part in ["\"other\"", "looked at /dev/sda, /dev/sdb", "found instead: volume \"db\""] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn two_volumes_of_one_name_are_told_apart_by_their_ids() {
    let mut other = leg(0, "c", "/dev/sdc", 1, &[]);
    other.volume = "00000000-0000-0000-0000-000000000001".into();
    let scan = scan(vec![leg(0, "a", "/dev/sda", 1, &[]), other.clone()]);
    let text = legs_of(&scan, "db").expect_err("it is ambiguous").to_string();
    for part in ["f90ba9a9-", other.volume.as_str(), "/dev/sda", "/dev/sdc", "by its id"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let found = legs_of(&scan, &other.volume).expect("an id is not ambiguous").found;
    assert_eq!(found, [&other]);
}

#[test]
fn a_leg_that_is_there_twice_is_refused() {
    let scan = scan(vec![leg(1, "a", "/dev/sda", 1, &[]), leg(1, "a", "/dev/sdb", 1, &[])]);
    let text = legs_of(&scan, "db").expect_err("it is there twice").to_string();
    for part in ["leg 1", "/dev/sda", "/dev/sdb"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn legs_that_were_not_found_are_known_by_the_newest_of_the_others() {
    let old = [member(0, "a", "/dev/sda"), member(1, "b", "/dev/sdb")];
    let mut detached = member(3, "d", "/dev/sdd");
    detached.detached = true;
    let new = [
        member(0, "a", "/dev/sda"),
        member(1, "c", "nbd://storage/db"),
        member(2, "e", ""),
        detached,
    ];
    let scan = scan(vec![leg(0, "a", "/dev/sdx", 9, &new), leg(1, "b", "/dev/sdb", 4, &old)]);
    let chosen = legs_of(&scan, "db").expect("nothing contradicts");
    assert_eq!(chosen.found.len(), 2);
    let missing: Vec<_> =
        chosen.missing.iter().map(|leg| (leg.id.as_str(), leg.config.label())).collect();
    assert_eq!(missing, [("c", "nbd://storage/db".to_owned()), ("e", "2".to_owned())]);
    assert!(chosen.missing[0].config.path.is_remote());
    let text = scan.to_string();
    for part in [
        "leg 0  /dev/sdx",
        "leg 1  not found; last seen as nbd://storage/db",
        "/dev/sdb  was leg 1 once",
        "nothing is known of it",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("sdd"), "{text}");
}

#[test]
fn what_was_found_comes_back_as_it_went() {
    let mut scan = scan(vec![leg(0, "a", "stripe:/a,/b,chunk=64K", 1, &[member(1, "b", "x")])]);
    scan.others.push(Other {
        path: "/dev/sr0".into(),
        state: OtherState::Silent,
        reason: "did not answer".into(),
    });
    let text = serde_json::to_string(&scan).expect("it has a form");
    assert!(!text.contains('\n'));
    assert_eq!(serde_json::from_str::<Scan>(&text).expect("its own form"), scan);
}
