//! May its pods write, if they should? And does the kernel still let anything through to the disk?

use std::os::unix::ffi::OsStrExt;

use volmedic_health::WellKnown;
use volmedic_host::mounts::Mount;

use super::expected::Target;
use super::findings::Finding;
use super::text;

/// These cannot be written to by nature.
const ALWAYS_READ_ONLY: [&[u8]; 6] = [b"iso9660", b"squashfs", b"erofs", b"cramfs", b"romfs", b"udf"];

pub(super) fn check(target: &Target, mount: Mount<'_>) -> Option<Finding> {
    check_at(&text::target(target), target.read_only, mount, mount.is_read_only())
}

/// The same of a place with these words. Whether it is read-only is for the caller to say.
pub(super) fn check_at(
    shown: &str,
    may_be_read_only: bool,
    mount: Mount<'_>,
    is_read_only: bool,
) -> Option<Finding> {
    let options = |of: volmedic_host::mounts::Options<'_>| text::name(of.as_os_str().display());
    if mount.is_shut_down() {
        let message = format!(
            "the kernel shut down the file system at {shown} (options {})",
            options(mount.super_options())
        );
        return Some(Finding::inaccessible(WellKnown::FilesystemShutdown, message));
    }
    if may_be_read_only || !is_read_only || ALWAYS_READ_ONLY.contains(&mount.fs_type().as_bytes()) {
        return None;
    }
    let system = mount.super_options();
    let message = if system.has("emergency_ro") {
        format!("the kernel made the file system at {shown} read-only after an error (emergency_ro)")
    } else if system.has("ro") {
        format!("the file system at {shown} is read-only ({}), but the pod may write", options(system))
    } else {
        format!("the mount at {shown} is read-only ({}), but the pod may write", options(mount.options()))
    };
    Some(Finding::inaccessible(WellKnown::ReadOnlyFilesystem, message))
}

#[cfg(test)]
mod tests {
    use volmedic_host::mounts::Table;

    use super::*;

    /// Mount options, type and super options in; the reason and a word of the message out.
    #[track_caller]
    fn verdict(options: &str, fs_type: &str, system: &str, read_only: bool, expected: Option<(&str, &str)>) {
        let table =
            Table::parse(format!("2 1 7:3 / /t {options} - {fs_type} /dev/loop3 {system}\n").into_bytes());
        let target = Target { path: "/t".into(), read_only, pod: "shop/web-0".into(), parts: Vec::new() };
        let found = check(&target, table.iter().next().unwrap());
        let reason = found.as_ref().map(|found| found.reason.name());
        assert_eq!(reason, expected.map(|(reason, _)| reason));
        if let (Some(found), Some((_, word))) = (found, expected) {
            assert!(
                found.message.contains(word) && found.message.contains("shop/web-0"),
                "{}",
                found.message
            );
        }
    }

    #[test]
    fn read_only_against_the_intent_is_reported_with_who_says_so() {
        verdict("rw,relatime", "ext4", "rw", false, None);
        verdict("ro,relatime", "ext4", "rw", false, Some(("ReadOnlyFilesystem", "the mount at")));
        verdict(
            "rw",
            "ext4",
            "ro,errors=remount-ro",
            false,
            Some(("ReadOnlyFilesystem", "the file system at")),
        );
        verdict("rw", "ext4", "rw,emergency_ro", false, Some(("ReadOnlyFilesystem", "after an error")));
        verdict("rw", "ext4", "rw,errors=remount-ro", false, None);
    }

    #[test]
    fn read_only_by_intent_or_nature_is_not() {
        verdict("ro", "ext4", "ro", true, None);
        verdict("ro", "squashfs", "ro", false, None);
    }

    #[test]
    fn a_shut_down_file_system_is_reported_whatever_the_intent() {
        for read_only in [true, false] {
            verdict("rw", "ext4", "rw,shutdown", read_only, Some(("FilesystemShutdown", "shut down")));
            verdict(
                "ro",
                "ext4",
                "ro,emergency_ro,shutdown",
                read_only,
                Some(("FilesystemShutdown", "shut down")),
            );
        }
    }
}
