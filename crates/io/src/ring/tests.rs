use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::*;

fn tag(slot: u32) -> Tag {
    Tag { source: Source::Connection, owner: 7, id: SlotId { slot, generation: 9 } }
}

fn wait_for(ring: &mut Ring, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    // Two minutes: only a hang takes so long.
    for _ in 0..1200 {
        ring.completions(&mut all);
        if all.len() >= count {
            break;
        }
        ring.wait(Some(100_000_000)).unwrap();
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

#[test]
fn tags_survive_the_word() {
    for source in [Source::Wake, Source::Leg, Source::Listener, Source::Connection] {
        let tag = Tag { source, owner: OWNERS_MAX - 1, id: SlotId { slot: 5, generation: 6 } };
        assert_eq!(Tag::from_bits(tag.to_bits()), Some(tag));
    }
    assert_eq!(Tag::from_bits(u64::MAX), None);
}

#[test]
fn a_wake_up_from_another_thread_arrives() {
    let mut ring = Ring::new().unwrap();
    let waker = ring.waker();
    for _ in 0..3 {
        let waker = waker.clone();
        let thread = std::thread::spawn(move || waker.wake());
        let arrived = wait_for(&mut ring, 1);
        assert_eq!(arrived[0].tag.source, Source::Wake);
        ring.arm_wake();
        thread.join().unwrap();
    }
}

#[test]
fn a_wait_without_completions_ends_with_its_timeout() {
    let mut ring = Ring::new().unwrap();
    ring.wait(Some(1_000_000)).unwrap();
    ring.wait(Some(0)).unwrap();
    let mut none = Vec::new();
    ring.completions(&mut none);
    assert!(none.is_empty());
}

#[test]
fn more_entries_than_the_queue_holds_all_complete() {
    let mut ring = Ring::new().unwrap();
    let mut memory = Mapping::new(1 << 20, true).unwrap();
    let registered = ring.add_memory(&mut memory);
    assert_eq!(memory.whole().registered().is_some(), registered);
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let descriptor = OwnedFd::from(file);
    let file = RingFile::of(&descriptor);
    let count = COMPLETION_ENTRIES * 2;
    for slot in 0..count {
        ring.read(file, memory.span(0, 4096), 0, tag(slot));
    }
    let mut seen: Vec<u32> = wait_for(&mut ring, count as usize)
        .iter()
        .map(|completion| {
            assert_eq!(completion.outcome(), Ok(4096));
            completion.tag.id.slot
        })
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..count));
    ring.remove_file(file, descriptor);
}

#[test]
fn a_file_that_leaves_gives_its_place_to_no_other_while_entries_name_it() {
    const SECTOR: usize = 512;
    let mut ring = Ring::new().unwrap();
    let count = COMPLETION_ENTRIES as usize * 2;
    let memory = Mapping::new(count * SECTOR, true).unwrap();
    let filled = |byte: u8| {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; SECTOR], 0).unwrap();
        OwnedFd::from(file)
    };
    let (leaving, next) = (filled(b'a'), filled(b'b'));
    let file = RingFile::of(&leaving);
    for slot in 0..count {
        ring.read(file, memory.span(slot * SECTOR, SECTOR), 0, tag(slot as u32));
    }
    ring.remove_file(file, leaving);
    RingFile::of(&next);
    for completion in wait_for(&mut ring, count) {
        assert_eq!(completion.outcome(), Ok(SECTOR as u32));
    }
    assert!(memory.whole().to_vec().iter().all(|byte| *byte == b'a'));
}

#[test]
fn messages_go_through_a_socket_in_pieces() {
    let mut ring = Ring::new().unwrap();
    let memory = Mapping::new(8192, false).unwrap();
    memory.span(0, 5).copy_from(b"hello");
    memory.span(100, 6).copy_from(b" world");
    let (left, right) = UnixStream::pair().unwrap();
    let (left, right) = (OwnedFd::from(left), OwnedFd::from(right));
    let (near, far) = (RingFile::of(&left), RingFile::of(&right));
    let mut out = Gather::new();
    out.push(memory.span(0, 5));
    out.push(memory.span(100, 6));
    let mut into = Gather::new();
    into.push(memory.span(4096, 3));
    into.push(memory.span(5000, 100));
    ring.receive_gathered(far, &mut into, tag(1));
    ring.send_gathered(near, &mut out, true, tag(2));
    for completion in wait_for(&mut ring, 2) {
        assert_eq!(completion.outcome(), Ok(11));
    }
    assert_eq!(memory.span(4096, 3).to_vec(), b"hel");
    assert_eq!(memory.span(5000, 8).to_vec(), b"lo world");
}

