use volmedic_api::Kind;
use volmedic_health::{Change, Condition, Held, Reason, Status, Subject, Vantage};

use super::*;

fn memory() -> Memory {
    let at: jiff::Timestamp = "2026-08-21T10:14:30Z".parse().unwrap();
    let condition = Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), "99 % used");
    let pod = ObjectRef::new(Kind::Pod, "shop", "web-0", "uid");
    let vantage = Vantage::Host("n".into());
    Memory {
        memos: vec![Memo {
            subject: Subject::volume("d", "v"),
            vantage: vantage.clone(),
            reported: vec![Held { condition: condition.clone(), since: at }],
            reported_at: at,
            blind_since: None,
            flapping_since: Some(at),
        }],
        audiences: vec![(Volume { driver: "d".into(), handle: "v".into() }, vec![pod.clone()])],
        unsent: vec![Unsent {
            transition: Transition {
                at,
                subject: Subject::volume("d", "v"),
                vantage,
                change: Change::Appeared { condition, since: at },
            },
            about: vec![pod],
            known_as: Some("claim shop/data".into()),
        }],
        baselines: vec![(
            Key { driver: "d".into(), handle: "v".into() },
            Baseline { staged: Some("/k/globalmount".into()), answered: true, ..Baseline::default() },
        )],
    }
}

#[test]
fn what_was_saved_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(&dir.path().join("deep/state"), "n").unwrap();
    let (empty, trouble) = shelf.load();
    assert!(empty.memos.is_empty() && trouble.is_none());
    let memory = memory();
    for _ in 0..2 {
        shelf.save(&shelf.page(&memory).unwrap()).unwrap();
    }
    let (read, trouble) = shelf.load();
    assert_eq!(trouble, None);
    let Memory { memos, audiences, unsent, baselines } = read;
    assert_eq!((memos, audiences), (memory.memos, memory.audiences));
    assert_eq!((unsent, baselines), (memory.unsent, memory.baselines));
}

/// As version 0.1 wrote it, with one of everything that it could write.
#[test]
fn a_file_of_an_earlier_version_is_read_without_a_loss() {
    let text = include_str!("../../../fixtures/agent-v0.1.json");
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path(), "worker-7").unwrap();
    fs::write(dir.path().join(OLD[0]), text).unwrap();
    let (memory, trouble) = shelf.load();
    assert_eq!(trouble, None);
    let Memory { memos, audiences, unsent, baselines } = &memory;
    assert_eq!((memos.len(), audiences.len(), unsent.len(), baselines.len()), (3, 1, 2, 1));
    // Written again, it has what that version wrote, and what was added since at its default.
    let mut written: serde_json::Value = serde_json::from_slice(&shelf.page(&memory).unwrap()).unwrap();
    let device = written["baselines"][0]["baseline"]["device"].as_object_mut().unwrap();
    assert_eq!(device.remove("file"), Some(serde_json::Value::Null));
    assert_eq!(device.remove("detached"), Some(false.into()));
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());

    // From the first page on it is kept in the slots, and the old file is gone.
    fs::write(dir.path().join(OLD[1]), "{\"form").unwrap();
    shelf.reserve().unwrap();
    assert_eq!(shelf.load().0.memos, memory.memos, "a place alone takes nothing from the old file");
    shelf.save(&shelf.page(&memory).unwrap()).unwrap();
    let read = Shelf::open(dir.path(), "worker-7").unwrap().load();
    assert_eq!((read.0.memos, read.0.unsent, read.1), (memos.clone(), unsent.clone(), None));
    assert!(OLD.iter().all(|old| !dir.path().join(old).exists()));
}

/// The file of an earlier version beside slots: we were killed before it was removed, or the earlier version ran again.
#[test]
fn of_the_old_file_and_the_slots_the_newer_counts() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join(OLD[0]);
    let shelf = Shelf::open(dir.path(), "n").unwrap();
    let page = shelf.page(&memory()).unwrap();
    let empty = shelf.page(&Memory::default()).unwrap();
    for (number, (kept, in_old_file)) in [(&page, &empty), (&empty, &page)].into_iter().enumerate() {
        shelf.save(kept).unwrap();
        fs::write(&old, in_old_file).unwrap();
        let file = File::options().write(true).open(&old).unwrap();
        let an_hour = std::time::Duration::from_hours(1);
        let expected = shelf.parse(kept).unwrap().memos;
        file.set_modified(SystemTime::now() - an_hour).unwrap();
        assert_eq!(shelf.load().0.memos, expected, "the slot is newer, {number}");
        let expected = shelf.parse(in_old_file).unwrap().memos;
        file.set_modified(SystemTime::now() + an_hour).unwrap();
        assert_eq!(shelf.load().0.memos, expected, "the old file is newer, {number}");
    }
}

