//! The single questions: one call, one typed answer.

use std::collections::HashMap;
use std::time::Duration;

use prost::bytes::Bytes;
use volmedic_proto::{csi, healer};

use crate::answer::{BackendHealth, Cleaner, Got, Healed, ListedVolume, Stats, VolumeHealth};
use crate::error::{CallError, Kind};
use crate::link::About;
use crate::method::{Method, Request};
use crate::secrets::Secrets;
use crate::session::Session;
use crate::wire::Malformed;

/// What is sent to a driver that is to heal a volume on its node. `Debug` hides the secrets.
#[derive(Clone, Debug, Default)]
pub struct Heal {
    pub volume_id: String,
    pub volume_path: String,
    /// Empty unless the driver stages.
    pub staging_target_path: String,
    pub capability: Option<csi::VolumeCapability>,
    pub secrets: Secrets,
    /// As it came from CreateVolume.
    pub volume_context: HashMap<String, String>,
}

impl Session {
    /// New dialect, controller.
    pub async fn volume_health(&self, volume: &str, secrets: &Secrets) -> Result<VolumeHealth, CallError> {
        let request =
            csi::ControllerGetVolumeHealthRequest { volume_id: volume.into(), secrets: secrets.for_wire() };
        let got = self
            .ask(request, self.about(volume, secrets), |cleaner, answer| cleaner.got_health(volume, answer));
        self.asked(Method::ControllerGetVolumeHealth, volume, got.await?)
    }

    /// Old dialect, controller. An answer without a condition says nothing about health.
    pub async fn volume(&self, volume: &str) -> Result<ListedVolume, CallError> {
        let request = csi::ControllerGetVolumeRequest { volume_id: volume.into() };
        let got = self.ask(request, self.about(volume, Secrets::none()), |cleaner, answer| {
            cleaner.got_volume(volume, answer)
        });
        self.asked(Method::ControllerGetVolume, volume, got.await?)
    }

    /// New dialect, node. Either path may be empty if it is not known.
    pub async fn node_volume_health(
        &self,
        volume: &str,
        publish_path: &str,
        staging_path: &str,
    ) -> Result<VolumeHealth, CallError> {
        let request = csi::NodeGetVolumeHealthRequest {
            volume_id: volume.into(),
            volume_publish_path: publish_path.into(),
            staging_target_path: staging_path.into(),
        };
        let got = self.ask(request, self.about(volume, Secrets::none()), |cleaner, answer| {
            cleaner.got_health(volume, answer)
        });
        self.asked(Method::NodeGetVolumeHealth, volume, got.await?)
    }

    /// The storage behind this node. An empty list: nothing adverse is known.
    pub async fn storage_health(&self, secrets: &Secrets) -> Result<Vec<BackendHealth>, CallError> {
        let request = csi::NodeGetStorageHealthRequest { secrets: secrets.for_wire() };
        let about = About { volume: None, secrets, deadline: self.deadline() };
        self.ask(request, about, Cleaner::backends).await
    }

    /// Usage, and in the old dialect a condition. The staging path may be empty.
    pub async fn volume_stats(
        &self,
        volume: &str,
        path: &str,
        staging_path: &str,
    ) -> Result<Stats, CallError> {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: volume.into(),
            volume_path: path.into(),
            staging_target_path: staging_path.into(),
        };
        self.ask(request, self.about(volume, Secrets::none()), Cleaner::stats).await
    }

    /// Asks the driver to heal. Healing takes its time, so the caller sets the deadline. At most one call for a volume
    /// may be under way; seeing to that is the caller's part.
    pub async fn heal(&self, heal: Heal, deadline: Duration) -> Result<Healed, CallError> {
        let Heal { volume_id, volume_path, staging_target_path, capability, secrets, volume_context } = heal;
        let request = healer::NodeHealerRequest {
            volume_id: volume_id.clone(),
            volume_path,
            staging_target_path,
            volume_capability: capability,
            secrets: secrets.for_wire(),
            volume_context,
        };
        let about = About { volume: Some(&volume_id), secrets: &secrets, deadline };
        self.ask(request, about, Cleaner::healed).await
    }

    /// Whether the driver answers at all. An error is an answer too; silence is not.
    pub async fn is_alive(&self) -> bool {
        let about = About { volume: None, secrets: Secrets::none(), deadline: self.deadline() };
        match self.link().call(csi::ProbeRequest {}, about, |_: Bytes| Ok(())).await {
            Ok(()) => true,
            Err(error) => {
                !matches!(error.kind(), Kind::Deadline | Kind::Unreachable | Kind::Lost | Kind::Crowded)
            }
        }
    }

    fn about<'a>(&self, volume: &'a str, secrets: &'a Secrets) -> About<'a> {
        About { volume: Some(volume), secrets, deadline: self.deadline() }
    }

    async fn ask<'a, R: Request, T>(
        &self,
        request: R,
        about: About<'a>,
        clean: impl FnOnce(&mut Cleaner<'a>, &[u8]) -> Result<T, Malformed>,
    ) -> Result<T, CallError> {
        let mut cleaner = Cleaner::new(about.secrets);
        let answer = self.link().call(request, about, |bytes: Bytes| clean(&mut cleaner, &bytes)).await;
        self.link().metrics.odd(self.driver(), &cleaner.oddities);
        answer
    }

    fn asked<T>(&self, method: Method, volume: &str, got: Got<T>) -> Result<T, CallError> {
        let error = |kind, detail: &str| self.link().error(method, kind, detail).about(Some(volume));
        match got {
            Got::Asked(answer) => Ok(answer),
            Got::Other(other) => Err(error(Kind::WrongVolume, &format!("volume {other}"))),
            Got::Nothing => Err(error(Kind::NoAnswer, "")),
        }
    }
}
