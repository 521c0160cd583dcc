//! Is the block device under the volume still there, whole, and on speaking terms with the host?

use volmedic_health::{Status, WellKnown};
use volmedic_host::block::{Backing, Device};

use super::findings::Finding;
use super::memory::Disk;
use super::text;

/// What is at the path of a loop device's file now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Image {
    /// Not asked, or not answered, or out of our sight.
    Unknown,
    /// A file of this size.
    Bytes(u64),
}

/// States that pass by themselves: error handling, a reset, a reconnect, a snapshot. How long they last is judged with
/// the requests that wait.
const PASSING: [&str; 3] = ["blocked", "quiesce", "connecting"];

/// States of a device that was taken away, rather than one that fails.
const TAKEN_AWAY: [&str; 4] = ["deleted", "cancel", "deleting", "deleting (no IO)"];

/// Checks a device and all it stands on, itself first. None at all: it is gone.
///
/// `writes` says whether anybody should be able to write to it.
pub(super) fn check(
    name: &str,
    stack: &[Device],
    image: Image,
    writes: bool,
    baseline: &mut Option<Disk>,
) -> Vec<Finding> {
    let Some(top) = stack.first() else {
        return vec![Finding::inaccessible(
            WellKnown::DiskRemoved,
            format!("the block device {name} does not exist any more"),
        )];
    };
    let mut found: Vec<Finding> = whole(top, image, baseline).into_iter().collect();
    if writes && top.read_only {
        let message = format!("the block device {} is read-only, but a pod may write", text::name(&top.name));
        found.push(Finding::inaccessible(WellKnown::ReadOnlyFilesystem, message));
    }
    // The members of a group are judged as a group.
    let mut members: Vec<&str> = Vec::new();
    for device in stack {
        if is_group(device) {
            members.extend(device.paths.iter().map(|path| path.name.as_str()));
            found.extend(group(device));
        } else if !members.contains(&device.name.as_str()) {
            found.extend(state(device));
        }
    }
    found
}

/// The word with which a device says that it lets nothing through for now.
pub(super) fn pause(stack: &[Device]) -> Option<String> {
    let word = |device: &Device| {
        let suspended = device.mapper.as_ref().is_some_and(|mapper| mapper.suspended).then_some("suspended");
        let passing = device.trouble().filter(|state| PASSING.contains(state));
        passing.or(suspended).map(|word| format!("{} is {word}", text::name(&device.name)))
    };
    stack.iter().find_map(word)
}

/// Is all of it there?
fn whole(device: &Device, image: Image, baseline: &mut Option<Disk>) -> Option<Finding> {
    let name = text::name(&device.name);
    let removed = |what: String| {
        Some(Finding::inaccessible(WellKnown::DiskRemoved, format!("the block device {name} {what}")))
    };
    let same = baseline.take().filter(|disk| disk.name == device.name);
    let seen = Disk {
        name: device.name.clone(),
        bytes: device.bytes,
        detaches: device.detaches_when_unused,
        ..Disk::default()
    };
    let before = baseline.insert(same.unwrap_or(seen));
    if device.name.starts_with("loop") {
        let Some(backing) = &device.backing else {
            before.detached = true;
            return removed("is detached from its file".to_owned());
        };
        // What is known of another file, such as its size, says nothing of this volume.
        if let (true, Some(own)) = (before.detached, before.file.as_ref().filter(|own| **own != backing.file))
        {
            let (own, other) = (text::path(own), text::path(&backing.file));
            return removed(format!("was detached from {own}, and belongs to {other} now"));
        }
        before.detached = false;
        before.file = Some(backing.file.clone());
    }
    // It may grow at any time.
    before.bytes = before.bytes.max(device.bytes);
    if device.bytes == 0 {
        return removed("has no size: nothing is behind it".to_owned());
    }
    if device.bytes < before.bytes {
        return removed(format!("has only {} of {} bytes", device.bytes, before.bytes));
    }
    if let Some(found) = device.backing.as_ref().and_then(|file| backing(device, file, image, before)) {
        return Some(found);
    }
    if device.detaches_when_unused && !before.detaches {
        let message =
            format!("the loop device {name} is to be detached, and will be when its last user closes it");
        return Some(Finding::degraded(WellKnown::DiskRemoved, message));
    }
    before.detaches = device.detaches_when_unused;
    None
}

/// Is the file under a loop device still there, to its end? The device itself notices neither.
fn backing(device: &Device, file: &Backing, image: Image, before: &mut Disk) -> Option<Finding> {
    let (name, path) = (text::name(&device.name), text::path(&file.file));
    let needed = file.offset.saturating_add(device.bytes);
    let is_whole = matches!(image, Image::Bytes(bytes) if bytes >= needed);
    // A name that was given back to the file is not seen by the device, but the file is there for others again.
    if file.deleted && !is_whole {
        let message = format!(
            "{path} was deleted; the loop device {name} still holds the data, which is lost when it is detached: copy it now"
        );
        return Some(Finding::degraded(WellKnown::DiskRemoved, message));
    }
    // The path may mean another file where we are. Only one that was right before can be wrong now.
    before.whole |= is_whole;
    match image {
        Image::Bytes(bytes) if before.whole && !is_whole => Some(Finding {
            status: Status::DataLoss,
            reason: WellKnown::DiskFailure,
            message: format!(
                "{path}, under the loop device {name}, has {bytes} of {needed} bytes; what was beyond is lost"
            ),
        }),
        _ => None,
    }
}

