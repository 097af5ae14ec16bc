use super::*;
use crate::vhost::memory::tests::memory;

const BASE: u64 = 0x1000;

fn disk() -> Disk {
    Disk {
        name: "db".into(),
        socket: "vhost:/s".into(),
        sectors: 1 << 20,
        block_bytes: 4096,
        read_only: false,
        queues: 1,
    }
}

/// Sends the disk a request: `kind` and `sector` in a header that is split in two, then a
/// payload and space of `room` bytes for the answer.
fn ask(disk: &Disk, kind: u32, sector: u64, payload: &[u8], room: u32) -> Result<Asked, Broken> {
    let (memory, _files) = memory(&[(BASE, 0x10_0000)]);
    let mut header = [0; 16];
    header[..4].copy_from_slice(&kind.to_le_bytes());
    header[8..].copy_from_slice(&sector.to_le_bytes());
    let segment = |address: u64, length: u32, writable: bool| Segment { address, length, writable };
    let mut segments = vec![
        segment(BASE + 0x4000, 5, false),
        segment(BASE, 11 + payload.len() as u32, false),
        segment(BASE + 0x8000, room, true),
    ];
    segments.retain(|segment| segment.length > 0);
    memory.write(&segments, 0, &header).unwrap();
    memory.write(&segments, 16, payload).unwrap();
    parse(&memory, &segments, disk)
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

fn done(operation: Operation, start: u64, sectors: u64, skip: u64) -> Result<Asked, Broken> {
    Ok(Asked::Operation { operation, extent: Extent::new(start, sectors), skip })
}

#[test]
fn requests_become_operations() {
    let disk = disk();
    assert_eq!(ask(&disk, abi::READ, 16, &[], 8193), done(Operation::Read, 16, 16, 16));
    assert_eq!(ask(&disk, abi::WRITE, 8, &[1; 4096], 1), done(Operation::Write, 8, 8, 16));
    assert_eq!(ask(&disk, abi::FLUSH_CACHE, 9, &[], 1), done(Operation::Flush, 0, 0, 0));
    let zeroes = |may_unmap| done(Operation::WriteZeroes { may_unmap }, 8, 16, 0);
    for (kind, flags, expected) in [
        (abi::WRITE_ZEROES_RANGE, 0, zeroes(false)),
        (abi::WRITE_ZEROES_RANGE, 1, zeroes(true)),
        (abi::DISCARD_RANGE, 0, done(Operation::Discard, 8, 16, 0)),
        (abi::DISCARD_RANGE, 1, Ok(Asked::Refused(abi::STATUS_UNSUPPORTED))),
        (abi::WRITE_ZEROES_RANGE, 2, Ok(Asked::Refused(abi::STATUS_UNSUPPORTED))),
    ] {
        assert_eq!(ask(&disk, kind, 0, &range(8, 16, flags), 1), expected, "{kind} {flags}");
    }
    assert_eq!(ask(&disk, abi::IDENTIFY, 0, &[], 21), Ok(Asked::Identity { skip: 16 }));
    assert_eq!(&disk.identity()[..3], b"db\0");
}

#[test]
fn requests_that_the_disk_cannot_do_are_answered_so() {
    let disk = disk();
    let failed = Ok(Asked::Refused(abi::STATUS_ERROR));
    for (kind, sector, payload, room) in [
        (abi::READ, 1, &[][..], 4097),
        (abi::READ, 0, &[], 513),
        (abi::READ, 0, &[], 1),
        (abi::READ, 0, &[], 700),
        (abi::READ, 1 << 20, &[], 4097),
        (abi::READ, u64::MAX - 7, &[], 4097),
        (abi::WRITE, (1 << 20) - 8, &[0; 8192], 1),
        (abi::WRITE, 0, &[], 1),
        (abi::IDENTIFY, 0, &[], 20),
        (abi::DISCARD_RANGE, 0, &range(0, 8, 0)[..15], 1),
        (abi::DISCARD_RANGE, 0, &range(0, 0, 0), 1),
        (abi::DISCARD_RANGE, 0, &range(u64::MAX, 8, 0), 1),
        (abi::WRITE_ZEROES_RANGE, 0, &range(0, 4, 0), 1),
        (abi::WRITE_ZEROES_RANGE, 0, &[range(0, 8, 0), range(8, 8, 0)].concat(), 1),
    ] {
        assert_eq!(ask(&disk, kind, sector, payload, room), failed, "{kind} {sector} {room}");
    }
    let large = Disk { sectors: 1 << 40, ..disk.clone() };
    let most = (abi::RANGE_BYTES_MAX >> 9) as u32;
    assert!(matches!(
        ask(&large, abi::DISCARD_RANGE, 0, &range(0, most, 0), 1),
        Ok(Asked::Operation { .. })
    ));
    assert_eq!(ask(&large, abi::DISCARD_RANGE, 0, &range(0, most + 8, 0), 1), failed);
    let unsupported = Ok(Asked::Refused(abi::STATUS_UNSUPPORTED));
    assert_eq!(ask(&disk, 2, 0, &[], 1), unsupported);
    assert_eq!(ask(&disk, 0x8000_0000, 0, &[], 1), unsupported);
    let read_only = Disk { read_only: true, ..disk.clone() };
    assert_eq!(ask(&read_only, abi::WRITE, 8, &[1; 4096], 1), failed);
    assert_eq!(ask(&read_only, abi::DISCARD_RANGE, 0, &range(0, 8, 0), 1), failed);
    assert_eq!(ask(&disk, abi::READ, 0, &[], 0), Err(Broken::NoStatus));
}
