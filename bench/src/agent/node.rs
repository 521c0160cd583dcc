//! A node without a kubelet: the directories that a kubelet would have made, with something real mounted on each.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use ring::digest::{SHA256, digest};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use serde_json::json;
use volmedic_testkit::objects;

use super::BATCH;
use super::calls::Calls;
use crate::fill::handle;
use crate::ground::{DRIVER, Ground};
use crate::process::Program;

pub(super) const NAME: &str = "bench-node";
/// File systems in userspace, one for each of the first volumes; these can hang.
pub(super) const HUNG: usize = 10;
const IN_MEMORY: usize = 3;
const SIZE: u64 = 64 << 20;
/// As full as nobody can overlook.
const FULL: f64 = 0.995;
const FILLER: &str = "filler";

#[derive(Debug)]
pub(super) struct Node {
    /// In userspace, with what the driver calls them.
    hanging: Vec<(String, PathBuf)>,
    /// What all other volumes are parts of.
    shared: Vec<PathBuf>,
    kubelet: PathBuf,
    /// Where the volumes are published.
    targets: Vec<PathBuf>,
    filled: usize,
    calls: Calls,
    program: PathBuf,
    state: PathBuf,
    folder: PathBuf,
    driver: Program,
}

impl Node {
    pub(super) async fn new(ground: &Ground, program: &Path) -> Result<Self> {
        let folder = ground.folder().join("node");
        let (kubelet, state) = (folder.join("kubelet"), folder.join("driver"));
        make(&kubelet)?;
        let socket = folder.join("csi.sock");
        let arguments = [
            "driver".to_owned(),
            format!("--endpoint=unix://{}", socket.display()),
            format!("--state-dir={}", state.display()),
            format!("--allowed-root={}", folder.display()),
            format!("--node-id={NAME}"),
        ];
        let driver = Program::start(program, &arguments, &ground.folder().join("driver.log"))?;
        let calls = Calls::to(&socket).await?;
        let mut node = Self {
            hanging: Vec::new(),
            shared: Vec::new(),
            kubelet,
            targets: Vec::new(),
            filled: 0,
            calls,
            program: program.to_owned(),
            state,
            folder,
            driver,
        };
        for nth in 0..HUNG {
            let path = node.folder.join(format!("fuse-{nth}"));
            make(&path)?;
            let id = node.calls.mounted(&format!("bench-{nth}"), &path).await?;
            node.hanging.push((id, path));
        }
        for nth in 0..IN_MEMORY {
            let path = node.folder.join(format!("memory-{nth}"));
            make(&path)?;
            let size = std::ffi::CString::new(format!("size={SIZE}"))?;
            mount("tmpfs", &path, "tmpfs", MountFlags::empty(), size.as_c_str())
                .context("cannot mount a tmpfs")?;
            node.shared.push(path);
        }
        node.shared.push(node.disk()?);
        Ok(node)
    }

    /// An ext4 on a loop device, which goes away with the mount.
    fn disk(&self) -> Result<PathBuf> {
        let (image, path) = (self.folder.join("image"), self.folder.join("disk"));
        fs::File::create(&image)?.set_len(SIZE).context("cannot make an image")?;
        make(&path)?;
        tool(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        tool(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path))?;
        Ok(path)
    }

    pub(super) fn kubelet(&self) -> &Path {
        &self.kubelet
    }

    /// Where the volumes are published.
    pub(super) fn targets(&self) -> &[PathBuf] {
        &self.targets
    }

    /// Makes volumes in pods until there are this many; there are never fewer than before.
    pub(super) async fn fill(&mut self, ground: &Ground, volumes: usize) -> Result<()> {
        let names = ground.namespaces();
        while self.filled < volumes {
            for (nth, namespace) in names.iter().enumerate() {
                let claims = Api::<PersistentVolumeClaim>::namespaced(ground.client.clone(), namespace);
                let list = claims.list(&ListParams::default()).await.context("cannot list claims")?;
                let uids: HashMap<String, String> =
                    list.into_iter().filter_map(|claim| Some((claim.name_any(), claim.uid()?))).collect();
                let mine: Vec<usize> =
                    (self.filled..self.filled + BATCH).filter(|index| index % names.len() == nth).collect();
                let claims: Vec<String> = mine.iter().map(|index| crate::fill::claim(*index)).collect();
                let refs: Vec<&str> = claims.iter().map(String::as_str).collect();
                let pod = format!("database-{}", self.filled / BATCH);
                let pod = objects::pod(&ground.client, namespace, &pod, NAME, &refs).await?;
                let pod = pod.uid().context("a pod without uid")?;
                for (index, claim) in mine.iter().zip(&claims) {
                    let uid = uids.get(claim).with_context(|| format!("there is no claim {claim}"))?;
                    let target = self.volume(&pod, &format!("pvc-{uid}"), *index)?;
                    self.targets.push(target);
                }
            }
            self.filled += BATCH;
        }
        Ok(())
    }

