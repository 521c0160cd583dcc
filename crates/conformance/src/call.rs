//! Every call that rules make, short. Each answer passes through [`Bench::ask`] and the common checks.

use tonic::Status;
use volmedic_proto::csi as wire;

use crate::bench::Bench;
use crate::listing::{Listing, Page};

pub(crate) type Answer<T> = Result<T, Status>;

impl Bench {
    pub(crate) async fn get_health(&mut self, id: &str) -> Answer<Option<wire::VolumeHealth>> {
        let request =
            wire::ControllerGetVolumeHealthRequest { volume_id: id.to_owned(), secrets: self.secrets() };
        let mut client = self.controller();
        let call = "ControllerGetVolumeHealth";
        let health = self.ask(call, client.controller_get_volume_health(request)).await?.volume_health;
        if let Some(health) = &health {
            self.seen.health(call, health);
        }
        Ok(health)
    }

    pub(crate) async fn node_health(
        &mut self,
        id: &str,
        target: &str,
        staging: &str,
    ) -> Answer<Option<wire::VolumeHealth>> {
        let request = wire::NodeGetVolumeHealthRequest {
            volume_id: id.to_owned(),
            volume_publish_path: target.to_owned(),
            staging_target_path: staging.to_owned(),
        };
        let mut client = self.node();
        let call = "NodeGetVolumeHealth";
        let health = self.ask(call, client.node_get_volume_health(request)).await?.volume_health;
        if let Some(health) = &health {
            self.seen.health(call, health);
        }
        Ok(health)
    }

    pub(crate) async fn get_volume(&mut self, id: &str) -> Answer<wire::ControllerGetVolumeResponse> {
        let request = wire::ControllerGetVolumeRequest { volume_id: id.to_owned() };
        let mut client = self.controller();
        let call = "ControllerGetVolume";
        let answer = self.ask(call, client.controller_get_volume(request)).await?;
        if let Some(volume) = &answer.volume {
            self.seen.string(call, "volume_id", &volume.volume_id);
        }
        if let Some(condition) = answer.status.as_ref().and_then(|status| status.volume_condition.as_ref()) {
            self.seen.condition(call, condition);
        }
        Ok(answer)
    }

    pub(crate) async fn stats(
        &mut self,
        id: &str,
        path: &str,
        staging: &str,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        let request = wire::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: path.to_owned(),
            staging_target_path: staging.to_owned(),
        };
        let mut client = self.node();
        let call = "NodeGetVolumeStats";
        let answer = self.ask(call, client.node_get_volume_stats(request)).await?;
        if let Some(condition) = &answer.volume_condition {
            self.seen.condition(call, condition);
        }
        Ok(answer)
    }

    pub(crate) async fn storage_health(&mut self) -> Answer<wire::NodeGetStorageHealthResponse> {
        let request = wire::NodeGetStorageHealthRequest { secrets: self.secrets() };
        let mut client = self.node();
        let call = "NodeGetStorageHealth";
        let answer = self.ask(call, client.node_get_storage_health(request)).await?;
        for entry in &answer.backend_health {
            self.seen.storage(call, entry);
        }
        Ok(answer)
    }

    pub(crate) async fn list_volumes(
        &mut self,
        max_entries: i32,
        token: &str,
    ) -> Answer<wire::ListVolumesResponse> {
        let request = wire::ListVolumesRequest { max_entries, starting_token: token.to_owned() };
        let mut client = self.controller();
        let call = "ListVolumes";
        let answer = self.ask(call, client.list_volumes(request)).await?;
        self.seen.string(call, "next_token", &answer.next_token);
        for entry in &answer.entries {
            if let Some(volume) = &entry.volume {
                self.seen.string(call, "volume_id", &volume.volume_id);
            }
            if let Some(condition) = entry.status.as_ref().and_then(|status| status.volume_condition.as_ref())
            {
                self.seen.condition(call, condition);
            }
        }
        Ok(answer)
    }

    pub(crate) async fn list_health(
        &mut self,
        max_entries: i32,
        token: &str,
    ) -> Answer<wire::ControllerListVolumeHealthResponse> {
        let request = wire::ControllerListVolumeHealthRequest {
            max_entries,
            starting_token: token.to_owned(),
            secrets: self.secrets(),
        };
        let mut client = self.controller();
        let call = "ControllerListVolumeHealth";
        let answer = self.ask(call, client.controller_list_volume_health(request)).await?;
        self.seen.string(call, "next_token", &answer.next_token);
        for health in &answer.entries {
            self.seen.health(call, health);
        }
        Ok(answer)
    }

    /// One page of either list.
    pub(crate) async fn page(&mut self, listing: Listing, max_entries: i32, token: &str) -> Answer<Page> {
        match listing {
            Listing::Volumes => {
                let answer = self.list_volumes(max_entries, token).await?;
                let id = |entry: wire::list_volumes_response::Entry| {
                    entry.volume.map(|volume| volume.volume_id).unwrap_or_default()
                };
                let ids = answer.entries.into_iter().map(id).collect();
                Ok(Page { ids, adverse: Vec::new(), next: answer.next_token })
            }
            Listing::Health => {
                let answer = self.list_health(max_entries, token).await?;
                let adverse = answer.entries.iter().filter(|health| !health.health_statuses.is_empty());
                let adverse = adverse.map(|health| health.volume_id.clone()).collect();
                let ids = answer.entries.into_iter().map(|health| health.volume_id).collect();
                Ok(Page { ids, adverse, next: answer.next_token })
            }
        }
    }
}
