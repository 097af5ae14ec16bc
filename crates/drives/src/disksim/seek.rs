//! The seek curve of a DiskSim description.

use super::drive::{milliseconds, time};
use super::sources::Files;
use super::text::{Block, DescriptionError, Value};
use crate::hdd::seek::SeekCurve;
use hemi_units::Time;

/// Converts the seek curve of the `dm_mech_g1` `mechanics`, which may be in one of the `files`.
pub(super) fn seek(mechanics: &Block, files: &Files<'_>) -> Result<SeekCurve, DescriptionError> {
    let expected = "extracted, hpl, hplplus10 or const";
    let formula = |key: &str, count: usize| -> Result<Vec<f64>, DescriptionError> {
        let wrong = || mechanics.refuse(key, &format!("a list of {count} numbers"));
        let (_, value) = mechanics.need(key, &format!("a list of {count} numbers"))?;
        let Value::List(list) = value else { return Err(wrong()) };
        let numbers = list.iter().map(|value| match value {
            Value::Number(number) if number.abs() <= 1e6 => Ok(*number),
            _ => Err(wrong()),
        });
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
        if numbers.len() == count { Ok(numbers) } else { Err(wrong()) }
    };
    let (_, kind) = mechanics.need("Seek type", expected)?;
    match kind {
        Value::Word(kind) if kind == "extracted" => {
            match mechanics.need("Full seek curve", "the file with the seek curve")? {
                (_, Value::Word(name)) => points(name, &files.text(name)?),
                _ => Err(mechanics.refuse("Full seek curve", "a file's name")),
            }
        }
        Value::Word(kind) if kind == "const" => {
            let one = time(mechanics, "Average seek time", None)?;
            Ok(SeekCurve::Points(vec![(1, one), (2, one)]))
        }
        // The formula of Ruemmler and Wilkes; the first distances are measured.
        Value::Word(kind) if kind == "hpl" || kind == "hplplus10" => {
            let hpl = formula("HPL seek equation values", 6)?;
            let mut first = Vec::new();
            if kind == "hplplus10" {
                first = formula("First ten seek times", 10)?;
            } else if hpl[5] >= 0.0 {
                first.push(hpl[5]);
            }
            let mut curve: Vec<(u32, Time)> = first
                .iter()
                .enumerate()
                .map(|(i, &time)| (i as u32 + 1, milliseconds(time)))
                .collect();
            let mut distance = curve.len() as u32 + 1;
            while distance < 1 << 20 {
                let d = f64::from(distance);
                let short = hpl[1] + hpl[2] * libm::sqrt(d);
                curve.push((
                    distance,
                    milliseconds(if d < hpl[0] { short } else { hpl[3] + hpl[4] * d }),
                ));
                distance += 1 + distance / 64;
            }
            Ok(SeekCurve::Points(curve))
        }
        _ => Err(mechanics.refuse("Seek type", expected)),
    }
}

/// Reads a measured curve: a first line with the number of points, then lines `distance,
/// milliseconds`.
fn points(name: &str, text: &str) -> Result<SeekCurve, DescriptionError> {
    let wrong = |line: usize, key: &str, problem: &str| DescriptionError {
        file: name.to_owned(),
        line,
        key: format!("`{key}`"),
        problem: problem.to_owned(),
    };
    let mut points: Vec<(u32, Time)> = Vec::new();
    for (i, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty()) {
        let expected = "expected a distance in cylinders above the one before, a comma, and \
                        milliseconds";
        let pair = line.split_once(',');
        let point = pair.and_then(|(distance, time)| {
            Some((distance.trim().parse::<u32>().ok()?, time.trim().parse::<f64>().ok()?))
        });
        match point {
            Some((distance, time))
                if distance > points.last().map_or(0, |last| last.0)
                    && (0.0..1e6).contains(&time) =>
            {
                points.push((distance, milliseconds(time)));
            }
            _ => return Err(wrong(i + 1, line.trim(), expected)),
        }
    }
    let first = text.lines().next().unwrap_or_default();
    let said = first.rsplit(':').next().and_then(|count| count.trim().parse().ok());
    if said != Some(points.len()) || points.len() < 2 {
        let problem = format!("expected the number of points, which is {}", points.len());
        return Err(wrong(1, first.trim(), &problem));
    }
    Ok(SeekCurve::Points(points))
}
