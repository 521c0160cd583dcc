//! Whether the drivers' controllers live that report to us, by the Leases that they name. There are few of them, in
//! namespaces that nobody told us: each is asked for by name, and none while nothing is wrong.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::api::GetParams;
use kube::{Client, api::Request};
use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_api::resource::LeaseName;
use volmedic_hub::{Lease, Source, World};

use super::now;

const EVERY: Duration = Duration::from_secs(10);
/// While the world is being read there is nothing to ask for yet.
const AT_FIRST: Duration = Duration::from_millis(100);
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Runs until dropped.
pub(super) async fn look(client: Client, world: Arc<Mutex<World>>, woken: Arc<Notify>) -> Infallible {
    let mut told = false;
    loop {
        let (ready, leases) = {
            let mut world = world.lock();
            (world.is_ready(), world.controller_leases())
        };
        if !ready {
            tokio::time::sleep(AT_FIRST).await;
            continue;
        }
        for lease in leases {
            match ask(&client, &lease).await {
                Ok(found) => world.lock().put_controller_lease(now(), &lease, found.as_ref()),
                Err(why) => {
                    world.lock().miss_controller_lease(now(), &lease);
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            "cannot read the lease {}/{} of a controller: {why}; retrying",
                            lease.namespace,
                            lease.name
                        );
                    }
                    continue;
                }
            }
            told = false;
        }
        world.lock().heard(Source::Controllers);
        woken.notify_one();
        tokio::time::sleep(EVERY).await;
    }
}

/// `None` if there is no such Lease.
async fn ask(client: &Client, lease: &LeaseName) -> Result<Option<Lease>, String> {
    let leases = Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", lease.namespace));
    let request = leases.get(&lease.name, &GetParams::default()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(CALL_LIMIT, client.request::<Lease>(request)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            Err(format!("{}; apply deploy/chart/files/rbac-hub.yaml", status.message))
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", CALL_LIMIT.as_secs())),
    }
}
