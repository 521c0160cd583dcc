use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn table(text: &str) -> Table {
    Table::parse(text.as_bytes().to_vec())
}

/// As the kernel's seq_escape with its set for paths.
fn escape(raw: &[u8]) -> Vec<u8> {
    raw.iter()
        .flat_map(|&byte| match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
            other => vec![other],
        })
        .collect()
}

const SAMPLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
22 21 0:5 / /proc rw,nosuid - proc proc rw
36 21 7:3 / /var/lib/k/pv-1/globalmount rw,noatime shared:2 master:1 - ext4 /dev/loop3 rw,errors=remount-ro
37 21 7:3 /sub /var/lib/k/pods/a/mount ro,noatime - ext4 /dev/loop3 rw,errors=remount-ro
38 21 0:44 / /mnt/with\\040space rw - fuse.passthrough  rw,user_id=0,fsname=a\\054b
39 21 0:4 net:[4026532008] /run/netns/x rw - nsfs nsfs rw
";

#[test]
fn every_part_of_a_line_is_found() {
    let table = table(SAMPLE);
    assert_eq!((table.len(), table.skipped()), (6, 0));
    let bind = table.at("/var/lib/k/pods/a/mount").unwrap();
    assert_eq!((bind.id(), bind.parent(), bind.device()), (37, 21, DeviceNumber::new(7, 3)));
    assert_eq!(
        (bind.root(), bind.source(), bind.fs_type()),
        (Path::new("/sub"), "/dev/loop3".as_ref(), "ext4".as_ref())
    );
    assert!(bind.is_read_only() && bind.options().has("noatime") && !bind.super_options().has("ro"));

    let staged = table.at("/var/lib/k/pv-1/globalmount").unwrap();
    assert!(!staged.is_read_only(), "errors=remount-ro is not ro");
    assert_eq!(staged.optional().collect::<Vec<_>>(), ["shared:2", "master:1"]);
    assert_eq!(staged.super_options().value("errors"), Some("remount-ro".as_ref()));

    let odd = table.at("/mnt/with space").unwrap();
    assert_eq!((odd.source(), odd.fs_type()), ("".as_ref(), "fuse.passthrough".as_ref()), "an empty source");
    assert_eq!(odd.optional().count(), 0);
    assert_eq!(table.at("/run/netns/x").unwrap().root(), Path::new("net:[4026532008]"));
}

#[test]
fn emergencies_show_in_the_super_options() {
    let table = table(
        "1 0 7:0 / / rw - ext4 a rw,emergency_ro\n2 1 7:1 / /s rw - ext4 b rw,shutdown\n\
         3 1 7:2 /x//deleted /d rw - ext4 c ro\n",
    );
    let [emergency, shut, gone] = ["/", "/s", "/d"].map(|target| table.at(target).unwrap());
    assert!(emergency.is_read_only() && !emergency.is_shut_down());
    assert!(shut.is_shut_down() && !shut.is_read_only() && !shut.root_is_deleted());
    assert!(gone.is_read_only() && gone.root_is_deleted());
}

#[test]
fn the_topmost_of_stacked_mounts_wins_in_whatever_order_they_are_listed() {
    let lines = [
        "1 0 8:0 / / rw - ext4 r rw\n",
        "2 1 7:1 / /m rw - ext4 low rw\n",
        "3 2 7:2 / /m rw - xfs high rw\n",
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let table = table(&order.map(|at| lines[at]).concat());
        assert_eq!(table.at("/m").unwrap().source(), "high", "{order:?}");
        assert_eq!(table.containing("/m/deep/er").unwrap().id(), 3);
        assert_eq!(table.stacked("/m").count(), 2);
    }
}

