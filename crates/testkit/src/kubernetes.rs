//! The Kubernetes programs, built from Go modules once per version and kept outside of the checkout.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cache;

mod go;
mod module;

/// Free space that a first build needs: modules, build cache, linking.
const SPACE: u64 = 6 << 30;
/// A first build takes seven minutes on two cores; a caller waits at most this long.
const PATIENCE: Duration = Duration::from_hours(2);

/// Set by `cargo xtask test --quick`.
const NO_CLUSTER: &str = "VOLMEDIC_NO_CLUSTER";
/// Set by `cargo xtask test --kubernetes`.
const KUBERNETES: &str = "VOLMEDIC_KUBERNETES";

/// A release of Kubernetes, such as `v1.37.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    minor: u32,
    patch: u32,
}

impl Version {
    /// The release that the committed Go module is pinned to.
    pub const DEFAULT: Self = Self { minor: 37, patch: 1 };

    /// The release of each supported minor version that `v1.N` stands for, the oldest first.
    pub const SUPPORTED: [Self; 8] = [
        Self { minor: 30, patch: 0 },
        Self { minor: 31, patch: 0 },
        Self { minor: 32, patch: 0 },
        Self { minor: 33, patch: 0 },
        Self { minor: 34, patch: 0 },
        Self { minor: 35, patch: 0 },
        Self { minor: 36, patch: 0 },
        Self::DEFAULT,
    ];

    /// The first release of a minor version.
    pub(crate) const fn minor(minor: u32) -> Self {
        Self { minor, patch: 0 }
    }

    /// The release that this run tests with: [`Version::DEFAULT`], unless `cargo xtask test --kubernetes` chose another.
    ///
    /// # Panics
    ///
    /// When the variable `VOLMEDIC_KUBERNETES` names no release.
    pub fn under_test() -> Self {
        let Ok(text) = std::env::var(KUBERNETES) else { return Self::DEFAULT };
        match text.parse() {
            Ok(version) => version,
            Err(error) => panic!("the variable {KUBERNETES} cannot be used: {error}"),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}.{}", self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let numbers = text.strip_prefix("v1.")?;
            let number = |digits: &str| {
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                let canonical = digits == "0" || !digits.starts_with('0');
                digits.parse().ok().filter(|_| plain && canonical)
            };
            match numbers.split_once('.') {
                Some((minor, patch)) => Some(Self { minor: number(minor)?, patch: number(patch)? }),
                None => {
                    let minor = number(numbers)?;
                    Self::SUPPORTED.into_iter().find(|release| release.minor == minor)
                }
            }
        };
        parse().with_context(|| {
            let [oldest, .., newest] = Self::SUPPORTED;
            format!(
                "`{text}` is not a Kubernetes release; write it as {}, or as a minor version from v1.{} to v1.{}",
                Self::DEFAULT,
                oldest.minor,
                newest.minor
            )
        })
    }
}

/// The path of the one program that is every part of a cluster. Built first if need be, which takes minutes.
pub fn program(version: Version) -> Result<PathBuf> {
    if std::env::var_os(NO_CLUSTER).is_some() {
        bail!("this run starts no Kubernetes ({NO_CLUSTER} is set); run `cargo xtask test` without --quick");
    }
    let folder = cache::folder()?.join("kubernetes");
    let entry = folder.join(format!("{version}-{}", module::fingerprint()));
    if let Some(program) = complete(&entry) {
        return Ok(program);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let _lock =
        cache::lock(&folder.join("lock"), "another build of the Kubernetes programs is under way", PATIENCE)?;
    // The last holder of the lock may have built just this.
    if let Some(program) = complete(&entry) {
        return Ok(program);
    }
    build(version, &entry).with_context(|| format!("the Kubernetes {version} programs could not be built"))
}

fn build(version: Version, entry: &Path) -> Result<PathBuf> {
    let start = Instant::now();
    if entry.exists() {
        cache::say(&format!("{} is incomplete; building it again", entry.display()));
    }
    let go = go::Go::find()?;
    cache::require_space(entry.parent().unwrap_or(entry), SPACE)?;
    cache::require_space(&go.cache()?, SPACE)?;

    // Under the lock, so nobody else is in there: what an earlier build left is rubbish.
    let scratch = entry.join("scratch");
    cache::remove(entry)?;
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let built = go.build(version, &scratch);
    let moved = built.and_then(|program| keep(&program, entry));
    // Also after a failure, or a failing build would fill the disk.
    cache::remove(&scratch)?;
    moved?;
    cache::say(&format!("Kubernetes {version}: built in {} s", start.elapsed().as_secs()));
    complete(entry).with_context(|| format!("{} is not whole right after it was built", entry.display()))
}

/// Moves a finished program in. The size is written last: without it the entry counts as half-built.
fn keep(program: &Path, entry: &Path) -> Result<()> {
    fs::create_dir_all(entry).with_context(|| format!("cannot make {}", entry.display()))?;
    let kept = entry.join("kube");
    let cannot = || format!("cannot move the built program to {}", kept.display());
    fs::File::open(program).and_then(|file| file.sync_all()).with_context(cannot)?;
    fs::rename(program, &kept).with_context(cannot)?;
    let size = fs::metadata(&kept).with_context(cannot)?.len();
    cache::write_whole(&entry.join("size"), size.to_string().as_bytes())
}

/// The program of a cache entry that is whole.
fn complete(entry: &Path) -> Option<PathBuf> {
    let program = entry.join("kube");
    let expected: u64 = fs::read_to_string(entry.join("size")).ok()?.parse().ok()?;
    let found = fs::metadata(&program).ok()?;
    (found.is_file() && found.len() == expected && expected > 0).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        assert_eq!("v1.37.1".parse::<Version>().unwrap(), Version::DEFAULT);
        assert_eq!("v1.40.12".parse::<Version>().unwrap().to_string(), "v1.40.12");
        assert_eq!("v1.37".parse::<Version>().unwrap(), Version::DEFAULT);
        assert_eq!("v1.30".parse::<Version>().unwrap().to_string(), "v1.30.0");
        for bad in [
            "",
            "1.37.1",
            "v1.29",
            "v1.",
            "v2.1.0",
            "v1.37.1-rc.0",
            "v1.+7.1",
            "v1.37.01",
            "v1.x.1",
            "latest",
        ] {
            let error = bad.parse::<Version>().unwrap_err().to_string();
            let start =
                format!("`{bad}` is not a Kubernetes release; write it as v1.37.1, or as a minor version ");
            assert!(error.starts_with(&start) && error.ends_with("from v1.30 to v1.37"), "{error}");
        }
    }

    #[test]
    fn a_half_built_entry_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("built");
        let entry = folder.path().join("entry");
        assert_eq!(complete(&entry), None);

        fs::create_dir(&entry).unwrap();
        fs::write(entry.join("kube"), "half a program").unwrap();
        assert_eq!(complete(&entry), None, "no size yet");

        fs::write(&built, "a whole program").unwrap();
        keep(&built, &entry).unwrap();
        assert_eq!(complete(&entry), Some(entry.join("kube")));

        fs::write(entry.join("kube"), "a whole pr").unwrap();
        assert_eq!(complete(&entry), None, "cut short");
    }
}