#[test]
fn an_immediate_send_into_a_full_socket_says_so_at_once() {
    let mut ring = Ring::new().unwrap();
    let memory = Mapping::new(8 << 20, false).unwrap();
    let (left, _right) = UnixStream::pair().unwrap();
    let left = OwnedFd::from(left);
    let near = RingFile::of(&left);
    let mut out = Gather::new();
    out.push(memory.whole());
    ring.send_gathered(near, &mut out, true, tag(1));
    let sent = wait_for(&mut ring, 1)[0].outcome().unwrap();
    assert!((sent as usize) < memory.length());
    out.advance(sent as usize);
    ring.send_gathered(near, &mut out, true, tag(2));
    assert_eq!(wait_for(&mut ring, 1)[0].outcome(), Err(rustix::io::Errno::AGAIN));
}

#[test]
fn a_send_cut_short_is_told_though_nothing_else_happens() {
    let mut ring = Ring::new().unwrap();
    let memory = Mapping::new(8 << 20, false).unwrap();
    let (left, _right) = UnixStream::pair().unwrap();
    let left = OwnedFd::from(left);
    let near = RingFile::of(&left);
    let mut out = Gather::new();
    out.push(memory.whole());
    ring.send_gathered(near, &mut out, true, tag(1));
    // The wait takes an hour if it is for something other than the send.
    ring.wait(Some(3_600_000_000_000)).unwrap();
    let mut told = Vec::new();
    ring.completions(&mut told);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!((told[0].outcome().unwrap() as usize) < memory.length());
}

#[test]
fn a_cancelled_receive_completes() {
    let mut ring = Ring::new().unwrap();
    let memory = Mapping::new(4096, false).unwrap();
    let (left, _right) = UnixStream::pair().unwrap();
    let left = OwnedFd::from(left);
    let near = RingFile::of(&left);
    ring.receive(near, memory.whole(), tag(1));
    ring.cancel(tag(1));
    let completion = wait_for(&mut ring, 1)[0];
    assert_eq!(completion.tag, tag(1));
    assert_eq!(completion.outcome(), Err(rustix::io::Errno::CANCELED));
}

#[test]
fn too_little_locked_memory_is_named() {
    let refuse = |code, limit| refused(io::Error::from_raw_os_error(code), limit).to_string();
    let low = refuse(libc::ENOMEM, Some(64 << 10));
    for part in ["64KiB", "RLIMIT_MEMLOCK", "ulimit -l", "LimitMEMLOCK="] {
        assert!(low.contains(part), "no {part}: {low}");
    }
    assert!(!low.contains("seccomp"), "{low}");
    let forbidden = refuse(libc::EPERM, Some(64 << 10));
    assert!(forbidden.contains("seccomp") && !forbidden.contains("ulimit"), "{forbidden}");
    assert!(!refuse(libc::ENOMEM, None).contains("ulimit"));
}

/// Returns a ring whose receives wait in poll(2). If the kernel cannot do that, they wait in
/// the ring, and the tests below hold all the same.
fn light_ring() -> Ring {
    let mut ring = Ring::new().unwrap();
    ring.poll_sockets().unwrap();
    ring
}

fn pair() -> (UnixStream, OwnedFd) {
    let (here, there) = UnixStream::pair().unwrap();
    (here, OwnedFd::from(there))
}

#[test]
fn a_receive_under_light_load_gets_what_is_sent() {
    use std::io::Write as _;
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let (mut here, there) = pair();
    let file = RingFile::of(&there);
    for round in 0..3_u8 {
        ring.receive(file, memory.span(0, 64), tag(1));
        let thread = std::thread::spawn(move || {
            here.write_all(&[round; 5]).unwrap();
            here
        });
        let arrived = wait_for(&mut ring, 1);
        assert_eq!((arrived[0].tag, arrived[0].result), (tag(1), 5));
        assert_eq!(memory.span(0, 5).to_vec(), [round; 5]);
        here = thread.join().unwrap();
    }
    // A peer that is done ends a receive without a byte.
    ring.receive(file, memory.span(0, 64), tag(1));
    drop(here);
    assert_eq!(wait_for(&mut ring, 1)[0].result, 0);
    ring.remove_file(file, there);
}

