//! The text formats of the metrics, and the choice between them.

/// A text format that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum Format {
    /// Prometheus' own text format, version 0.0.4, which every version and `promtool` read.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Returns the format that the values of `Accept` headers ask for: OpenMetrics if they name it, and
    /// prefer no other text. Everything else gets the format that everything reads.
    pub(in crate::control) fn asked<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
        let mut open_metrics = 0.0_f32;
        // The weight of the range that names the text format most closely.
        let mut text = (0, 0.0_f32);
        for range in accept.flat_map(|value| value.split(',')).filter_map(Range::parse) {
            match range.kind.as_str() {
                "application/openmetrics-text" if range.is_version("1.0.0") => {
                    open_metrics = open_metrics.max(range.weight);
                }
                "text/plain" if range.is_version("0.0.4") => text = closer(text, (3, range.weight)),
                "text/*" => text = closer(text, (2, range.weight)),
                "*/*" => text = closer(text, (1, range.weight)),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text.1 {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    /// Returns the value of `Content-Type`.
    pub(in crate::control) const fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Returns metrics that are encoded as OpenMetrics in this format.
    pub(in crate::control) fn of(self, open_metrics: String) -> String {
        match self {
            Format::OpenMetrics => open_metrics,
            Format::Text => to_text(&open_metrics),
        }
    }
}

fn closer(old: (u8, f32), new: (u8, f32)) -> (u8, f32) {
    if new.0 > old.0 || (new.0 == old.0 && new.1 > old.1) { new } else { old }
}

/// A media range of an `Accept` header.
struct Range {
    kind: String,
    version: Option<String>,
    weight: f32,
}

impl Range {
    /// Returns `None` for a range whose weight is not between 0 and 1.
    fn parse(text: &str) -> Option<Range> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next()?.to_ascii_lowercase();
        let mut range = Range { kind, version: None, weight: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value.to_owned()),
                "q" => range.weight = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
                _ => {}
            }
        }
        Some(range)
    }

    fn is_version(&self, version: &str) -> bool {
        self.version.as_deref().is_none_or(|asked| asked == version)
    }
}

/// Rewrites OpenMetrics text. The text format names counters and infos as their samples are named, has no type
/// `info`, no units and no mark of the end.
fn to_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // OpenMetrics has the help of a metric before its type, which decides the name in both lines.
    let mut help = None;
    for line in open_metrics.lines() {
        if line.starts_with("# HELP ") {
            help = Some(line);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let said = help.take().and_then(|line| line.strip_prefix("# HELP ")?.split_once(' '));
            if let Some((_, said)) = said {
                text.push_str(&format!("# HELP {name}{suffix} {said}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Format::{OpenMetrics, Text};
    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
            application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/plain"], Text),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], Text),
            (&["application/json"], Text),
            (&[prometheus_2], OpenMetrics),
            (&[prometheus_3], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\" ; Q=0.3"], OpenMetrics),
            (&["text/plain;q=0.5", "application/openmetrics-text"], OpenMetrics),
            (&["application/openmetrics-text;q=0.4, text/plain"], Text),
            (&["application/openmetrics-text;q=0.4, */*;q=0.9, text/plain;q=0.1"], OpenMetrics),
            (&["application/openmetrics-text;q=0.4, */*;q=0.1, text/*;q=0.9"], Text),
            (&["application/openmetrics-text;q=0, text/plain;q=0"], Text),
            (&["application/openmetrics-text;version=0.0.1"], Text),
            (&["application/openmetrics-text;q=2"], Text),
            (&["application/*"], Text),
            (&[",;,=;q"], Text),
        ] {
            assert_eq!(Format::asked(accept.iter().copied()), format, "{accept:?}");
        }
    }

    #[test]
    fn the_text_format_names_counters_and_infos_as_their_samples() {
        let open = "# HELP hemi_volume The volume.\n# TYPE hemi_volume info\nhemi_volume_info{id=\"1\"} 1\n\
            # HELP hemi_repairs Bad extents.\n# TYPE hemi_repairs counter\nhemi_repairs_total 7\n\
            # HELP hemi_age_seconds Age.\n# TYPE hemi_age_seconds gauge\n# UNIT hemi_age_seconds seconds\n\
            hemi_age_seconds{name=\"# TYPE x info\"} 1.5\n# TYPE hemi_bare counter\nhemi_bare_total 0\n# EOF\n";
        let text = "# HELP hemi_volume_info The volume.\n# TYPE hemi_volume_info gauge\nhemi_volume_info{id=\"1\"} 1\n\
            # HELP hemi_repairs_total Bad extents.\n# TYPE hemi_repairs_total counter\nhemi_repairs_total 7\n\
            # HELP hemi_age_seconds Age.\n# TYPE hemi_age_seconds gauge\n\
            hemi_age_seconds{name=\"# TYPE x info\"} 1.5\n# TYPE hemi_bare_total counter\nhemi_bare_total 0\n";
        assert_eq!(Text.of(open.to_owned()), text);
        assert_eq!(OpenMetrics.of(open.to_owned()), open);
    }
}
