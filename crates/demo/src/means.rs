//! What this machine and this user's rights allow, and what is missing, by name.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};
use volmedic_driver::fault::Kind;

use super::namespace;

/// How volumes can be mounted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mounts {
    /// Where everybody sees them.
    OnTheHost,
    /// In a user namespace of our own.
    OnOurOwn,
    /// Not at all.
    Nowhere,
}

/// What can be shown here.
#[derive(Debug, Clone)]
pub(super) struct Means {
    pub(super) mounts: Mounts,
    /// The kinds of volume that can be made.
    pub(super) kinds: Vec<Kind>,
    /// What cannot be shown, why, and what would help: a sentence each.
    pub(super) left_out: Vec<String>,
}

/// What the kernel and the rights allow, without the tools.
#[derive(Debug, Default)]
struct Rights {
    root: bool,
    /// May mount where everybody sees it.
    admin: bool,
    /// Why loop devices cannot be used, if not.
    loops: Option<String>,
    fuse: Option<String>,
    /// A user namespace could be entered.
    namespace: bool,
}

const TOOLS: &[(Kind, &str, &str)] = &[
    (Kind::Ext4, "mkfs.ext4", "e2fsprogs"),
    (Kind::Xfs, "mkfs.xfs", "xfsprogs"),
    (Kind::Btrfs, "mkfs.btrfs", "btrfs-progs"),
];

impl Means {
    /// Finds out. Nothing is changed.
    pub(super) fn look() -> Self {
        let admin = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        let fuse = missing("/dev/fuse", "modprobe fuse");
        let loops = missing("/dev/loop-control", "modprobe loop");
        let namespace = !admin && fuse.is_none() && namespace::can_enter();
        Self::of(Rights { root: geteuid().is_root(), admin, loops, fuse, namespace }, is_installed)
    }

    fn of(rights: Rights, installed: impl Fn(&str) -> bool) -> Self {
        let Rights { root, admin, loops, fuse, namespace } = rights;
        let who = if root { "root without CAP_SYS_ADMIN, as in a container" } else { "not root" };
        match (admin, namespace) {
            (true, _) => Self::on_the_host(loops, fuse, installed),
            (false, true) => Self {
                mounts: Mounts::OnOurOwn,
                kinds: vec![Kind::Fuse],
                left_out: vec![format!(
                    "{who}: only FUSE volumes, in a user namespace of their own; run it as root for ext4, xfs, btrfs \
                     and block volumes"
                )],
            },
            (false, false) => {
                let why = fuse.unwrap_or_else(|| "user namespaces are not allowed".to_owned());
                Self::unmounted(&format!("{who}, and {why}"))
            }
        }
    }

