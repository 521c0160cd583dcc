//! A simulated driver, `volmedic watch` beside it with its page, and a browser.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use volmedic_testkit::sim::{Sim, capability};

use crate::chrome::{Chrome, PATIENCE};
use crate::inspect;

pub(crate) const DEGRADED: i32 = 1;
pub(crate) const INACCESSIBLE: i32 = 2;
pub(crate) const DATA_LOSS: i32 = 3;

pub(crate) const DRIVER: &str = "disk.example.net";

pub(crate) struct Stage {
    pub(crate) sim: Sim,
    pub(crate) url: String,
    pub(crate) chrome: Chrome,
    watch: Child,
    _room: TempDir,
}

impl Stage {
    /// With these volumes, all of them healthy.
    pub(crate) fn new(volumes: impl IntoIterator<Item = String>) -> Self {
        Self::with(volumes, &[])
    }

    /// With these arguments for `volmedic watch` besides.
    pub(crate) fn with(volumes: impl IntoIterator<Item = String>, arguments: &[String]) -> Self {
        let room = tempfile::tempdir().expect("a folder for the socket");
        let socket = room.path().join("csi.sock");
        let offers =
            [capability::LIST_VOLUMES, capability::LIST_VOLUME_HEALTH, capability::GET_VOLUME_HEALTH];
        let sim = Sim::start(&socket, DRIVER, &offers).expect("the driver listens");
        sim.add_volumes(volumes);
        let mut watch = Command::new(env!("CARGO_BIN_EXE_volmedic"))
            .arg("watch")
            .arg(format!("--csi-address=unix://{}", socket.display()))
            .args(["--page", "127.0.0.1:0", "--interval", "500ms"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("volmedic starts");
        let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
        let (sender, found) = std::sync::mpsc::channel();
        // Reads to the end, so that the pipe never fills.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("the page: ") {
                    let _ = sender.send(url.to_owned());
                }
            }
        });
        let url = found.recv_timeout(PATIENCE).expect("watch tells where its page is");
        Self { sim, url, chrome: Chrome::start(), watch, _room: room }
    }

    /// Opens a page of it.
    pub(crate) fn open(&mut self, path: &str) {
        self.chrome.open(&format!("{}{path}", self.url));
    }

    /// Nothing was complained about, and nothing was asked of anybody else.
    pub(crate) fn assert_clean(&mut self) {
        inspect::assert_clean(&mut self.chrome, &self.url);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
    }
}
