//! The relay's CSIAddonsNode: written as the sidecar of csi-addons writes it, kept as long as the relay runs, and taken
//! back at its end.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client, Resource};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use volmedic_api::Readable;
use volmedic_api::addons::{
    CREATED_BY, CsiAddonsNode, CsiAddonsNodeDriver, RELAY, RELAY_CERTIFICATES, RELAY_VERSION, UPDATED_AT,
};
use volmedic_csi::{Backoff, Driver, HEALER_FIELD, State};

use super::door::Registered;
use super::names::object_name;
use super::tls::Certificates;
use super::{API, Options};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Between two looks for a kind that is not installed.
const FIRST_LOOK: Duration = Duration::from_secs(5);
const LONGEST_LOOK: Duration = Duration::from_mins(5);
/// How long a registration that somebody keeps deleting stays away at most.
const LONGEST_QUARREL: Duration = Duration::from_mins(5);

/// Why the relay is not registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    #[error("{what} failed")]
    Api { what: String, source: kube::Error },
    #[error("{what} brought no answer from the API server in time")]
    Silent { what: String },
    #[error(
        "the API server does not know the resource CSIAddonsNode; install its definition, which comes with csi-addons"
    )]
    NotInstalled,
    #[error("the CSIAddonsNode {name} is being deleted; it is written again when it is gone")]
    Going { name: String },
    #[error("the CSIAddonsNode {name} belongs to somebody else ({whose}); this relay leaves it alone")]
    Foreign { name: String, whose: String },
    #[error(
        "the CSIAddonsNode {name} was for another driver or node id; it is written again when it is gone"
    )]
    Replaced { name: String },
}

/// What the driver says about registering.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wish {
    /// It can heal. With how often it introduced itself.
    Register { driver: String, generation: u64 },
    /// It is there and cannot heal.
    Withdraw,
    /// It is not there, and may come back.
    Keep,
}

pub(super) struct Registrar {
    client: Client,
    driver: Driver,
    namespace: String,
    pod: String,
    node_id: String,
    endpoint: String,
    several: bool,
    place: watch::Sender<Registered>,
}

/// Who the pod is, and whose.
struct Who {
    pod_uid: String,
    owner: OwnerReference,
    /// In the object's name; for a pod of a Deployment it is that, while the owner is the pod itself.
    kind: String,
    name: String,
}

impl Registrar {
    pub(super) fn new(
        client: Client,
        driver: Driver,
        options: &Options,
        port: u16,
        place: watch::Sender<Registered>,
    ) -> Self {
        let Options { node_id, pod, namespace, several_drivers, .. } = options;
        Self {
            client,
            driver,
            namespace: namespace.clone(),
            pod: pod.clone(),
            node_id: node_id.clone(),
            endpoint: format!("pod://{pod}.{namespace}:{port}"),
            several: *several_drivers,
            place,
        }
    }