    /// One volume, staged and published; answers where.
    fn volume(&self, pod: &str, pv: &str, index: usize) -> Result<PathBuf> {
        let source = match self.hanging.get(index) {
            Some((_, path)) => path.clone(),
            None => self.shared[index % self.shared.len()].join(format!("volume-{index}")),
        };
        if index >= HUNG {
            make(&source)?;
        }
        let handle = handle(index);
        let mut hash = String::new();
        for byte in digest(&SHA256, handle.as_bytes()).as_ref() {
            // Text takes everything.
            let _ = write!(hash, "{byte:02x}");
        }
        let staging =
            self.kubelet.join("plugins/kubernetes.io/csi").join(DRIVER).join(hash).join("globalmount");
        let place = self.kubelet.join("pods").join(pod).join("volumes/kubernetes.io~csi").join(pv);
        let target = place.join("mount");
        for path in [&staging, &target] {
            make(path)?;
            mount_bind(&source, path).with_context(|| format!("cannot mount {}", path.display()))?;
        }
        let note = json!({"driverName": DRIVER, "volumeHandle": handle, "specVolID": pv, "nodeName": NAME,
                          "volumeLifecycleMode": "Persistent", "attachmentID": ""});
        fs::write(place.join("vol_data.json"), note.to_string()).context("cannot write a note")?;
        Ok(target)
    }

    /// Stops the FUSE servers of the volumes, or lets them go on.
    pub(super) fn freeze(&self, frozen: bool) -> Result<()> {
        let action = if frozen { "inject" } else { "clear" };
        for (id, _) in &self.hanging {
            let mut command = Command::new(&self.program);
            command.args(["fault", action, "mounter-frozen", "--volume", id, "--state-dir"]).arg(&self.state);
            tool(&mut command)?;
        }
        Ok(())
    }

    /// Takes all space of what the other volumes are parts of, or gives it back.
    pub(super) fn full(&self, full: bool) -> Result<()> {
        for path in &self.shared {
            let filler = path.join(FILLER);
            if !full {
                fs::remove_file(&filler).with_context(|| format!("cannot remove {}", filler.display()))?;
                continue;
            }
            let space = statvfs(path).with_context(|| format!("cannot measure {}", path.display()))?;
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of some megabytes"
            )]
            let bytes = ((space.f_bavail * space.f_frsize) as f64 * FULL) as u64;
            let file = fs::File::create(&filler).context("cannot make a filler")?;
            fallocate(&file, FallocateFlags::empty(), 0, bytes)
                .with_context(|| format!("cannot fill {}", path.display()))?;
        }
        Ok(())
    }

    /// Ends it in good order.
    pub(super) async fn end(mut self) -> Result<()> {
        self.driver.must_run()?;
        self.unbind();
        for (id, path) in self.hanging.clone() {
            self.calls.unmount(&id, &path).await?;
        }
        Ok(())
    }

    /// Takes away all that is mounted in the kubelet's directory.
    fn unbind(&self) {
        unmount_below(&self.kubelet);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A stopped server would stay for ever.
        let _ = self.freeze(false);
        unmount_below(&self.folder);
    }
}

fn unmount_below(folder: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let targets = table.lines().filter_map(|line| line.split(' ').nth(4));
    let below: Vec<&str> = targets.filter(|target| Path::new(target).starts_with(folder)).collect();
    for target in below.into_iter().rev() {
        // What stays goes with the mount namespace.
        let _ = unmount(target, UnmountFlags::DETACH);
    }
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
}

fn tool(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
