//! Which device or server a line of the kernel is about.
//!
//! The kernel has no one way to say it: every part of it has its own. A line that none of these knows is about
//! nothing, and is not needed: the log only explains what was found otherwise.

use super::Record;
use crate::DeviceNumber;

/// What a line is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A device or what it hangs on, by the kernel's name: `sda`, `dm-0`, `nvme0`, `ata3`, `session1`, or a SCSI
    /// address like `2:0:0:0`.
    Device(Box<str>),
    Number(DeviceNumber),
    /// A server of files, as the mount names it.
    Server(Box<str>),
}

/// Longer than any name of a device or host; what is longer is none.
const LONGEST_NAME: usize = 255;

/// Lines name a device and perhaps a path to it; more than a few are never named.
const MOST: usize = 4;

/// One way in which some part of the kernel names what it speaks of, and what that is of.
type Way = fn(&str) -> [Option<Subject>; 2];

const WAYS: [Way; 11] =
    [file_system, request, buffer, journal, server, scsi, port, mapper, raid, beyond_the_end, named_first];

/// Everything that the record is about: mostly one thing or nothing.
pub fn subjects(record: &Record) -> Vec<Subject> {
    let text = record.text.as_str();
    let mut found: Vec<Subject> = record.device.as_deref().and_then(of_dictionary).into_iter().collect();
    found.extend(WAYS.iter().flat_map(|way| way(text)).flatten());
    let mut seen = Vec::with_capacity(found.len());
    for subject in found {
        if !seen.contains(&subject) && seen.len() < MOST {
            seen.push(subject);
        }
    }
    seen
}

/// `b8:0` is a block device, `+scsi:2:0:0:0` a device of some subsystem.
fn of_dictionary(device: &str) -> Option<Subject> {
    if let Some(number) = device.strip_prefix('b') {
        return number.parse().ok().map(Subject::Number);
    }
    let (subsystem, name) = device.strip_prefix('+')?.split_once(':')?;
    matches!(subsystem, "scsi" | "nvme" | "block").then(|| device_called(name)).flatten()
}

/// `EXT4-fs error (device loop3): ...`, `XFS (dm-0): ...`, `BTRFS error (device loop0: state EA): ...`
fn file_system(text: &str) -> [Option<Subject>; 2] {
    const SPEAKERS: [&str; 10] = [
        "EXT4-fs", "XFS", "BTRFS", "EXT3-fs", "EXT2-fs", "F2FS-fs", "FAT-fs", "exFAT-fs", "NTFS-fs", "OCFS2",
    ];
    let is_speaker = SPEAKERS
        .iter()
        .filter_map(|speaker| text.strip_prefix(speaker))
        .any(|rest| rest.starts_with(' ') || rest.starts_with(':'));
    let named = || {
        let inside = text.split_once('(')?.1;
        let inside = inside.strip_prefix("device ").unwrap_or(inside);
        device_called(inside.split([')', ' ']).next()?.trim_end_matches(':'))
    };
    [is_speaker.then(named).flatten(), None]
}

/// `I/O error, dev sda, sector 5 ...`, `critical medium error, dev sdb, ...`
fn request(text: &str) -> [Option<Subject>; 2] {
    [text.split_once(" error, dev ").and_then(|(_, rest)| first_device(rest)), None]
}

/// `Buffer I/O error on dev dm-0, logical block 5, ...`
fn buffer(text: &str) -> [Option<Subject>; 2] {
    let rest = text.strip_prefix("Buffer I/O error on dev");
    [rest.and_then(|rest| first_device(rest.strip_prefix("ice").unwrap_or(rest).trim_start())), None]
}

/// `Aborting journal on device loop3-8.`, `JBD2: I/O error when updating journal superblock for dm-0-8.`
fn journal(text: &str) -> [Option<Subject>; 2] {
    let name = text.strip_prefix("Aborting journal on device ").or_else(|| {
        let rest = text.strip_prefix("JBD2: ")?;
        [" for ", " on device ", " on "].iter().find_map(|before| Some(rest.rsplit_once(before)?.1))
    });
    let device = name.and_then(|name| {
        let name = name.split(' ').next()?.trim_end_matches(['.', ':', ',']);
        // The journal is called by its device and its inode.
        let (device, inode) = name.rsplit_once('-')?;
        inode.bytes().all(|byte| byte.is_ascii_digit()).then(|| device_called(device)).flatten()
    });
    [device, None]
}

/// `nfs: server 10.0.0.1 not responding, still trying`, `CIFS: VFS: \\files has not responded in 180 seconds`
fn server(text: &str) -> [Option<Subject>; 2] {
    let nfs = text.strip_prefix("nfs: server ").or_else(|| text.strip_prefix("lockd: server "));
    let smb = || text.strip_prefix("CIFS: ")?.split_once("\\\\").map(|(_, rest)| rest);
    let name = nfs.or_else(smb).and_then(|rest| rest.split([' ', '\\', ',']).next());
    [name.filter(|name| is_name(name)).map(|name| Subject::Server(name.into())), None]
}

