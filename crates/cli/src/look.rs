//! Checking a cluster from outside, for people: what can be read is read, and what cannot is named.

mod events;
mod follow;
mod list;
mod picture;
mod progress;
mod reach;
mod rows;
mod shape;
mod shelf;
mod who;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use volmedic_api::{Arrived, Shape, slim};
use volmedic_hub::{Attachment, Claim, ControllerLease, CsiNode, Pod, StoredHealth, StoredReport, Volume};

pub(crate) use events::Note;
pub(crate) use follow::Following;
pub(crate) use list::{Unread, each, innermost};
pub(crate) use picture::Picture;
pub(crate) use progress::Progress;
pub(crate) use reach::{Reach, ReachArgs, Version};
pub(crate) use rows::{Rows, meaning};
pub(crate) use shape::{CsiDriver, Event};
pub(crate) use who::{Life, Who};

/// Up to this many volumes are read one by one rather than listed with all others of the cluster.
const FEW: usize = 64;
/// Leases of kubelets are as many as nodes, and say nothing here.
const LEASES: &str = "metadata.namespace!=kube-node-lease";
/// Pods that use something somewhere.
const PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Where events are searched for if nothing else is stored: on claims whatever they say, on pods by reason.
const EVENTS: [&str; 4] = [
    "involvedObject.kind=PersistentVolumeClaim",
    "involvedObject.kind=Pod,reason=VolumeConditionAbnormal",
    "involvedObject.kind=Pod,reason=VolumeConditionNormal",
    "involvedObject.kind=Pod,reason=VolumeConditionUnwatched",
];

/// Which claims are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    /// All, if absent.
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    /// This one only.
    pub(crate) claim: Option<String>,
}

impl Scope {
    fn api<T>(&self, client: &Client) -> Api<Arrived<T>>
    where
        T: Shape<Scope = kube::core::NamespaceResourceScope>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    fn name(&self) -> Option<String> {
        self.claim.as_ref().map(|name| format!("metadata.name={name}"))
    }
}

/// Reads everything there is to know about the claims in scope. What cannot be read is in [`Picture::unread`].
pub(crate) async fn read(reach: &Reach, scope: &Scope, progress: &Progress) -> Picture {
    let picture = Arc::new(Mutex::new(Picture::default()));
    let reader = Reader { reach, picture: &picture, progress };
    let client = &reach.client;
    let fields = |fields: Option<&str>| ListParams {
        field_selector: fields.map(str::to_owned),
        ..ListParams::default()
    };
    let claims = ListParams { label_selector: scope.labels.clone(), ..fields(scope.name().as_deref()) };
    let volumes = async {
        // In one namespace there may be few, in a cluster of many.
        if scope.namespace.is_none() {
            reader.list(Api::all(client.clone()), fields(None), Picture::put_volume).await;
        }
    };
    tokio::join!(
        reader.list(scope.api(client), claims, Picture::put_claim),
        volumes,
        reader.list(scope.api(client), fields(Some(PODS)), Picture::put_pod),
        reader.list(scope.api(client), fields(scope.name().as_deref()), Picture::put_health),
        reader.list(Api::all(client.clone()), fields(None), Picture::put_node),
        reader.list(Api::all(client.clone()), fields(None), Picture::put_report),
        reader.list(Api::all(client.clone()), fields(Some(LEASES)), Picture::put_lease),
        reader.list(Api::all(client.clone()), fields(None), Picture::put_csi_node),
        reader.list(Api::all(client.clone()), fields(None), Picture::put_driver),
        reader.list(Api::all(client.clone()), fields(None), Picture::put_attachment),
    );
    if scope.namespace.is_some() {
        reader.volumes_of_claims().await;
    }
    // Where there is a VolumeHealth for what is wrong, events say nothing more.
    if !picture.lock().has(StoredHealth::PLURAL) {
        reader.events(scope).await;
    }
    let mut picture = Arc::into_inner(picture).map(Mutex::into_inner).unwrap_or_default();
    picture.settle(Timestamp::now(), true);
    picture
}

