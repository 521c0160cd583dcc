//! A control group that limits memory as that of a container does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The kernel takes a moment to release a group whose last process died.
const REMOVE_LIMIT: Duration = Duration::from_secs(10);

/// Removed when dropped. Its processes must have ended by then.
pub(crate) struct Group {
    path: PathBuf,
    version: u8,
    pub(crate) limit: u64,
}

impl Group {
    pub(crate) fn new(name: &str, limit: u64) -> Self {
        let (root, version) = hierarchy();
        let path = root.join(format!("volmedic-doors-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| {
            panic!("cannot make the control group {}: {error}; run this test as root", path.display())
        });
        let group = Self { path, version, limit };
        let text = limit.to_string();
        if version == 1 {
            group.set("memory.limit_in_bytes", &text);
            // Version 1 counts the buffers of sockets only in a group that limits them.
            group.set("memory.kmem.tcp.limit_in_bytes", &text);
        } else {
            group.set("memory.max", &text);
        }
        group
    }

    fn set(&self, file: &str, value: &str) {
        let path = self.path.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn read(&self, file: &str) -> String {
        let path = self.path.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The program, which joins the group before its first instruction.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo $$ > "$1" && shift && exec "$@""#, "sh"]);
        command.arg(self.path.join("cgroup.procs")).arg(program);
        command
    }

    /// Memory that the kernel cannot take back: anonymous memory, the kernel's own for these processes, and the buffers of
    /// sockets. The program file in the page cache counts towards the limit too, but is dropped under pressure.
    pub(crate) fn pinned(&self) -> u64 {
        let stat = self.read("memory.stat");
        if self.version == 1 {
            let number = |file: &str| self.read(file).trim().parse::<u64>().unwrap();
            let kernel = number("memory.kmem.usage_in_bytes") + number("memory.kmem.tcp.usage_in_bytes");
            return field(&stat, "rss") + field(&stat, "shmem") + kernel;
        }
        ["anon", "shmem", "kernel", "sock"].into_iter().map(|name| field(&stat, name)).sum()
    }

    /// How many processes the kernel killed for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        field(&self.read(file), "oom_kill")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_LIMIT;
        while fs::remove_dir(&self.path).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Where the hierarchy is mounted that limits memory, and its version.
fn hierarchy() -> (PathBuf, u8) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found = None;
    for line in mounts.lines() {
        let (Some(point), Some((_, rest))) = (line.split(' ').nth(4), line.split_once(" - ")) else {
            continue;
        };
        let (kind, options) = (rest.split(' ').next(), rest.split(' ').next_back().unwrap_or_default());
        match kind {
            Some("cgroup") if options.split(',').any(|option| option == "memory") => {
                return (PathBuf::from(point), 1);
            }
            Some("cgroup2") => found = Some(PathBuf::from(point)),
            _ => {}
        }
    }
    let root = found.expect("control groups are mounted");
    // A group has the controllers that the one above hands down.
    fs::write(root.join("cgroup.subtree_control"), "+memory").unwrap_or_else(|error| {
        panic!("{} does not hand down the controller memory: {error}", root.display())
    });
    (root, 2)
}
