//! What a panic ends. A panic is an internal error (bug), and there are two answers to it:
//!
//! - Work for one volume, one object or one connection runs inside [`caught`]. A panic ends that piece of work only, and its
//!   caller decides what that means: not seen, retried later, failed.
//! - Everything else is a task that the process cannot do without, such as a watch or the loop that sends events. A panic there
//!   ends the process, so that it is started again: without that task it would go on, know nothing, and look healthy.
//!   [`end_process_on_panic`] makes this the default, so no task can be forgotten.
//!
//! Both need a profile that unwinds. This crate does not compile with another one, and `cargo xtask tidy` refuses it.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::OnceLock;
use std::task::Poll;

#[cfg(panic = "abort")]
compile_error!("a panic in the work for one volume must not end the process: remove `panic = \"abort\"`");

/// The exit code of a process that ended because of an internal error, as in sysexits.h.
pub const INTERNAL_ERROR: i32 = 70;

/// Where a process reports its panics. Standard error may be a pipe that nothing reads, and a panic must not wait for that.
#[derive(Debug, Clone, Copy)]
pub struct Outlet {
    /// Never waits.
    pub write: fn(&str),
    /// Called before the process ends. Waits for a bounded time.
    pub flush: fn(),
}

static OUTLET: OnceLock<Outlet> = OnceLock::new();

/// From now on, panics are reported there instead of on standard error. The first caller decides.
pub fn report_through(outlet: Outlet) {
    let _ = OUTLET.set(outlet);
}

thread_local! {
    /// How many calls that catch panics are on this thread's stack.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

/// From now on, a panic that nothing catches ends the process with [`INTERNAL_ERROR`], on whatever thread it is. Call it once,
/// first in `main`. Libraries and tests do not call it: there, a panic ends the task or the test.
pub fn end_process_on_panic() {
    let report = take_hook();
    set_hook(Box::new(move |panic| {
        match OUTLET.get() {
            Some(outlet) => (outlet.write)(&describe(panic)),
            None => report(panic),
        }
        // A thread that is ending has no such value any more, and catches nothing.
        if CATCHING.try_with(Cell::get).unwrap_or(0) == 0 {
            tracing::error!(
                panic = message(panic.payload()),
                at = panic.location().map(tracing::field::display),
                "internal error (bug): the process ends, because it cannot do without what panicked; please report it"
            );
            if let Some(outlet) = OUTLET.get() {
                (outlet.flush)();
            }
            std::process::exit(INTERNAL_ERROR);
        }
    }));
}

/// As the standard library says it.
fn describe(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured { format!("{text}\n{backtrace}") } else { text }
}

/// The result of a future, or the message of its panic. After a panic it is never polled again.
pub fn caught<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, String>> {
    // Pinned in place, it would make the future around it twice as large.
    let mut future = Box::pin(future);
    poll_fn(move |context| match caught_now(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
}

/// The result of a function, or the message of its panic. What the function changed elsewhere may be half changed.
pub fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    CATCHING.set(CATCHING.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(CATCHING.get() - 1);
    done.map_err(|panic| message(&*panic))
}

/// Runs work on a thread that may block. It belongs to the task that awaits it: if the work panics, that task does.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(|| caught_now(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => panic!("{panic}"),
        // The runtime is ending, and this task with it.
        Err(_) => pending().await,
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// What the child of a test does.
    const CHILD: &str = "VOLMEDIC_PANICS_CHILD";

    /// The exit code of a process that ends on panics and does this.
    fn exit_code(test: &str, what: &str) -> Option<i32> {
        let this = std::env::current_exe().expect("this program");
        let test = format!("tests::{test}");
        let ended = Command::new(this).args(["--exact", &test]).env(CHILD, what).output();
        ended.expect("it starts").status.code()
    }

    fn asked() -> Option<String> {
        let what = std::env::var(CHILD).ok()?;
        end_process_on_panic();
        Some(what)
    }

    #[tokio::test]
    async fn a_panic_is_a_message_and_the_rest_goes_on() {
        assert_eq!(caught(async { 1 }).await, Ok(1));
        assert_eq!(caught(async { panic!("at {}", 3) }).await, Err::<(), _>("at 3".to_owned()));
        let panics_later = async {
            tokio::task::yield_now().await;
            panic!("later")
        };
        assert_eq!(caught(panics_later).await, Err::<(), _>("later".to_owned()));
        assert_eq!(caught_now(|| panic!("now")), Err::<(), _>("now".to_owned()));
    }

    #[tokio::test]
    async fn blocking_work_panics_in_the_task_that_awaits_it() {
        assert_eq!(blocking(|| 1).await, 1);
        assert_eq!(caught(blocking(|| panic!("there"))).await, Err::<(), _>("there".to_owned()));
    }

    #[tokio::test]
    async fn a_panic_that_nothing_catches_ends_the_process() {
        match asked().as_deref() {
            Some("task") => drop(tokio::spawn(async { panic!("task") }).await),
            Some("thread") => drop(std::thread::spawn(|| panic!("thread")).join()),
            Some("blocking") => drop(tokio::spawn(blocking(|| panic!("blocking"))).await),
            Some("spawned") => {
                // What is spawned by work that is caught is not itself caught.
                drop(caught(async { tokio::spawn(async { panic!("spawned") }).await }).await);
            }
            Some("after") => {
                drop(caught(async { panic!("caught") }).await.map(|(): ()| ()));
                panic!("after");
            }
            Some(_) => {}
            None => {
                let name = "a_panic_that_nothing_catches_ends_the_process";
                for what in ["task", "thread", "blocking", "spawned", "after"] {
                    assert_eq!(exit_code(name, what), Some(INTERNAL_ERROR), "{what}");
                }
                assert_eq!(exit_code(name, "nothing"), Some(0));
            }
        }
    }

    #[tokio::test]
    async fn a_panic_that_is_caught_does_not() {
        match asked().as_deref() {
            Some("future") => assert!(caught(async { panic!("future") }).await.map(|(): ()| ()).is_err()),
            Some("function") => assert!(caught_now(|| panic!("function")).map(|(): ()| ()).is_err()),
            Some("blocking") => {
                assert!(caught(blocking(|| panic!("blocking"))).await.map(|(): ()| ()).is_err());
            }
            Some("nested") => {
                let inner = async { caught(async { panic!("inner") }).await.map(|(): ()| ()).is_err() };
                assert_eq!(caught(inner).await, Ok(true));
            }
            Some(what) => panic!("{what}"),
            None => {
                for what in ["future", "function", "blocking", "nested"] {
                    assert_eq!(exit_code("a_panic_that_is_caught_does_not", what), Some(0), "{what}");
                }
                assert_eq!(exit_code("a_panic_that_is_caught_does_not", "other"), Some(INTERNAL_ERROR));
            }
        }
    }
}
