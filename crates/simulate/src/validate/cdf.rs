//! Distributions of times, and the distance between two of them.

use anyhow::{Context as _, Result, bail};

/// A published distribution: times in milliseconds and the share of requests that took at most
/// so long, both ascending.
pub(crate) struct Cdf {
    points: Vec<(f64, f64)>,
}

impl Cdf {
    /// Reads lines of milliseconds and a share from 0 to 1, with blanks or a comma between them;
    /// `#` begins a comment.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Cdf> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let mut fields = line.split([',', ' ', '\t']).filter(|field| !field.is_empty());
            let pair = (fields.next(), fields.next(), fields.next());
            let (Some(time), Some(share), None) = pair else {
                bail!("{file}, line {}: `{line}`: expected milliseconds and a share", i + 1);
            };
            let point = time.parse::<f64>().ok().zip(share.parse::<f64>().ok());
            let (before_time, before_share) = points.last().copied().unwrap_or((0.0, 0.0));
            let ascending = point.filter(|(time, share)| {
                (before_time..1e9).contains(time) && (before_share..=1.0).contains(share)
            });
            points.push(ascending.with_context(|| {
                format!(
                    "{file}, line {}: `{line}`: expected milliseconds and a share from 0 to 1, \
                     neither below the line before",
                    i + 1
                )
            })?);
        }
        let last = points.last().map_or(0.0, |last| last.1);
        if points.len() < 2 || last < 0.5 {
            bail!("{file}: expected at least two lines, the last with a share near 1");
        }
        Ok(Cdf { points })
    }

    /// Returns the time below which a share of the requests lies; straight lines join the points.
    fn time(&self, share: f64) -> f64 {
        let above = self.points.partition_point(|point| point.1 < share);
        let Some(&(t1, s1)) = self.points.get(above) else {
            return self.points.last().map_or(0.0, |last| last.0);
        };
        let (t0, s0) = if above > 0 { self.points[above - 1] } else { (t1, 0.0) };
        if s1 > s0 { t0 + (t1 - t0) * (share - s0) / (s1 - s0) } else { t1 }
    }

    /// Returns the mean.
    pub(crate) fn mean(&self) -> f64 {
        const STEPS: u32 = 10_000;
        let share = |i: u32| (f64::from(i) + 0.5) / f64::from(STEPS);
        (0..STEPS).map(|i| self.time(share(i))).sum::<f64>() / f64::from(STEPS)
    }

    /// Returns the distance to the distribution of `times`; see [`distance`].
    pub(crate) fn distance(&self, times: &[f64]) -> f64 {
        let times = sorted(times);
        let count = times.len() as f64;
        let published: Vec<f64> =
            (0..times.len()).map(|i| self.time((i as f64 + 0.5) / count)).collect();
        root_mean_square(&published, &times)
    }
}

/// Returns the root mean square of the horizontal distance between two distributions of the
/// same number of times: Ruemmler and Wilkes's demerit figure.
pub(crate) fn distance(measured: &[f64], model: &[f64]) -> f64 {
    root_mean_square(&sorted(measured), &sorted(model))
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times
}

fn root_mean_square(a: &[f64], b: &[f64]) -> f64 {
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    libm::sqrt(sum / a.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::{Cdf, distance};

    #[test]
    fn a_shift_is_the_distance() {
        let measured: Vec<f64> = (0..1000).map(|i| 5.0 + f64::from(i) / 100.0).collect();
        let model: Vec<f64> = measured.iter().rev().map(|time| time + 0.25).collect();
        assert!((distance(&measured, &model) - 0.25).abs() < 1e-9);
        let published = Cdf::parse("x", "# ms share\n5 0\n15, 1.0\n").expect("a distribution");
        assert!((published.mean() - 10.0).abs() < 1e-3, "{}", published.mean());
        assert!(published.distance(&measured) < 0.01, "{}", published.distance(&measured));
        assert!((published.distance(&model) - 0.25).abs() < 0.01);
    }

    #[test]
    fn broken_distributions_are_refused_with_their_line() {
        let refused = |text: &str| match Cdf::parse("a.cdf", text) {
            Ok(_) => panic!("{text} was read"),
            Err(error) => error.to_string(),
        };
        assert!(refused("5 0\n6").starts_with("a.cdf, line 2: `6`: expected milliseconds and"));
        assert!(refused("5 0\n4 1").contains("line 2: `4 1`: expected milliseconds and a share"));
        assert!(refused("5 0\n6 x").contains("line 2"));
        assert!(refused("5 0.5\n6 0.4").contains("line 2"));
        assert!(refused("5 0.5").contains("at least two lines"));
    }
}
