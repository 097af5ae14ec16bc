//! The hard disk model compared with real drives: the model serves the requests measured on
//! them, and its service times are compared with theirs.
//!
//! Nothing is fitted to the measurements: all parameters are those of the drives' descriptions.
//! They do not give the platters' angle at the first request, but it hardly matters. A request
//! comes a fixed time after the one before has ended, and the platters decide that end, so a
//! run turned by an angle is the same run from the first read on. To show this, every trace
//! runs from several angles, and the worst of them is checked against the bound. (The angle of
//! the real platters at a given request cannot be predicted either: the speed of the spindle is
//! known only to some ten-thousandths, and some tens of milliseconds pass between two requests.
//! So the distributions are compared, not each request's time.)

use std::path::Path;

use super::measured::{self, ANGLES, MEAN_BOUND};

/// A drive of DiskSim's own validation, and the distance that DiskSim's authors publish for
/// their own model (`valid/runvalid` of DiskSim 4.0).
struct Reference {
    title: &'static str,
    /// Name of the trace, without its end.
    name: &'static str,
    /// The distance in microseconds.
    published: u32,
    /// True if its files come with hemi.
    here: bool,
}

const DRIVES: [Reference; 10] = [
    of("Seagate Cheetah 9LP", "cheetah9LP", 107, true),
    of("IBM Ultrastar 18ES", "ibm18es", 135, true),
    of("Quantum Atlas 10K", "atlas10k", 268, true),
    of("Quantum Atlas III", "atlas_III", 378, false),
    of("Seagate Barracuda ST32171W", "barracuda", 349, false),
    of("Seagate Cheetah 4LP", "cheetah4LP", 318, false),
    of("HP C2247A", "hp_c2247a", 90, false),
    of("HP C3323A", "hp_c3323a", 306, false),
    of("HP C2490A", "hp_c2490a", 254, false),
    of("DEC RZ26", "dec_rz26", 340, false),
];

const fn of(title: &'static str, name: &'static str, published: u32, here: bool) -> Reference {
    Reference { title, name, published, here }
}

/// Largest multiple of DiskSim's own distance.
pub(crate) const DISTANCE_BOUND: f64 = 2.0;

/// Compares the drives whose files come with hemi.
pub(crate) fn run() -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../drives/data/disksim");
    check_all(&folder, |one| one.here)
}

/// Compares the drives whose files are in `folder`, DiskSim's `valid` or a copy of it.
pub(crate) fn collection(folder: &Path) -> bool {
    check_all(folder, |_| true)
}

fn check_all(folder: &Path, wanted: impl Fn(&Reference) -> bool) -> bool {
    println!(
        "requests measured on each drive; no parameter fitted; from {ANGLES} initial angles; \
         bounds: mean within {:.0} %, distance at most {DISTANCE_BOUND} times DiskSim's own",
        MEAN_BOUND * 100.0
    );
    let (mut all, mut compared) = (true, 0);
    for reference in DRIVES.iter().filter(|one| wanted(one)) {
        println!("{}", reference.title);
        let trace = folder.join(format!("{}.trace", reference.name));
        if !trace.exists() {
            println!("  not here: {}", trace.display());
            continue;
        }
        compared += 1;
        // The parameter file tells the rate of the disk's bus, where the disk does not limit it.
        let file = |end: &str| folder.join(format!("{}.{end}", reference.name));
        let drive = Some(file("parv")).filter(|path| path.exists());
        let drive = drive.unwrap_or_else(|| file("diskspecs"));
        let bound = Some(DISTANCE_BOUND * f64::from(reference.published) / 1e3);
        let compared = measured::Subject::load(&drive)
            .and_then(|subject| measured::compare(&subject, &trace, None, bound, None));
        match compared {
            Ok(right) => all &= right,
            Err(error) => {
                println!("  {error:#}");
                all = false;
            }
        }
    }
    all && compared > 0
}