/// Several ways to one disk, or several disks for one: losing some of them loses nothing yet.
fn is_group(device: &Device) -> bool {
    device.is_multipath() || device.name.starts_with("md")
}

fn group(device: &Device) -> Option<Finding> {
    let working = device.working_paths()?;
    let all = device.paths.iter().filter(|path| path.state.is_some()).count();
    if working == all {
        return None;
    }
    let states = device.paths.iter().map(|path| {
        format!("{} {}", text::name(&path.name), text::name(path.state.as_deref().unwrap_or("unknown")))
    });
    let states = states.take(8).collect::<Vec<_>>().join(", ");
    let message = format!("{working} of {all} paths of {} work ({states})", text::name(&device.name));
    Some(if working == 0 {
        Finding::inaccessible(WellKnown::DiskFailure, message)
    } else {
        Finding::degraded(WellKnown::DiskDegrading, message)
    })
}

fn state(device: &Device) -> Option<Finding> {
    let word = device.trouble().filter(|word| !PASSING.contains(word))?;
    let reason = if TAKEN_AWAY.contains(&word) { WellKnown::DiskRemoved } else { WellKnown::DiskFailure };
    let message = format!("the block device {} says it is {}", text::name(&device.name), text::name(word));
    Some(Finding::inaccessible(reason, message))
}

#[cfg(test)]
mod tests {
    use volmedic_host::DeviceNumber;
    use volmedic_host::block::{DevicePath, Mapper};

    use super::*;

    fn disk(name: &str) -> Device {
        Device {
            name: name.into(),
            number: DeviceNumber::new(8, 0),
            disk: name.into(),
            attachments: Vec::new(),
            bytes: 1 << 30,
            read_only: false,
            state: None,
            paths: Vec::new(),
            mapper: None,
            backing: None,
            detaches_when_unused: false,
        }
    }

    fn loop_device(deleted: bool) -> Device {
        let backing = Some(Backing { file: "/images/v".into(), deleted, offset: 0 });
        Device { backing, ..disk("loop3") }
    }

    /// Seen when the device of a detached volume was used by another process for a while.
    #[test]
    fn a_loop_device_that_another_file_took_is_not_the_volumes() {
        let mut baseline = None;
        let own = loop_device(false);
        assert_eq!(reported(std::slice::from_ref(&own), &mut baseline), Vec::<String>::new());
        let detached = Device { backing: None, bytes: 0, ..own.clone() };
        let gone = ["Inaccessible/DiskRemoved: the block device loop3 is detached from its file"];
        assert_eq!(reported(std::slice::from_ref(&detached), &mut baseline), gone);
        let backing = Some(Backing { file: "/images/other".into(), deleted: false, offset: 0 });
        let taken = Device { backing, bytes: own.bytes * 2, ..own.clone() };
        let expected = "Inaccessible/DiskRemoved: the block device loop3 was detached from /images/v, and belongs to \
                        /images/other now";
        assert_eq!(reported(std::slice::from_ref(&taken), &mut baseline), [expected]);
        assert_eq!(reported(std::slice::from_ref(&detached), &mut baseline), gone);
        assert_eq!(
            reported(std::slice::from_ref(&own), &mut baseline),
            Vec::<String>::new(),
            "no smaller than before"
        );
        let renamed = Device { backing: taken.backing.clone(), ..own };
        assert_eq!(reported(&[renamed], &mut baseline), Vec::<String>::new(), "its file was renamed");
    }

    fn with_state(name: &str, state: &str) -> Device {
        Device { state: Some(state.into()), ..disk(name) }
    }

    fn multipath(states: &[&str]) -> Device {
        let path = |(at, state): (usize, &&str)| DevicePath {
            name: format!("sd{at}"),
            state: Some((*state).into()),
        };
        let mapper = Some(Mapper { name: "data".into(), uuid: "mpath-1".into(), suspended: false });
        Device { mapper, paths: states.iter().enumerate().map(path).collect(), ..disk("dm-0") }
    }

    fn reported(stack: &[Device], baseline: &mut Option<Disk>) -> Vec<String> {
        let found = check("sda", stack, Image::Unknown, true, baseline);
        found.iter().map(|found| format!("{}/{}: {}", found.status, found.reason, found.message)).collect()
    }

    #[track_caller]
    fn verdict(stack: &[Device], expected: &[&str]) {
        let reported = reported(stack, &mut None);
        let short: Vec<&str> = reported.iter().map(|reported| reported.split(':').next().unwrap()).collect();
        assert_eq!(short, expected, "{reported:#?}");
    }

