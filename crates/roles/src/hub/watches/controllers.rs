//! Whether the drivers' controllers run, and what they probe: by the Leases that carry their statement, and by those
//! that older controllers name in their reports. There are few of them, in namespaces that nobody configures.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{GetParams, ListParams};
use kube::{Api, Client, api::Request};
use parking_lot::Mutex;
use tokio::sync::Notify;
use volmedic_api::resource::LeaseName;
use volmedic_api::{Arrived, REPORTS_HEALTH};
use volmedic_hub::{ControllerLease, FoundController, Lease, Source, World};

use super::now;

const EVERY: Duration = Duration::from_secs(10);
/// While the world is being read there is nothing to ask for yet.
const AT_FIRST: Duration = Duration::from_millis(100);
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Controllers in one answer; a cluster has a handful of drivers.
const MOST: u32 = 500;

/// Runs until dropped.
pub(super) async fn look(client: Client, world: Arc<Mutex<World>>, woken: Arc<Notify>) -> Infallible {
    let mut warned = false;
    loop {
        if !world.lock().is_ready() {
            tokio::time::sleep(AT_FIRST).await;
            continue;
        }
        let (complete, failed) = pass(&client, &world).await;
        if complete {
            world.lock().heard(Source::Controllers);
        }
        match failed {
            None => warned = false,
            Some(why) if !std::mem::replace(&mut warned, true) => {
                tracing::warn!("cannot read the Leases of controllers: {why}; retrying");
            }
            Some(_) => {}
        }
        woken.notify_one();
        tokio::time::sleep(EVERY).await;
    }
}

/// Answers whether all there is to read was read, and what went wrong. A hub that may not list Leases, as with the rights of
/// version 0.1, knows all it can know without them: that is complete too.
async fn pass(client: &Client, world: &Mutex<World>) -> (bool, Option<String>) {
    let (mut complete, mut failed) = (true, None);
    match find(client).await {
        Ok(found) => world.lock().set_controllers(now(), found),
        Err(Unread { why, may_not }) => (complete, failed) = (may_not, Some(why)),
    }
    let named = world.lock().controller_leases();
    for lease in named {
        match ask(client, &lease).await {
            Ok(found) => world.lock().put_controller_lease(now(), &lease, found.as_ref()),
            Err(Unread { why, .. }) => {
                world.lock().miss_controller_lease(now(), &lease);
                complete = false;
                failed = Some(format!("{}/{}: {why}", lease.namespace, lease.name));
            }
        }
    }
    (complete, failed)
}

struct Unread {
    why: String,
    may_not: bool,
}

/// All Leases with a statement of a controller.
async fn find(client: &Client) -> Result<Vec<FoundController>, Unread> {
    let leases = Api::<Arrived<ControllerLease>>::all(client.clone());
    let params = ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() };
    let params = params.labels(REPORTS_HEALTH).limit(MOST);
    match tokio::time::timeout(CALL_LIMIT, leases.list(&params)).await {
        Ok(Ok(list)) => {
            let name = |object: &Arrived<ControllerLease>| LeaseName {
                namespace: object.namespace().to_owned(),
                name: object.name().to_owned(),
            };
            let leases =
                list.items.iter().filter_map(|object| Some((name(object), object.body.as_ref().ok()?)));
            Ok(volmedic_hub::find_controllers(leases))
        }
        outcome => Err(refusal(outcome.map(|answer| answer.map(drop)))),
    }
}

/// `None` if there is no such Lease.
async fn ask(client: &Client, lease: &LeaseName) -> Result<Option<Lease>, Unread> {
    let leases = Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", lease.namespace));
    let request = leases.get(&lease.name, &GetParams::default());
    let request = request.map_err(|error| Unread { why: error.to_string(), may_not: false })?;
    match tokio::time::timeout(CALL_LIMIT, client.request::<Lease>(request)).await {
        Ok(Ok(found)) => Ok(Some(found)),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
        outcome => Err(refusal(outcome.map(|answer| answer.map(drop)))),
    }
}

/// Why there was no answer.
fn refusal(outcome: Result<kube::Result<()>, tokio::time::error::Elapsed>) -> Unread {
    let (why, may_not) = match outcome {
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            (format!("{}; apply deploy/chart/files/rbac-hub.yaml", status.message), true)
        }
        Ok(Err(error)) => (error.to_string(), false),
        Ok(Ok(())) => ("no error".to_owned(), false),
        Err(_) => (format!("no answer within {} s", CALL_LIMIT.as_secs()), false),
    };
    Unread { why, may_not }
}
