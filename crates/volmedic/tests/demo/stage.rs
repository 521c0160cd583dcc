//! A demo in a room of its own, and what is left of it.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// For anything that should be quick; a busy machine may take its time.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_volmedic");
/// Columns for lines that are not wrapped, so that a sentence can be searched for.
pub(crate) const WIDE: &str = "10000";
/// Maximum number of concurrent demos: each has a dozen volumes and checks all of them every second.
const TOGETHER: usize = 5;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// A turn to run a demo, given back when it is dropped.
struct Turn;

impl Turn {
    fn take() -> Self {
        let mut running = RUNNING.0.lock().unwrap();
        while *running >= TOGETHER {
            running = RUNNING.1.wait(running).unwrap();
        }
        *running += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Ok(mut running) = RUNNING.0.lock() {
            *running -= 1;
        }
        RUNNING.1.notify_one();
    }
}

/// A place for one demo.
pub(crate) struct Room {
    folder: TempDir,
    _turn: Turn,
}

impl Room {
    pub(crate) fn new() -> Self {
        let turn = Turn::take();
        let folder = tempfile::Builder::new().prefix("volmedic-").tempdir().unwrap();
        // Also for those who are not root.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder, _turn: turn }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("demo")
    }

    /// The program with its arguments, in an environment that does not depend on who runs the test. The page is on a
    /// port of its own unless the arguments begin with `--page`.
    pub(crate) fn words(&self, arguments: &[&str]) -> Vec<String> {
        let home = self.home().display().to_string();
        let fixed = [PROGRAM, "demo", "--state-dir", &home];
        let page = if arguments.first() == Some(&"--page") { &[][..] } else { &["--page", "127.0.0.1:0"] };
        fixed.iter().chain(page).chain(arguments).map(ToString::to_string).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words(arguments);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_remove("NO_COLOR").env("COLUMNS", WIDE).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Demo {
        Demo::start(&mut self.command(arguments))
    }

    /// Fails unless every trace is gone: mounts, loop devices, processes, files.
    #[track_caller]
    pub(crate) fn assert_nothing_is_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            // A helper that was killed may need a moment to be gone.
            assert!(Instant::now() < deadline, "left behind: {left:#?}");
            sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn left(&self) -> Vec<String> {
        let home = self.home().canonicalize().unwrap_or_else(|_| self.home()).display().to_string();
        let mut left: Vec<String> = Vec::new();
        if self.home().exists() {
            left.push(format!("the directory {home}"));
        }
        left.extend(lines_with("/proc/self/mountinfo", &home));
        for device in fs::read_dir("/sys/block").unwrap().map_while(Result::ok) {
            left.extend(lines_with(device.path().join("loop/backing_file"), &home));
        }
        for process in fs::read_dir("/proc").unwrap().map_while(Result::ok) {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(&home) && process.file_name() != *std::process::id().to_string() {
                left.push(format!("process {}: {words}", process.file_name().display()));
            }
        }
        left
    }
}

/// Whatever a test that failed left behind goes with the next demo in the same place.
impl Drop for Room {
    fn drop(&mut self) {
        if self.home().exists() {
            let mut command = self.command(&["--headless", "--duration", "1ms"]);
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

fn lines_with(file: impl AsRef<Path>, part: &str) -> Vec<String> {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// A file system of this size in a directory of its own, until dropped.
pub(crate) struct Disk(pub(crate) PathBuf);

impl Disk {
    pub(crate) fn of(path: PathBuf, size: &str) -> Self {
        fs::create_dir(&path).unwrap();
        let options = CString::new(format!("size={size},mode=0700")).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
        Self(path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A demo under way, and what it said so far.
pub(crate) struct Demo {
    pub(crate) child: Child,
    said: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Demo {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let mut readers = Vec::new();
        for stream in streams {
            let said = said.clone();
            readers.push(std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = Vec::new();
                while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                    said.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                    line.clear();
                }
            }));
        }
        Self { child, said, readers }
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it said this.
    #[track_caller]
    pub(crate) fn wait(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said().contains(wanted) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended ({ended:?}) and did not say {wanted:?}:\n{}", self.said());
            assert!(Instant::now() < deadline, "it did not say {wanted:?}:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it ends by itself; answers how, and all that it said.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.said());
            sleep(Duration::from_millis(20));
        };
        // The last lines may still be on their way here.
        while !self.readers.iter().all(JoinHandle::is_finished) {
            assert!(Instant::now() < deadline, "somebody still has its output open:\n{}", self.said());
            sleep(Duration::from_millis(20));
        }
        (status, self.said())
    }

    /// The same, as objects.
    #[track_caller]
    pub(crate) fn objects(self) -> (ExitStatus, Vec<Value>) {
        let (status, said) = self.end();
        let read = |line: &str| -> Option<Value> { serde_json::from_str(line).ok() };
        (status, said.lines().filter_map(read).collect())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Of all objects, those of one kind.
pub(crate) fn of<'a>(objects: &'a [Value], event: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["event"] == event).collect()
}

/// Compares with what is kept. To renew it after a change that was meant: `UPDATE_TRANSCRIPTS=1 cargo test`.
pub(crate) fn assert_transcript(name: &str, reported: &str, details: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo/transcripts").join(name);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, reported).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        reported,
        expected,
        "{details}\nit is not what it was; if that is meant, renew {}",
        file.display()
    );
}

/// Fails if a line is longer than this and could have been broken.
pub(crate) fn assert_lines_fit(said: &str, columns: usize) {
    for line in said.lines() {
        let line = line.trim_end_matches('\r');
        let one_word = !line.trim_start().contains(' ');
        // The last line is the error's, on standard error.
        let error = line.starts_with("volmedic: ");
        assert!(line.chars().count() <= columns || one_word || error, "{line}");
    }
}
