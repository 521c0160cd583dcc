//! Which directory the kubelet keeps its pods in.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where kubelets are unless they are configured otherwise.
pub const DEFAULT_ROOT: &str = "/var/lib/kubelet";
const FLAG: &str = "--root-dir";
/// Kubelets have long command lines, but not that long.
const LONGEST_COMMAND: u64 = 64 * 1024;
/// More processes than this are not looked through.
const PROCESSES: usize = 100_000;

/// The root directory of the kubelet that runs here, as its command line says, or the usual one if there is no kubelet
/// to be seen, as in a container that sees only its own processes. `proc` is `/proc`.
pub fn find_root(proc: &Path) -> PathBuf {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten().take(PROCESSES);
    let found = processes.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        // Reading the command line of a process can hang with the process; its name never does.
        let name = fs::read(entry.path().join("comm")).ok()?;
        if name.trim_ascii() != b"kubelet" {
            return None;
        }
        let mut command = Vec::new();
        File::open(entry.path().join("cmdline"))
            .ok()?
            .take(LONGEST_COMMAND)
            .read_to_end(&mut command)
            .ok()?;
        root_dir(&command).map(|root| (pid, root))
    });
    found.min().map_or_else(|| DEFAULT_ROOT.into(), |(_, root)| root)
}

/// The directory that a command line gives by `--root-dir`, last one wins as for the kubelet itself.
fn root_dir(command: &[u8]) -> Option<PathBuf> {
    let mut found = None;
    let mut arguments = command.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    while let Some(argument) = arguments.next() {
        // Flags of Go programs may have one hyphen or two.
        let flag = argument.strip_prefix(&FLAG[1..]).or_else(|| argument.strip_prefix(FLAG));
        let value = match flag {
            Some("") => arguments.next().map(std::borrow::Cow::into_owned),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        found = value.map(PathBuf::from).filter(|root| root.is_absolute()).or(found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: Option<&str>) {
        assert_eq!(root_dir(command.replace(' ', "\0").as_bytes()), expected.map(PathBuf::from), "{command}");
    }

    #[test]
    fn the_command_line_says_where() {
        check("/usr/bin/kubelet --root-dir=/data/kubelet --v=2", Some("/data/kubelet"));
        check("/usr/bin/kubelet --v 2 --root-dir /data/kubelet", Some("/data/kubelet"));
        check("kubelet -root-dir=/a --root-dir=/b", Some("/b"));
        check("kubelet --root-dir=relative", None);
        check("kubelet --root-dir=/a --root-dir=", Some("/a"));
        check("kubelet --root-directory=/a", None);
        check("kubelet --root-dir", None);
        check("", None);
    }

    #[test]
    fn only_kubelets_are_asked() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, name: &str, command: &str| {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            fs::write(folder.join("cmdline"), command.replace(' ', "\0")).unwrap();
        };
        assert_eq!(find_root(proc.path()), Path::new(DEFAULT_ROOT));
        process("7", "grep", "grep --root-dir=/not/this");
        process("self", "kubelet", "kubelet --root-dir=/nor/this");
        fs::write(proc.path().join("8"), "no directory").unwrap();
        assert_eq!(find_root(proc.path()), Path::new(DEFAULT_ROOT));
        process("40", "kubelet", "kubelet --root-dir=/second");
        process("9", "kubelet", "kubelet --root-dir=/first");
        assert_eq!(find_root(proc.path()), Path::new("/first"));
    }
}
