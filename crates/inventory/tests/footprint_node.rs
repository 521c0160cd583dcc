//! A volume of a pod costs at most a kibibyte and a half on its node, paths and names included, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::convert::Infallible;
use std::fs::{create_dir_all, write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;
use volmedic_inventory::Metrics;
use volmedic_inventory::node::{Inventory, Layout, Options};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Memory) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PODS: usize = 250;
const VOLUMES_EACH: usize = 2;
const DRIVER: &str = "disk.example.net";

/// Uids come in no order.
fn uid(pod: usize) -> String {
    let shuffled = pod.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{:08x}-0000-4000-8000-{pod:012x}", shuffled >> 32)
}

fn claim(pod: usize, volume: usize) -> String {
    format!("data-{volume}-database-{pod:04}")
}

/// The PersistentVolume of a claim, and the claim's uid.
fn volume(pod: usize, volume: usize) -> (String, String) {
    let uid = format!("{}-{volume:04x}-4000-8000-{pod:012x}", &uid(pod + 7)[..8]);
    (format!("pvc-{uid}"), uid)
}

fn pod(pod: usize) -> Value {
    let name = |volume: usize| format!("data-{volume}");
    let volumes: Vec<_> = (0..VOLUMES_EACH)
        .map(|volume| json!({"name": name(volume), "persistentVolumeClaim": {"claimName": claim(pod, volume)}}))
        .collect();
    let mounts: Vec<_> =
        (0..VOLUMES_EACH).map(|volume| json!({"name": name(volume), "mountPath": "/data"})).collect();
    json!({
        "metadata": {"name": format!("database-{pod:04}"), "namespace": "production", "uid": uid(pod), "resourceVersion": "1"},
        "spec": {"nodeName": "n", "volumes": volumes, "containers": [{"name": "main", "volumeMounts": mounts}]},
        "status": {"phase": "Running"},
    })
}

fn persistent_volume(name: &str) -> Value {
    let uid = name.trim_start_matches("pvc-");
    let number = |part: usize| usize::from_str_radix(uid.split('-').nth(part).expect("it has five"), 16);
    let (pod, volume) = (number(4).expect("a number"), number(1).expect("a number"));
    json!({
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": handle(pod, volume), "fsType": "ext4"}, "accessModes": ["ReadWriteOnce"],
                 "claimRef": {"namespace": "production", "name": claim(pod, volume), "uid": uid}},
    })
}

fn handle(pod: usize, volume: usize) -> String {
    format!("0001-9b3d-{volume:04}-{pod:026}")
}

fn client() -> Client {
    let answer = move |request: Request<Body>| async move {
        let uri = request.uri();
        if uri.query().unwrap_or_default().contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let text = match uri.path().strip_prefix("/api/v1/persistentvolumes/") {
            Some(name) => persistent_volume(name),
            None => {
                json!({"metadata": {"resourceVersion": "9"}, "items": (0..PODS).map(pod).collect::<Vec<_>>()})
            }
        };
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text.to_string()))))
    };
    Client::new(service_fn(answer), "default")
}

/// One test, since whatever runs beside it would be counted too.
#[test]
fn a_volume_of_a_pod_costs_at_most_two_kibibytes() {
    let folder = tempfile::Builder::new().prefix("kubelet").tempdir().unwrap();
    let layout = Layout::new(folder.path());
    for pod in 0..PODS {
        for index in 0..VOLUMES_EACH {
            let name = volume(pod, index).0;
            create_dir_all(layout.publish(&uid(pod), &name).unwrap()).unwrap();
            create_dir_all(layout.staging(DRIVER, &handle(pod, index)).unwrap()).unwrap();
            let note = json!({"driverName": DRIVER, "volumeHandle": handle(pod, index), "specVolID": name});
            write(layout.vol_data(&uid(pod), &name).unwrap(), note.to_string()).unwrap();
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    println!("{}", runtime.block_on(measure(&layout)));
}

/// What it found, in a line, and in another one for `cargo xtask bench --check`.
async fn measure(layout: &Layout) -> String {
    let client = client();
    let before = LIVE.load(Ordering::Relaxed);
    let began = Instant::now();
    let options = Options { node: "n".into(), kubelet_root: layout.root().into(), boot: None };
    let inventory = Inventory::start(&client, &options, &Metrics::default());
    tokio::time::timeout(Duration::from_mins(5), inventory.ready()).await.expect("all is read");
    let took = began.elapsed();
    let count = PODS * VOLUMES_EACH;
    assert_eq!(inventory.volumes().len(), count);
    let volume = inventory.volumes().get(DRIVER, &handle(7, 1)).expect("it is there");
    assert!(volume.uses[0].access.must_write() && volume.staging.is_some(), "{volume:?}");
    drop(inventory.volumes().changes());
    let live = LIVE.load(Ordering::Relaxed) - before;
    let each = live.div_ceil(count);
    // 1,863 bytes since each volume has the names of its PersistentVolumes and where a directory of the node is.
    assert!(each <= 2048, "{count} volumes cost {each} bytes each");
    format!(
        "{count} volumes: {live} bytes, {each} each, {took:?} to read\n\
         counted inventory.node-volume.bytes {each}"
    )
}
