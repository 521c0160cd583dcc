use proptest::prelude::*;

use super::*;
use crate::DeviceNumber;
use crate::block::{Device, DevicePath};

fn said(level: u8, text: &str) -> Record {
    Record {
        sequence: 1,
        since_boot: Duration::from_secs(1),
        level,
        from_kernel: true,
        text: text.to_owned(),
        device: None,
    }
}

/// As in `sda 8:16 server:files`.
fn check(text: &str, expected: &str) {
    let found: Vec<String> = subjects(&said(3, text))
        .into_iter()
        .map(|subject| match subject {
            Subject::Device(name) => name.into(),
            Subject::Number(number) => number.to_string(),
            Subject::Server(name) => format!("server:{name}"),
        })
        .collect();
    assert_eq!(found.join(" "), expected, "{text}");
}

#[test]
fn every_part_of_the_kernel_is_understood() {
    check("EXT4-fs error (device loop3): ext4_lookup:1787: inode #2: comm ls: deleted inode", "loop3");
    check("EXT4-fs (dm-0): Remounting filesystem read-only", "dm-0");
    check("EXT4-fs warning (device sda1): ext4_end_bio:343: I/O error 10 writing to inode 12", "sda1");
    check("XFS (nvme0n1p2): Corruption of in-memory data detected.  Shutting down filesystem", "nvme0n1p2");
    check("BTRFS error (device loop0: state EA): bdev /dev/loop0 errs: wr 1, rd 0", "loop0");
    check("BTRFS: error (device vdb) in btrfs_commit_transaction:2500: errno=-5 IO failure", "vdb");
    check("I/O error, dev sda, sector 5 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0", "sda");
    check("blk_update_request: critical medium error, dev sdb, sector 9", "sdb");
    check("Buffer I/O error on dev dm-0, logical block 5, lost async page write", "dm-0");
    check("Buffer I/O error on device sda1, logical block 5", "sda1");
    check("Aborting journal on device loop3-8.", "loop3");
    check("JBD2: I/O error when updating journal superblock for dm-0-8.", "dm-0");
    check("nfs: server 10.0.0.1 not responding, still trying", "server:10.0.0.1");
    check("nfs: server files.example OK", "server:files.example");
    check("CIFS: VFS: \\\\files has not responded in 180 seconds. Reconnecting...", "server:files");
    check("sd 2:0:0:0: [sda] tag#0 FAILED Result: hostbyte=DID_NO_CONNECT", "2:0:0:0 sda");
    check("scsi 2:0:0:1: Device offlined - not ready after error recovery", "2:0:0:1");
    check("sd 2:0:0:0: rejecting I/O to offline device", "2:0:0:0");
    check("nvme nvme0: I/O 12 QID 3 timeout, aborting", "nvme0");
    check("nvme0n1: I/O Cmd(0x2) @ LBA 0, 8 blocks, I/O Error", "nvme0n1");
    check("ata3.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", "ata3");
    check("ata3: hard resetting link", "ata3");
    check("scsi host2: adapter reset", "host2");
    check("connection1:0: detected conn error (1020)", "session1");
    check("session1: session recovery timed out after 120 secs", "session1");
    check("block nbd0: Connection timed out", "nbd0");
    check("rbd: rbd0: write at objno 1 result -108", "rbd0");
    check("device-mapper: multipath: 253:3: Failing path 8:16.", "253:3 8:16");
    check("md/raid1:md0: Disk failure on sdb1, disabling device.", "md0 sdb1");
    check("loop0: detected capacity change from 0 to 2048", "loop0");
    check("dd: attempt to access beyond end of device loop0: rw=0, sector=8", "loop0");
}

