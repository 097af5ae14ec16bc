//! The metrics of all volumes of a machine, as one exposition.
//!
//! Each volume answers for itself, and every metric carries its name. Here the families of the answers are
//! brought together, since a family must not appear twice. `hemi_up` says which volumes did not answer.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};

use super::{Labels, Out, answer, flag};
use crate::control::connections;

/// Maximum number of scrapes at a time, since each takes a connection of every volume. Further ones wait.
const SCRAPES_MAX: usize = 8;
/// The end of a complete exposition.
const END: &str = "# EOF\n";

/// The answer of one volume to a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scraped {
    /// The volume's name.
    pub volume: String,
    /// Its control socket.
    pub control: PathBuf,
    /// Its metrics as OpenMetrics; `None` if it did not answer.
    pub metrics: Option<String>,
}

/// Serves `/metrics` on a listener until `stopped`. Each request is answered with what `scrape` returns.
///
/// # Errors
///
/// Fails if the listener cannot be used.
pub async fn serve<F>(
    listener: TcpListener,
    scrape: impl Fn() -> F + Send + Sync + 'static,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<()>
where
    F: Future<Output = Vec<Scraped>> + Send,
{
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let (scrape, turns) = (Arc::new(scrape), Arc::new(Semaphore::new(SCRAPES_MAX)));
    let metrics = move |headers: HeaderMap| {
        let (scrape, turns) = (Arc::clone(&scrape), Arc::clone(&turns));
        async move {
            // It is never closed.
            let _turn = turns.acquire().await;
            answer(&headers, merge(scrape().await))
        }
    };
    let routes = Router::new().route("/metrics", get(metrics));
    connections::serve(listener, routes, stopped).await;
    Ok(())
}

/// Merges the answers of volumes into one exposition. Of two volumes with one name, the first is told.
///
/// # Errors
///
/// None in practice: writing to a string fails only if an encoder has a bug.
pub(super) fn merge(mut all: Vec<Scraped>) -> Result<String, fmt::Error> {
    let mut told = HashSet::new();
    for one in &mut all {
        // An answer that was cut off could end within a family.
        one.metrics = one.metrics.take().filter(|text| text.ends_with(END));
        if one.metrics.is_some() && !told.insert(one.volume.clone()) {
            one.metrics = None;
        }
    }
    let up = up(&all)?;
    let mut families = Families::default();
    families.add(&up);
    for text in all.iter().filter_map(|one| one.metrics.as_deref()) {
        families.add(text);
    }
    Ok(families.to_string())
}

/// Encodes which volumes answered.
pub(super) fn up(all: &[Scraped]) -> Result<String, fmt::Error> {
    let up = all.iter().map(|one| {
        let control = one.control.display().to_string();
        let labels = vec![("volume", one.volume.clone()), ("control", control)];
        (labels, one.metrics.is_some())
    });
    let mut registry = Registry::with_prefix("hemi");
    registry.register_collector(Box::new(UpCollector(up.collect())));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct UpCollector(Vec<(Labels, bool)>);

impl Collector for UpCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut out = Out { encoder };
        out.family("up", "1 if the volume answered", MetricType::Gauge, |family| {
            for (labels, is_up) in &self.0 {
                family.encode_family(labels)?.encode_gauge(&flag(*is_up))?;
            }
            Ok(())
        })
    }
}

/// Families in the order in which they were met.
#[derive(Debug, Default)]
struct Families<'a> {
    all: Vec<Family<'a>>,
    by_name: HashMap<&'a str, usize>,
}

#[derive(Debug, Default)]
struct Family<'a> {
    /// Help, type and unit, as the first volume that has the family tells them.
    about: Vec<&'a str>,
    kind: &'a str,
    samples: Vec<&'a str>,
}

impl<'a> Families<'a> {
    /// Adds the families of an exposition. A family that another version of hemi tells with another type is
    /// left out.
    fn add(&mut self, text: &'a str) {
        let mut current: Option<(&str, usize)> = None;
        let mut is_new = false;
        for line in text.lines() {
            let Some(about) = line.strip_prefix("# ") else {
                if let Some((_, index)) = current {
                    self.all[index].samples.push(line);
                }
                continue;
            };
            let mut words = about.splitn(3, ' ');
            let (Some(what), Some(name)) = (words.next(), words.next()) else { continue };
            if current.is_none_or(|(known, _)| known != name) {
                is_new = !self.by_name.contains_key(name);
                let index = *self.by_name.entry(name).or_insert(self.all.len());
                if is_new {
                    self.all.push(Family::default());
                }
                current = Some((name, index));
            }
            let Some((_, index)) = current else { continue };
            let kind = words.next().filter(|_| what == "TYPE");
            if is_new {
                self.all[index].about.push(line);
                self.all[index].kind = kind.unwrap_or(self.all[index].kind);
            } else if kind.is_some_and(|kind| kind != self.all[index].kind) {
                current = None;
            }
        }
    }
}