#[test]
fn what_cannot_be_used_is_put_aside_with_a_sentence() {
    let check = |content: &str, expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join(OLD[0]);
        let shelf = Shelf::open(dir.path(), "n").unwrap();
        fs::write(&old, content).unwrap();
        let (memory, trouble) = shelf.load();
        assert!(memory.memos.is_empty());
        let trouble = trouble.expect("a sentence");
        assert!(trouble.contains(expected), "{trouble}");
        assert_eq!(fs::read_to_string(aside(&old)).unwrap(), content);
        assert_eq!(shelf.load().1, None, "told once");
        // The same in a slot.
        shelf.save(content.as_bytes()).unwrap();
        let (memory, trouble) = shelf.load();
        assert!(memory.memos.is_empty());
        let trouble = trouble.expect("a sentence");
        assert!(trouble.contains(expected) && trouble.contains("a copy was put aside"), "{trouble}");
        let slot = dir.path().join("journal-0");
        assert_eq!(fs::read(aside(&slot)).unwrap(), fs::read(&slot).unwrap());
        shelf.save(&shelf.page(&self::memory()).unwrap()).unwrap();
        assert_eq!(shelf.load().1, None, "it is over with the next page");
    };
    check("", "makes no sense");
    check("{\"format\":\"volmedic-agent/1\",\"node\":\"n\",\"memos\":[{\"dri", "makes no sense");
    check("{\"format\":\"volmedic-agent/9\",\"node\":\"n\"}", "this release reads");
    check("{\"format\":\"volmedic-agent/1\",\"node\":\"other\"}", "it is about node \"other\"");
}

#[test]
fn whatever_lies_there_is_survived() {
    for name in [OLD[0], "journal-0", "journal-1"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let shelf = Shelf::open(dir.path(), "n").unwrap();
        fs::create_dir(&path).unwrap();
        let (_, trouble) = shelf.load();
        assert!(trouble.is_some_and(|trouble| trouble.contains("not a regular file")), "{name}");
        fs::remove_dir(aside(&path)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        let (_, trouble) = shelf.load();
        assert!(trouble.is_some_and(|trouble| trouble.contains("not a regular file")), "{name}");
        shelf.reserve().unwrap();
        for _ in 0..2 {
            shelf.save(&shelf.page(&memory()).unwrap()).unwrap();
        }
        assert_eq!(shelf.load().0.memos.len(), 1, "{name}");
        assert!(fs::read_to_string("/etc/passwd").unwrap().starts_with("root"), "{name}");
    }
}

#[test]
fn what_is_in_the_way_and_stays_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path(), "n").unwrap();
    let slot = dir.path().join("journal-0");
    for place in [slot.clone(), aside(&slot).join("full")] {
        fs::create_dir_all(place).unwrap();
    }
    let trouble = shelf.load().1.expect("a sentence");
    assert!(trouble.contains("could not be put aside either"), "{trouble}");
    assert!(shelf.save(b"{}").is_err());
}

#[test]
fn a_page_cut_off_anywhere_is_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path(), "n").unwrap();
    let page = shelf.page(&memory()).unwrap();
    for length in 0..page.len() {
        assert!(shelf.parse(&page[..length]).is_err(), "at {length}");
    }
}

#[test]
fn the_place_on_disk_is_taken_at_the_start_and_belongs_to_the_owner_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(&dir.path().join("state"), "n").unwrap();
    shelf.reserve().unwrap();
    for slot in ["journal-0", "journal-1"] {
        let found = fs::metadata(shelf.place().join(slot)).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (64 << 10, 0o600));
        assert!(found.blocks() * 512 >= found.len(), "{} blocks", found.blocks());
    }
}

/// A file on the node: what is read from it can be written again.
#[test]
fn fuzz_journal() {
    let dir = tempfile::tempdir().unwrap();
    let shelf = Shelf::open(dir.path(), "n").unwrap();
    volmedic_testkit::fuzz("journal", |bytes| {
        slots::survives(bytes);
        let Ok(memory) = shelf.parse(bytes) else { return false };
        let page = shelf.page(&memory).unwrap();
        let read = shelf.parse(&page).unwrap();
        let lengths =
            |one: &Memory| [one.memos.len(), one.audiences.len(), one.unsent.len(), one.baselines.len()];
        assert_eq!(lengths(&read), lengths(&memory));
        assert_eq!(read.unsent, memory.unsent);
        true
    });
}
