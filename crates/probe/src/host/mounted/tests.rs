//! A mount table and what is remembered go in, suspicions come out.

use proptest::prelude::*;

use super::*;

const ROOT: &str = "1 0 254:0 / / rw - ext4 /dev/vda rw\n";
const STAGED: &str = "2 1 7:3 / /s rw - ext4 /dev/loop3 rw\n";
const TARGET: &str = "3 1 7:3 / /t rw - ext4 /dev/loop3 rw\n";

fn expected(mode: Mode) -> Expected {
    Expected {
        driver: "d".into(),
        handle: "h".into(),
        mode,
        staging: Some("/s".into()),
        targets: vec![Target {
            path: "/t".into(),
            read_only: false,
            pod: "shop/web-0".into(),
            parts: Vec::new(),
        }],
    }
}

/// Remembers from look to look.
struct Eye {
    mode: Mode,
    baseline: Baseline,
}

impl Eye {
    fn new() -> Self {
        Self { mode: Mode::Filesystem, baseline: Baseline::default() }
    }

    fn of_block() -> Self {
        Self { mode: Mode::Block, ..Self::new() }
    }

    fn messages(&mut self, mounts: &[&str]) -> Vec<String> {
        let table = Table::parse(format!("{ROOT}{}", mounts.concat()).into_bytes());
        let expected = expected(self.mode);
        let mounted = check(&expected, &table, &mut self.baseline);
        mounted
            .suspicions
            .iter()
            .map(|Suspicion { place, finding }| {
                format!("{place} {}/{}: {}", finding.status, finding.reason, finding.message)
            })
            .collect()
    }

    #[track_caller]
    fn sees(&mut self, mounts: &[&str], reported: &[&str]) {
        let messages = self.messages(mounts);
        let short: Vec<&str> = messages.iter().map(|message| message.split(':').next().unwrap()).collect();
        assert_eq!(short, reported, "{messages:#?}");
    }
}

const UNMOUNTED: &str = "/t Inaccessible/VolumeUnmounted";
const WRONG: &str = "/t Inaccessible/WrongMount";

#[test]
fn an_unmounted_target_is_reported_with_where_writes_go() {
    let mut eye = Eye::new();
    eye.sees(&[STAGED, TARGET], &[]);
    eye.sees(&[STAGED], &[UNMOUNTED]);
    assert_eq!(
        eye.messages(&[STAGED]),
        [format!(
            "{UNMOUNTED}: nothing is mounted at /t of pod shop/web-0; what is written there goes to /dev/vda at /"
        )]
    );
    eye.sees(&[STAGED, TARGET], &[]);
}

#[test]
fn staging_counts_only_if_it_was_ever_there() {
    let mut eye = Eye::new();
    eye.sees(&[TARGET], &[]);
    eye.sees(&[STAGED, TARGET], &[]);
    eye.sees(&[TARGET], &["/s Degraded/VolumeUnmounted"]);
    eye.sees(&[STAGED, TARGET], &[]);
}

#[test]
fn another_disk_or_the_hosts_own_is_wrong_at_first_sight() {
    Eye::new().sees(&[STAGED, "3 1 7:4 / /t rw - ext4 /dev/loop4 rw\n"], &[WRONG]);
    Eye::new().sees(&[STAGED, "3 1 254:0 /etc /t rw - ext4 /dev/vda rw\n"], &[WRONG]);
    // A userspace file system on top of what was staged is some driver's way to publish.
    Eye::new().sees(&[STAGED, "3 1 0:50 / /t rw - fuse.crypt crypt rw\n"], &[]);
    // And without staging nobody can know better than what is there.
    Eye::new().sees(&["3 1 254:0 /data/v /t rw - ext4 /dev/vda rw\n"], &[]);
}

