//! What is reported, by whom, and what the exit code says of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::stage::{Disk, Room, assert_transcript, of};

/// What was done and what came of it, fault by fault. Who saw it first, and in which words, differs from run to run.
fn transcript(objects: &[Value]) -> String {
    let mut text = String::new();
    for act in of(objects, "fault") {
        let (volume, fault) = (&act["volume"], act["fault"].as_str().unwrap());
        let _ = writeln!(text, "{}", act["text"].as_str().unwrap());
        let about = |event: &str| -> Vec<&Value> {
            of(objects, event).into_iter().filter(|object| object["volume"] == *volume).collect()
        };
        let mut outcomes: Vec<&str> =
            about("heal").iter().filter_map(|heal| heal["outcome"].as_str()).collect();
        outcomes.dedup();
        let _ = writeln!(text, "  healer: {}", outcomes.join(", "));
        for undone in about("undo") {
            let _ = writeln!(text, "  undone: {}", undone["text"].as_str().unwrap());
        }
        let result = about("act").into_iter().find(|result| result["fault"] == fault).unwrap();
        let words = ["told", "healable", "healed"].map(|word| format!("{word} {}", result[word]));
        let _ = writeln!(text, "  {}", words.join(", "));
    }
    let _ = writeln!(text, "{}", of(objects, "summary")[0]["text"].as_str().unwrap());
    text
}

/// Which reasons were reported of a volume.
fn reasons<'a>(objects: &'a [Value], volume: &str) -> BTreeSet<&'a str> {
    let reported = of(objects, "transition").into_iter().filter(|moment| moment["volume"] == volume);
    reported
        .filter_map(|moment| moment["standing"].as_array())
        .flatten()
        .filter_map(|standing| standing["reason"].as_str())
        .collect()
}

/// Each takes half a minute, most of it waiting, so they wait together.
#[test]
fn what_is_reported_and_healed_is_a_success_and_what_is_not_is_none() {
    std::thread::scope(|scope| {
        scope.spawn(the_whole_story_is_reported_healed_and_cleaned_up);
        scope.spawn(a_fault_that_nobody_reports_is_a_failure);
    });
}

/// On a disk that is as small as the demo says it may be. It is a mount of the user's, and stays.
fn the_whole_story_is_reported_healed_and_cleaned_up() {
    let room = Room::new();
    let disk = Disk::of(room.home(), "250000000");
    let (status, objects) = room.start(&["--headless", "--json"]).objects();
    let summary = of(&objects, "summary");
    assert!(status.success(), "{summary:#?}");
    assert_eq!(summary.len(), 1);
    assert_eq!((&summary[0]["ok"], &summary[0]["cleanedUp"]), (&Value::Bool(true), &Value::Bool(true)));
    let healing: Vec<_> =
        of(&objects, "heal").iter().map(|heal| format!("{} {}", heal["at"], heal["text"])).collect();
    assert_transcript("story.txt", &transcript(&objects), &healing.join("\n"));
    for (volume, reason) in [
        ("wiki", "MounterDead"),
        ("orders", "VolumeUnmounted"),
        ("invoices", "OutOfCapacity"),
        ("metrics", "ReadOnlyFilesystem"),
        ("mail", "BackingTruncated"),
        ("uploads", "IOHung"),
        ("photos", "DriveSuspect"),
    ] {
        let reported = reasons(&objects, volume);
        assert!(reported.contains(reason), "{volume}: {reported:?}");
    }
    // Every vantage was at work, and each said that it was over.
    let vantages: BTreeSet<&str> =
        of(&objects, "transition").iter().filter_map(|moment| moment["vantage"].as_str()).collect();
    assert_eq!(vantages, BTreeSet::from(["controller", "host/here", "node/here"]));
    // Everything that was reported was reported once, and its end too.
    let count = |kind: &str, of_what: &dyn Fn(&Value) -> bool| {
        of(&objects, "transition")
            .into_iter()
            .filter(|moment| moment["kind"] == kind && of_what(moment))
            .count()
    };
    for (volume, vantage) in [("invoices", "controller"), ("invoices", "node/here"), ("mail", "controller")] {
        let here = |moment: &Value| moment["volume"] == volume && moment["vantage"] == vantage;
        assert_eq!(count("appeared", &here), count("cleared", &here), "{volume} {vantage}");
        assert!(count("appeared", &here) <= 1, "{volume} {vantage}");
    }
    assert_eq!(count("appeared", &|_| true), count("cleared", &|_| true));
    assert!(disk.is_empty());
    drop(disk);
    std::fs::remove_dir(room.home()).unwrap();
    room.assert_nothing_is_left();
}

/// What the checks cannot see in that time is not called reported.
fn a_fault_that_nobody_reports_is_a_failure() {
    let room = Room::new();
    let arguments = ["--headless", "--json", "--fault", "superblock-corrupted:orders"];
    let (status, objects) = room.start(&arguments).objects();
    assert_eq!(status.code(), Some(1));
    let summary = of(&objects, "summary")[0];
    assert_eq!((&summary["ok"], &summary["told"]), (&Value::Bool(false), &Value::from(0)), "{summary}");
    let missing = summary["missing"].to_string();
    assert!(missing.contains("superblock-corrupted of orders was not reported within"), "{missing}");
    room.assert_nothing_is_left();
}

#[test]
fn a_story_that_is_cut_short_says_what_was_not_reported() {
    let room = Room::new();
    let (status, said) = room.start(&["--headless", "--duration", "1s"]).end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the time was up before the story was over"), "{said}");
    room.assert_nothing_is_left();
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_broken() {
    for (arguments, expected) in [
        (["--fault", "mounter-killed:orders"], "mounter-killed fits fuse volumes, but orders is ext4"),
        (["--fault", "full:cellar"], "there is no volume cellar; the volumes are orders, invoices"),
        (
            ["--fault", "driver-slow:wiki"],
            "driver-slow is for the driver, not for a volume; give it as --fault driver-slow",
        ),
    ] {
        let room = Room::new();
        let (status, said) = room.start(&arguments).end();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(expected) && !said.contains(" fault "), "{said}");
        room.assert_nothing_is_left();
    }
    let room = Room::new();
    for (arguments, expected) in
        [(["--fault", "fool"], "did you mean full?"), (["--json", "--duration=1s"], "--headless")]
    {
        let (status, said) = room.start(&arguments).end();
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

/// The page is there, and has what the healer did.
#[test]
fn the_page_shows_the_same() {
    let room = Room::new();
    let mut demo = room.start(&["--headless", "--fault", "target-unmounted:orders", "--fault", "full:mail"]);
    demo.wait("the page is at http://");
    let said = demo.said();
    let address = said.split("the page is at http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    demo.wait("orders is healed");
    let page = get(&address, "/volume?driver=demo.volmedic.dev&volume=orders");
    assert!(page.contains("VolumeUnmounted") && page.contains("is healed"), "{page}");
    let list = get(&address, "/api/volumes");
    for name in ["orders", "mail", "wiki", "ledger"] {
        assert!(list.contains(&format!("\"volume\": \"{name}\"")), "{list}");
    }
    let (status, said) = demo.end();
    assert!(status.success(), "{said}");
    room.assert_nothing_is_left();
}

fn get(address: &str, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(crate::stage::PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
