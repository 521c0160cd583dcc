//! Kernel settings that a kubelet and its network plugins change for the whole machine: remembered, and set back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache;

/// Below /proc/sys.
const CHANGED: [&str; 7] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// Writes down what they are now.
pub(crate) fn remember(home: &Path) -> Result<()> {
    let now: BTreeMap<&str, String> =
        CHANGED.into_iter().filter_map(|name| Some((name, read(name)?))).collect();
    cache::write_whole(
        &file(home),
        &serde_json::to_vec_pretty(&now).context("cannot record kernel settings")?,
    )
}

/// Sets back those that differ from what was remembered; nothing remembered, nothing done.
pub(super) fn restore(home: &Path) -> Result<()> {
    let Ok(text) = fs::read(file(home)) else { return Ok(()) };
    // Written whole or not at all, so anything else in there is none of ours.
    let former: BTreeMap<String, String> = serde_json::from_slice(&text).unwrap_or_default();
    for (name, value) in former {
        if CHANGED.contains(&name.as_str()) && read(&name).is_some_and(|now| now != value) {
            let path = path(&name);
            fs::write(&path, &value)
                .with_context(|| format!("cannot set {} back to {value}", path.display()))?;
        }
    }
    fs::remove_file(file(home)).with_context(|| format!("cannot remove {}", file(home).display()))
}

fn read(name: &str) -> Option<String> {
    Some(fs::read_to_string(path(name)).ok()?.trim().to_owned())
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

fn file(home: &Path) -> PathBuf {
    home.join("kernel-settings.json")
}
