//! Where the kubelet keeps the volumes of its pods.
//!
//! Every function here only joins names. Names come from pods, drivers and files, so each is checked to be one component
//! of a path: nothing leads out of the kubelet's root directory.

mod found;
mod read;
mod vol_data;

use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

pub use found::{DEFAULT_ROOT, find_root};
pub(crate) use read::{Dir, Found, Reader, Staging};
pub(crate) use vol_data::VolData;

/// The plugin that serves all CSI volumes, as it is called in directories.
pub(crate) const CSI: &str = "kubernetes.io~csi";
/// The plugin that serves directories of the node. It makes no directories of its own.
pub(crate) const HOST_PATH: &str = "kubernetes.io~host-path";
const PODS: &str = "pods";
const CSI_PLUGIN: &str = "plugins/kubernetes.io/csi";
const VOLUMES: &str = "volumes";
const DEVICES: &str = "volumeDevices";
const SUB_PATHS: &str = "volume-subpaths";
const GLOBAL_MOUNT: &str = "globalmount";
const VOL_DATA: &str = "vol_data.json";
/// File systems take no longer names.
const LONGEST_NAME: usize = 255;

/// A name that cannot be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the name of a file")]
pub struct NoComponent(Box<str>);

/// The directories below a kubelet's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where all pods are.
    pub fn pods(&self) -> PathBuf {
        self.root.join(PODS)
    }

    /// Where a CSI volume is mounted for a pod.
    pub fn publish(&self, pod: &str, volume: &str) -> Result<PathBuf, NoComponent> {
        let mut path = self.volume(pod, CSI, volume)?;
        path.push("mount");
        Ok(path)
    }

    /// Where a volume of any plugin has its directory; for those that the kubelet mounts by itself it is the mount.
    pub fn volume(&self, pod: &str, plugin: &str, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[PODS, component(pod)?, VOLUMES, component(plugin)?, component(volume)?]))
    }

    /// The kubelet's note about a CSI volume of a pod.
    pub fn vol_data(&self, pod: &str, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.volume(pod, CSI, volume)?.join(VOL_DATA))
    }

    /// Where a CSI volume is staged, by kubelets of version 1.24 and later.
    pub fn staging(&self, driver: &str, handle: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[CSI_PLUGIN, component(driver)?, &hash(handle), GLOBAL_MOUNT]))
    }

    /// Where a CSI volume is staged, by kubelets before version 1.24.
    pub fn old_staging(&self, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[CSI_PLUGIN, "pv", component(volume)?, GLOBAL_MOUNT]))
    }

    /// Some drivers, Ceph's among them, mount one level below the place that they are given.
    pub fn deeper_staging(staging: &Path, handle: &str) -> Result<PathBuf, NoComponent> {
        Ok(staging.join(component(handle)?))
    }

    /// Where a CSI block volume is staged.
    pub fn block_staging(&self, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[CSI_PLUGIN, DEVICES, "staging", component(volume)?]))
    }

    /// The device of a CSI block volume for a pod.
    pub fn block_publish(&self, volume: &str, pod: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[CSI_PLUGIN, DEVICES, "publish", component(volume)?, component(pod)?]))
    }

    /// The link to the device of a block volume of any plugin, in the pod's directory.
    pub fn block_map(&self, pod: &str, plugin: &str, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[PODS, component(pod)?, DEVICES, component(plugin)?, component(volume)?]))
    }

    /// The kubelet's note about a CSI block volume.
    pub fn block_vol_data(&self, volume: &str) -> Result<PathBuf, NoComponent> {
        Ok(self.join(&[CSI_PLUGIN, DEVICES, component(volume)?, "data", VOL_DATA]))
    }

    /// The bind mount of a part of a volume: the container's mount with that index in its list has a `subPath`.
    pub fn sub_path(
        &self,
        pod: &str,
        volume: &str,
        container: &str,
        index: usize,
    ) -> Result<PathBuf, NoComponent> {
        let index = index.to_string();
        Ok(self.join(&[PODS, component(pod)?, SUB_PATHS, component(volume)?, component(container)?, &index]))
    }

    fn join(&self, parts: &[&str]) -> PathBuf {
        let length = parts.iter().map(|part| part.len() + 1).sum::<usize>() + self.root.as_os_str().len();
        let mut path = PathBuf::with_capacity(length + "/mount".len());
        // Room for what a caller adds; growing would double it.
        path.push(&self.root);
        path.extend(parts);
        path
    }
}

/// The name itself, if it is one component of a path and no more.
pub(crate) fn component(name: &str) -> Result<&str, NoComponent> {
    let odd = name.is_empty() || name == "." || name == ".." || name.len() > LONGEST_NAME;
    if odd || name.contains(['/', '\0']) { Err(NoComponent(cut(name))) } else { Ok(name) }
}

fn cut(name: &str) -> Box<str> {
    name[..name.floor_char_boundary(LONGEST_NAME)].into()
}

/// SHA-256 in small hexadecimal digits.
fn hash(text: &str) -> String {
    use std::fmt::Write;
    let mut hex = String::with_capacity(64);
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Text takes everything.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests;
