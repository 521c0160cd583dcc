//! Pages of megabytes: never two of them in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::Semaphore;
use volmedic_csi::{Listed, ListedVolume, Pager, Visit};
use volmedic_proto::csi;

use crate::fake::{Reply, SOON, Scene, settings};
use crate::paging::{entry, limits, start};

const MIB: usize = 1 << 20;

/// One volume with a context of this size.
fn padded(id: &str, bytes: usize, next_token: &str) -> Reply {
    let mut entry = entry(id);
    if let Some(volume) = &mut entry.volume {
        volume.volume_context = [("padding".to_owned(), "x".repeat(bytes))].into();
    }
    let page = csi::ListVolumesResponse { entries: vec![entry], next_token: next_token.into() };
    Reply::Message(page.encode_to_vec())
}

/// Takes each page only when it may.
struct Slow {
    gate: Arc<Semaphore>,
    seen: Arc<AtomicU64>,
}

impl Visit<ListedVolume> for Slow {
    fn entry(&mut self, _: Listed<ListedVolume>) {
        self.seen.fetch_add(1, Ordering::SeqCst);
    }

    async fn breathe(&mut self) {
        self.gate.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn the_page_after_a_large_one_is_asked_for_when_that_one_is_gone() {
    let scene = Scene::new();
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    let _fake = start(&scene, move |call| {
        count.fetch_add(1, Ordering::SeqCst);
        match call.nth {
            0 => padded("a", 5 * MIB, "1"),
            1 => padded("b", 5 * MIB, "2"),
            2 => padded("c", MIB, "3"),
            _ => padded("d", 5 * MIB, ""),
        }
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(limits());
    let (gate, seen) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let slow = Slow { gate: gate.clone(), seen: seen.clone() };
    let mut walk = Box::pin(pager.list_volumes(&session, slow));
    // Beside the third page, which is small, the fourth is asked for.
    for (page, requests) in [(1, 1), (2, 2), (3, 4), (4, 4)] {
        let deadline = std::time::Instant::now() + SOON;
        while seen.load(Ordering::SeqCst) < page || asked.load(Ordering::SeqCst) < requests {
            assert!(std::time::Instant::now() < deadline, "page {page} does not come");
            let early = tokio::time::timeout(Duration::from_millis(20), &mut walk).await;
            assert!(early.is_err(), "it ended before page {page} was taken");
        }
        // And a moment more, in which the next page would be asked for if nothing kept it back.
        let early = tokio::time::timeout(Duration::from_millis(50), &mut walk).await;
        assert!(early.is_err(), "it ended before page {page} was taken");
        assert_eq!(asked.load(Ordering::SeqCst), requests, "while page {page} is held");
        gate.add_permits(1);
    }
    gate.add_permits(1);
    let end = tokio::time::timeout(SOON, &mut walk).await.unwrap();
    assert!(end.complete(), "{end}");
    assert_eq!((end.counts.volumes, end.counts.oddities.is_empty()), (4, true), "{end}");
}

/// A last page that is exactly full is asked for without a limit. If that fails, the entries of the page still count.
#[tokio::test]
async fn a_large_page_that_may_be_cut_is_asked_for_again() {
    let scene = Scene::new();
    let _fake = start(&scene, |call| {
        let asked: csi::ListVolumesRequest = call.read();
        if asked.max_entries == 0 {
            return crate::fake::fail(tonic::Code::Internal, "not all of them");
        }
        padded("a", 5 * MIB, "")
    });
    let session = scene.driver(settings()).ready_within(SOON).await.unwrap();
    let mut pager = Pager::new(volmedic_csi::Limits { first_size: 1, largest_size: 1, ..limits() });
    let mut seen = Vec::new();
    let end =
        pager.list_volumes(&session, |listed: Listed<ListedVolume>| seen.push(listed.entry.volume_id)).await;
    assert_eq!(seen, ["a"]);
    assert!(matches!(end.broken, Some(volmedic_csi::Broken::MaybeTruncated(_))), "{end}");
}
