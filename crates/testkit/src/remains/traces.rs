//! Files of a node that lie outside of its folder because nobody lets them be put elsewhere.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What network plugins answered, one small file per container and network.
const NETWORK_ANSWERS: &str = "/var/lib/cni/results";
/// Links to the logs of pods.
const LOG_LINKS: &str = "/var/log/containers";
/// Where a kubelet listens for device plugins, wherever its own folder is.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

pub(super) fn remove(home: &Path) -> Result<()> {
    for socket in shim_sockets(home) {
        remove_file(&socket)?;
    }
    for answer in list(Path::new(NETWORK_ANSWERS)) {
        // Each names the network namespace it is about, and ours are all in the cluster's folder.
        if fs::read(&answer).is_ok_and(|text| contains(&text, home.as_os_str().as_bytes())) {
            remove_file(&answer)?;
        }
    }
    for link in list(Path::new(LOG_LINKS)) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(home)) {
            remove_file(&link)?;
        }
    }
    let registration = Path::new(DEVICE_PLUGINS).join("kubelet.sock");
    if UnixStream::connect(&registration).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        // Nobody listens, so it is a dead kubelet's, and all of ours are dead by now.
        remove_file(&registration)?;
        for folder in Path::new(DEVICE_PLUGINS).ancestors().take(2) {
            // Fails, as it should, when something else is in there.
            let _ = fs::remove_dir(folder);
        }
    }
    Ok(())
}

/// The runtime keeps the sockets of its shims in a folder that is the same for all runtimes of a machine; each
/// container's own folder says which socket it has.
fn shim_sockets(home: &Path) -> Vec<PathBuf> {
    let containers = list(&home.join("containerd/state/io.containerd.runtime.v2.task/k8s.io"));
    let addresses = containers.iter().filter_map(|folder| fs::read_to_string(folder.join("address")).ok());
    addresses.filter_map(|address| Some(PathBuf::from(address.trim().strip_prefix("unix://")?))).collect()
}

fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
