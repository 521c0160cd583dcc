//! Completions and manual pages, used as people use them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn volmedic(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_volmedic")).args(arguments).output().expect("it starts")
}

/// What a command prints that works.
#[track_caller]
fn printed(arguments: &[&str]) -> String {
    let output = volmedic(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Whether a program is on this machine.
fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Feeds a program and answers what it prints.
#[track_caller]
fn through(program: &mut Command, input: &str) -> String {
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Beside reading, or both sides may wait for each other with full pipes. One that does not read to its end fails below.
    let (mut stdin, input) = (child.stdin.take().expect("piped"), input.to_owned());
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let written = writer.join().expect("the writer ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.trim().is_empty(), "{errors}");
    written.expect("it reads");
    String::from_utf8(output.stdout).expect("text")
}

/// What bash offers for a line, whose last word is not finished.
fn offered(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let script = format!(
        "source /dev/stdin\n\
         COMP_WORDS=({line}); COMP_CWORD={}\n\
         [ ${{#COMP_WORDS[@]}} -gt $COMP_CWORD ] || COMP_WORDS+=('')\n\
         _volmedic volmedic \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.len() - 1,
    );
    let completions = printed(&["completions", "bash"]);
    let reported = through(Command::new("bash").args(["--norc", "-c", &script]), &completions);
    reported.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    assert_eq!(offered("volmedic cont"), ["controller"]);
    assert_eq!(offered("volmedic fault inj"), ["inject"]);
    assert_eq!(offered("volmedic hub --push-e"), ["--push-endpoint"]);
    assert_eq!(offered("volmedic completions f"), ["fish"]);
    let all = offered("volmedic ");
    for command in ["agent", "completions", "hub", "man", "watch"] {
        assert!(all.iter().any(|offer| offer == command), "{command}: {all:?}");
    }
}

#[test]
fn other_shells_get_theirs() {
    for (shell, mark) in [("zsh", "#compdef volmedic"), ("fish", "complete -c volmedic")] {
        let script = printed(&["completions", shell]);
        assert!(script.contains(mark) && script.contains("push-endpoint"), "{shell}");
        // Where the shell is here, it has to understand its script.
        if is_here(shell) {
            through(Command::new(shell).args(["-n", "/dev/stdin"]), &script);
        }
    }
    assert_eq!(volmedic(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn every_manual_page_renders_without_complaint() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("man1");
    assert_eq!(printed(&["man", "--directory", pages.to_str().expect("text")]), "");
    let mut names: Vec<String> = std::fs::read_dir(&pages)
        .expect("the pages")
        .map(|entry| entry.expect("a page").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    for name in ["volmedic.1", "volmedic-agent.1", "volmedic-fault-inject.1", "volmedic-hub.1"] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("mounter") || name.contains("help")), "{names:?}");
    assert!(is_here("groff"), "groff is needed to judge the pages: install groff-base");
    for name in &names {
        let page = std::fs::read_to_string(pages.join(name)).expect("a page");
        // All warnings on; what it complains about goes to standard error, where nothing may be.
        let shown = through(
            Command::new("groff").args(["-Kutf8", "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u"]),
            &page,
        );
        for part in ["NAME", "SYNOPSIS", "DESCRIPTION"] {
            assert!(shown.lines().any(|line| line.contains(part)), "{name} has no {part}:\n{shown}");
        }
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert!(
            words.windows(3).any(|three| three == ["Exit", "codes:", "0"]),
            "{name} has no exit codes:\n{shown}"
        );
    }
    let hub = std::fs::read_to_string(pages.join("volmedic-hub.1")).expect("a page");
    assert_eq!(printed(&["man", "hub"]), hub, "one page is the same, printed");
    if is_here("man") {
        let mut man = Command::new("man");
        let shown = through(man.args(["-l", "-"]).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8"), &hub);
        assert!(shown.contains("--push-endpoint"), "{shown}");
        assert!(
            shown.contains("volmedic hub --http-endpoint=:8080"),
            "the example is on a line of its own:\n{shown}"
        );
    }
}

#[test]
fn a_page_that_is_not_there_and_a_directory_that_cannot_be_are_said() {
    let output = volmedic(&["man", "hubb"]);
    assert_eq!(output.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("volmedic has no command \"hubb\"; there are: agent, "), "{reported}");
    let output = volmedic(&["man", "--directory", "/dev/null/man1"]);
    assert_eq!(output.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.contains("the directory /dev/null/man1 cannot be made"), "{reported}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    // Closed before it starts: one that is quick would write everything into the pipe first.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = Command::new(env!("CARGO_BIN_EXE_volmedic"))
        .args(["completions", "bash"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