#[test]
fn what_else_completes_ends_a_wait_for_sockets() {
    use std::io::Write as _;
    let mut ring = light_ring();
    let mut memory = Mapping::new(1 << 16, false).unwrap();
    ring.add_memory(&mut memory);
    let (_here, there) = pair();
    let file = RingFile::of(&there);
    ring.receive(file, memory.span(0, 64), tag(1));
    let began = std::time::Instant::now();
    for round in 0..20 {
        // A read of a pipe that another thread writes to completes some time after the wait has begun.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = OwnedFd::from(reader);
        let pipe = RingFile::of(&reader);
        ring.read(pipe, memory.span(4096, 8), 0, tag(2));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(2));
            writer.write_all(b"12345678").unwrap();
        });
        let mut arrived = Vec::new();
        while arrived.is_empty() {
            ring.wait(Some(60_000_000_000)).unwrap();
            ring.completions(&mut arrived);
        }
        assert_eq!((arrived[0].tag, arrived[0].result), (tag(2), 8), "round {round}");
        thread.join().unwrap();
        ring.remove_file(pipe, reader);
    }
    // A wait that nothing but its timeout ends takes a minute.
    assert!(began.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn a_completion_put_off_before_the_first_wait_for_sockets_arrives() {
    use std::io::Write as _;
    for round in 0..20 {
        let mut ring = light_ring();
        let memory = Mapping::new(1 << 16, false).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = OwnedFd::from(reader);
        let pipe = RingFile::of(&reader);
        ring.read(pipe, memory.span(4096, 8), 0, tag(2));
        ring.submit();
        // The kernel puts the completion off until the next wait. The bell, which the first wait
        // for sockets registers, does not ring for it any more.
        writer.write_all(b"12345678").unwrap();
        let (_here, there) = pair();
        let file = RingFile::of(&there);
        ring.receive(file, memory.span(0, 64), tag(1));
        let mut arrived = Vec::new();
        for _ in 0..3 {
            if arrived.is_empty() {
                ring.wait(Some(10_000_000_000)).unwrap();
                ring.completions(&mut arrived);
            }
        }
        assert_eq!(arrived.len(), 1, "round {round}: {arrived:?}");
        assert_eq!((arrived[0].tag, arrived[0].result), (tag(2), 8), "round {round}");
        ring.remove_file(pipe, reader);
        ring.remove_file(file, there);
    }
}

#[test]
fn a_send_under_light_load_takes_what_is_added_until_the_wait() {
    use std::io::{Read as _, Write as _};
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let (mut here, there) = pair();
    let file = RingFile::of(&there);
    let mut out = Gather::new();
    for round in 0..20_u8 {
        ring.receive(file, memory.span(0, 64), tag(1));
        memory.span(100, 3).copy_from(&[round; 3]);
        out.clear();
        out.push(memory.span(100, 2));
        ring.send_gathered(file, &mut out, true, tag(2));
        let queued = ring.submissions();
        out.push(memory.span(102, 1));
        assert_eq!(ring.submissions(), queued);
        let thread = std::thread::spawn(move || {
            let mut answer = [0; 3];
            here.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round; 3]);
            // Longer than a wait has patience for a send.
            std::thread::sleep(std::time::Duration::from_millis(2));
            here.write_all(b"next").unwrap();
            here
        });
        let mut arrived = Vec::new();
        while arrived.len() < 2 {
            ring.wait(Some(60_000_000_000)).unwrap();
            ring.completions(&mut arrived);
        }
        assert_ne!(ring.submissions(), queued);
        let told = |completion: &Completion| (completion.tag, completion.result);
        assert_eq!(arrived.iter().map(told).collect::<Vec<_>>(), [(tag(2), 3), (tag(1), 4)]);
        here = thread.join().unwrap();
    }
}

#[test]
fn a_send_under_light_load_that_finds_too_little_space_is_told_at_once() {
    let mut ring = light_ring();
    let memory = Mapping::new(8 << 20, false).unwrap();
    let (_here, there) = pair();
    let file = RingFile::of(&there);
    ring.receive(file, memory.span(0, 64), tag(1));
    // Settles where receives wait.
    ring.wait(Some(0)).unwrap();
    let mut out = Gather::new();
    out.push(memory.span(4096, (8 << 20) - 4096));
    ring.send_gathered(file, &mut out, true, tag(2));
    let sent = wait_for(&mut ring, 1)[0].outcome().unwrap();
    assert!((sent as usize) < out.length());
    out.advance(sent as usize);
    ring.send_gathered(file, &mut out, true, tag(3));
    assert_eq!(wait_for(&mut ring, 1)[0].outcome(), Err(rustix::io::Errno::AGAIN));
}

