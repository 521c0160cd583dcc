//! A healthy volume costs at most 100 bytes in the ledger, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use volmedic_health::{Ledger, Policy, Sight, Subject, Vantage};

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

/// The handles belong to the inventory, which passes them in; the ledger shares their text.
#[test]
fn a_healthy_volume_costs_at_most_100_bytes() {
    // The worst sizes for a hash table are those just past a doubling.
    for count in [1_000, 7_169, 10_000, 57_345, 100_000, 114_689] {
        let driver: Arc<str> = "disk.example.net".into();
        let handles: Vec<Arc<str>> =
            (0..count).map(|i| format!("6f1c9a54-0000-4000-8000-{i:012}").into()).collect();
        let before = LIVE.load(Ordering::Relaxed);
        let mut ledger = Ledger::new(Policy::default());
        for pass in 0..3 {
            let now = Timestamp::from_second(pass * 300).unwrap();
            for handle in &handles {
                let subject = Subject::volume(driver.clone(), handle.clone());
                for vantage in [Vantage::Controller, Vantage::Node("worker-7".into())] {
                    assert!(ledger.record(now, &subject, &vantage, Sight::Healthy).is_empty());
                }
            }
        }
        let bytes = LIVE.load(Ordering::Relaxed) - before;
        let each = bytes.div_ceil(count);
        println!("{count} healthy volumes: {bytes} bytes, {each} each");
        assert!(each <= 100, "{count} volumes cost {each} bytes each");
    }
}
