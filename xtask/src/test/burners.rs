//! Threads that do nothing but keep every core busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs `work` while one thread for each core counts for nothing.
pub(super) fn beside<T>(work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn they_end_with_the_work() {
        assert_eq!(super::beside(|| 7), 7);
    }
}