impl fmt::Display for Families<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.all.iter().flat_map(|family| family.about.iter().chain(&family.samples)) {
            writeln!(formatter, "{line}")?;
        }
        formatter.write_str(END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scraped(volume: &str, metrics: Option<&str>) -> Scraped {
        let control = format!("/run/hemi/{volume}.sock").into();
        Scraped { volume: volume.into(), control, metrics: metrics.map(Into::into) }
    }

    fn merged(all: Vec<Scraped>) -> String {
        merge(all).unwrap_or_else(|error| panic!("{error}"))
    }

    const A: &str = "# HELP hemi_size_bytes Size.\n# TYPE hemi_size_bytes gauge\n\
        hemi_size_bytes{volume=\"a\"} 1\n# HELP hemi_hedges Reads.\n# TYPE hemi_hedges counter\n\
        hemi_hedges_total{volume=\"a\"} 2\n# EOF\n";
    const B: &str = "# HELP hemi_hedges Reads.\n# TYPE hemi_hedges counter\n\
        hemi_hedges_total{volume=\"b\"} 3\n# HELP hemi_new New.\n# TYPE hemi_new gauge\n\
        hemi_new{volume=\"b\"} 4\n# HELP hemi_size_bytes Size, said otherwise.\n\
        # TYPE hemi_size_bytes gauge\nhemi_size_bytes{volume=\"b\"} 5\n# EOF\n";

    #[test]
    fn each_family_appears_once_with_the_samples_of_all_volumes() {
        let all = vec![scraped("a", Some(A)), scraped("b", Some(B)), scraped("c\"", None)];
        let expected = "# HELP hemi_up 1 if the volume answered\n# TYPE hemi_up gauge\n\
            hemi_up{volume=\"a\",control=\"/run/hemi/a.sock\"} 1.0\n\
            hemi_up{volume=\"b\",control=\"/run/hemi/b.sock\"} 1.0\n\
            hemi_up{volume=\"c\\\"\",control=\"/run/hemi/c\\\".sock\"} 0.0\n\
            # HELP hemi_size_bytes Size.\n# TYPE hemi_size_bytes gauge\n\
            hemi_size_bytes{volume=\"a\"} 1\nhemi_size_bytes{volume=\"b\"} 5\n\
            # HELP hemi_hedges Reads.\n# TYPE hemi_hedges counter\n\
            hemi_hedges_total{volume=\"a\"} 2\nhemi_hedges_total{volume=\"b\"} 3\n\
            # HELP hemi_new New.\n# TYPE hemi_new gauge\nhemi_new{volume=\"b\"} 4\n# EOF\n";
        assert_eq!(merged(all), expected);
    }

    #[test]
    fn two_volumes_of_one_name_are_not_mixed() {
        let other = Scraped { control: "/home/a.sock".into(), ..scraped("a", Some(A)) };
        let text = merged(vec![scraped("a", Some(A)), other]);
        assert_eq!(text.matches("hemi_size_bytes{volume=\"a\"}").count(), 1);
        assert!(text.contains("hemi_up{volume=\"a\",control=\"/home/a.sock\"} 0.0"), "{text}");
    }

    #[test]
    fn an_answer_that_was_cut_off_counts_as_none() {
        let cut = scraped("b", Some(&B[..B.len() - END.len()]));
        let text = merged(vec![scraped("a", Some(A)), cut]);
        assert!(!text.contains("hemi_size_bytes{volume=\"b\"}"), "{text}");
        assert!(text.contains("hemi_up{volume=\"b\",control=\"/run/hemi/b.sock\"} 0.0"), "{text}");
    }

    #[test]
    fn a_family_of_another_type_is_left_out() {
        let other = B.replace("hemi_size_bytes gauge", "hemi_size_bytes info");
        let text = merged(vec![scraped("a", Some(A)), scraped("b", Some(&other))]);
        assert!(!text.contains("hemi_size_bytes{volume=\"b\"}"), "{text}");
        assert!(text.contains("hemi_new{volume=\"b\"} 4"), "{text}");
    }

    #[test]
    fn without_volumes_there_is_an_answer() {
        assert_eq!(
            merged(Vec::new()),
            "# HELP hemi_up 1 if the volume answered\n# TYPE hemi_up gauge\n# EOF\n"
        );
    }
}
