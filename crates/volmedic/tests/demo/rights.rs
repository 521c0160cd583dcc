//! With fewer rights, fewer tools and fewer devices: what is missing is named, and the rest is shown.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use crate::stage::{Demo, Room, WIDE, assert_transcript, of};

/// Runs it as somebody with no rights at all, where the device of FUSE has this mode. The program is where everybody can
/// reach it.
fn as_nobody(room: &Room, fuse: u32, arguments: &[&str]) -> Demo {
    let device = room.path().join("fuse");
    node(&device, fuse);
    let program = room.path().join("volmedic");
    fs::write(&program, "").unwrap();
    let words = room.words(arguments);
    // The namespace begins with a copy of every mount, which would keep other tests' volumes busy. A copy also goes
    // when the other test removes the directory that it is mounted on, at any moment: only one that is left is an error.
    let script = "for at in $(grep -e ' /dev/loop' -e ' - fuse\\.' /proc/self/mountinfo | cut -d' ' -f5); do \
                  umount --lazy -- \"$at\" 2>/dev/null || ! grep -qF \" $at \" /proc/self/mountinfo || \
                  { echo \"$at is still mounted\" >&2; exit 1; }; done; \
                  mount --bind \"$1\" /dev/fuse && mount --bind \"$2\" \"$3\" && cd / && shift 2 && \
                  exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command
        .env("COLUMNS", WIDE)
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&device)
        .arg(&words[0])
        .arg(&program);
    Demo::start(command.args(&words[1..]).stdin(Stdio::null()))
}

/// Without FUSE there is nothing to mount, but the driver can still be asked.
#[test]
fn without_any_rights_the_rest_is_shown_and_it_says_so() {
    let room = Room::new();
    let (status, said) = as_nobody(&room, 0o600, &["--headless"]).end();
    assert!(status.success(), "{said}");
    assert_transcript("without-rights.txt", &redact(&room, &said), &said);
    room.assert_nothing_is_left();
    let (status, said) = as_nobody(&room, 0o600, &["--headless", "--fault", "mounter-killed"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    let expected = "volmedic: mounter-killed needs a mounted volume, and there is none; run the demo as root";
    assert!(said.contains(expected), "{said}");
    room.assert_nothing_is_left();
}

/// In a user namespace even nobody has real FUSE volumes, and they are healed.
#[test]
fn who_may_open_fuse_has_real_volumes_without_root() {
    let room = Room::new();
    let arguments = ["--headless", "--json", "--fault", "mounter-killed", "--fault", "target-unmounted"];
    let (status, objects) = as_nobody(&room, 0o666, &arguments).objects();
    let summary = of(&objects, "summary");
    assert!(status.success(), "{summary:#?}");
    assert_eq!((&summary[0]["told"], &summary[0]["healed"]), (&2.into(), &2.into()), "{summary:#?}");
    let started = of(&objects, "started")[0];
    assert!(started["leftOut"][0].as_str().unwrap().starts_with("not root: only FUSE volumes"), "{started}");
    assert_eq!(started["volumes"].as_array().unwrap().len(), 12);
    room.assert_nothing_is_left();
}

#[test]
fn tools_that_are_missing_are_named_once_and_their_volumes_are_left_out() {
    let room = Room::new();
    let tools = room.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join("mkfs.ext4")).find(|file| file.exists());
    symlink(found.unwrap(), tools.join("mkfs.ext4")).unwrap();
    let mut command = room.command(&["--headless", "--json", "--fault", "read-only"]);
    let (status, objects) = Demo::start(command.env("PATH", &tools)).objects();
    let started = of(&objects, "started")[0];
    let missing = "no xfs, btrfs volumes: mkfs.xfs, mkfs.btrfs not found in PATH (apt-get install xfsprogs btrfs-progs)";
    assert_eq!(started["leftOut"], serde_json::json!([missing]));
    let notes = of(&objects, "note");
    let named = notes.iter().filter(|note| note["text"].as_str().unwrap().contains("mkfs.")).count();
    assert_eq!(named, 1, "{notes:#?}");
    let kinds: Vec<&str> =
        started["volumes"].as_array().unwrap().iter().filter_map(|volume| volume["kind"].as_str()).collect();
    assert_eq!(kinds, ["ext4", "ext4", "ext4", "ext4", "block", "fuse", "fuse", "fuse"]);
    assert!(status.success(), "{:#?}", of(&objects, "summary"));
    room.assert_nothing_is_left();
}

/// Where this user may not write, nothing is begun.
#[test]
fn a_directory_that_is_not_writable_is_refused() {
    let room = Room::new();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (status, said) = as_nobody(&room, 0o666, &["--headless"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    let expected = format!("cannot create {}: Permission denied (os error 13)", room.home().display());
    assert!(said.contains(&expected) && said.contains("; give a --state-dir where you may write"), "{said}");
    room.assert_nothing_is_left();
}

/// The device of FUSE under another name, with these rights.
fn node(path: &std::path::Path, mode: u32) {
    let _ = fs::remove_file(path);
    let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
    let device = rustix::fs::makedev(10, 229);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &name, kind, rustix::fs::Mode::from_raw_mode(0o600), device)
        .unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Without what differs from run to run, and all that is said of one volume in one place.
fn redact(room: &Room, said: &str) -> String {
    let home = room.home().display().to_string();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for line in said.lines() {
        let line = line.replace(&home, "HOME");
        // The time of day is at the beginning of all but the last lines.
        let line = match line.split_once(' ') {
            Some((clock, rest)) if clock.len() == 8 && clock.as_bytes()[2] == b':' => format!("TIME {rest}"),
            _ => line,
        };
        let line = match line.split_once("http://127.0.0.1:") {
            Some((before, _)) => format!("{before}PAGE"),
            None => line,
        };
        let line = match line.split_once(" after ") {
            Some((before, rest)) => {
                let after = rest.split_once(" s, ").map_or(rest, |(_, after)| after);
                format!("{before} after N s, {after}")
            }
            None => line,
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let about = match words[..] {
            ["TIME", "fault" | "monitor" | "undo", volume, ..] => volume.trim_end_matches(':').to_owned(),
            _ => line.clone(),
        };
        match groups.iter_mut().find(|(known, _)| *known == about) {
            Some((_, lines)) => lines.push(line),
            None => groups.push((about, vec![line])),
        }
    }
    groups.into_iter().flat_map(|(_, lines)| lines).map(|line| line + "\n").collect()
}
