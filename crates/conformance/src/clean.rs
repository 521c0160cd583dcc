//! Everything that a run made is taken away again, and what cannot be is named.

use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use tonic::{Code, Status};
use volmedic_proto::csi as wire;

use crate::bench::Bench;
use crate::report::Not;
use crate::rules::adverse;
use crate::text::said;
use crate::volume::{Made, Published};

/// How often a busy driver is asked again. The pauses double, from a tenth of a second to six.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Bench {
    /// Returns what is left behind.
    pub(crate) async fn clean(&mut self) -> Vec<String> {
        let injury = self.hurt.clone();
        let healed = adverse::heal(self).await;
        let mut left = self.leave_node().await;
        if let (Err(Not::Kept(why) | Not::Applicable(why)), Some((injury, id))) = (healed, injury) {
            // Stopped before it was done, there is nothing to undo; what is printed says that it was stopped.
            left.push(format!("perhaps the injury {injury} of volume {id}: {why}"));
        }
        for made in std::mem::take(&mut self.volumes.made) {
            left.extend(self.remove(made).await);
        }
        while let Some(path) = self.volumes.directories.pop() {
            // Only what is empty: where something is still mounted, the volume's own data would be next.
            let removed = match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => fs::remove_dir(&path),
                Ok(_) => fs::remove_file(&path),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    left.push(format!("the path {}: {error}", path.display()));
                }
                _ => {}
            }
        }
        left
    }

    async fn leave_node(&mut self) -> Vec<String> {
        let Some(at) = self.publication() else { return Vec::new() };
        let mut left = Vec::new();
        let (staged, published) =
            self.volumes.made.first().map_or((false, false), |made| (made.staged, made.published));
        if published {
            let reported = self.insist(async |bench| bench.unpublish(&at).await).await;
            left.extend(
                reported
                    .err()
                    .map(|status| format!("volume {} published at {}: {}", at.id, at.target, said(&status))),
            );
        }
        if staged {
            let reported = self.insist(async |bench| bench.unstage(&at).await).await;
            left.extend(
                reported
                    .err()
                    .map(|status| format!("volume {} staged at {}: {}", at.id, at.staging, said(&status))),
            );
        }
        left
    }

    async fn remove(&mut self, made: Made) -> Option<String> {
        let Made { name, id, attached, .. } = made;
        let id = match id {
            Some(id) => id,
            // The call was cut short or failed; asked for again, it either gives the id or fails the same way.
            None => match self.create(&name).await {
                Ok(volume) if !volume.volume_id.is_empty() => volume.volume_id,
                Ok(_) => return Some(format!("a volume named {name}, of which no id is known")),
                Err(status) if may_exist(&status) => {
                    return Some(format!("perhaps a volume named {name}: {}", said(&status)));
                }
                Err(_) => return None,
            },
        };
        if let Some(node) = attached
            && let Err(status) = self.insist(async |bench| bench.detach(&id, &node).await).await
        {
            return Some(format!("volume {id} ({name}) published to node {node}: {}", said(&status)));
        }
        let status = self.insist(async |bench| bench.delete(&id).await).await.err()?;
        Some(format!("volume {id} ({name}): {}", said(&status)))
    }

    async fn unpublish(&mut self, at: &Published) -> Result<(), Status> {
        let request =
            wire::NodeUnpublishVolumeRequest { volume_id: at.id.clone(), target_path: at.target.clone() };
        let mut client = self.node();
        self.ask("NodeUnpublishVolume", client.node_unpublish_volume(request)).await.map(drop)
    }

    async fn unstage(&mut self, at: &Published) -> Result<(), Status> {
        let request = wire::NodeUnstageVolumeRequest {
            volume_id: at.id.clone(),
            staging_target_path: at.staging.clone(),
        };
        let mut client = self.node();
        self.ask("NodeUnstageVolume", client.node_unstage_volume(request)).await.map(drop)
    }

    /// A call that was cut short goes on in the driver, which then asks to wait for it.
    async fn insist(
        &mut self,
        mut call: impl AsyncFnMut(&mut Self) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..ATTEMPTS {
            match call(self).await {
                Err(status) if matches!(status.code(), Code::Aborted | Code::Unavailable) => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                reported => return reported,
            }
        }
        call(self).await
    }
}

/// Whether a volume may have been made although the call failed.
fn may_exist(status: &Status) -> bool {
    !matches!(
        status.code(),
        Code::InvalidArgument | Code::OutOfRange | Code::ResourceExhausted | Code::Unimplemented
    )
}
