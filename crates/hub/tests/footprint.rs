//! What an attached volume costs the hub, counted by the allocator: at most 256 bytes, its name of 68 included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use volmedic_hub::{Attachment, Volume, World};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test, since another one beside it would be counted too.
#[test]
fn an_attached_volume_costs_at_most_256_bytes() {
    // The worst sizes for a hash table are those just past a doubling, where it is half empty.
    for (count, most) in [(100_000, 256), (114_689, 304)] {
        let volume_name = |number: usize| format!("pvc-6f1c9a54-0000-4000-8000-{number:012x}");
        let mut world = World::untracked();
        for number in 0..count {
            let csi = json!({"driver": "disk.example.net", "volumeHandle": format!("{number:026}")});
            let body: Volume = serde_json::from_value(json!({"spec": {"csi": csi}})).expect("a volume");
            world.put_volume(&volume_name(number), &body);
        }
        let before = LIVE.load(Ordering::Relaxed);
        for number in 0..count {
            let body = json!({
                "spec": {
                    "nodeName": format!("worker-{:04}", number % 1000),
                    "source": {"persistentVolumeName": volume_name(number)},
                },
                "status": {"attached": true},
            });
            let body: Attachment = serde_json::from_value(body).expect("an attachment");
            // Attachments of CSI drivers are named after a digest of volume, driver and node.
            world.put_attachment(&format!("csi-{:064x}", number.wrapping_mul(0x9e37_79b9)), &body);
        }
        let each = (LIVE.load(Ordering::Relaxed) - before) / count;
        println!("{count} attached volumes: {each} bytes each");
        println!("counted hub.attachment.bytes {each}");
        assert!(each <= most, "{count} attached volumes cost {each} bytes each");
    }
}
