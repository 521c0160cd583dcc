//! A hundred thousand volumes, in one page and one by one.

use std::time::{Duration, Instant};

use prost::Message as _;
use tokio::net::UnixListener;
use volmedic_csi::{Limits, Listed, ListedVolume, Method, Oddity, Pager};
use volmedic_proto::csi;

use crate::fake::{Fake, Reply, SOON, Scene, serve, settings};
use crate::paging::{entry, limits, numbered, page};

const MANY: usize = 100_000;

#[tokio::test]
async fn in_one_page() {
    let scene = Scene::new();
    let Reply::Message(bytes) = numbered(0, MANY, "") else { unreachable!("a list is a message") };
    let _fake = Fake::new()
        .capabilities(&[3, 11], &[])
        .on(Method::ListVolumes, move |_| Reply::Message(bytes.clone()))
        .start(&scene.socket());
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(Limits { page_deadline: SOON, ..limits() });
    let mut count = 0;
    let end = pager.list_volumes(&session, |_: Listed<ListedVolume>| count += 1).await;
    assert!(end.complete(), "{end}");
    assert_eq!((count, end.counts.volumes, end.counts.pages), (MANY, MANY as u64, 1));
    assert_eq!(end.counts.oddities.count(Oddity::OversizedPage), 1);
}

/// The fake lives in this runtime, so that a call costs no switch of threads.
#[tokio::test]
async fn one_by_one() {
    let scene = Scene::new();
    let fake = Fake::new().capabilities(&[3, 11], &[]).on(Method::ListVolumes, |call| {
        let asked: csi::ListVolumesRequest = call.read();
        let at: usize = asked.starting_token.parse().unwrap_or(0);
        let next = if at + 1 < MANY { (at + 1).to_string() } else { String::new() };
        page(&[&format!("v{at}")], &next)
    });
    let served = tokio::spawn(serve(UnixListener::bind(scene.socket()).unwrap(), fake));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits());
    let mut count = 0;
    let started = Instant::now();
    let end = pager.list_volumes(&session, |_: Listed<ListedVolume>| count += 1).await;
    println!("{MANY} pages of one volume in {:.1?}", started.elapsed());
    assert!(end.complete(), "{end}");
    assert_eq!((count, end.counts.pages), (MANY, MANY as u64));
    served.abort();
}

/// A volume with what drivers put beside its id.
fn realistic(index: usize) -> csi::list_volumes_response::Entry {
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut entry = entry(&format!("csi-vol-8d4a5fba-5c3f-11ef-a2c5-{index:012}"));
    if let Some(volume) = &mut entry.volume {
        volume.volume_context = [text("pool", "replicated"), text("clusterID", "rook-ceph")].into();
        volume.accessible_topology = vec![csi::Topology { segments: [text("zone", "eu-1")].into() }];
    }
    entry.status = Some(csi::list_volumes_response::VolumeStatus {
        published_node_ids: vec!["node-1.example".into()],
        volume_condition: Some(csi::VolumeCondition { abnormal: false, message: "volume is healthy".into() }),
    });
    entry
}

/// The time that this thread spent on a processor: what others do on this machine does not count.
fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("time is not negative")
}

/// The list may cost half as much again as a client that only drains it. All runs on this thread. The best of five of each is
/// compared, because others on the same core make its caches cold.
#[tokio::test]
async fn as_fast_as_a_bare_client() {
    let scene = Scene::new();
    let pages: Vec<Vec<u8>> = (0..MANY / 500)
        .map(|index| {
            let next = if index + 1 < MANY / 500 { (index + 1).to_string() } else { String::new() };
            let entries = (index * 500..(index + 1) * 500).map(realistic).collect();
            csi::ListVolumesResponse { entries, next_token: next }.encode_to_vec()
        })
        .collect();
    let fake = Fake::new().capabilities(&[3, 11], &[]).on(Method::ListVolumes, move |call| {
        let asked: csi::ListVolumesRequest = call.read();
        Reply::Message(pages[asked.starting_token.parse::<usize>().unwrap_or(0)].clone())
    });
    let served = tokio::spawn(serve(UnixListener::bind(scene.socket()).unwrap(), fake));
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();

    let endpoint = format!("unix:{}", scene.socket().display());
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
    let mut bare = csi::controller_client::ControllerClient::new(channel);
    let (mut theirs, mut ours) = (Duration::MAX, Duration::MAX);
    for _ in 0..5 {
        let started = spent();
        let (mut token, mut drained) = (String::new(), 0);
        loop {
            let request = csi::ListVolumesRequest { max_entries: 500, starting_token: token };
            let answer = bare.list_volumes(request).await.unwrap().into_inner();
            drained += answer.entries.len();
            token = answer.next_token;
            if token.is_empty() {
                break;
            }
        }
        theirs = theirs.min(spent().saturating_sub(started));
        assert_eq!(drained, MANY);

        // Pages that stay at 500, and a last one that is not mistaken for a cut list.
        let mut pager = Pager::new(Limits { first_size: 501, largest_size: 501, ..limits() });
        let mut count = 0;
        let started = spent();
        let end = pager.list_volumes(&session, |_: Listed<ListedVolume>| count += 1).await;
        ours = ours.min(spent().saturating_sub(started));
        assert_eq!((count, end.complete()), (MANY, true), "{end}");
    }
    println!("{MANY} volumes in pages of 500: bare client {theirs:.1?}, pager {ours:.1?}");
    assert!(ours < theirs * 3 / 2, "bare client {theirs:.1?}, pager {ours:.1?}");
    served.abort();
}
