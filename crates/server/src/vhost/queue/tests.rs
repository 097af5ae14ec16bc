use proptest::prelude::*;

use super::*;
use crate::vhost::memory::tests::memory;
use crate::vhost::request::parse;
use crate::vhost::{Asked, Disk, REQUEST_BYTES_MAX};

const SIZE: u16 = 8;
const BASE: u64 = 0x10_0000;
const LENGTH: u64 = 0x10_0000;
const FRONT_END: u64 = 1 << 40;
const ALL: u64 = abi::EVENT_INDEX | abi::INDIRECT;

/// A queue in memory of its own, as its guest sees it.
struct World {
    memory: GuestMemory,
    queue: SplitQueue,
    offered: u16,
}

impl World {
    fn new(features: u64) -> World {
        let (memory, _) = memory(&[(BASE, LENGTH)]);
        let addresses = QueueAddresses {
            descriptors: FRONT_END + BASE,
            available: FRONT_END + BASE + 0x1000,
            used: FRONT_END + BASE + 0x2000,
        };
        let places = QueuePlaces::find(&memory, &addresses, SIZE).unwrap();
        World { memory, queue: SplitQueue::new(places, SIZE, features, 0, 0), offered: 0 }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        let segment = Segment { address: BASE + at, length: bytes.len() as u32, writable: true };
        self.memory.write(&[segment], 0, bytes).unwrap();
    }

    fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let segment = Segment { address: BASE + at, length: N as u32, writable: true };
        self.memory.read(&[segment], 0).unwrap()
    }

    fn descriptor(&self, table: u64, index: u64, address: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.put(table + 16 * index, &bytes);
    }

    fn offer(&mut self, head: u16) {
        self.put(0x1004 + 2 * u64::from(self.offered % SIZE), &head.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
        self.put(0x1002, &self.offered.to_le_bytes());
    }

    fn chain(&self, head: u16) -> Result<Vec<Segment>, Broken> {
        let mut segments = Vec::new();
        self.queue.chain(&self.memory, head, &mut segments)?;
        Ok(segments)
    }
}

fn segment(address: u64, length: u32, writable: bool) -> Segment {
    Segment { address, length, writable }
}