#[test]
fn lines_about_no_disk_are_about_nothing() {
    for text in [
        "",
        "(",
        "EXT4-fs",
        "EXT4-fs (",
        "EXT4-fs ()",
        "EXT4-fsx (sda): x",
        "bash (1234): drop_caches: 3",
        "sdhci: Secure Digital Host Controller Interface driver",
        "systemd: started",
        "vda x: y",
        "sd a:b:c:d: [sda] x",
        "nfs: server",
        "device-mapper: ioctl: x",
        "Aborting journal on device loop3.",
        "I/O error, dev , sector",
        "I/O error, dev s\u{1b}a, sector",
        "md/raid1:",
        "loop: module loaded",
        "atari: x",
        "ata.00: x",
        "connection: x",
        "scsi host: x",
    ] {
        check(text, "");
    }
    check(&format!("I/O error, dev {}, sector", "a".repeat(300)), "");
}

#[test]
fn the_dictionary_names_the_device_where_the_text_does_not() {
    for (device, expected) in [
        ("b8:16", Some(Subject::Number(DeviceNumber::new(8, 16)))),
        ("+scsi:2:0:0:0", Some(Subject::Device("2:0:0:0".into()))),
        ("+nvme:nvme0", Some(Subject::Device("nvme0".into()))),
        ("+pci:0000:00:01.0", None),
        ("c4:64", None),
        ("n2", None),
        ("b8", None),
        ("+", None),
    ] {
        let record = Record { device: Some(device.into()), ..said(3, "something happened") };
        assert_eq!(subjects(&record), Vec::from_iter(expected), "{device}");
    }
}