/// `sd 2:0:0:0: [sda] ...`, `scsi 2:0:0:0: Device offlined - not ready after error recovery`
fn scsi(text: &str) -> [Option<Subject>; 2] {
    let rest = text.strip_prefix("sd ").or_else(|| text.strip_prefix("scsi "));
    let Some((address, rest)) = rest.and_then(|rest| rest.split_once(": ")) else { return [None, None] };
    let is_address = address.split(':').count() == 4
        && address.split(':').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let name = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name);
    [
        is_address.then(|| device_called(address)).flatten(),
        name.filter(|_| is_address).and_then(device_called),
    ]
}

/// `ata3.00: exception ...`, `scsi host2: ...`, `session1: session recovery timed out`, `connection1:0: ...`
fn port(text: &str) -> [Option<Subject>; 2] {
    let first = text.strip_prefix("scsi ").unwrap_or(text).split([':', '.']).next().unwrap_or_default();
    let number = |kind: &str| {
        first
            .strip_prefix(kind)
            .filter(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // A connection of iSCSI is called by its session and its own number.
    let kinds = [("ata", "ata"), ("host", "host"), ("session", "session"), ("connection", "session")];
    let name = kinds.into_iter().find_map(|(kind, called)| Some(format!("{called}{}", number(kind)?)));
    [name.filter(|_| text.len() > first.len()).and_then(|name| device_called(&name)), None]
}

/// `device-mapper: multipath: 253:3: Failing path 8:16.`
fn mapper(text: &str) -> [Option<Subject>; 2] {
    let Some(rest) = text.strip_prefix("device-mapper: ") else { return [None, None] };
    let rest = rest.strip_prefix("multipath: ").unwrap_or(rest);
    let number = |text: &str| text.parse().ok().map(Subject::Number);
    let whole = rest.split_once(": ").and_then(|(first, _)| number(first));
    let path =
        rest.split_once(" path ").and_then(|(_, path)| number(path.split(' ').next()?.trim_end_matches('.')));
    [whole, path]
}

/// `md/raid1:md0: Disk failure on sdb1, disabling device.`
fn raid(text: &str) -> [Option<Subject>; 2] {
    let Some((_, rest)) = text.strip_prefix("md/").and_then(|rest| rest.split_once(':')) else {
        return [None, None];
    };
    let whole = rest.split_once(": ").and_then(|(name, _)| device_called(name));
    [whole, rest.split_once("Disk failure on ").and_then(|(_, rest)| first_device(rest))]
}

/// `dd: attempt to access beyond end of device loop0: rw=0, ...`, where the kernel broke the line before the name.
fn beyond_the_end(text: &str) -> [Option<Subject>; 2] {
    let rest = text.split_once("attempt to access beyond end of device ").map(|(_, rest)| rest);
    [rest.and_then(|rest| device_called(rest.split_once(':')?.0)), None]
}

/// `loop0: detected capacity change ...`, `nvme nvme0: I/O 12 QID 3 timeout`, `block nbd0: Connection timed out`
fn named_first(text: &str) -> [Option<Subject>; 2] {
    const SPEAKERS: [&str; 3] = ["nvme ", "block ", "rbd: "];
    let rest = SPEAKERS.iter().find_map(|speaker| text.strip_prefix(speaker)).unwrap_or(text);
    [
        rest.split_once(':')
            .filter(|(name, _)| is_block_name(name))
            .and_then(|(name, _)| device_called(name)),
        None,
    ]
}

/// Programs bear names, too, and start lines with them; so only what is surely a disk counts here.
fn is_block_name(name: &str) -> bool {
    const WITH_NUMBERS: [&str; 7] = ["loop", "nvme", "dm-", "nbd", "rbd", "md", "mmcblk"];
    const WITH_LETTERS: [&str; 3] = ["sd", "vd", "xvd"];
    let numbered = |rest: &str| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let lettered = |rest: &str| {
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_lowercase());
        (1..=2).contains(&(rest.len() - digits.len())) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    WITH_NUMBERS.iter().filter_map(|start| name.strip_prefix(start)).any(numbered)
        || WITH_LETTERS.iter().filter_map(|start| name.strip_prefix(start)).any(lettered)
}

/// The name up to a comma, a space or a full stop at the end.
fn first_device(rest: &str) -> Option<Subject> {
    device_called(rest.split([',', ' ']).next()?.trim_end_matches(['.', ':']))
}

fn device_called(name: &str) -> Option<Subject> {
    if let Ok(number) = name.parse() {
        return Some(Subject::Number(number));
    }
    is_name(name).then(|| Subject::Device(name.into()))
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:!/[]".contains(&byte))
}