#[test]
fn what_was_right_once_is_known_again() {
    let mut eye = Eye::new();
    eye.sees(&["3 1 7:3 / /t rw - ext4 /dev/loop3 rw\n"], &[]);
    eye.sees(&["3 1 7:4 / /t rw - ext4 /dev/loop4 rw\n"], &[WRONG]);
    eye.sees(&["3 1 7:3 /sub /t rw - ext4 /dev/loop3 rw\n"], &[WRONG]);
    eye.sees(&["3 1 7:3 / /t rw - ext4 /dev/loop3 rw\n"], &[]);
    assert!(eye.messages(&["3 1 7:4 / /t rw - ext4 /dev/loop4 rw\n"])[0].ends_with(
        "/t of pod shop/web-0 shows /dev/loop4 (ext4 on 7:4) instead of /dev/loop3 (ext4 on 7:3)"
    ));
    // Staged and published again from another device: both say the same.
    let [staged, target] =
        ["2 1 7:9 / /s rw - ext4 /dev/loop9 rw\n", "3 1 7:9 / /t rw - ext4 /dev/loop9 rw\n"];
    eye.sees(&[staged, target], &[]);
    eye.sees(&[target], &["/s Degraded/VolumeUnmounted"]);
}

#[test]
fn a_restarted_mounter_is_no_stranger_but_one_on_top_of_it_is() {
    let mounter =
        |id: u32, parent: u32, minor: u32| format!("{id} {parent} 0:{minor} / /t rw - fuse.s3 bucket rw\n");
    let mut eye = Eye::new();
    eye.sees(&[&mounter(3, 1, 50)], &[]);
    eye.sees(&[&mounter(4, 1, 51)], &[]);
    eye.sees(&[&mounter(4, 1, 51), &mounter(5, 4, 52)], &[WRONG]);
    eye.sees(&["6 1 0:53 / /t rw - tmpfs tmpfs rw\n"], &[WRONG]);
}

#[test]
fn a_covered_target_is_reported_as_such() {
    let mut eye = Eye::new();
    eye.sees(&[STAGED, TARGET], &[]);
    let over = "4 3 254:0 /etc /t rw - ext4 /dev/vda rw\n";
    let messages = eye.messages(&[STAGED, TARGET, over]);
    assert!(
        messages[0].contains("is covered by a mount of /dev/vda (ext4 on 254:0, directory /etc)"),
        "{messages:?}"
    );
    // Also at first sight, where staging shows which is right.
    Eye::new().sees(&[STAGED, TARGET, over], &[WRONG]);
    let hidden = "5 1 0:60 / /x rw - tmpfs tmpfs rw\n6 5 7:3 / /x/t rw - ext4 /dev/loop3 rw\n7 1 0:61 / /x rw - tmpfs tmpfs rw\n";
    let table = Table::parse(format!("{ROOT}{hidden}").into_bytes());
    let mut of_x = expected(Mode::Filesystem);
    of_x.targets[0].path = "/x/t".into();
    let mounted = check(&of_x, &table, &mut Baseline::default());
    let reported: Vec<&str> =
        mounted.suspicions.iter().map(|reported| reported.finding.message.as_str()).collect();
    assert_eq!(reported, ["what is mounted at /x/t of pod shop/web-0 is hidden by a mount on /x"]);
}

#[test]
fn what_was_deleted_behind_its_mount_is_reported() {
    let deleted = "3 1 254:0 /data/v//deleted /t rw - ext4 /dev/vda rw\n";
    Eye::new().sees(&[deleted], &["/t Inaccessible/VolumeNotFound"]);
}

#[test]
fn of_a_raw_device_the_node_is_known_again() {
    let node = "3 1 0:5 /loop3 /t rw - devtmpfs udev rw\n";
    // A node that was made in place is no mount; the device itself is asked.
    Eye::of_block().sees(&[], &[]);
    let mut eye = Eye::of_block();
    eye.sees(&[node], &[]);
    eye.sees(&["3 1 0:5 /loop4 /t rw - devtmpfs udev rw\n"], &[WRONG]);
    eye.sees(&["3 1 254:0 /file /t rw - ext4 /dev/vda rw\n"], &[WRONG]);
    eye.sees(&[], &[UNMOUNTED]);
    eye.sees(&[node], &[]);
}