    fn on_the_host(loops: Option<String>, fuse: Option<String>, installed: impl Fn(&str) -> bool) -> Self {
        if let (Some(loops), Some(fuse)) = (&loops, &fuse) {
            return Self::unmounted(&format!("{loops}, and {fuse}"));
        }
        let (mut kinds, mut left_out) = (Vec::new(), Vec::new());
        match loops {
            None => {
                let (found, missing): (Vec<_>, Vec<_>) =
                    TOOLS.iter().copied().partition(|(_, tool, _)| installed(tool));
                kinds.extend(found.iter().map(|(kind, ..)| *kind));
                kinds.push(Kind::Block);
                if !missing.is_empty() {
                    let list = |word: fn(&(Kind, &'static str, &'static str)) -> &'static str, between| {
                        missing.iter().map(word).collect::<Vec<_>>().join(between)
                    };
                    left_out.push(format!(
                        "no {} volumes: {} not found in PATH (apt-get install {})",
                        list(|(kind, ..)| kind.name(), ", "),
                        list(|(_, tool, _)| tool, ", "),
                        list(|(.., package)| package, " ")
                    ));
                }
            }
            Some(why) => left_out.push(format!("no ext4, xfs, btrfs and block volumes: {why}")),
        }
        match fuse {
            None => kinds.push(Kind::Fuse),
            Some(why) => left_out.push(format!("no FUSE volumes: {why}")),
        }
        Self { mounts: Mounts::OnTheHost, kinds, left_out }
    }

    fn unmounted(why: &str) -> Self {
        let left_out = format!(
            "{why}: volumes are created but not mounted, so only faults of their drives are shown and nothing is \
             healed; run it as root, with /dev/fuse or loop devices, for the rest"
        );
        Self { mounts: Mounts::Nowhere, kinds: Vec::new(), left_out: vec![left_out] }
    }

    /// One line that says how much of it is real here.
    pub(super) fn headline(&self) -> &'static str {
        match self.mounts {
            Mounts::OnTheHost => "real volumes, mounted on this machine",
            Mounts::OnOurOwn => "real FUSE volumes, without root",
            Mounts::Nowhere => "volumes that are not mounted",
        }
    }

    /// Disk space that the demo needs, with room for the largest volume that is filled.
    pub(super) fn bytes(&self) -> u64 {
        match self.mounts {
            Mounts::OnTheHost => 250_000_000,
            Mounts::OnOurOwn => 100_000_000,
            Mounts::Nowhere => 10_000_000,
        }
    }
}

/// Why a device cannot be used, if so.
fn missing(device: &str, load: &str) -> Option<String> {
    let error = File::options().read(true).write(true).open(device).err()?;
    Some(match error.kind() {
        ErrorKind::PermissionDenied => format!("this user may not open {device}"),
        ErrorKind::NotFound => format!("there is no {device} (`{load}` as root adds it)"),
        _ => format!("{device} cannot be opened ({error})"),
    })
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(tool)))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Rights {
        Rights { root: true, admin: true, ..Rights::default() }
    }

    fn check(rights: Rights, tools: &[&str], kinds: &str, left_out: &[&str]) {
        let means = Means::of(rights, |tool| tools.contains(&tool));
        let named: Vec<&str> = means.kinds.iter().map(|kind| kind.name()).collect();
        assert_eq!(named.join(" "), kinds);
        assert_eq!(means.left_out.len(), left_out.len(), "{:#?}", means.left_out);
        for (said, expected) in means.left_out.iter().zip(left_out) {
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_the_rest_is_shown() {
        let tools = &["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];
        check(root(), tools, "ext4 xfs btrfs block fuse", &[]);
        check(
            root(),
            &tools[..1],
            "ext4 block fuse",
            &[
                "no xfs, btrfs volumes: mkfs.xfs, mkfs.btrfs not found in PATH (apt-get install xfsprogs btrfs-progs)",
            ],
        );
        let no_loops = || Some("there is no /dev/loop-control".to_owned());
        check(Rights { loops: no_loops(), ..root() }, tools, "fuse", &["no ext4, xfs, btrfs and block"]);
        let closed = || Some("this user may not open /dev/fuse".to_owned());
        check(
            Rights { fuse: closed(), ..root() },
            tools,
            "ext4 xfs btrfs block",
            &["no FUSE volumes: this user may not open /dev/fuse"],
        );
        check(
            Rights { loops: no_loops(), fuse: closed(), ..root() },
            tools,
            "",
            &[
                "there is no /dev/loop-control, and this user may not open /dev/fuse: volumes are created but not mounted",
            ],
        );
        check(
            Rights { namespace: true, ..Rights::default() },
            tools,
            "fuse",
            &["not root: only FUSE volumes"],
        );
        let nobody = Rights { fuse: closed(), ..Rights::default() };
        check(nobody, tools, "", &["not root, and this user may not open /dev/fuse: volumes are created"]);
        let confined = Rights { root: true, ..Rights::default() };
        check(confined, tools, "", &["in a container, and user namespaces are not allowed: volumes"]);
    }
}
