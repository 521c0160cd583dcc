//! What it costs to know which objects of a kind there are, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use volmedic_inventory::{KnownNames, Spared};

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
fn a_known_name_costs_at_most_21_bytes() {
    // The worst sizes for a hash table are those just past a doubling, where it is half empty.
    for (count, most) in [(100_000, 12), (114_689, 21)] {
        let before = LIVE.load(Ordering::Relaxed);
        let mut names = KnownNames::default();
        let objects = |each: &mut dyn FnMut(&str, &str)| {
            for number in 0..count {
                each(&format!("team-{:03}", number % 300), &format!("data-database-{number:06}"));
            }
        };
        // The second list is read while the first one is still known, and must leave no more behind than the first.
        for _ in 0..2 {
            names.begin();
            objects(&mut |namespace, name| names.put(namespace, name));
            assert_eq!(names.sweep(&Spared::default(), objects), []);
        }
        let each = (LIVE.load(Ordering::Relaxed) - before) / count;
        println!("{count} names: {each} bytes each");
        println!("counted inventory.name.bytes {each}");
        assert!(each <= most, "{count} names cost {each} bytes each");
    }
}
