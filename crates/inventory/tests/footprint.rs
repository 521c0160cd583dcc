//! A volume costs at most 160 bytes, counted by the allocator after a whole list went through kube's client.

use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use tower::service_fn;
use volmedic_inventory::{Inventory, Metrics, Options};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let live = LIVE.fetch_add(size, Ordering::Relaxed) + size - layout.size();
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, and the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAGE: usize = 500;

/// PersistentVolumes as a provisioner makes them.
fn page(first: usize, count: usize) -> String {
    let last = (first + PAGE).min(count);
    let next = if last < count { last.to_string() } else { String::new() };
    let mut text = format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"{next}"}},"items":["#);
    for index in first..last {
        let comma = if index == first { "" } else { "," };
        let (claim, handle) =
            (format!("6f1c9a54-0000-4000-8000-{index:012x}"), format!("0001-9b3d-{index:026}"));
        write!(
            text,
            r#"{comma}{{"metadata":{{"name":"pvc-{claim}","uid":"7f1c9a54-0000-4000-8000-{index:012x}","resourceVersion":"{index}",
            "annotations":{{"pv.kubernetes.io/provisioned-by":"disk.example.net"}},"managedFields":[{{"manager":"provisioner"}}]}},
            "spec":{{"capacity":{{"storage":"1Gi"}},"accessModes":["ReadWriteOnce"],
            "csi":{{"driver":"disk.example.net","volumeHandle":"{handle}","fsType":"ext4"}},
            "claimRef":{{"kind":"PersistentVolumeClaim","namespace":"team-{}","name":"data-db-{index:06}","uid":"{claim}"}}}},
            "status":{{"phase":"Bound"}}}}"#,
            index % 50
        )
        .expect("text takes everything");
    }
    text + "]}"
}

fn client(count: usize) -> Client {
    let answer = move |request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let first = query.split('&').find_map(|part| part.strip_prefix("continue=")).unwrap_or("0");
        let text = page(first.parse().expect("the token is ours"), count);
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    };
    Client::new(service_fn(answer), "default")
}

/// One test, since whatever runs beside it would be counted too.
#[test]
fn a_volume_costs_at_most_160_bytes() {
    // The worst sizes for a hash table are those just past a doubling.
    for count in [1_000, 7_169, 100_000, 114_689] {
        // With a runtime of its own, nothing of one round is left in the next.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        println!("{}", runtime.block_on(measure(count)));
    }
}

/// What it found, in a line, and in another one for `cargo xtask bench --check`.
async fn measure(count: usize) -> String {
    let client = client(count);
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let began = Instant::now();
    let options = Options { driver: "disk.example.net".into(), node_watcher: false };
    let inventory = Inventory::start(&client, &options, &Metrics::default());
    tokio::time::timeout(Duration::from_mins(5), inventory.ready()).await.expect("the list is read");
    let took = began.elapsed();
    assert_eq!(inventory.volumes().len(), count);
    drop(inventory.volumes().changes());
    let live = LIVE.load(Ordering::Relaxed) - before;
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let each = live.div_ceil(count);
    assert!(each <= 160, "{count} volumes cost {each} bytes each");
    // A page and its objects are all that is ever held beside the records.
    assert!(peak < live + 4_000_000, "{count} volumes needed {peak} bytes on the way to {live}");
    format!(
        "{count} volumes: {live} bytes, {each} each, {peak} at the peak, {took:?} to read\n\
         counted inventory.volume.bytes {each}"
    )
}