    #[test]
    fn a_device_that_is_gone_empty_or_broken_is_reported() {
        verdict(&[disk("sda")], &[]);
        verdict(&[], &["Inaccessible/DiskRemoved"]);
        verdict(&[Device { bytes: 0, ..disk("sda") }], &["Inaccessible/DiskRemoved"]);
        verdict(&[with_state("sda", "running")], &[]);
        verdict(&[with_state("sda", "offline")], &["Inaccessible/DiskFailure"]);
        verdict(&[with_state("nvme0n1", "dead")], &["Inaccessible/DiskFailure"]);
        verdict(&[with_state("sda", "deleted")], &["Inaccessible/DiskRemoved"]);
        verdict(&[with_state("sda", "a word of the future")], &[]);
        verdict(&[disk("dm-1"), with_state("sdb", "offline")], &["Inaccessible/DiskFailure"]);
    }

    #[test]
    fn a_device_that_cannot_be_written_is_reported_where_it_should_be_writable() {
        let protected = [Device { read_only: true, ..disk("sda") }];
        verdict(&protected, &["Inaccessible/ReadOnlyFilesystem"]);
        assert_eq!(check("sda", &protected, Image::Unknown, false, &mut None), []);
    }

    #[test]
    fn a_state_that_passes_is_only_a_pause() {
        let resetting = [with_state("nvme0n1", "connecting")];
        verdict(&resetting, &[]);
        assert_eq!(pause(&resetting).as_deref(), Some("nvme0n1 is connecting"));
        let mut suspended = multipath(&["running"]);
        suspended.mapper.as_mut().unwrap().suspended = true;
        assert_eq!(pause(&[suspended]).as_deref(), Some("dm-0 is suspended"));
        assert_eq!(pause(&[disk("sda"), with_state("sdb", "offline")]), None);
    }

    #[test]
    fn paths_of_a_multipath_device_are_judged_together() {
        let stack = |states: &[&str]| {
            let members = states.iter().enumerate().map(|(at, state)| with_state(&format!("sd{at}"), state));
            [multipath(states)].into_iter().chain(members).collect::<Vec<_>>()
        };
        verdict(&stack(&["running", "running"]), &[]);
        verdict(&stack(&["running", "offline"]), &["Degraded/DiskDegrading"]);
        verdict(&stack(&["offline", "offline"]), &["Inaccessible/DiskFailure"]);
        let words = reported(&stack(&["running", "offline"]), &mut None);
        assert!(words[0].ends_with("1 of 2 paths of dm-0 work (sd0 running, sd1 offline)"), "{words:?}");
    }

    #[test]
    fn a_loop_device_without_its_file_is_reported() {
        verdict(&[loop_device(false)], &[]);
        verdict(&[loop_device(true)], &["Degraded/DiskRemoved"]);
        verdict(&[disk("loop3")], &["Inaccessible/DiskRemoved"]);
    }

    #[test]
    fn a_file_that_lost_its_end_or_its_name_is_reported_until_it_has_it_again() {
        let mut baseline = None;
        let mut look = |deleted: bool, bytes: u64| -> String {
            let found = check("loop3", &[loop_device(deleted)], Image::Bytes(bytes), true, &mut baseline);
            found.first().map_or_else(|| "-".to_owned(), |found| format!("{}/{}", found.status, found.reason))
        };
        let size = 1 << 30;
        assert_eq!(look(false, 5), "-", "perhaps another file of the same name");
        assert_eq!(look(false, size), "-");
        assert_eq!(look(false, size - 1), "DataLoss/DiskFailure");
        assert_eq!(look(false, size), "-");
        assert_eq!(look(true, 5), "Degraded/DiskRemoved");
        assert_eq!(look(true, size), "-", "the name was given back");
    }

    #[test]
    fn a_device_that_shrinks_is_reported_and_one_that_grows_is_not() {
        let sized = |bytes| [Device { bytes, ..disk("sda") }];
        let mut baseline = None;
        assert_eq!(reported(&sized(100), &mut baseline).len(), 0);
        assert_eq!(reported(&sized(200), &mut baseline).len(), 0);
        assert_eq!(
            reported(&sized(100), &mut baseline),
            ["Inaccessible/DiskRemoved: the block device sda has only 100 of 200 bytes"]
        );
        assert_eq!(reported(&sized(200), &mut baseline).len(), 0, "and has recovered");
        let other = [Device { bytes: 50, ..disk("sdb") }];
        assert_eq!(reported(&other, &mut baseline).len(), 0, "another device has its own size");
    }

    #[test]
    fn a_loop_device_may_detach_itself_by_intent_but_not_all_of_a_sudden() {
        let detaching = [Device { detaches_when_unused: true, ..loop_device(false) }];
        verdict(&detaching, &[]);
        let mut baseline = None;
        reported(&[loop_device(false)], &mut baseline);
        for _ in 0..2 {
            assert!(reported(&detaching, &mut baseline)[0].contains("is to be detached"));
        }
        assert!(reported(&[loop_device(false)], &mut baseline).is_empty());
    }
}
