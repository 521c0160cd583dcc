//! However it ends, nothing stays: not after Ctrl-C in the middle of a fault, and not after a kill and the next start.

use std::process::Stdio;

use rustix::process::Signal;

use crate::stage::Room;

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let room = Room::new();
    // While a mounter is frozen and every process that uses the volume hangs.
    let mut demo =
        room.start(&["--headless", "--fault", "mounter-frozen:wiki", "--fault", "wrong-mount:orders"]);
    demo.wait("orders is Inaccessible/WrongMount");
    assert!(!room.left().is_empty());
    demo.signal(Signal::INT);
    let (status, said) = demo.end();
    assert_eq!(status.code(), Some(1), "the story was not over: {said}");
    assert!(said.contains("it was stopped before the story was over"), "{said}");
    assert!(said.contains("everything was cleaned up"), "{said}");
    room.assert_nothing_is_left();
}

#[test]
fn a_signal_to_end_leaves_nothing_behind() {
    let room = Room::new();
    let mut demo = room.start(&["--headless"]);
    demo.wait("the reference driver is running");
    // In the middle of making volumes.
    demo.signal(Signal::TERM);
    let (status, said) = demo.end();
    assert_eq!(status.code(), Some(1), "{said}");
    room.assert_nothing_is_left();
}

#[test]
fn after_a_kill_the_next_one_cleans_up() {
    let room = Room::new();
    let mut demo = room.start(&["--headless"]);
    demo.wait(" fault ");
    demo.signal(Signal::KILL);
    let (status, _) = demo.end();
    assert_eq!(status.code(), None);
    let left = room.left();
    assert!(left.iter().any(|line| line.contains("/node/pods/")), "mounts are still there: {left:#?}");
    assert!(left.iter().any(|line| line.ends_with("disk.img")), "and so are loop devices: {left:#?}");

    let (status, said) = room.start(&["--headless", "--fault", "drive-suspect"]).end();
    assert!(status.success(), "{said}");
    assert!(said.contains("an earlier demo was killed; "), "{said}");
    for what in ["processes", "mounts", "loop devices"] {
        assert!(said.contains(what), "{said}");
    }
    room.assert_nothing_is_left();
}

#[test]
fn two_do_not_share_a_place_and_a_strangers_place_is_not_taken() {
    let room = Room::new();
    let mut first = room.start(&["--headless"]);
    first.wait("the reference driver is running");
    let (status, said) = room.start(&["--headless"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("another demo is running in"), "{said}");
    first.signal(Signal::INT);
    first.end();
    room.assert_nothing_is_left();

    std::fs::create_dir(room.home()).unwrap();
    std::fs::write(room.home().join("thesis"), "all of it").unwrap();
    let (status, said) = room.start(&["--headless"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("has files in it that are not from a demo; give another --state-dir"), "{said}");
    assert!(room.home().join("thesis").exists());
    std::fs::remove_dir_all(room.home()).unwrap();
}

#[test]
fn a_reader_who_leaves_ends_it() {
    let room = Room::new();
    let mut child =
        room.command(&["--headless"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    let deadline = std::time::Instant::now() + crate::stage::PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < deadline, "it goes on although nobody reads");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    room.assert_nothing_is_left();
}
