//! Any composition of the kinds of workloads runs to its end and keeps to its limits.

use proptest::prelude::*;

use crate::testing::{Done, Server, run, workload};

/// A kind that can stand alone, as the inside of its inline table: `kind = { … }`. Its limit is
/// the number of requests.
#[derive(Clone, Debug)]
struct Leaf {
    text: String,
    requests: u64,
}

fn leaf() -> impl Strategy<Value = Leaf> {
    let access = "{ addresses = \"uniform\", sizes = \"4 KiB\", \
                  mix = { read_percent = 50, flush_every = 5 } }";
    let closed = (1..4_u32, 1..5_u32, 0..3_u8).prop_map(move |(threads, depth, think)| {
        let think = match think {
            0 => "",
            1 => "think_time = { fixed = \"2 ms\" }, ",
            _ => "think_time = { exponential = \"2 ms\" }, ",
        };
        format!("closed = {{ threads = {threads}, queue_depth = {depth}, {think}access = {access}")
    });
    let open = (10..5_000_u32, 1..20_u32, any::<bool>()).prop_map(move |(rate, cap, stall)| {
        let when_full = if stall { "stall" } else { "wait" };
        format!(
            "open = {{ rate = {rate}, outstanding = {cap}, when_full = \"{when_full}\", \
             access = {access}"
        )
    });
    let page = "page = \"8 KiB\", addresses = \"uniform\"";
    let bursts = (1..50_u32, 1..50_u32, any::<bool>(), any::<bool>()).prop_map(
        move |(pages, every, paced, flush)| {
            let cap = if paced { "outstanding = 3, " } else { "" };
            format!(
                "bursts = {{ pages = {pages}, every = \"{every} ms\", {cap}flush = {flush}, {page}"
            )
        },
    );
    let replay = (1..20_u32, any::<bool>()).prop_map(|(depth, fastest)| {
        let pace = if fastest { "fastest" } else { "timed" };
        format!(
            "replay = {{ trace = \"data/traces/mqsim/tpcc-small.trace\", format = \"mqsim\", \
             time_unit = \"ns\", volume = \"*\", beyond = \"wrap\", queue_depth = {depth}, \
             pace = \"{pace}\""
        )
    });
    // Replays are read anew each time, so they are rare.
    let kind = prop_oneof![
        5 => closed.boxed(), 5 => open.boxed(), 5 => bursts.boxed(), 1 => replay.boxed()
    ];
    (kind, 1..300_u64).prop_map(|(kind, requests)| Leaf {
        text: format!("{{ {kind}, requests = {requests} }} }}"),
        requests,
    })
}

/// The end of a phase or a combination.
#[derive(Clone, Copy, Debug)]
enum End {
    Duration(u64),
    Requests(u64),
    Own,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        (1..200_u64).prop_map(End::Duration),
        (1..400_u64).prop_map(End::Requests),
        Just(End::Own),
    ]
}

impl End {
    fn text(self) -> String {
        match self {
            End::Duration(length) => format!("duration = \"{length} ms\", "),
            End::Requests(count) => format!("requests = {count}, "),
            End::Own => String::new(),
        }
    }

    fn most(self, own: u64) -> u64 {
        match self {
            End::Requests(count) => count.min(own),
            _ => own,
        }
    }
}

fn server(seed: u64) -> Server {
    let mut server = match seed % 3 {
        0 => Server::fixed(1_000_000),
        _ => Server::random(seed, 3_000_000),
    };
    server.completions_first = seed.is_multiple_of(2);
    server
}

fn run_of(text: &str, seed: u64) -> Vec<Done> {
    run(&mut workload(text, 1 << 20).unwrap(), &mut server(seed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn parts_at_once(
        parts in prop::collection::vec(leaf(), 1..5), end in end(), seed in 0..1_000_u64,
    ) {
        let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
        let text = format!("combine = {{ {}parts = [{}] }}", end.text(), texts.join(", "));
        let log = run_of(&text, seed);
        let own = parts.iter().map(|part| part.requests).sum();
        match end {
            End::Duration(length) => {
                prop_assert!(log.len() as u64 <= own);
                // A burst that began before the end is written completely.
                let before = |done: &Done| done.issue.intended.0 < length * 1_000_000;
                let bursts = text.contains("bursts");
                prop_assert!(bursts || log.iter().all(before));
            }
            _ => prop_assert_eq!(log.len() as u64, end.most(own)),
        }
    }

    #[test]
    fn phases_of_parts(
        phases in prop::collection::vec(
            (prop::collection::vec(leaf(), 0..3), end(), any::<bool>()), 1..6),
        first in leaf(),
        seed in 0..1_000_u64,
    ) {
        let (mut texts, mut most, mut own) = (Vec::new(), Vec::new(), 0);
        for (index, (parts, end, measured)) in phases.iter().enumerate() {
            // The first phase must have a workload; later ones continue it or have their own.
            let parts: Vec<&Leaf> = match (index, parts.len()) {
                (0, 0) => vec![&first],
                _ => parts.iter().collect(),
            };
            let inner: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            if !parts.is_empty() {
                own = parts.iter().map(|part| part.requests).sum();
            }
            let workload = match inner.len() {
                0 => String::new(),
                1 => format!("workload = {}, ", inner[0]),
                _ => format!("workload = {{ combine = {{ parts = [{}] }} }}, ", inner.join(", ")),
            };
            texts.push(format!("{{ {}{workload}measured = {measured} }}", end.text()));
            most.push((end.most(own), parts.is_empty(), matches!(end, End::Duration(_)), own));
        }
        let log = run_of(&format!("phases = [{}]", texts.join(", ")), seed);
        prop_assert!(log.windows(2).all(|pair| pair[0].phase <= pair[1].phase));
        let mut left = 0;
        for (index, &(most, goes_on, timed, own)) in most.iter().enumerate() {
            let count = log.iter().filter(|done| done.phase == index).count() as u64;
            left = if goes_on { left } else { own };
            let most = most.min(left);
            prop_assert!(if timed { count <= most } else { count == most }, "phase {}", index);
            left -= count;
            let mut own = log.iter().filter(|done| done.phase == index);
            prop_assert!(own.all(|done| done.measured == phases[index].2));
        }
    }
}