/// Which kinds cannot be read, and why: one object of each is asked for.
pub(crate) async fn probe(reach: &Reach, scope: &Scope) -> BTreeMap<&'static str, Unread> {
    async fn one<T: Shape>(api: Api<Arrived<T>>, deadline: Duration) -> Option<(&'static str, Unread)> {
        list::first(&api, deadline).await.err().map(|unread| (T::PLURAL, unread))
    }
    let (client, deadline) = (&reach.client, reach.deadline);
    let all = || client.clone();
    let (claims, volumes, pods, healths) = tokio::join!(
        one::<Claim>(scope.api(client), deadline),
        one::<Volume>(Api::all(all()), deadline),
        one::<Pod>(scope.api(client), deadline),
        one::<StoredHealth>(scope.api(client), deadline),
    );
    let (nodes, reports, leases, csi_nodes, attachments) = tokio::join!(
        one::<slim::Node>(Api::all(all()), deadline),
        one::<StoredReport>(Api::all(all()), deadline),
        one::<ControllerLease>(Api::all(all()), deadline),
        one::<CsiNode>(Api::all(all()), deadline),
        one::<Attachment>(Api::all(all()), deadline),
    );
    let found = [claims, volumes, pods, healths, nodes, reports, leases, csi_nodes, attachments];
    found.into_iter().flatten().collect()
}

/// Reads again what events say, where nothing else is stored.
pub(crate) async fn read_events(reach: &Reach, scope: &Scope, picture: &Mutex<Picture>) {
    let fresh = Mutex::new(Picture::default());
    let reader = Reader { reach, picture: &fresh, progress: &Progress::default() };
    reader.events(scope).await;
    let Picture { reported_on_claims, reported_on_pods, unread, .. } = fresh.into_inner();
    let mut picture = picture.lock();
    if unread.is_empty() {
        (picture.reported_on_claims, picture.reported_on_pods) = (reported_on_claims, reported_on_pods);
    }
    picture.unread.extend(unread);
}

struct Reader<'a> {
    reach: &'a Reach,
    picture: &'a Mutex<Picture>,
    progress: &'a Progress,
}

impl Reader<'_> {
    /// Answers whether it could be read.
    async fn list<T: Shape>(
        &self,
        api: Api<Arrived<T>>,
        params: ListParams,
        put: fn(&mut Picture, &Arrived<T>, &T),
    ) -> bool {
        let counted = match T::PLURAL {
            "persistentvolumeclaims" => "claims",
            "persistentvolumes" => "volumes",
            other => other,
        };
        let take = |object: &Arrived<T>, body: &T| {
            put(&mut self.picture.lock(), object, body);
            self.progress.note(counted);
        };
        let read = each(&api, params, self.reach.deadline, take).await;
        let mut picture = self.picture.lock();
        match read {
            Ok(malformed) => picture.malformed += malformed,
            Err(unread) => drop(picture.unread.insert(T::PLURAL, unread)),
        }
        picture.has(T::PLURAL)
    }

    async fn events(&self, scope: &Scope) {
        for selector in EVENTS {
            let params = ListParams { field_selector: Some(selector.to_owned()), ..ListParams::default() };
            if !self.list(scope.api(&self.reach.client), params, put_event).await {
                break;
            }
        }
    }

    async fn volumes_of_claims(&self) {
        let names = self.picture.lock().world.volume_names();
        let api = Api::<Arrived<Volume>>::all(self.reach.client.clone());
        if names.len() > FEW {
            self.list(api, ListParams::default(), Picture::put_volume).await;
            return;
        }
        for name in names {
            match tokio::time::timeout(self.reach.deadline, api.get_opt(&name)).await {
                Ok(Ok(Some(object))) => {
                    if let Ok(body) = &object.body {
                        self.picture.lock().put_volume(&object, body);
                    }
                }
                Ok(Ok(None)) => {}
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                    self.picture.lock().unread.insert(Volume::PLURAL, Unread::Forbidden);
                    return;
                }
                Ok(Err(error)) => {
                    let unread = Unread::Failed(innermost(&error));
                    self.picture.lock().unread.insert(Volume::PLURAL, unread);
                    return;
                }
                Err(_) => {
                    let unread = Unread::Failed("no answer in time".to_owned());
                    self.picture.lock().unread.insert(Volume::PLURAL, unread);
                    return;
                }
            }
        }
    }
}

fn put_event(picture: &mut Picture, object: &Arrived<Event>, body: &Event) {
    let Some(note) = Note::read(body) else { return };
    let on = if body.involved_object.kind == "Pod" {
        &mut picture.reported_on_pods
    } else {
        &mut picture.reported_on_claims
    };
    on.push(object.namespace(), &body.involved_object.name, note);
}

/// All that we may not read, in one sentence.
pub(crate) fn forbidden(picture: &Picture) -> Option<String> {
    let kinds = picture.unread.iter().filter(|(_, why)| **why == Unread::Forbidden);
    let kinds: Vec<&str> = kinds.map(|(kind, _)| *kind).filter(|kind| *kind != CsiDriver::PLURAL).collect();
    let all = kinds.join(", ");
    (!kinds.is_empty())
        .then(|| format!("you may not list {all}, so what they say is not known; ask for `list` on them"))
}

/// Anyone who closes the pipe has read enough.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
