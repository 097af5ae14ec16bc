use std::os::unix::fs::FileExt as _;

use super::*;

fn open(file: &File, size: u16) -> InflightQueue {
    let region = InflightRegion::open(file, 0, u64::MAX, 1, size).unwrap();
    region.queue(0, size).unwrap().unwrap()
}

fn bytes(file: &File, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

#[test]
fn the_layout_is_that_of_the_specification() {
    let (file, length) = create(2, 4).unwrap();
    assert_eq!(length, 256, "80 bytes each, to the next 64");
    let region = InflightRegion::open(&file, 0, length, 2, 4).unwrap();
    let mut queue = region.queue(1, 4).unwrap().unwrap();
    assert_eq!(queue.recover(0x1234).unwrap(), Vec::<u16>::new());
    for head in [2, 0, 3] {
        queue.take(head);
    }
    queue.give_back(0);
    queue.give_back(2);
    queue.published(0x1236);
    let expected: [u8; 80] = [
        0, 0, 0, 0, 0, 0, 0, 0, // features
        1, 0, 4, 0, 2, 0, 0x36, 0x12, // version, entries, last batch, used index
        0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // 0: done, the last before was 0
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 1: never used
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 2: done, the one before was 0
        1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, // 3: in flight, the third
    ];
    assert_eq!(bytes(&file, 128, 80), expected);
    assert_eq!(bytes(&file, 0, 128), [0; 128], "the other queue's part");
    assert!(region.queue(2, 4).unwrap().is_none());
}

#[test]
fn what_is_left_is_done_again_in_order() {
    let (file, _) = create(1, 8).unwrap();
    let mut queue = open(&file, 8);
    queue.recover(0).unwrap();
    for head in [5, 1, 7, 0] {
        queue.take(head);
    }
    queue.give_back(1);
    queue.published(1);
    drop(queue);
    let mut next = open(&file, 8);
    assert_eq!(next.recover(1).unwrap(), [5, 7, 0]);
    // Requests taken from now on come after those.
    next.take(2);
    drop(next);
    assert_eq!(open(&file, 8).recover(1).unwrap(), [5, 7, 0, 2]);
}

#[test]
fn a_kill_at_any_step_of_giving_back_loses_and_repeats_nothing() {
    // Three are given back together. The kill comes after the guest saw them and before the
    // marks were cleared.
    let (file, _) = create(1, 8).unwrap();
    let mut queue = open(&file, 8);
    queue.recover(10).unwrap();
    for head in 0..5 {
        queue.take(head);
    }
    queue.give_back(4);
    queue.published(11);
    for head in [3, 0, 2] {
        queue.give_back(head);
    }
    let before_publishing = bytes(&file, 0, 192);
    drop(queue);
    assert_eq!(open(&file, 8).recover(14).unwrap(), [1], "the guest saw three answers");
    file.write_all_at(&before_publishing, 0).unwrap();
    assert_eq!(open(&file, 8).recover(11).unwrap(), [0, 1, 2, 3], "it saw none of them");
    // Some of the marks were cleared.
    file.write_all_at(&before_publishing, 0).unwrap();
    file.write_all_at(&[0], 16 + 16 * 3).unwrap();
    assert_eq!(open(&file, 8).recover(14).unwrap(), [1]);
}

#[test]
fn a_region_that_no_server_left_is_refused() {
    let (file, length) = create(1, 8).unwrap();
    open(&file, 8).recover(0).unwrap();
    let refused = |bytes: u64, offset: u64, queues: u16, size: u16| {
        InflightRegion::open(&file, offset, bytes, queues, size).expect_err("it is no region")
    };
    assert!(refused(length - 1, 0, 1, 8).contains("are needed"));
    assert!(refused(length, 8, 1, 8).contains("at 8"));
    assert!(refused(u64::MAX, u64::MAX - 63, 1, 8).contains("are needed"));
    assert!(refused(u64::MAX, 0, 3, 8).contains("ends at byte"));
    for (queues, size) in [(0, 8), (1, 0), (65, 8), (1, 257), (u16::MAX, u16::MAX)] {
        assert!(refused(u64::MAX, 0, queues, size).contains("an inflight region of"));
        assert!(create(queues, size).is_err());
    }
    let region = InflightRegion::open(&file, 0, length, 1, 8).unwrap();
    assert!(region.queue(0, 16).expect_err("too small").contains("a queue of 16"));
    // The last batch leads out of the region.
    file.write_all_at(&[9], AT_LAST_BATCH as u64).unwrap();
    assert_eq!(open(&file, 8).recover(1), Err(Broken::Inflight { head: 9 }));
    file.write_all_at(&[2], AT_VERSION as u64).unwrap();
    assert!(region.queue(0, 8).expect_err("another version").contains("version 2"));
    // Nobody can truncate it.
    assert!(file.set_len(0).is_err());
}