#[test]
fn chains_are_taken_and_given_back_in_their_places() {
    let mut world = World::new(ALL);
    assert_eq!(world.queue.peek(), Ok(None));
    world.descriptor(0, 3, BASE, 16, abi::DESCRIPTOR_NEXT, 5);
    world.descriptor(0, 5, BASE + 64, 0, abi::DESCRIPTOR_NEXT, 0);
    world.descriptor(0, 0, BASE + 32, 9, abi::DESCRIPTOR_WRITE, 77);
    world.offer(3);
    assert_eq!(world.queue.peek(), Ok(Some(3)));
    let expected = vec![segment(BASE, 16, false), segment(BASE + 32, 9, true)];
    assert_eq!(world.chain(3), Ok(expected), "an empty descriptor holds nothing");
    world.queue.take();
    assert_eq!(world.queue.peek(), Ok(None));
    world.queue.give_back(3, 9);
    assert_eq!(world.get(0x2002), [0, 0], "the guest does not see it yet");
    assert!(world.queue.has_unpublished());
    assert_eq!(world.queue.publish(), 1);
    assert_eq!(world.get(0x2002), [1, 0]);
    assert_eq!(world.get(0x2004), [3, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(world.queue.ask_for_kick(), Ok(false));
    assert_eq!(world.get(0x2004 + 8 * u64::from(SIZE)), [1, 0], "the next entry is to be told");
    world.offer(3);
    assert_eq!(world.queue.ask_for_kick(), Ok(true), "it was offered meanwhile");
}

#[test]
fn indices_wrap() {
    let mut world = World::new(ALL);
    let places = world.queue.places;
    world.queue = SplitQueue::new(places, SIZE, ALL, u16::MAX - 1, 3);
    assert_eq!(world.queue.next_available(), 1);
    world.offered = 1;
    world.offer(7);
    assert_eq!(world.queue.peek(), Ok(Some(7)));
    for head in 0..3 {
        world.queue.give_back(head, 1);
    }
    assert_eq!(world.queue.publish(), 1);
    assert_eq!(world.get::<1>(0x2004 + 8 * 6), [0]);
    assert_eq!(world.get::<1>(0x2004 + 8 * 7), [1]);
    assert_eq!(world.get::<1>(0x2004), [2]);
}

#[test]
fn the_guest_is_called_when_it_asked_for_it() {
    let mut world = World::new(ALL);
    let event_at = 0x1004 + 2 * u64::from(SIZE);
    let give_back = |world: &mut World, count: u16, event: u16| {
        world.put(event_at, &event.to_le_bytes());
        for _ in 0..count {
            world.queue.give_back(0, 1);
        }
        world.queue.publish();
        world.queue.wants_call()
    };
    assert!(give_back(&mut world, 1, 40), "the first time, come what may");
    assert!(!give_back(&mut world, 2, 3), "at 4");
    assert!(give_back(&mut world, 1, 3));
    assert!(give_back(&mut world, 5, 4), "passed on the way");
    assert!(!give_back(&mut world, 5, 4), "long ago");
    let mut plain = World::new(0);
    assert!(plain.queue.wants_call());
    assert!(plain.queue.wants_call());
    plain.put(0x1000, &[1, 0]);
    assert!(!plain.queue.wants_call());
}

#[test]
fn chains_that_no_guest_may_offer_are_refused() {
    let mut world = World::new(ALL);
    world.put(0x1002, &[SIZE as u8 + 1, 0]);
    assert_eq!(world.queue.peek(), Err(Broken::Ahead { entries: SIZE + 1, size: SIZE }));
    world.put(0x1002, &[0, 0]);
    world.offer(SIZE);
    assert_eq!(world.queue.peek(), Err(Broken::Head { head: SIZE, size: SIZE }));
    let refused = |flags: u16, length: u32, next: u16, broken: Broken| {
        world.descriptor(0, 0, BASE, length, flags, next);
        assert_eq!(world.chain(0), Err(broken), "{flags} {length} {next}");
    };
    refused(abi::DESCRIPTOR_NEXT, 16, 0, Broken::Long);
    refused(abi::DESCRIPTOR_NEXT, 16, SIZE, Broken::Next { next: SIZE.into(), size: SIZE.into() });
    refused(0, LENGTH as u32 + 1, 0, Broken::NoMemory { address: BASE });
    for length in [0, 15, 17] {
        refused(abi::DESCRIPTOR_INDIRECT, length, 0, Broken::Indirect { length });
    }
    let both = abi::DESCRIPTOR_INDIRECT | abi::DESCRIPTOR_NEXT;
    refused(both, 16, 1, Broken::Indirect { length: 16 });
    // The table's first entry is the queue's own first entry: a table in a table.
    refused(abi::DESCRIPTOR_INDIRECT, 16, 0, Broken::Indirect { length: 16 });
    world.descriptor(0, 0, BASE, 16, abi::DESCRIPTOR_WRITE | abi::DESCRIPTOR_NEXT, 1);
    world.descriptor(0, 1, BASE, 16, 0, 0);
    assert_eq!(world.chain(0), Err(Broken::Order));
    let plain = World::new(0);
    plain.descriptor(0, 0, BASE + 0x3000, 16, abi::DESCRIPTOR_INDIRECT, 0);
    assert_eq!(plain.chain(0), Err(Broken::Indirect { length: 16 }), "it was not agreed on");
}

#[test]
fn a_table_in_memory_is_a_chain() {
    let world = World::new(ALL);
    world.descriptor(0, 2, BASE + 0x3000, 48, abi::DESCRIPTOR_INDIRECT, 0);
    world.descriptor(0x3000, 0, BASE, 16, abi::DESCRIPTOR_NEXT, 2);
    world.descriptor(0x3000, 2, BASE + 16, 1, abi::DESCRIPTOR_WRITE, 9);
    assert_eq!(world.chain(2), Ok(vec![segment(BASE, 16, false), segment(BASE + 16, 1, true)]));
    world.descriptor(0x3000, 0, BASE, 16, abi::DESCRIPTOR_NEXT, 3);
    assert_eq!(world.chain(2), Err(Broken::Next { next: 3, size: 3 }));
}

#[test]
fn places_that_are_none_are_refused() {
    let (memory, _files) = memory(&[(BASE, LENGTH)]);
    let at = |offset: u64| FRONT_END + BASE + offset;
    let good = QueueAddresses { descriptors: at(0), available: at(0x1000), used: at(0x2000) };
    let refused = |addresses: QueueAddresses, size: u16, part: &str| {
        let error = QueuePlaces::find(&memory, &addresses, size).expect_err(part);
        assert!(error.contains(part), "{error}");
    };
    for size in [0, 3, 512] {
        refused(good, size, "power of two");
    }
    refused(QueueAddresses { descriptors: at(8), ..good }, 8, "descriptor ring");
    refused(QueueAddresses { available: at(0x1001), ..good }, 8, "available ring");
    refused(QueueAddresses { used: at(0x2002), ..good }, 8, "used ring");
    refused(QueueAddresses { used: at(LENGTH - 64), ..good }, 8, "used ring");
    refused(QueueAddresses { used: u64::MAX - 3, ..good }, 8, "used ring");
}

proptest! {
    /// Whatever a guest writes into its tables, a chain lies in its memory and is bounded, and
    /// its request lies on the disk.
    #[test]
    fn any_table_is_refused_or_harmless(
        table in proptest::collection::vec(
            (any::<u64>(), any::<u32>(), any::<u16>(), 0..=SIZE, any::<[bool; 5]>()),
            usize::from(SIZE) * 4,
        ),
        head in 0..SIZE,
        header in any::<[u8; 16]>(),
        kind in 0_u32..16,
    ) {
        let world = World::new(ALL);
        world.put(0x4000, &header);
        world.put(0x4000, &kind.to_le_bytes());
        for (index, (address, length, flags, next, [near, short, plain, one, status])) in
            table.into_iter().enumerate()
        {
            let address = match (near, one) {
                (true, true) => BASE + 0x4000,
                (true, false) => BASE + address % LENGTH,
                _ => address,
            };
            let length = match (short, status) {
                (true, true) => 16,
                (true, false) => length % 1100,
                _ => length,
            };
            let (at, place) = match index < usize::from(SIZE) {
                true => (0, index as u64),
                false => (0x4000, index as u64),
            };
            world.descriptor(at, place, address, length, if plain { flags & 7 } else { flags }, next);
        }
        let Ok(segments) = world.chain(head) else { return Ok(()) };
        prop_assert!(segments.len() <= CHAIN_MAX + 1);
        let mut reads = true;
        for segment in &segments {
            prop_assert!(world.memory.contains(segment) && segment.length > 0);
            prop_assert!(reads || segment.writable);
            reads = !segment.writable;
        }
        let sectors = 1 << 20;
        let disk =
            Disk {
                name: "x".into(),
                socket: "vhost:/s".into(),
                sectors,
                block_bytes: 4096,
                read_only: false,
                queues: 1,
            };
        let Ok(asked) = parse(&world.memory, &segments, &disk) else { return Ok(()) };
        let (read, written) = crate::vhost::lengths(&segments);
        prop_assert!(read >= 16 && written >= 1);
        if let Asked::Operation { operation, extent, skip } = asked {
            prop_assert!(extent.start <= extent.end && extent.end <= sectors);
            prop_assert!(extent.start % 8 == 0 && extent.end % 8 == 0);
            use hemi_engine::io::Operation::{Read, Write};
            if matches!(operation, Read | Write) {
                prop_assert!(extent.bytes() > 0 && extent.bytes() <= REQUEST_BYTES_MAX);
                prop_assert!(skip + extent.bytes() <= read + written);
            }
        }
    }
}
