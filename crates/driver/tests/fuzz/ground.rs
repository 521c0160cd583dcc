//! A driver in this process, on ground that is watched.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config as Cases, TestRunner};
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use volmedic_driver::health::Settings;
use volmedic_driver::{Config, Dialect, Services, StateDir, serve};

pub(crate) const NODE: &str = "node-1";
const CALL: Duration = Duration::from_mins(2);

pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    pub(crate) channel: Channel,
    directory: tempfile::TempDir,
    before: Vec<String>,
    /// The kinds of call that were accepted, and those that were refused.
    pub(crate) met: RefCell<(BTreeSet<String>, BTreeSet<String>)>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("volmedic-fuzz-").tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("kubelet")).unwrap();
        fs::create_dir_all(root.join("outside")).unwrap();
        fs::write(root.join("kubelet/file"), "precious").unwrap();
        symlink(root.join("outside"), root.join("kubelet/link")).unwrap();
        let socket = root.join("csi.sock");
        let config = Config {
            endpoint: format!("unix://{}", socket.display()),
            socket_mode: 0o600,
            state_dir: root.join("state"),
            node_id: NODE.to_owned(),
            name: "driver.volmedic.dev".to_owned(),
            version: "1".to_owned(),
            dialect: Dialect::Both,
            services: Services { controller: true, node: true },
            allowed_roots: vec![root.join("kubelet")],
            total_bytes: Some(64 << 30),
            max_volume_bytes: 8 << 30,
            call_deadline: CALL,
            program: std::env::current_exe().unwrap(),
            // Nothing here hangs; what takes long is not to be called so.
            checks: Settings { deadline: CALL / 2, ..Settings::default() },
            addons: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.spawn(serve(config));
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().timeout(CALL);
        let deadline = Instant::now() + CALL;
        // The driver runs on this thread too, and only while something here is waited for.
        let channel = runtime.block_on(async {
            loop {
                match endpoint.connect().await {
                    Ok(channel) => return channel,
                    Err(error) => assert!(Instant::now() < deadline, "the driver does not listen: {error}"),
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let mut ground = Self { runtime, channel, directory, before: Vec::new(), met: RefCell::default() };
        ground.before = ground.outside(&[]);
        ground
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Everything of this ground that is not the driver's own, with what would tell a change.
    fn outside(&self, given: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let stat = fs::symlink_metadata(&path).unwrap();
                // The size of a directory grows with its names, and names were given.
                let length = if stat.is_dir() { 0 } else { stat.len() };
                found.push(format!("{} {:o} {length} {}", path.display(), stat.mode(), stat.dev()));
                let is_given = given.iter().any(|name| path == self.path().join("kubelet").join(name));
                if stat.is_dir() && !is_given && path != self.path().join("state") {
                    folders.push(path);
                }
            }
        }
        found.retain(|line| !line.starts_with(&format!("{}/state ", self.path().display())));
        found.sort();
        found
    }

    /// Nothing but the state directory changed, and in it there is nothing but these volumes.
    pub(crate) fn assert_untouched(&self, volumes: &[String]) {
        self.assert_untouched_but(&[], volumes);
    }

    /// As [`Self::assert_untouched`], but for the places below the allowed root that the driver was given.
    pub(crate) fn assert_untouched_but(&self, given: &[&str], volumes: &[String]) {
        let is_given = |line: &String| {
            given.iter().any(|name| line.starts_with(&format!("{}/kubelet/{name}", self.path().display())))
        };
        let outside: Vec<String> = self.outside(given).into_iter().filter(|line| !is_given(line)).collect();
        assert_eq!(outside, self.before);
        assert_eq!(fs::read_to_string(self.path().join("kubelet/file")).unwrap(), "precious");
        let state = StateDir::new(self.path().join("state"));
        let mut kept: Vec<String> = names(&state.volumes());
        kept.sort();
        let mut expected = volumes.to_vec();
        expected.sort();
        assert_eq!(kept, expected);
        assert_eq!(names(&state.new_things()), Vec::<String>::new());
    }
}

fn names(folder: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Failures are shown shrunk, not kept in files. `FUZZ_TIMES=100` makes a long run of it.
pub(crate) fn cases(cases: u32) -> TestRunner {
    shrinking(cases, 300)
}

/// For cases that could leave something behind: shrunk ones would fail by that, and say nothing.
pub(crate) fn cases_as_they_are(cases: u32) -> TestRunner {
    shrinking(cases, 0)
}

fn shrinking(cases: u32, max_shrink_iters: u32) -> TestRunner {
    let times: u32 = std::env::var("FUZZ_TIMES").map_or(1, |times| times.parse().unwrap());
    let cases = cases * times;
    TestRunner::new(Cases { cases, failure_persistence: None, max_shrink_iters, ..Cases::default() })
}

/// The codes that CSI has for calls that the caller got wrong. Anything else is the driver's own mistake.
pub(crate) fn is_of_csi(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
    )
}
