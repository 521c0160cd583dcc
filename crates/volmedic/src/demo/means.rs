//! What this machine and this user's rights allow, and what is missing, by name.

use std::fs::File;
use std::path::Path;

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
    /// May mount where everybody sees it.
    admin: bool,
    /// Why loop devices cannot be had, if not.
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
    /// Looks around. Nothing is changed.
    pub(super) fn look() -> Self {
        let admin = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        let fuse = missing("/dev/fuse", "load the fuse module", "a user who may open it");
        let loops = missing("/dev/loop-control", "load the loop module", "root");
        let namespace = !admin && fuse.is_none() && namespace::can_enter();
        Self::of(Rights { admin, loops, fuse, namespace }, is_installed)
    }

    fn of(rights: Rights, installed: impl Fn(&str) -> bool) -> Self {
        let Rights { admin, loops, fuse, namespace } = rights;
        let mounts = match (admin, namespace) {
            (true, _) => Mounts::OnTheHost,
            (false, true) => Mounts::OnOurOwn,
            (false, false) => Mounts::Nowhere,
        };
        let (mut kinds, mut left_out) = (Vec::new(), Vec::new());
        match mounts {
            Mounts::OnTheHost => {
                match loops {
                    None => {
                        for (kind, tool, package) in TOOLS {
                            if installed(tool) {
                                kinds.push(*kind);
                            } else {
                                left_out.push(format!(
                                    "no {} volumes: {tool} is not installed; `apt-get install {package}` or the like \
                                     brings it",
                                    kind.name()
                                ));
                            }
                        }
                        kinds.push(Kind::Block);
                    }
                    Some(why) => left_out.push(format!("no ext4, xfs, btrfs and block volumes: {why}")),
                }
                match fuse {
                    None => kinds.push(Kind::Fuse),
                    Some(why) => left_out.push(format!("no FUSE volumes: {why}")),
                }
            }
            Mounts::OnOurOwn => {
                kinds.push(Kind::Fuse);
                left_out.push(
                    "without root: FUSE volumes only, in a user namespace where nobody else sees them; run it as root \
                     for ext4, xfs, btrfs and block volumes"
                        .to_owned(),
                );
            }
            Mounts::Nowhere => {
                let why = fuse
                    .unwrap_or_else(|| "this user may not mount, not even in a user namespace".to_owned());
                left_out.push(format!(
                    "without root, and {why}: volumes are made but not mounted, so only the driver's own view of its \
                     drives can fail here, and nothing can be healed; run it as root for all of it"
                ));
            }
        }
        Self { mounts, kinds, left_out }
    }

    /// One line that says how much of it is real here.
    pub(super) fn headline(&self) -> &'static str {
        match self.mounts {
            Mounts::OnTheHost => "real volumes, mounted on this machine",
            Mounts::OnOurOwn => "real FUSE volumes, without root",
            Mounts::Nowhere => "volumes that are not mounted, without root",
        }
    }
}

/// Why a device cannot be used, if so.
fn missing(device: &str, module: &str, who: &str) -> Option<String> {
    match File::options().read(true).write(true).open(device) {
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(format!("{device} needs {who}"))
        }
        Err(error) => Some(format!("{device} cannot be opened ({error}); {module}")),
    }
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
        Rights { admin: true, ..Rights::default() }
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
        check(root(), &tools[..1], "ext4 block fuse", &["install xfsprogs", "install btrfs-progs"]);
        let no_loops = || Some("/dev/loop-control cannot be opened".to_owned());
        check(Rights { loops: no_loops(), ..root() }, tools, "fuse", &["no ext4, xfs, btrfs and block"]);
        let closed = || Some("/dev/fuse needs a user who may open it".to_owned());
        check(
            Rights { fuse: closed(), ..root() },
            tools,
            "ext4 xfs btrfs block",
            &["no FUSE volumes: /dev/fuse"],
        );
        check(Rights { namespace: true, ..Rights::default() }, tools, "fuse", &["FUSE volumes only"]);
        let nobody = Rights { fuse: closed(), ..Rights::default() };
        check(nobody, tools, "", &["a user who may open it: volumes are made but not mounted"]);
    }
}
