use super::*;

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("300");
    command
}

#[test]
fn a_tied_child_outlives_the_thread_that_asked_for_it() {
    let ask = || spawn(sleeper(), Lifetime::Tied).unwrap();
    let mut child = std::thread::spawn(ask).join().unwrap();
    // The asking thread is gone. Were the child tied to it, the signal would be here by now: it is sent while the
    // thread ends, and join returns after that.
    let child_lives = Identity::of(child.id()).unwrap().alive();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(child_lives);
}

#[test]
fn a_program_that_ignores_the_request_is_ended_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"]);
    let mut process = Process::start(command, Lifetime::Tied, &log).unwrap();
    let end = Instant::now() + Duration::from_mins(2);
    while tail(&log, 1) != "ready" {
        assert!(Instant::now() < end, "the shell never started");
        std::thread::sleep(PAUSE);
    }
    let identity = process.identity();
    process.stop(Duration::from_millis(100)).unwrap();
    assert!(!identity.alive());
    assert!(process.ended().is_some());
}

#[test]
fn the_tail_is_the_last_lines_even_of_a_large_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let lines: Vec<String> = (0..20_000).map(|number| format!("line {number}")).collect();
    fs::write(&log, lines.join("\n")).unwrap();
    assert_eq!(tail(&log, 2), "line 19998\nline 19999");
    assert_eq!(tail(&folder.path().join("none"), 2), "");
}

#[test]
fn a_tool_is_read_to_its_end_and_stopped_past_its_deadline() {
    let mut much = Command::new("sh");
    much.args(["-c", "seq 100000; echo end >&2"]);
    let done = run(much, Duration::from_mins(2)).unwrap();
    assert!(done.success && done.stdout.ends_with("100000\n"), "more than a pipe holds");
    assert_eq!(done.stderr, "end\n");

    let error = run(sleeper(), Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.to_string(), "`sleep 300` did not end within 0 s and was stopped");

    let mut failing = Command::new("sh");
    failing.args(["-c", "echo no such luck >&2; exit 3"]);
    let error = run(failing, Duration::from_mins(2)).unwrap().or_fail("the try").unwrap_err();
    assert_eq!(error.to_string(), "the try failed: no such luck");
}
