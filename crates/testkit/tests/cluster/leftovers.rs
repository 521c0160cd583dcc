//! What a cluster could leave behind on a machine, checked without any of the marks that the cleaning itself uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Everything on this machine that a cluster adds to.
pub(crate) struct Snapshot(BTreeSet<String>);

impl Snapshot {
    pub(crate) fn take() -> Self {
        let mut all = BTreeSet::new();
        all.extend(processes());
        all.extend(mounts());
        all.extend(
            groups(Path::new("/sys/fs/cgroup")).map(|group| format!("control group {}", group.display())),
        );
        all.extend(reported("ip", &["-o", "link"]).map(|link| format!("link {}", words(&link, 2))));
        all.extend(reported("ip", &["-o", "addr"]).map(|address| format!("address {}", words(&address, 4))));
        for folder in
            ["/run/netns", "/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"]
        {
            all.extend(files(Path::new(folder)).map(|file| format!("file {}", file.display())));
        }
        for setting in ["kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward", "vm/overcommit_memory"]
        {
            all.extend(
                lines(&format!("/proc/sys/{setting}")).map(|value| format!("setting {setting} is {value}")),
            );
        }
        Self(all)
    }

    /// Fails unless everything that came since is gone. The kernel gets its time: it takes network namespaces and
    /// the interfaces in them apart in the background.
    pub(crate) fn nothing_was_added(&self) {
        let end = Instant::now() + Duration::from_mins(2);
        loop {
            let now = Self::take();
            let added: Vec<&String> = now.0.difference(&self.0).collect();
            if added.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind: {added:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether the machine passed packets on at that time, which it must for the sake of pods.
    pub(crate) fn forwards(&self) -> bool {
        self.0.contains("setting net/ipv4/ip_forward is 1")
    }

    /// Fails unless something of each of these kinds came since: or the comparison would prove nothing.
    pub(crate) fn something_was_added(&self, kinds: &[&str]) {
        let now = Self::take();
        for kind in kinds {
            assert!(now.0.difference(&self.0).any(|one| one.starts_with(kind)), "no {kind} was added");
        }
    }
}

/// Programs of clusters and processes of pods; zombies have no program any more. Those of other tests' control planes,
/// which may come and go meanwhile, are recognised by the folder in their environment.
fn processes() -> impl Iterator<Item = String> {
    const OURS: [&str; 5] = ["busybox", "containerd", "containerd-shim-runc-v2", "kube", "runc"];
    const OTHERS: [&str; 2] = ["/run/control-plane-", "/run/busy-port-"];
    numbers().filter_map(|pid| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment);
        let other = OTHERS.iter().any(|folder| environment.contains(folder));
        let ours = OURS.contains(&program.file_name()?.to_str()?);
        (ours && !other).then(|| format!("process {pid} {}", program.display()))
    })
}

/// Other tests have their volumes in the folder for temporary files. A cluster mounts nothing there, unless it was asked to keep
/// everything there.
fn mounts() -> impl Iterator<Item = String> {
    let (others, cache) = (std::env::temp_dir(), volmedic_testkit::cache::folder().expect("a cache"));
    let is_others = move |mount: &String| {
        let at = mount.split(' ').nth(4).map(Path::new);
        at.is_some_and(|at| at.starts_with(&others) && !at.starts_with(&cache))
    };
    lines("/proc/self/mountinfo").filter(move |mount| !is_others(mount)).map(|mount| format!("mount {mount}"))
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn groups(root: &Path) -> impl Iterator<Item = PathBuf> {
    walk(root, 4).into_iter().filter(|path| path.is_dir())
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    walk(folder, 4).into_iter().filter(|path| !path.is_dir())
}

fn walk(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(walk(&path, depth - 1));
        }
        found.push(path);
    }
    found
}

fn lines(file: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn reported(program: &str, arguments: &[&str]) -> impl Iterator<Item = String> {
    let output = Command::new(program).args(arguments).output().expect("the tool runs");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// The first words of a line: what follows may change by itself.
fn words(line: &str, count: usize) -> String {
    line.split_whitespace().take(count).collect::<Vec<_>>().join(" ")
}