#[test]
fn a_part_of_the_volume_from_before_it_was_mounted_again_is_reported() {
    let reported = |whole: &str, part: &str| {
        let table = Table::parse(format!("{ROOT}3 1 {whole} rw\n{part}").into_bytes());
        let mut expected = expected(Mode::Filesystem);
        expected.targets[0].parts = vec!["/p/main/0".into()];
        let mounted = check(&expected, &table, &mut Baseline::default());
        mounted.suspicions.into_iter().map(|suspicion| suspicion.finding.message).collect::<Vec<_>>()
    };
    let whole = "0:50 / /t rw - fuse.s3 bucket";
    assert_eq!(
        reported(whole, "4 1 0:49 /logs /p/main/0 rw - fuse.s3 bucket rw\n"),
        [
            "a container of pod shop/web-0 has a part of the volume (subPath) from before the volume was mounted again: \
          /p/main/0 shows bucket (fuse.s3 on 0:49, directory /logs) instead of bucket (fuse.s3 on 0:50); start the pod \
          again"
        ]
    );
    assert_eq!(reported(whole, "4 1 0:50 /logs /p/main/0 rw - fuse.s3 bucket rw\n"), [""; 0]);
    assert_eq!(reported(whole, ""), [""; 0], "it may be about to be made");
    let share = "0:50 / /t rw - nfs4 server:/all";
    assert_eq!(reported(share, "4 1 0:51 / /p/main/0 rw - nfs4 server:/all/logs rw\n"), [""; 0]);
}

#[test]
fn the_place_of_a_pod_that_went_is_forgotten() {
    let mut eye = Eye::new();
    eye.sees(&[STAGED, TARGET], &[]);
    let table = Table::parse(format!("{ROOT}{STAGED}4 1 7:3 / /u rw - ext4 /dev/loop3 rw\n").into_bytes());
    let mut next = expected(Mode::Filesystem);
    next.targets[0].path = "/u".into();
    check(&next, &table, &mut eye.baseline);
    assert_eq!(eye.baseline.places.keys().collect::<Vec<_>>(), ["/u"]);
}

#[test]
fn hostile_names_do_no_harm_to_messages() {
    let mut eye = Eye::new();
    eye.sees(&[TARGET], &[]);
    let evil = "3 1 0:9 / /t rw - fuse.\\012x \\033[2Jowned\\012line rw\n";
    let messages = eye.messages(&[evil]);
    assert!(messages[0].contains("shows [2Jowned line (fuse. x on 0:9)"), "{messages:?}");
    assert!(!messages[0].contains(char::is_control));
}

/// Few places, devices and roots, so that they collide in every way.
fn any_mounts() -> impl Strategy<Value = String> {
    let mount =
        (1_u32..9, 0_u32..9, 0_u32..3, 0_u32..4, prop::sample::select(vec!["/", "/s", "/t", "/x", "/t/sub"]));
    let line = mount.prop_map(|(id, parent, major, minor, target)| {
        let (major, fs_type) = [(7, "ext4"), (0, "fuse.s3"), (254, "xfs")][major as usize];
        let root = ["/", "/sub", "/v//deleted", "/loop3"][minor as usize];
        format!("{id} {parent} {major}:{minor} {root} {target} rw - {fs_type} /dev/d{minor} rw\n")
    });
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_table_says_what_was_right_stays_right_while_nothing_changes(
        tables in prop::collection::vec(any_mounts(), 1..6),
        block in any::<bool>(),
    ) {
        let mut eye = if block { Eye::of_block() } else { Eye::new() };
        for table in &tables {
            let first = eye.messages(&[table]);
            let again = eye.messages(&[table]);
            prop_assert!(!first.is_empty() || again.is_empty(), "{table}: {again:?}");
            prop_assert_eq!(first.len(), again.len(), "{}", table);
        }
    }
}
