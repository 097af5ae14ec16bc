//! Tests of the history's file.

use std::fs;

use super::super::row::Column;
use super::*;

const NOW: u64 = 1_700_000_000_000;
const VOLUME: Id = [7; 16];

fn row(at_ms: u64) -> Row {
    let mut row = Row::unknown(at_ms);
    row.set(Column::Reads, 5.0);
    row
}

fn event(id: u64) -> Vec<u8> {
    format!("{{\"id\":{id},\"text\":\"x\"}}").into_bytes()
}

/// Opens a file. Returns a summary of its records, and the notice.
fn opened(path: &Path) -> (HistoryFile, Vec<String>, Option<String>) {
    let mut found = Vec::new();
    let (file, notice) = HistoryFile::open(path, VOLUME, NOW, |kept| {
        found.push(match kept {
            Kept::Row(resolution, row) => format!("{resolution:?} {}", NOW - row.at_ms),
            Kept::Event(id, _) => format!("event {id}"),
            Kept::Hour(hour) => format!("hour {}", hour.hidden),
        });
    })
    .expect("the directory can be written");
    (file, found, notice)
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("the temporary directory can be written");
    let path = folder.path().join("x.history");
    (folder, path)
}

fn filled(path: &Path) -> HistoryFile {
    let (mut file, found, notice) = opened(path);
    assert_eq!((found.len(), notice), (0, None), "there was none");
    let mut batch = Batch::default();
    batch.row(Resolution::Fine, &row(NOW - 1_000_000));
    batch.row(Resolution::Fine, &row(NOW - 1_000));
    batch.row(Resolution::Coarse, &row(NOW - 1_000_000));
    batch.row(Resolution::Coarse, &row(NOW + 5_000));
    batch.event(&event(1));
    batch.event(&event(2));
    batch.hour(Hour { hour: NOW / 3_600_000, hidden: 1, total: 1 });
    batch.hour(Hour { hour: NOW / 3_600_000, hidden: 9, total: 9 });
    file.append(&batch, NOW).expect("there is room");
    file
}

const LEFT: [&str; 5] = ["Fine 1000", "Coarse 1000000", "event 1", "event 2", "hour 9"];

#[test]
fn what_still_counts_is_read_again() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let (_, found, notice) = opened(&path);
    assert_eq!(found, LEFT);
    assert_eq!(notice, None);
}

#[test]
fn a_file_that_was_cut_off_anywhere_gives_what_is_whole() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let whole = fs::read(&path).expect("it is there");
    for cut in HEADER_BYTES..whole.len() {
        fs::write(&path, &whole[..cut]).expect("it can be written");
        let (mut file, found, notice) = opened(&path);
        // The newest complete record of an hour counts.
        let expected =
            LEFT.iter().zip(&found).all(|(left, found)| left == found || found == "hour 1");
        assert!(expected && found.len() <= LEFT.len(), "cut at {cut}: {found:?}");
        // Appending goes on as if nothing had happened.
        let mut batch = Batch::default();
        batch.event(&event(3));
        file.append(&batch, NOW).expect("there is room");
        drop(file);
        let (_, again, second) = opened(&path);
        assert_eq!(second, None, "cut at {cut}: it was mended after {notice:?}");
        assert_eq!(again.last().map(String::as_str), Some("event 3"));
        assert_eq!(again.len(), found.len() + 1);
    }
}

#[test]
fn damage_ends_the_reading_and_is_said() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let whole = fs::read(&path).expect("it is there");
    for at in HEADER_BYTES..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).expect("it can be written");
        let (_, found, notice) = opened(&path);
        assert!(notice.is_some(), "byte {at}");
        assert!(found.len() <= LEFT.len(), "byte {at}: {found:?}");
    }
}

#[test]
fn a_foreign_file_is_put_aside() {
    let (_folder, path) = folder();
    drop(filled(&path));
    let own = fs::read(&path).expect("it is there");
    let mut newer = own.clone();
    newer[8] = 2;
    let other = header([8; 16]).to_vec();
    for (foreign, words) in [
        (b"#!/bin/sh\necho this is a script of somebody\n".to_vec(), "no history of hemi"),
        (b"x".to_vec(), "too short"),
        (newer, "version 2"),
        (other, "another volume"),
    ] {
        fs::write(&path, &foreign).expect("it can be written");
        let (_, found, notice) = opened(&path);
        let notice = notice.expect("it is said");
        assert!(found.is_empty() && notice.contains(words), "{notice}");
        let aside = fs::read(path.with_extension("history.aside")).expect("it was moved");
        assert_eq!(aside, foreign);
        assert_eq!(opened(&path).2, None, "a new one was begun");
    }
}

#[test]
fn the_file_is_bounded_and_what_counts_stays() {
    let (_folder, path) = folder();
    let mut file = filled(&path);
    let many = |from: u64| {
        let mut batch = Batch::default();
        for id in from..from + 2000 {
            batch.row(Resolution::Fine, &row(NOW - 2_000_000));
            batch.event(&event(id));
        }
        batch
    };
    let mut longest = 0;
    for from in (10..60_000).step_by(2000) {
        file.append(&many(from), NOW).expect("there is room");
        longest = longest.max(fs::metadata(&path).expect("it is there").len());
    }
    assert!(longest <= FILE_BYTES_MAX, "{longest} bytes");
    drop(file);
    let (_, found, notice) = opened(&path);
    assert_eq!(notice, None);
    assert_eq!(found.iter().filter(|kept| kept.starts_with("event")).count(), EVENTS_MAX);
    assert!(found.contains(&"hour 9".to_owned()) && found.contains(&"Fine 1000".to_owned()));
}
