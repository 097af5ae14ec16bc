//! The verdict on a system: whether it meets what is asked for, and why.

use serde::Serialize;

use crate::classes::Class;
use crate::distribution::Distribution;
use crate::known::Known;
use crate::money::Cost;
use crate::request::Request;

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything asked for is met, or nothing was asked for.
    Meets,
    /// The target lies within what trace and model can tell apart.
    Close,
    /// Something asked for is not met.
    Misses,
}

/// A verdict and its reasons, each half a sentence.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Reasons against "meets"; empty otherwise.
    pub why: Vec<String>,
}

/// The class of requests that decided, and what is known of the models for it.
#[derive(Clone, Debug, Serialize)]
pub struct Deciding {
    /// The class in words.
    pub class: String,
    /// The same by its parts.
    #[serde(flatten)]
    pub parts: Class,
    /// Its share of all time that requests took above `above`.
    pub share: f64,
    /// Latency in seconds above which time was counted: the target if any request exceeded it,
    /// else the system's own 99.9th percentile, else its median.
    pub above: f64,
    /// Deviation of each drive's model from what was published for this kind of request.
    pub known: Vec<Known>,
}

impl Deciding {
    /// Returns the lowest and highest factor by which the drives may really be slower than their
    /// models: the deviations turned around, and 1.
    fn doubt(&self) -> (f64, f64) {
        let factor = |known: &Known| {
            let off = known.off.max(-0.99);
            // A model with a longer latency than published is too slow; with more requests a
            // second it is too fast.
            if known.latency { 1.0 / (1.0 + off) } else { 1.0 + off }
        };
        let factors = self.known.iter().filter(|known| known.figure.is_some()).map(factor);
        factors
            .fold((1.0, 1.0), |(low, high), factor| (f64::min(low, factor), f64::max(high, factor)))
    }
}

/// Returns the judgement on a system by its worst latencies, its cost, and the time in seconds
/// that it needed after the last arrival.
pub(crate) fn judge(
    request: &Request,
    latency: &Distribution,
    cost: &Cost,
    deciding: Option<&Deciding>,
    behind: f64,
    duration: f64,
) -> Judgement {
    let mut why = Vec::new();
    let mut close = false;
    if behind > (duration * 0.05).max(1.0) {
        why.push(format!("cannot keep up: {behind:.1} s behind at the end of the trace"));
    }
    if let Some(target) = request.target {
        let target = crate::distribution::seconds(target);
        let (low, high) = deciding.map_or((1.0, 1.0), Deciding::doubt);
        let (least, most) = (latency.p999_low * low, latency.p999_high * high);
        let times = latency.p999 / target;
        if latency.p999 > target && least > target {
            why.push(format!("p99.9 is {} the target", multiple(times)));
        } else if latency.p999 > target || most > target {
            close = true;
        }
    }
    if let Some(budget) = request.budget
        && cost.drives > budget
    {
        why.push(format!("{:.0} over budget", libm::ceil(cost.drives - budget)));
    }
    let verdict = match (why.is_empty(), close) {
        (false, _) => Verdict::Misses,
        (true, true) => {
            why.push("p99.9 is too near the target to tell".into());
            Verdict::Close
        }
        (true, false) => Verdict::Meets,
    };
    Judgement { verdict, why }
}

fn multiple(times: f64) -> String {
    match times {
        t if t >= 10.0 => format!("{t:.0} times"),
        t => format!("{t:.1} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::Kind;

    fn distribution(p999: f64) -> Distribution {
        Distribution {
            count: 100_000,
            mean: p999 / 10.0,
            p50: p999 / 20.0,
            p99: p999 / 2.0,
            p999,
            p999_low: p999 * 0.95,
            p999_high: p999 * 1.05,
            max: p999 * 3.0,
        }
    }

    fn cost(drives: f64) -> Cost {
        Cost {
            purchase: drives,
            monthly: 0.0,
            replacements: 0.0,
            drives,
            kilowatt_hours: 0.0,
            kilowatt_hours_cooled: 0.0,
            energy: 0.0,
            total: drives,
        }
    }

    fn deciding(off: f64) -> Deciding {
        let class = Class { kind: Kind::Write, bytes: 4096, sequential: false };
        let known = Known {
            preset: "x".into(),
            figure: Some("a latency".into()),
            off,
            fitted: false,
            latency: true,
        };
        let parts = class;
        Deciding { class: class.to_string(), parts, share: 1.0, above: 0.0, known: vec![known] }
    }

    fn judged(p999: f64, drives: f64, off: f64, behind: f64) -> (Verdict, String) {
        let request =
            Request { target: Some(2_000_000), budget: Some(400.0), ..Request::default() };
        let deciding = deciding(off);
        let all = (distribution(p999), cost(drives));
        let judgement = judge(&request, &all.0, &all.1, Some(&deciding), behind, 100.0);
        (judgement.verdict, judgement.why.join(", "))
    }

    #[test]
    fn a_system_meets_misses_or_is_too_near_to_tell() {
        assert_eq!(judged(0.001, 400.0, 0.0, 0.0), (Verdict::Meets, String::new()));
        assert_eq!(judged(0.005, 400.0, 0.0, 0.0).1, "p99.9 is 2.5 times the target");
        // The interval of the percentile reaches over the target.
        assert_eq!(judged(0.00195, 400.0, 0.0, 0.0).0, Verdict::Close);
        assert_eq!(judged(0.00205, 400.0, 0.0, 0.0).0, Verdict::Close);
        // A model 40 % faster than the drive: what seems well below may be above.
        assert_eq!(judged(0.0013, 400.0, -0.4, 0.0).0, Verdict::Close);
        assert_eq!(judged(0.0013, 400.0, 0.4, 0.0).0, Verdict::Meets);
        let (verdict, why) = judged(0.001, 401.5, 0.0, 0.0);
        assert_eq!((verdict, why.as_str()), (Verdict::Misses, "2 over budget"));
        assert!(judged(0.001, 1.0, 0.0, 60.0).1.contains("60.0 s behind"));
    }
}
