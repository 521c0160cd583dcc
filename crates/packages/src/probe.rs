//! Whether what a package provides is here. A program counts from wherever it came: a machine with Docker's own
//! containerd must not get Debian's on top.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

enum Probe {
    /// All of these programs.
    Programs(&'static [&'static str]),
    /// A program that runs in an otherwise empty root; the first name found decides.
    Static(&'static [&'static str]),
    /// Any of these files.
    AnyFile(&'static [&'static str]),
}

const PROVIDES: &[(&str, Probe)] = &[
    ("btrfs-progs", Probe::Programs(&["mkfs.btrfs"])),
    ("busybox-static", Probe::Static(&["busybox.static", "busybox"])),
    ("chromium", Probe::Programs(&["chromium"])),
    ("containerd", Probe::Programs(&["containerd", "ctr", "containerd-shim-runc-v2"])),
    ("containernetworking-plugins", Probe::AnyFile(&["/usr/lib/cni/ptp", "/opt/cni/bin/ptp"])),
    ("e2fsprogs", Probe::Programs(&["mkfs.ext4", "e2fsck"])),
    ("fuse3", Probe::Programs(&["fusermount3"])),
    ("groff-base", Probe::Programs(&["groff"])),
    ("iproute2", Probe::Programs(&["ip"])),
    ("iptables", Probe::Programs(&["iptables"])),
    ("mount", Probe::Programs(&["mount", "umount", "losetup"])),
    ("openssl", Probe::Programs(&["openssl"])),
    ("perl", Probe::Programs(&["perl"])),
    ("prometheus", Probe::Programs(&["promtool"])),
    ("runc", Probe::Programs(&["runc"])),
    ("util-linux", Probe::Programs(&["nsenter", "unshare"])),
    ("xfsprogs", Probe::Programs(&["mkfs.xfs", "xfs_io"])),
];

fn lookup(package: &str) -> Option<&'static Probe> {
    PROVIDES.iter().find(|(name, _)| *name == package).map(|(_, probe)| probe)
}

pub(super) fn present(package: &str) -> bool {
    match lookup(package) {
        Some(Probe::Programs(names)) => names.iter().all(|name| find(name).is_some()),
        Some(Probe::Static(names)) => names.iter().find_map(|name| find(name)).is_some_and(|p| is_static(&p)),
        Some(Probe::AnyFile(files)) => files.iter().any(|file| Path::new(file).exists()),
        None => dpkg_knows(package),
    }
}

/// What to look for on a system that has no Debian packages.
pub(super) fn describe(package: &str) -> Option<String> {
    Some(match lookup(package)? {
        Probe::Programs(names) => names.join(" and "),
        Probe::Static(names) => format!("a statically linked {}", names.join(" or ")),
        Probe::AnyFile(files) => files.join(" or "),
    })
}

/// Looks in PATH and, since an ordinary user's PATH may lack them, in the system folders.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A program without an interpreter segment needs no dynamic loader. Little-endian 64-bit ELF is all we run on.
pub(super) fn is_static(program: &Path) -> bool {
    const PROGRAM_HEADER_INTERP: u32 = 3;
    let mut head = Vec::new();
    let read = File::open(program).and_then(|file| file.take(4096).read_to_end(&mut head));
    if read.is_err() || !head.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let field = head.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let interpreted = || -> Option<bool> {
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        for index in 0..count {
            if number(table.checked_add(index * size)?, 4)? == PROGRAM_HEADER_INTERP as usize {
                return Some(true);
            }
        }
        Some(false)
    };
    interpreted() == Some(false)
}

/// Reads dpkg's own record; a removed package whose configuration stayed behind does not count.
fn dpkg_knows(package: &str) -> bool {
    installed_in(&std::fs::read_to_string("/var/lib/dpkg/status").unwrap_or_default(), package)
}

fn installed_in(status: &str, package: &str) -> bool {
    status.split("\n\n").any(|record| {
        record.lines().any(|line| line.strip_prefix("Package: ") == Some(package))
            && record.lines().any(|line| line.starts_with("Status: ") && line.ends_with(" ok installed"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_missing_ones_are_not() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }

    #[test]
    fn only_an_installed_package_counts() {
        let status = "Package: ab\nStatus: install ok installed\n\n\
                      Package: gone\nStatus: deinstall ok config-files\n";
        assert!(installed_in(status, "ab"));
        assert!(!installed_in(status, "a"));
        assert!(!installed_in(status, "gone"));
        assert!(!installed_in("", "ab"));
    }

    #[test]
    fn a_dynamic_program_a_script_and_a_cut_file_are_not_static() {
        assert!(!is_static(Path::new("/proc/self/exe")), "this test is linked against libc.so");
        assert!(!is_static(Path::new("/etc/passwd")));
        assert!(!is_static(Path::new("/no/such/file")));
    }

    #[test]
    fn an_elf_without_interpreter_is_static() {
        let mut elf = vec![0_u8; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        elf[64] = 1;
        elf[64 + 56] = 1;
        let file = std::env::temp_dir().join(format!("volmedic-elf-{}", std::process::id()));
        std::fs::write(&file, &elf).unwrap();
        let static_one = is_static(&file);
        elf[64 + 56] = 3;
        std::fs::write(&file, &elf).unwrap();
        let interpreted = !is_static(&file);
        elf.truncate(80);
        std::fs::write(&file, &elf).unwrap();
        let cut = !is_static(&file);
        std::fs::remove_file(&file).unwrap();
        assert!(static_one && interpreted && cut);
    }

    #[test]
    fn the_table_is_sorted_and_names_each_package_once() {
        assert!(PROVIDES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