#[test]
fn a_record_is_taken_apart() {
    let bytes = b"11,339,5140900,-,caller=T1;tab\\x09new\\x0aline \\xc3\\xbc \\xzz\n SUBSYSTEM=scsi\n DEVICE=+scsi:2:0:0:0\n";
    let record = Record::parse(bytes).unwrap();
    assert_eq!((record.sequence, record.since_boot), (339, Duration::from_micros(5_140_900)));
    assert_eq!((record.level, record.from_kernel), (3, false), "facility 1 is a program");
    assert_eq!(record.text, "tab new line ü \\xzz");
    assert_eq!(record.device.as_deref(), Some("+scsi:2:0:0:0"));
    let plain = Record::parse(b"4,1,2,c;a;b,c").unwrap();
    assert_eq!((plain.text.as_str(), plain.from_kernel, plain.device), ("a;b,c", true, None));
    for bad in
        [&b""[..], b";", b"x,1,2,-;t", b"6,1;t", b"6,1,2", b"-6,1,2,-;t", b"6,99999999999999999999,2,-;t"]
    {
        assert_eq!(Record::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn what_was_overwritten_is_counted_and_reading_goes_on() {
    let errno = |errno| Err(io::Error::from_raw_os_error(errno));
    let mut script = [
        Ok("6,5,1,-;a\n"),
        errno(libc::EINTR),
        errno(libc::EPIPE),
        Ok("6,9,2,-;b\n"),
        errno(libc::EINVAL),
        Ok("garbage"),
        Ok("6,12,3,-;c\n"),
        errno(libc::EAGAIN),
        Ok("never reached"),
    ]
    .into_iter();
    let mut reading = Reading::default();
    let mut read = |piece: &mut [u8]| {
        let text: &str = script.next().unwrap()?;
        piece[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    };
    let records = reading.records(&mut read).unwrap();
    assert_eq!(records.iter().map(|record| record.text.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!((reading.lost, reading.unreadable), (3 + 2, 2));

    let flood = reading.records(|piece| {
        piece[..9].copy_from_slice(b"6,1,1,-;x");
        Ok(9)
    });
    assert_eq!(flood.unwrap().len(), 512, "a flood comes in portions");
    assert!(reading.records(|_| Ok(0)).is_err(), "and an end is no silence");
    assert!(
        reading
            .records(|_| Err(io::Error::from_raw_os_error(libc::EPERM)))
            .unwrap_err()
            .to_string()
            .starts_with("reading the kernel log")
    );
}

#[test]
fn only_the_kernels_warnings_are_evidence_and_servers_may_speak_softly() {
    let mut evidence = Evidence::default();
    let error = "I/O error, dev sda, sector 5";
    assert!(evidence.add(&Record { from_kernel: false, ..said(3, error) }).is_empty());
    assert!(evidence.add(&said(5, error)).is_empty());
    assert_eq!(evidence.add(&said(4, error)).len(), 1);
    assert_eq!(evidence.add(&said(5, "nfs: server a not responding, still trying")).len(), 1);
    assert!(evidence.add(&said(6, "nfs: server a not responding, still trying")).is_empty());
    assert_eq!((evidence.of_server("a").len(), evidence.of_server("b").len()), (1, 0));
}

fn device(name: &str) -> Device {
    Device {
        name: name.into(),
        number: DeviceNumber::new(253, 3),
        disk: name.into(),
        attachments: Vec::new(),
        bytes: 1,
        read_only: false,
        state: None,
        paths: Vec::new(),
        mapper: None,
        backing: None,
        detaches_when_unused: false,
    }
}

#[test]
fn what_is_said_about_any_name_of_a_device_is_found_once_and_in_order() {
    let mut evidence = Evidence::default();
    for (sequence, text) in [
        (1, "device-mapper: multipath: 253:3: Failing path 8:16."),
        (2, "sd 2:0:0:0: [sdb] tag#0 FAILED Result: hostbyte=DID_NO_CONNECT"),
        (3, "I/O error, dev sdz, sector 5"),
        (4, "Buffer I/O error on dev dm-3, logical block 5"),
    ] {
        evidence.add(&Record { sequence, ..said(3, text) });
    }
    let path = DevicePath { name: "sdb".into(), state: None };
    let found =
        evidence.of(&Device { paths: vec![path], attachments: vec!["2:0:0:0".into()], ..device("dm-3") });
    assert_eq!(found.iter().map(|line| line.sequence).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn memory_has_its_bounds_and_the_longest_silent_makes_room() {
    let mut evidence = Evidence::default();
    let long = "x".repeat(2000);
    for sequence in 0..5000 {
        let name = sequence % 1000;
        evidence.add(&Record { sequence, ..said(3, &format!("EXT4-fs error (device sd{name}): {long}")) });
        evidence.add(&Record { sequence, ..said(3, "EXT4-fs error (device busy): again") });
    }
    assert_eq!(evidence.of(&device("busy")).len(), 8);
    assert_eq!(evidence.of(&device("busy"))[0].sequence, 4992, "the newest are kept");
    let kept: Vec<_> = (0..1000).flat_map(|name| evidence.of(&device(&format!("sd{name}")))).collect();
    assert_eq!(kept.len(), 511, "one each of those that spoke last");
    assert!(kept.iter().all(|line| line.sequence >= 4489 && line.text.len() <= 400));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Some(record) = Record::parse(&bytes) {
            use_all(&record)?;
        }
    }

    /// What is nearly a record of the kernel reaches deeper than noise does.
    #[test]
    fn nearly_a_record_is_survived(
        text in "(EXT4-fs|XFS|BTRFS|sd|JBD2:|md/|nfs: server|CIFS:|device-mapper:|I/O error, dev|Aborting journal on device)?[ :\\[\\](),.a-z0-9\\\\x-]{0,40}",
        tail in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = b"3,5,6,-;".to_vec();
        bytes.extend(text.as_bytes());
        bytes.extend(b"\n DEVICE=");
        bytes.extend(tail);
        let record = Record::parse(&bytes);
        prop_assert!(record.is_some());
        use_all(&record.expect("just checked"))?;
    }
}

fn use_all(record: &Record) -> Result<(), TestCaseError> {
    // A byte that is no text becomes a sign of three.
    prop_assert!(record.text.len() <= 3 * 1024 && !record.text.chars().any(char::is_control));
    let mut evidence = Evidence::default();
    let about = evidence.add(record);
    prop_assert!(about.len() <= 4);
    for subject in about {
        if let Subject::Device(name) = subject {
            prop_assert_eq!(evidence.of(&device(&name)).len(), 1);
        }
    }
    Ok(())
}

#[test]
fn fuzz_kernel_log() {
    volmedic_testkit::fuzz("kernel-log", |bytes| {
        let record = Record::parse(bytes);
        if let Some(record) = &record {
            use_all(record).unwrap();
        }
        record.is_some_and(|record| !subjects(&record).is_empty())
    });
}
