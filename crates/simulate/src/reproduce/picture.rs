//! Pictures of a reproduction, as SVG.

use std::collections::BTreeMap;

use hemi_units::Size;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::PictureSpec;
use super::page::plain;
use super::select::{Found, Results, SelectError};

const SIZE: (u32, u32) = (900, 480);

/// The reason why a picture cannot be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// A figure is missing.
    #[error("picture `{name}`: {source}")]
    Figure {
        /// The picture.
        name: String,
        /// The error.
        source: SelectError,
    },
    /// There is nothing to show.
    #[error("picture `{name}`: `{x}` is not swept, or no case matches: name a swept key, or time")]
    Empty {
        /// The picture.
        name: String,
        /// Key of the x axis.
        x: String,
    },
    /// The picture cannot be drawn.
    #[error("picture `{name}`: {problem}")]
    Drawing {
        /// The picture.
        name: String,
        /// The library's error.
        problem: String,
    },
}

/// A line: its label and its points.
type Line = (String, Vec<(f64, f64)>);

/// Draws a picture.
///
/// # Errors
/// See [`PictureError`].
pub fn draw(spec: &PictureSpec, results: &Results<'_>) -> Result<String, PictureError> {
    let lines = lines(spec, results)?;
    let mut svg = String::new();
    let drawn = if spec.logarithmic {
        let (x, y) = ranges(&lines, true);
        chart(spec, &lines, x, (y.start..y.end).log_scale(), &mut svg)
    } else {
        let (x, y) = ranges(&lines, false);
        chart(spec, &lines, x, y, &mut svg)
    };
    drawn.map_err(|problem| PictureError::Drawing { name: spec.name.clone(), problem })?;
    Ok(svg)
}

fn lines(spec: &PictureSpec, results: &Results<'_>) -> Result<Vec<Line>, PictureError> {
    let failed = |source| PictureError::Figure { name: spec.name.clone(), source };
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for case in results.matching(&spec.run, &spec.choices) {
        let series = spec.series.as_deref().and_then(|key| case.choice(key)).unwrap_or("");
        let series = plain(series);
        let place = order.iter().position(|known| *known == series).unwrap_or_else(|| {
            order.push(series.clone());
            order.len() - 1
        });
        let points = points(spec, &case).map_err(failed)?;
        lines.entry(place).or_insert_with(|| (series, Vec::new())).1.extend(points);
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    for (_, points) in &mut lines {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    if lines.iter().all(|(_, points)| points.is_empty()) {
        return Err(PictureError::Empty { name: spec.name.clone(), x: spec.x.clone() });
    }
    Ok(lines)
}

fn points(spec: &PictureSpec, case: &Found<'_>) -> Result<Vec<(f64, f64)>, SelectError> {
    if spec.x != "time" {
        let x = case.choice(&spec.x).and_then(number);
        let Some(x) = x else { return Ok(Vec::new()) };
        return Ok(vec![(x, case.figure(&spec.y)?)]);
    }
    let figure = spec.y.strip_prefix("intervals.").unwrap_or(&spec.y);
    (0..case.report.intervals.len())
        .map(|index| {
            let y = case.figure(&format!("intervals.{index}.{figure}"))?;
            Ok((case.report.intervals[index].start, y))
        })
        .collect()
}

/// Returns a swept number, or a swept size in gibibytes.
fn number(choice: &str) -> Option<f64> {
    let gibibytes = |size: Size| size.0 as f64 / f64::from(1 << 30);
    choice.parse().ok().or_else(|| choice.parse().ok().map(gibibytes))
}

fn ranges(lines: &[Line], logarithmic: bool) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let least = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MAX, f64::min);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::MIN, f64::max);
    let x = least(|point| point.0)..most(|point| point.0);
    let x = if x.start < x.end { x } else { x.start - 0.5..x.end + 0.5 };
    let top = most(|point| point.1).max(f64::MIN_POSITIVE);
    if !logarithmic {
        return (x, 0.0..top * 1.05);
    }
    let positive = points().map(|point| point.1).filter(|y| *y > 0.0).fold(f64::MAX, f64::min);
    (x, positive.min(top / 10.0)..top * 1.3)
}

fn chart<Y>(
    spec: &PictureSpec,
    lines: &[Line],
    x: std::ops::Range<f64>,
    y: Y,
    svg: &mut String,
) -> Result<(), String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let wrong = |error: DrawingAreaErrorKind<_>| format!("{error}");
    root.fill(&WHITE).map_err(wrong)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(&spec.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(82)
        .build_cartesian_2d(x, y)
        .map_err(wrong)?;
    chart
        .configure_mesh()
        .x_desc(spec.x_label.as_deref().unwrap_or(&spec.x))
        .y_desc(spec.y_label.as_deref().unwrap_or(&spec.y))
        .light_line_style(WHITE)
        .draw()
        .map_err(wrong)?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let visible = points.iter().copied();
        let drawn =
            chart.draw_series(LineSeries::new(visible, colour.stroke_width(2))).map_err(wrong)?;
        if !name.is_empty() {
            drawn.label(name).legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
            });
        }
    }
    if lines.iter().any(|(name, _)| !name.is_empty()) {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(wrong)?;
    }
    root.present().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_swept_value_is_a_number_or_a_size() {
        assert_eq!(number("120"), Some(120.0));
        assert_eq!(number("0 B"), Some(0.0));
        assert_eq!(number("16 GiB"), Some(16.0));
        assert_eq!(number("512 MiB"), Some(0.5));
        assert_eq!(number("first"), None);
    }
}