#[test]
fn a_mount_hidden_by_a_later_one_above_is_not_found_by_its_path() {
    let table = table(
        "1 0 8:0 / / rw - ext4 r rw\n2 1 7:1 / /a/b rw - ext4 hidden rw\n3 1 7:2 / /a rw - xfs over rw\n",
    );
    assert!(table.at("/a/b").is_none());
    assert_eq!(table.containing("/a/b").unwrap().source(), "over");
    assert_eq!(table.stacked("/a/b").count(), 1, "it is still mounted");
}

#[test]
fn prefixes_end_at_names_and_devices_are_found() {
    let table = table(
        "1 0 8:0 / / rw - ext4 r rw\n2 1 7:1 / /a/b rw - ext4 x rw\n3 1 7:2 / /a/b.old rw - xfs y rw\n\
         4 2 7:1 /s /a/b/c rw - ext4 x rw\n5 1 7:1 /t /a/bc rw - ext4 x rw\n",
    );
    let under: Vec<_> = table.under("/a/b/").map(Mount::id).collect();
    assert_eq!(under, [2, 4]);
    assert_eq!(table.under("/").count(), 5);
    assert_eq!(table.under("/nowhere").count(), 0);
    let mut same: Vec<_> = table.of_device(DeviceNumber::new(7, 1)).map(Mount::id).collect();
    same.sort_unstable();
    assert_eq!(same, [2, 4, 5]);
    assert_eq!(table.of_device(DeviceNumber::new(9, 9)).count(), 0);
    assert!(table.at("relative").is_none() && table.at("").is_none());
}

#[test]
fn circles_end() {
    let table =
        table("1 2 8:0 / / rw - ext4 r rw\n2 1 7:1 / / rw - ext4 x rw\n3 3 7:1 / /m rw - ext4 x rw\n");
    assert!(table.at("/").is_none(), "a circle has no top");
    assert_eq!(table.at("/m").unwrap().id(), 3, "its own parent is no parent");
}

#[test]
fn lines_that_are_no_mounts_are_counted() {
    let bad = [
        "",
        " ",
        "x",
        "1 0 8:0 / / rw",
        "1 0 8:0 / / rw -",
        "1 0 8:0 / / rw - ext4",
        "1 0 8:0 / / rw - ext4 r",
        "1 0 8 / / rw - ext4 r rw",
        "-1 0 8:0 / / rw - ext4 r rw",
        "4294967296 0 8:0 / / rw - ext4 r rw",
        "1 0 8:0 / relative rw - ext4 r rw",
        "1 0 8:0 / / rw shared:1 ext4 r rw",
    ];
    for line in bad {
        let table = table(&format!("{line}\n7 0 8:0 / /ok rw - ext4 r rw\n"));
        assert_eq!((table.len(), table.skipped()), (1, 1), "{line:?}");
    }
    assert_eq!(table("").skipped(), 0);
}

#[test]
fn lines_without_end_and_bytes_without_sense_are_survived() {
    let good = b"7 0 8:0 / /ok rw - ext4 r rw\n".to_vec();
    let long = vec![b'a'; 1 << 20];
    let slashes = [&b"9 7 8:1 / /"[..], &b"/\\057".repeat(1 << 17), b" rw - ext4 r rw\n"].concat();
    let fields = b"1 ".repeat(1 << 19);
    for (bad, mounts) in
        [(&long, 0), (&vec![0; 1 << 18], 0), (&vec![0xff; 1 << 18], 0), (&fields, 0), (&slashes, 1)]
    {
        let table = Table::parse([bad, &b"\n"[..], &good].concat());
        assert_eq!(table.len(), 1 + mounts);
        assert_eq!(table.at("/ok").unwrap().id(), 7);
        let table = Table::parse([good.as_slice(), bad].concat());
        assert_eq!(table.at("/ok").unwrap().id(), 7);
    }
}

