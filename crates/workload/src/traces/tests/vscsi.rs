//! vSCSI records.

use hemi_units::{Extent, Operation};

use super::super::format::{Format, FormatSpec, TimeUnit};
use super::super::{Record, detect};
use super::{READ, WRITE, records};

/// Returns a vSCSI record of version 1 or 2, as libCacheSim's reader has their fields.
fn vscsi(version: u16, command: u16, length: u32, address: u64, at: u64) -> Vec<u8> {
    let (serial, parts) = (0x8000_0041_u32.to_le_bytes(), 2_u32.to_le_bytes());
    let kind = [command.to_le_bytes(), (version << 8).to_le_bytes()].concat();
    let counts = [length.to_le_bytes(), parts].concat();
    let place = [address.to_le_bytes(), at.to_le_bytes()].concat();
    match version {
        1 => [&serial[..], &counts, &kind, &place].concat(),
        _ => [&kind[..], &serial, &counts, &place, &250_u64.to_le_bytes()].concat(),
    }
}

#[test]
fn vscsi_is_read() {
    // A write of 6656 bytes to sector 40,409,911 at 5,633,898.967708 s, the fourth record of the
    // trace that comes with libCacheSim, written out.
    let golden = b"\x41\x00\x00\x80\x00\x1a\x00\x00\x02\x00\x00\x00\x2a\x00\x00\x01\
                   \x37\x9b\x68\x02\x00\x00\x00\x00\x9c\xf2\x8b\xbe\x1f\x05\x00\x00";
    assert_eq!(vscsi(1, 0x2A, 6656, 40_409_911, 5_633_898_967_708), golden);
    for (version, latency) in [(1, None), (2, Some(250_000))] {
        let file = [
            vscsi(version, 0x2A, 6656, 40_409_911, 5_633_898_967_708),
            // INQUIRY is no request of the disk's data.
            vscsi(version, 0x12, 36, 0, 5_633_898_967_709),
            vscsi(version, 0x88, 700, 8, 5_633_898_967_710),
            vscsi(version, 0x35, 0, 0, 5_633_898_967_711),
        ];
        let (write, read) = (Extent::new(40_409_911, 13), Extent::new(8, 2));
        let expected = [
            (5_633_898_967_708_000, WRITE, write, false),
            (5_633_898_967_710_000, READ, read, true),
            (5_633_898_967_711_000, Operation::Flush, Extent::default(), false),
        ]
        .map(|(at, operation, extent, rounded)| Record {
            at,
            volume: 0,
            operation,
            extent,
            rounded,
            latency,
        });
        assert_eq!(records(&file.concat(), Format::Vscsi).unwrap(), expected);
        assert_eq!(detect(&file.concat()), Some(FormatSpec::Vscsi));
        // A single record is enough.
        assert_eq!(records(&file[0], Format::Vscsi).unwrap(), expected[..1]);
        for (bytes, wrong) in [
            (file.concat()[..70].to_vec(), "length is `"),
            ([&file[0][..], &file[1], &[0; 40]].concat().repeat(9), "version is `"),
            (vscsi(version, 0x2A, 1, 1 << 55, 0), "address is `36028797018963968`"),
            (vscsi(version, 0x2A, 1, 0, u64::MAX), "time is `18446744073709551615`"),
        ] {
            let error = records(&bytes, Format::Vscsi).unwrap_err().to_string();
            assert!(error.starts_with("a.trace, record ") && error.contains(wrong), "{error}");
        }
    }
    let error = records(b"", Format::Vscsi).unwrap_err().to_string();
    assert!(error.contains("record 1: version is ``"), "{error}");
}

#[test]
fn vscsi_as_text_is_what_the_records_are() {
    // The first lines of libCacheSim's data/cloudPhysicsIO.csv, the others in its form.
    let text = b"version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,2a,6656,40409911\n\
                 1,5633899,12,36,0\n1,5633900,28,700,8\n1,5633901,35,0,0\n";
    let binary = [
        vscsi(1, 0x2A, 512, 42_932_745, 5_633_898_000_000),
        vscsi(1, 0x2A, 6656, 40_409_911, 5_633_898_000_000),
        vscsi(1, 0x12, 36, 0, 5_633_899_000_000),
        vscsi(1, 0x28, 700, 8, 5_633_900_000_000),
        vscsi(1, 0x35, 0, 0, 5_633_901_000_000),
    ];
    let expected = records(&binary.concat(), Format::Vscsi).unwrap();
    assert_eq!(records(text, Format::Csv(None)).unwrap(), expected);
    assert_eq!((expected.len(), detect(text)), (4, Some(FormatSpec::Csv)));
    for (line, field) in [
        ("1,5633898,2g,512,1", "op is `2g`"),
        ("1,x,2a,512,1", "time is `x`"),
        ("1,1,2a,512,36028797018963968", "lbn is `36028797018963968`"),
        ("1,1,2a,512,36028797018963967", "lbn is `36028797018963967`"),
        ("1,1,2a,512", "lbn is ``"),
        ("1,1,2a,512,1,1", "end of the line is `1`"),
    ] {
        let text = format!("version,time,op,size,lbn\n{line}\n");
        let error = records(text.as_bytes(), Format::Csv(None)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("a.trace, line 2: {field}: ")), "{error}");
    }
    let error = records(text, Format::Csv(Some(TimeUnit::S))).unwrap_err().to_string();
    assert!(error.contains("these times are in seconds"), "{error}");
    let error = records(text, Format::Vscsi).unwrap_err().to_string();
    assert!(error.contains("one of text is of the format csv"), "{error}");
}