#[test]
fn sends_of_a_turn_go_through_the_ring_where_nothing_is_received() {
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let mut peers: Vec<_> =
        (0..2 * sockets::SOCKETS_MAX).map(|_| (pair(), Gather::new())).collect();
    for (number, ((_here, there), out)) in peers.iter_mut().enumerate() {
        let file = RingFile::of(there);
        if number == 0 {
            // The first turn settles that load is light.
            ring.receive(file, memory.span(0, 64), tag(99));
            ring.wait(Some(0)).unwrap();
            ring.cancel(tag(99));
            assert_eq!(wait_for(&mut ring, 1)[0].tag, tag(99));
        }
        out.push(memory.span(64 * number, 10));
        ring.send_gathered(file, out, true, tag(number as u32));
    }
    let mut sent = wait_for(&mut ring, peers.len());
    sent.sort_by_key(|completion| completion.tag.id.slot);
    for (number, completion) in sent.iter().enumerate() {
        assert_eq!((completion.tag, completion.result), (tag(number as u32), 10));
    }
}

#[test]
fn a_receive_that_waits_in_poll_can_be_cancelled() {
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let (_here, there) = pair();
    let file = RingFile::of(&there);
    ring.receive(file, memory.span(0, 64), tag(1));
    ring.cancel(tag(1));
    let arrived = wait_for(&mut ring, 1);
    assert_eq!((arrived[0].tag, arrived[0].result), (tag(1), -libc::ECANCELED));
}

#[test]
fn a_receive_from_a_file_that_is_removed_ends() {
    let mut ring = light_ring();
    if ring.sockets.is_none() {
        return;
    }
    let memory = Mapping::new(1 << 16, false).unwrap();
    let (_here, there) = pair();
    let file = RingFile::of(&there);
    ring.receive(file, memory.span(0, 64), tag(1));
    ring.remove_file(file, there);
    // Its descriptor may be another file's by now.
    let (mut peer, other) = pair();
    std::io::Write::write_all(&mut peer, b"not for the other").unwrap();
    let arrived = wait_for(&mut ring, 1);
    assert_eq!((arrived[0].tag, arrived[0].result), (tag(1), -libc::ECANCELED));
    ring.wait(Some(1_000_000)).unwrap();
    let mut none = Vec::new();
    ring.completions(&mut none);
    assert!(none.is_empty(), "{none:?}");
    drop(other);
}

#[test]
fn more_receives_than_poll_waits_for_all_get_theirs_as_load_rises_and_falls() {
    use std::io::Write as _;
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let mut peers: Vec<_> = (0..3 * sockets::SOCKETS_MAX)
        .map(|_| {
            let (here, there) = pair();
            let file = RingFile::of(&there);
            (here, there, file)
        })
        .collect();
    let span = |number: usize| memory.span(number * 64, 64);
    // All of them again and again, which makes load heavy, then one of them, which makes it light.
    for round in 0..300 {
        let count = if round % 100 < 50 { peers.len() } else { 1 };
        for (number, (here, _, file)) in peers.iter_mut().enumerate().take(count) {
            ring.receive(*file, span(number), tag(number as u32));
            here.write_all(&[number as u8; 3]).unwrap();
        }
        let mut arrived = wait_for(&mut ring, count);
        arrived.sort_by_key(|completion| completion.tag.id.slot);
        for (number, completion) in arrived.iter().enumerate() {
            assert_eq!((completion.tag, completion.result), (tag(number as u32), 3));
            assert_eq!(span(number).to_vec()[..3], [number as u8; 3]);
        }
    }
}

#[test]
fn waiting_receives_move_to_the_ring_when_load_becomes_heavy() {
    use std::io::Write as _;
    let mut ring = light_ring();
    let memory = Mapping::new(1 << 16, false).unwrap();
    let (mut here, there) = pair();
    let file = RingFile::of(&there);
    ring.receive(file, memory.span(0, 64), tag(1));
    let (_other, null) = pair();
    let sink = RingFile::of(&null);
    // Flushes of a socket fail at once: completions by the dozen.
    for _ in 0..50 {
        for slot in 100..130 {
            ring.flush(sink, tag(slot));
        }
        wait_for(&mut ring, 30);
    }
    here.write_all(b"late").unwrap();
    let arrived = wait_for(&mut ring, 1);
    assert_eq!((arrived[0].tag, arrived[0].result), (tag(1), 4));
}