#[test]
fn escapes_that_are_none_stay() {
    let table = table(
        "1 0 8:0 / /a\\04 rw - ext4 r rw\n2 0 8:0 / /\\777\\400\\134040 rw - ext4 r rw\n3 0 8:0 / /b\\ rw - e r rw\n",
    );
    let targets: Vec<_> = table.iter().map(|mount| mount.target().to_path_buf()).collect();
    assert_eq!(targets, ["/a\\04", "/\\777\\400\\040", "/b\\"].map(PathBuf::from));
}

#[test]
fn twenty_thousand_mounts_are_indexed_for_all_lookups() {
    let mut text = String::from("1 0 8:0 / / rw - ext4 r rw\n");
    for n in 2..20_002 {
        writeln!(text, "{n} 1 7:{n} / /var/lib/k/pods/{n:08x}/volumes/v/mount rw,relatime shared:{n} - ext4 /dev/loop{n} rw").unwrap();
    }
    let table = table(&text);
    assert_eq!(table.len(), 20_001);
    for n in 2..20_002_u32 {
        let target = format!("/var/lib/k/pods/{n:08x}/volumes/v/mount");
        assert_eq!(table.at(&target).unwrap().id(), n);
        assert_eq!(table.of_device(DeviceNumber::new(7, n)).next().unwrap().target(), Path::new(&target));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(text in proptest::collection::vec(any::<u8>(), 0..2000), path in ".{0,40}") {
        use_all(&Table::parse(text), &path);
    }

    /// Lines that are nearly right reach deeper than noise does.
    #[test]
    fn nearly_mountinfo_is_survived(
        text in proptest::collection::vec("[0-3] [0-3] [0-2]:[0-2] [/a\\\\0-7]{0,5} /[a/\\\\0-7]{0,5} [a-z,]{0,4}( [a-z:]{0,3}){0,2} -? ?[a-z]{0,2} [ -~]{0,4}", 0..40),
        path in "/[a/]{0,6}",
    ) {
        let lines = text.len();
        let table = Table::parse(text.join("\n").into_bytes());
        prop_assert!(table.len() + table.skipped() <= lines.max(1));
        use_all(&table, &path);
    }

    #[test]
    fn escaped_names_come_back(name in proptest::collection::vec(1_u8..=255, 0..4095)) {
        let mut target = b"/".to_vec();
        // A kernel path has no slash twice and none at the end.
        target.extend(name.iter().map(|&byte| if byte == b'/' { b'_' } else { byte }));
        let mut text = b"9 1 0:9 ".to_vec();
        text.extend(escape(&target));
        text.push(b' ');
        text.extend(escape(&target));
        text.extend(b" rw - fuse.x ");
        text.extend(escape(&target));
        text.extend(b" rw\n");
        let table = Table::parse(text);
        prop_assert_eq!((table.len(), table.skipped()), (1, 0));
        let target = Path::new(OsStr::from_bytes(&target));
        let mount = table.at(target).expect("the mount is found by its decoded target");
        prop_assert_eq!(mount.target(), target);
        prop_assert_eq!(mount.root(), target);
        prop_assert_eq!(mount.source(), target.as_os_str());
    }
}

fn use_all(table: &Table, path: &str) {
    let _ = (table.at(path), table.containing(path), table.under(path).count(), table.stacked(path).count());
    for mount in table.iter() {
        assert!(mount.target().is_absolute());
        let _ = format!("{mount:?} {}", mount.is_read_only());
        // What is found by its path is at that path.
        if let Some(found) = table.at(mount.target()) {
            assert_eq!(found.target().components().count(), mount.target().components().count());
        }
        assert!(table.of_device(mount.device()).any(|other| other.id() == mount.id()));
    }
}

#[test]
fn fuzz_mountinfo() {
    volmedic_testkit::fuzz("mountinfo", |text| {
        let lines = text.split(|byte| *byte == b'\n').count();
        let table = Table::parse(text.to_vec());
        assert!(table.len() + table.skipped() <= lines);
        use_all(&table, "/var/lib/k");
        !table.is_empty()
    });
}
