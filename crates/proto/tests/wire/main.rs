//! Our proto files against the official Go modules: the same wire, except for the differences listed in `reference`.

mod descriptor;
mod facts;
mod mutation;
mod oracle;
mod reference;
mod secrets;

use std::fmt::Write as _;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use volmedic_proto::csi::controller_service_capability::rpc::Type as ControllerCapability;
use volmedic_proto::csi::node_service_capability::rpc::Type as NodeCapability;
use volmedic_proto::csi::{StorageHealthErrorType, VolumeHealthErrorType};
use volmedic_proto::identity;

const PACKAGES: [&str; 3] = ["csi.v1", "identity", "healer"];

/// Our own file of that package.
fn ours(package: &str) -> descriptor::File {
    descriptor::file(volmedic_proto::FILE_DESCRIPTOR_SET, package)
        .unwrap_or_else(|error| panic!("ours: {error}"))
}

#[test]
fn the_wire_is_the_official_one() {
    let mut report = String::new();
    for reference in reference::all() {
        let surprises = reference.surprises(&facts::of(&ours(reference.package)));
        if !surprises.is_empty() {
            let _ =
                writeln!(report, "{} and our proto file differ:\n{}", reference.name, surprises.join("\n"));
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// Each number of each file and much besides is changed, alone, and the comparison must find it.
#[test]
fn any_single_change_is_found() {
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    for package in PACKAGES {
        let file = ours(package);
        let references: Vec<_> =
            reference::all().iter().filter(|reference| reference.package == package).collect();
        let worker = |first: usize| {
            let changes = (first..).step_by(workers).map_while(|place| mutation::nth(&file, place));
            changes
                .inspect(|change| must_be_found(change, &references))
                .filter(|change| change.what == "number")
                .count()
        };
        let numbers: usize = thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|first| scope.spawn(move || worker(first))).collect();
            running.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).sum()
        });
        assert_eq!(numbers, count_numbers(&file), "{package}: every number must have been changed once");
    }
}

/// A change of what several references have must be found by each of them.
fn must_be_found(change: &mutation::Change, references: &[&reference::Reference]) {
    let mutation::Change { subject, what, file } = change;
    let facts = facts::of(file);
    let mut found = false;
    for reference in references {
        let finds = !reference.surprises(&facts).is_empty();
        let knows = reference.facts.contains_key(subject);
        assert!(finds || !knows, "{} does not find a change of the {what} of {subject}", reference.name);
        found |= finds;
    }
    assert!(found, "no reference finds a change of the {what} of {subject}");
}

/// Counted apart from the walk that changes them, so that a number the walk misses is noticed.
fn count_numbers(file: &descriptor::File) -> usize {
    fn inside(message: &descriptor::Msg) -> usize {
        let values: usize = message.enums.iter().map(|list| list.values.len()).sum();
        message.fields.len() + values + message.messages.iter().map(inside).sum::<usize>()
    }
    let values: usize = file.enums.iter().map(|list| list.values.len()).sum();
    file.extensions.len() + values + file.messages.iter().map(inside).sum::<usize>()
}

#[test]
fn a_known_difference_that_is_gone_is_reported() {
    for reference in reference::all().iter().filter(|reference| !reference.known.is_empty()) {
        let surprises = reference.surprises(&reference.facts);
        assert_eq!(surprises.len(), reference.known.len(), "{}: {surprises:?}", reference.name);
        assert!(surprises.iter().all(|line| line.starts_with("listed as known")), "{surprises:?}");
    }
}

#[test]
fn a_missing_message_is_reported_once() {
    let ours =
        reference::written("p.A: message\np.A.x: 1 bool\np.A.B: message\np.A.B.y: 1 bool\np.C: message");
    let theirs = reference::written("p.A: message\np.A.x: 2 bool\np.C: message\np.C.z: 1 bool");
    let expected = [
        "changed: p.A.x: ours 1 bool, theirs 2 bool",
        "only ours: p.A.B: message",
        "only theirs: p.C.z: 1 bool",
    ];
    assert_eq!(facts::differences(&ours, &theirs), expected);
}

/// The enhancement proposal's text numbers the two health enums in another order; the released proto wins.
#[test]
fn released_numbers_not_those_of_the_proposal() {
    assert_eq!(VolumeHealthErrorType::Degraded as i32, 1);
    assert_eq!(VolumeHealthErrorType::Inaccessible as i32, 2);
    assert_eq!(VolumeHealthErrorType::DataLoss as i32, 3);
    assert_eq!(StorageHealthErrorType::StorageDegraded as i32, 1);
    assert_eq!(StorageHealthErrorType::StorageUnreachable as i32, 2);

    assert_eq!(ControllerCapability::VolumeCondition as i32, 11);
    assert_eq!(ControllerCapability::GetVolume as i32, 12);
    assert_eq!(ControllerCapability::GetVolumeHealth as i32, 16);
    assert_eq!(ControllerCapability::ListVolumeHealth as i32, 17);
    assert_eq!(NodeCapability::VolumeCondition as i32, 4);
    assert_eq!(NodeCapability::GetVolumeHealth as i32, 7);
    assert_eq!(NodeCapability::GetStorageHealth as i32, 8);

    assert_eq!(identity::capability::volume_healer::Type::VolumeHealer as i32, 1);
}

#[test]
fn the_cache_is_where_the_environment_says() {
    let check = |set: &[(&str, &str)], expected: Option<&str>| {
        let var =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value));
        assert_eq!(oracle::cache_folder(var).ok(), expected.map(PathBuf::from), "{set:?}");
    };
    check(&[("VOLMEDIC_CACHE", "/a"), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], Some("/a"));
    check(&[("VOLMEDIC_CACHE", ""), ("XDG_CACHE_HOME", "/b"), ("HOME", "/c")], Some("/b/volmedic"));
    check(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/c")], Some("/c/.cache/volmedic"));
    check(&[("HOME", "/c")], Some("/c/.cache/volmedic"));
    check(&[], None);
}

#[test]
fn a_command_past_its_deadline_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("child");
    let mut command = Command::new("sh");
    command.args(["-c", r#"sleep 600 & echo $! > "$0"; wait"#]).arg(&note);
    let error = oracle::run_within(&mut command, Duration::from_secs(2)).unwrap_err();
    assert_eq!(error.to_string(), "`sh` did not end within 2s and was killed");

    let child = fs::read_to_string(note).unwrap();
    let status = format!("/proc/{}/stat", child.trim());
    let end = Instant::now() + Duration::from_secs(10);
    // Killed, it is gone, or a zombie that its new parent has not buried yet.
    while fs::read_to_string(&status).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < end, "the child {child} outlived its parent");
        thread::sleep(Duration::from_millis(10));
    }
}
