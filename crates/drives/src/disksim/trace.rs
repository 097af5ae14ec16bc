//! Requests measured on a real drive.
//!
//! A line is `R|W word sector sectors service next`: the drive took `service` microseconds, and
//! the next request came `next` microseconds after this one **ended**. The interval cannot be
//! counted from the issue: the traces that come with DiskSim have intervals shorter than the
//! service time before them, although only one request was outstanding. DiskSim itself also
//! adds the interval to the completion time.

use super::text::DescriptionError;

/// A measured request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// True for a write.
    pub write: bool,
    /// The first sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// Service time of the drive, in nanoseconds.
    pub service: u64,
    /// Time from its end to the next request, in nanoseconds.
    pub pause: u64,
}

/// Reads the requests of a trace of a drive with `sectors` sectors.
pub fn read(file: &str, text: &str, sectors: u64) -> Result<Vec<Measured>, DescriptionError> {
    let mut requests = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let wrong = |key: &str, problem: &str| DescriptionError {
            file: file.to_owned(),
            line: i + 1,
            key: key.to_owned(),
            problem: problem.to_owned(),
        };
        let [kind, _, first, count, service, pause] = fields[..] else {
            let expected = "expected six fields: R or W, a word, first sector, sectors, service \
                            time and pause in microseconds";
            return Err(wrong(&format!("`{line}`"), expected));
        };
        let write = match kind {
            "R" => false,
            "W" => true,
            _ => return Err(wrong(&format!("`{kind}`"), "expected R or W")),
        };
        let whole = |field: &str, name: &str| -> Result<u64, DescriptionError> {
            let problem = "expected a whole number";
            field.parse().map_err(|_| wrong(&format!("{name} `{field}`"), problem))
        };
        let time = |field: &str, name: &str| -> Result<u64, DescriptionError> {
            let problem = "expected microseconds";
            match field.parse::<f64>() {
                Ok(time) if (0.0..1e15).contains(&time) => Ok(libm::round(time * 1e3) as u64),
                _ => Err(wrong(&format!("{name} `{field}`"), problem)),
            }
        };
        let (sector, count) = (whole(first, "first sector")?, whole(count, "sectors")?);
        if count == 0 || sector.checked_add(count).is_none_or(|end| end > sectors) {
            let problem = format!("expected sectors within the drive's {sectors}");
            return Err(wrong(&format!("`{sector} {count}`"), &problem));
        }
        let service = time(service, "service time")?;
        let pause = time(pause, "pause")?;
        requests.push(Measured { write, sector, sectors: count, service, pause });
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::{Measured, read};

    #[test]
    fn lines_are_read_or_refused() {
        let text = "R Hit    1975456   4  15362.00000  56074.00000\nW Hit 8 16 93.5 7\n";
        let requests = read("some.trace", text, 2_000_000).expect("two requests");
        assert_eq!(
            requests[1],
            Measured { write: true, sector: 8, sectors: 16, service: 93_500, pause: 7_000 }
        );
        let refused = |text: &str| read("some.trace", text, 100).expect_err(text).to_string();
        assert!(refused("R Hit 99 2 1 1").contains("line 1: `99 2`: expected sectors within"));
        assert!(refused("R Hit 9 2 1 1\nR 1 2").contains("line 2: `R 1 2`: expected six fields"));
        assert!(refused("X Hit 9 2 1 1").contains("`X`: expected R or W"));
        assert!(refused("R Hit 9 two 1 1").contains("sectors `two`: expected a whole number"));
        assert!(refused("R Hit 9 2 -1 1").contains("service time `-1`: expected microseconds"));
    }
}
