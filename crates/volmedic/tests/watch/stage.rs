//! A simulated driver, and `volmedic watch` beside it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use volmedic_testkit::sim::Sim;

pub(crate) const DEGRADED: i32 = 1;
pub(crate) const INACCESSIBLE: i32 = 2;
/// For anything that should be quick; a busy machine may take its time.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) room: TempDir,
}

impl Stage {
    /// A driver with these capabilities, whose volumes are healthy.
    pub(crate) fn new(capabilities: &[i32], volumes: &[&str]) -> Self {
        let room = tempfile::tempdir().unwrap();
        let sim = Sim::start(&room.path().join("csi.sock"), "disk.example.net", capabilities).unwrap();
        sim.add_volumes(volumes.iter().map(|name| (*name).to_owned()));
        Self { sim, room }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = volmedic();
        command
            .arg("watch")
            .arg(format!("--csi-address=unix://{}", self.sim.socket().display()))
            .args(arguments);
        command
    }

    /// Runs it to its end.
    pub(crate) fn once(&self, arguments: &[&str]) -> Output {
        self.command(&["--once"]).args(arguments).output().unwrap()
    }

    /// Starts it with a short interval.
    pub(crate) fn watch(&self, arguments: &[&str]) -> Watch {
        Watch::start(self.command(&["--interval", "200ms"]).args(arguments))
    }

    /// What was reported, with everything that differs from run to run given a name.
    pub(crate) fn redact(&self, reported: &str) -> String {
        let reported = reported.replace(&self.room.path().display().to_string(), "ROOM");
        reported.lines().map(redact_line).collect()
    }
}

/// The program, in an environment that does not depend on who runs the test.
pub(crate) fn volmedic() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volmedic"));
    command.env_remove("CSI_ADDRESS").env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Times become TIME, durations of calls TOOK, ages AGE; columns stay as far apart as they need.
fn redact_line(line: &str) -> String {
    if let Some(head) = line.strip_prefix("CALL ") {
        return format!("CALL {}\n", head.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    let is_time = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        bare.len() >= 20 && bare.ends_with('Z') && bare.as_bytes()[10] == b'T'
    };
    let took = |word: &str| {
        let number = word.trim_end_matches(|c: char| c.is_alphabetic());
        let unit = &word[number.len()..];
        matches!(unit, "ns" | "µs" | "ms" | "s") && number.contains('.')
    };
    let number = |word: &String| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let source: Vec<&str> = line.split(' ').collect();
    let mut words: Vec<String> = Vec::new();
    for (index, word) in source.iter().enumerate() {
        let unit = word.trim_end_matches(',');
        if ["s", "min", "h"].contains(&unit) && words.last().is_some_and(number) {
            let width = words.pop().map_or(0, |number| number.len() + 1 + unit.len());
            words.push(word.replacen(unit, "AGE", 1));
            // In a column, what follows stays where it was.
            if source.get(index + 1) == Some(&"") {
                words.extend(vec![String::new(); width - "AGE".len()]);
            }
        } else if is_time(word) {
            let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            words.push(word.replace(bare, "TIME"));
        } else if took(word) {
            words.push("TOOK".to_owned());
        } else {
            words.push((*word).to_owned());
        }
    }
    // The width of a column may depend on what was redacted.
    let mut clean = String::new();
    for part in words.join(" ").split("TOOK") {
        if clean.is_empty() {
            clean.push_str(part);
        } else {
            clean.push_str(" TOOK");
            clean.push_str(part.trim());
        }
    }
    format!("{}\n", clean.trim_end())
}

/// Compares with what is kept. To renew it after a change that was meant: `UPDATE_TRANSCRIPTS=1 cargo test`.
pub(crate) fn assert_transcript(name: &str, reported: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch/transcripts").join(name);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, reported).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(reported, expected, "it is not what it was; if that is meant, renew {}", file.display());
}

/// A watch under way, and what it said so far.
pub(crate) struct Watch {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines = said.clone();
        let reader = std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let mut said = lines.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self { child, said, reader: Some(reader) }
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it said this.
    pub(crate) fn wait(&self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(wanted) {
            assert!(Instant::now() < deadline, "it did not say {wanted:?}:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
    }

    /// Types Ctrl-C on its terminal.
    pub(crate) fn press_interrupt(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\x03").unwrap();
    }

    /// As the kernel does when memory is short.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, as Ctrl-C does, waits for it, and answers with all that it said.
    pub(crate) fn interrupt(mut self) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.said());
            sleep(Duration::from_millis(20));
        };
        // What it wrote last may still be in the pipe.
        self.reader.take().unwrap().join().unwrap();
        (status.code(), self.said())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