    /// Until asked to stop. Renews the certificate too, because the registration names it.
    pub(super) async fn run(self, mut certificates: Certificates, mut stopped: watch::Receiver<bool>) {
        let mut state = self.driver.watch();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut rarely = Backoff::new(FIRST_LOOK, LONGEST_LOOK);
        let mut again = Backoff::new(FIRST_PAUSE, LONGEST_QUARREL);
        let mut written = Instant::now();
        let mut done = None;
        let mut life: Option<(Wish, Timestamp)> = None;
        let mut reported = String::new();
        loop {
            let wish = wish(&state.borrow_and_update());
            let mut failed = None;
            let named = match wish {
                Wish::Register { .. } => certificates.fingerprints(),
                Wish::Withdraw | Wish::Keep => String::new(),
            };
            let wanted = Some((wish.clone(), named));
            if wish != Wish::Keep && done != wanted {
                // Written again after somebody deleted it, it carries the same time: nothing has restarted.
                let since = match &life {
                    Some((lived, since)) if *lived == wish => *since,
                    _ => Timestamp::now(),
                };
                life = Some((wish, since));
                match self.fulfil(wanted.as_ref(), since).await {
                    Ok(()) => {
                        backoff.succeeded();
                        rarely.succeeded();
                        reported.clear();
                        written = Instant::now();
                        done = wanted;
                        certificates.named();
                    }
                    Err(error) => {
                        let text = super::tls::chain(&error);
                        if text != reported {
                            tracing::warn!("the relay is not registered: {text}");
                            reported = text;
                        }
                        let pauses = match error {
                            RegisterError::NotInstalled => &mut rarely,
                            _ => &mut backoff,
                        };
                        failed = Some(pauses.failed());
                    }
                }
            }
            let name = self.place.borrow().clone().map(|(_, name)| name);
            let wait = async {
                match (failed, name) {
                    (Some(pause), _) => sleep(pause).await,
                    (None, Some(name)) => {
                        self.vanished(&name).await;
                        if written.elapsed() > LONGEST_QUARREL {
                            again.succeeded();
                        }
                        // A manager that cannot talk to us deletes it over and over.
                        sleep(again.failed()).await;
                    }
                    (None, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => break,
                changed = state.changed() => if changed.is_err() { break },
                () = certificates.due() => certificates.step(self.place.borrow().is_some()),
                () = wait => if failed.is_none() {
                    tracing::info!("the relay's CSIAddonsNode was deleted and is written again");
                    done = None;
                },
            }
        }
        if let Err(error) = self.withdraw().await {
            tracing::warn!("the relay's registration stays behind: {}", super::tls::chain(&error));
        }
    }

    async fn fulfil(&self, wanted: Option<&(Wish, String)>, since: Timestamp) -> Result<(), RegisterError> {
        match wanted {
            Some((Wish::Register { driver, generation }, named)) => {
                self.register(driver, *generation, since, named).await
            }
            Some((Wish::Withdraw, _)) => {
                tracing::warn!("the driver does not announce VOLUME_HEALER, so the relay is not registered");
                self.withdraw().await
            }
            Some((Wish::Keep, _)) | None => Ok(()),
        }
    }

    async fn register(
        &self,
        driver: &str,
        generation: u64,
        since: Timestamp,
        certificates: &str,
    ) -> Result<(), RegisterError> {
        let who = self.who().await?;
        let suffix = if self.several { format!("{}-{driver}", who.name) } else { who.name.clone() };
        let name = object_name(&self.node_id, &self.namespace, &who.kind, &suffix);
        let annotations = BTreeMap::from([
            (CREATED_BY.to_owned(), who.pod_uid.clone()),
            (UPDATED_AT.to_owned(), since.to_string()),
            (RELAY.to_owned(), RELAY_VERSION.to_owned()),
            (RELAY_CERTIFICATES.to_owned(), certificates.to_owned()),
        ]);
        let spec = CsiAddonsNodeDriver {
            name: driver.to_owned(),
            endpoint: self.endpoint.clone(),
            node_id: self.node_id.clone(),
        };
        let objects = self.objects();
        let getting = format!("reading the CSIAddonsNode {name}");
        match ask(getting, objects.get_opt(&name)).await.map_err(installed)? {
            None => {
                let object = CsiAddonsNode::new(&name, &self.namespace, who.owner, annotations, spec);
                let making = format!("making the CSIAddonsNode {name}");
                ask(making, objects.create(&PostParams::default(), &object)).await.map_err(installed)?;
            }
            Some(found) => self.renew(&objects, found, who, annotations, spec).await?,
        }
        tracing::info!(name, driver, generation, endpoint = self.endpoint, "the relay is registered");
        self.place.send_replace(Some((self.namespace.clone(), name)));
        Ok(())
    }

    async fn renew(
        &self,
        objects: &Api<CsiAddonsNode>,
        mut found: CsiAddonsNode,
        who: Who,
        annotations: BTreeMap<String, String>,
        spec: CsiAddonsNodeDriver,
    ) -> Result<(), RegisterError> {
        let name = found.metadata.name.clone().unwrap_or_default();
        if found.is_going() {
            return Err(RegisterError::Going { name });
        }
        let ours = found.owners().iter().any(|owner| owner.uid == who.owner.uid)
            || found.annotation(CREATED_BY) == who.pod_uid;
        // The pod that owned it is gone and the new one of the same Deployment has another uid.
        let orphan = found.owners().iter().all(|owner| owner.kind == "Pod")
            && found.annotation(RELAY) == RELAY_VERSION;
        if !ours && !orphan {
            let owners = found.owners().iter().map(|owner| format!("{} {}", owner.kind, owner.name));
            let whose = owners.collect::<Vec<_>>().join(", ");
            return Err(RegisterError::Foreign { name, whose });
        }
        let old = &found.spec.driver;
        if old.name != spec.name || old.node_id != spec.node_id {
            // Neither can be changed on an object that is there.
            self.delete(objects, &found).await?;
            return Err(RegisterError::Replaced { name });
        }
        found.spec.driver = spec;
        found.metadata.owner_references = Some(vec![who.owner]);
        found.metadata.annotations.get_or_insert_default().extend(annotations);
        found.metadata.managed_fields = None;
        let writing = format!("writing the CSIAddonsNode {name}");
        ask(writing, objects.replace(&name, &PostParams::default(), &found)).await?;
        Ok(())
    }

    /// Takes the object back, if it is still ours.
    async fn withdraw(&self) -> Result<(), RegisterError> {
        let Some((_, name)) = self.place.send_replace(None) else { return Ok(()) };
        let objects = self.objects();
        let getting = format!("reading the CSIAddonsNode {name}");
        let Some(found) = ask(getting, objects.get_opt(&name)).await? else { return Ok(()) };
        if found.spec.driver.endpoint != self.endpoint {
            // Who came after us has it.
            return Ok(());
        }
        self.delete(&objects, &found).await
    }

    async fn delete(&self, objects: &Api<CsiAddonsNode>, found: &CsiAddonsNode) -> Result<(), RegisterError> {
        let name = found.metadata.name.clone().unwrap_or_default();
        let preconditions = Preconditions {
            uid: found.metadata.uid.clone(),
            resource_version: found.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        ask(format!("deleting the CSIAddonsNode {name}"), objects.delete(&name, &params)).await?;
        Ok(())
    }

    async fn who(&self) -> Result<Who, RegisterError> {
        let Self { client, namespace, pod: name, .. } = self;
        let pods = Api::<Readable<Pod>>::namespaced(client.clone(), namespace);
        let Readable(pod) = ask(format!("reading this pod, {namespace}/{name}"), pods.get(name)).await?;
        let pod_uid = pod.metadata.uid.clone().unwrap_or_default();
        let itself = || reference::<Pod>(name, &pod_uid);
        let owner = pod.metadata.owner_references.and_then(|owners| owners.into_iter().next());
        let who = match owner {
            // Nobody would make it again, so it is its own.
            None => Who { owner: itself(), kind: "Pod".into(), name: name.clone(), pod_uid },
            Some(owner) if owner.kind == "ReplicaSet" => {
                let sets = Api::<Readable<ReplicaSet>>::namespaced(client.clone(), namespace);
                let reading = format!("reading the ReplicaSet {namespace}/{}", owner.name);
                let Readable(set) = ask(reading, sets.get(&owner.name)).await?;
                let above = set.metadata.owner_references.and_then(|owners| owners.into_iter().next());
                let OwnerReference { kind, name, .. } = above.unwrap_or(owner);
                Who { owner: itself(), kind, name, pod_uid }
            }
            Some(owner) => {
                let OwnerReference { api_version, kind, name, uid, .. } = owner;
                let (kind_, name_) = (kind.clone(), name.clone());
                let owner = OwnerReference { api_version, kind, name, uid, ..OwnerReference::default() };
                Who { owner, kind: kind_, name: name_, pod_uid }
            }
        };
        Ok(who)
    }

    /// Returns when the object is gone.
    async fn vanished(&self, name: &str) {
        let mut seen = pin!(watched(self.objects(), name));
        loop {
            match seen.next().await {
                Some(Ok(Some(_))) => {}
                Some(Ok(None)) => return,
                Some(Err(error)) => tracing::debug!(%error, "the relay's CSIAddonsNode cannot be watched"),
                None => sleep(LONGEST_PAUSE).await,
            }
        }
    }

    fn objects(&self) -> Api<CsiAddonsNode> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn watched(
    objects: Api<CsiAddonsNode>,
    name: &str,
) -> impl Stream<Item = Result<Option<CsiAddonsNode>, kube::runtime::watcher::Error>> {
    watch_object(objects, name).default_backoff()
}

fn wish(state: &State) -> Wish {
    match state {
        State::Ready(session) if session.features().addons.announces_healer(HEALER_FIELD) => {
            Wish::Register { driver: session.driver().to_owned(), generation: session.generation() }
        }
        State::Ready(_) => Wish::Withdraw,
        State::Waiting(_) => Wish::Keep,
    }
}

fn reference<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

/// The pod is there, and so is its namespace: what is not to be found is the kind.
fn installed(error: RegisterError) -> RegisterError {
    match error {
        RegisterError::Api { source: kube::Error::Api(status), .. } if status.code == 404 => {
            RegisterError::NotInstalled
        }
        other => other,
    }
}

async fn ask<T>(
    what: String,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, RegisterError> {
    match timeout(API, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(RegisterError::Api { what, source }),
        Err(_) => Err(RegisterError::Silent { what }),
    }
}
