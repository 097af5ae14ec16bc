//! Promotion on real files: its report, and the state afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use hemi_engine::identifiers::LegIndex;
use hemi_engine::recovery::{LegImage, Problem, assess};
use hemi_io::config::legs::LegConfig;
use hemi_server::config::place::Place;
use hemi_server::create::{CreateOptions, create};
use hemi_server::promote::{PromoteError, PromotionPlan};

const SIZE: u64 = 64 << 20;

struct Legs {
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
    data_offset: u64,
}

impl Legs {
    fn new() -> Legs {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let paths: Vec<PathBuf> =
            (0..2).map(|leg| folder.path().join(format!("leg{leg}"))).collect();
        let created = create(&CreateOptions {
            size: SIZE.into(),
            legs: paths.iter().map(|path| path.display().to_string()).collect(),
            name: "db".into(),
            cached: true,
            ..CreateOptions::default()
        })
        .unwrap_or_else(|error| panic!("{error}"));
        Legs { _folder: folder, paths, data_offset: created.data_offset }
    }

    fn plan(&self, leg: usize) -> Result<PromotionPlan<'static>, PromoteError> {
        plan(&self.paths[leg])
    }

    fn metadata(&self, leg: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.data_offset as usize];
        let file = File::open(&self.paths[leg]).expect("the leg is there");
        file.read_exact_at(&mut bytes, 0).expect("the leg can be read");
        bytes
    }
}

fn plan(path: &Path) -> Result<PromotionPlan<'static>, PromoteError> {
    let spec = path.display().to_string().parse().expect("a path is a spec");
    PromotionPlan::new(&LegConfig { direct: false, ..LegConfig::new(spec) }, &Place::None)
}

#[test]
fn a_plan_alone_changes_nothing() {
    let legs = Legs::new();
    let before = legs.metadata(0);
    let plan = legs.plan(0).unwrap_or_else(|error| panic!("{error}"));
    let report = plan.report().clone();
    assert_eq!((report.volume.as_str(), report.leg, report.lacks_bytes), ("db", 0, 0));
    assert_eq!(report.others, [1]);
    assert!(report.closed);
    drop(plan);
    assert!(before == legs.metadata(0), "the leg was written");
}

#[test]
fn the_promoted_leg_opens_alone_and_the_other_is_past() {
    let legs = Legs::new();
    let alone = legs.metadata(1);
    let refusal = assess(&[LegImage { bytes: &alone }]).expect_err("leg 0 is missing");
    let [Problem::Missing { leg: LegIndex(0), last }] = &refusal.problems[..] else {
        panic!("{refusal:?}");
    };
    assert!(last.path().ends_with("/leg0"), "{last:?}");

    legs.plan(1).and_then(PromotionPlan::carry_out).unwrap_or_else(|error| panic!("{error}"));
    let promoted = legs.metadata(1);
    let opening = assess(&[LegImage { bytes: &promoted }]).unwrap_or_else(|refusal| {
        panic!("{}", refusal.describe(&["leg1"]));
    });
    assert!(opening.lost.is_empty() && opening.clean);
    assert!(opening.table.iter().all(|entry| entry.is_whole(LegIndex(1)) && !entry.is_dirty()));
    assert!(!opening.table.iter().any(|entry| entry.is_whole(LegIndex(0))));
}

#[test]
fn a_leg_in_use_or_no_leg_is_refused() {
    let legs = Legs::new();
    let held = legs.plan(0).unwrap_or_else(|error| panic!("{error}"));
    let Err(error) = legs.plan(0) else { panic!("two plans hold one leg") };
    assert!(error.to_string().contains("in use by another hemi"), "{error}");
    drop(held);
    assert!(legs.plan(0).is_ok(), "the lock falls with the plan");

    let other = legs.paths[0].with_file_name("other");
    std::fs::write(&other, vec![7; 4 << 20]).expect("the folder can be written");
    let Err(error) = plan(&other) else { panic!("what is no leg was promoted") };
    assert!(error.to_string().contains("other: "), "{error}");
    std::fs::write(&other, "short").expect("the folder can be written");
    assert!(plan(&other).is_err());
    let Err(error) = plan(Path::new("/nonexistent/leg")) else { panic!("nothing was promoted") };
    assert!(error.to_string().contains("/nonexistent/leg"), "{error}");
}
