//! Processes whose log is not read, and processes that end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use super::*;

/// What the child of a test does.
const CHILD: &str = "VOLMEDIC_LOGGING_CHILD";
const PATIENCE: Duration = Duration::from_mins(1);
/// Many times what a pipe and the queue hold.
const FLOOD: u64 = 20_000;

fn log(lines: u64) {
    for number in 0..lines {
        tracing::info!(target: "volmedic", number, "one more");
    }
}

/// Part of this program: run by the test below as a process of its own, and nothing otherwise.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    volmedic_panics::end_process_on_panic();
    let format = if what == "json" { Format::Json } else { Format::Text };
    Logging { log_level: None, log_format: format }.start(None, Some(Level::INFO), Delivery::Lossy);
    match what.as_str() {
        "flood" | "json" => {
            log(FLOOD);
            // Past the harness, which captures what macros print.
            io::stdout().write_all(b"\nalive\n").expect("it is read");
            let queue = QUEUE.get().expect("it was started");
            assert!(queue.flush(PATIENCE), "it is read now");
        }
        "flood and panic" => {
            log(FLOOD);
            panic!("nothing reads this");
        }
        "short" => {
            log(50);
            say("and a line that is no log line");
            flush();
        }
        "short panic" => {
            log(50);
            panic!("on purpose");
        }
        other => panic!("{other:?}"),
    }
    std::process::exit(0);
}

fn start(what: &str) -> Child {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--exact", "logging::tests::child"]).env(CHILD, what).env_remove("RUST_BACKTRACE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Its exit code, while its standard error stays unread.
fn ended(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code();
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it waits until its log is read");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_log_that_is_not_read_stops_nothing_and_what_was_dropped_is_counted() {
    for what in ["flood", "json"] {
        let mut child = start(what);
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (alive, waiting) = mpsc::channel();
        std::thread::spawn(move || {
            if output.lines().map_while(Result::ok).any(|line| line == "alive") {
                let _ = alive.send(());
            }
        });
        let alive = waiting.recv_timeout(PATIENCE);
        if alive.is_err() {
            let _ = child.kill();
        }
        alive.expect("it waits until its log is read");
        let mut text = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        assert_eq!(ended(&mut child), Some(0), "{text}");
        let dropped = text.lines().find_map(|line| {
            let (before, _) =
                line.split_once(" log lines were dropped, because standard error was not read")?;
            before.rsplit([' ', '"']).next()?.parse::<u64>().ok()
        });
        let dropped = dropped.expect("what was dropped is counted");
        let written = text.lines().filter(|line| line.contains("one more")).count() as u64;
        assert!(dropped > FLOOD / 2, "{dropped} were dropped");
        assert_eq!(written + dropped, FLOOD, "each line was written or counted");
        if what == "json" {
            assert!(
                text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
                "{text}"
            );
        }
    }
}

#[test]
fn a_panic_ends_the_process_also_while_its_log_is_not_read() {
    let mut child = start("flood and panic");
    assert_eq!(ended(&mut child), Some(volmedic_panics::INTERNAL_ERROR));
}

#[test]
fn a_process_that_ends_has_written_everything() {
    for (what, code, last) in [
        ("short", 0, "no log line"),
        ("short panic", volmedic_panics::INTERNAL_ERROR, "internal error (bug)"),
    ] {
        let output = start(what).wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("one more")).count(), 50, "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains(last)), "{text}");
        assert_eq!(text.contains("panicked at"), what == "short panic", "{text}");
    }
}
