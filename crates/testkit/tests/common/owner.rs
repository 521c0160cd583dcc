//! Another process that owns a control plane or a cluster, and can be killed without harm to the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An owner that has reported that all is ready.
pub(crate) struct Owner {
    child: Child,
    /// The process numbers of its parts, by name.
    pub(crate) parts: BTreeMap<String, u32>,
    pub(crate) kubeconfig: PathBuf,
}

impl Owner {
    pub(crate) fn start(what: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testkit-owner"));
        command.arg(what).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the owner starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let lines: Vec<String> =
            output.lines().map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
        let mut reported: BTreeMap<String, String> =
            lines.iter().filter_map(|line| line.split_once(' ')).map(|(k, v)| (k.into(), v.into())).collect();
        let kubeconfig = reported.remove("kubeconfig").expect("the owner failed; its error is above").into();
        let parts = reported.into_iter().map(|(name, pid)| (name, pid.parse().expect("a number"))).collect();
        Self { child, parts, kubeconfig }
    }

    /// Kills the owner the hard way: it gets no chance to clean up.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the owner can be killed");
        self.child.wait().expect("the owner can be waited for");
    }

    /// Fails unless all of its parts are gone soon.
    pub(crate) fn parts_must_end(&self) {
        let end = Instant::now() + Duration::from_mins(2);
        for (name, pid) in &self.parts {
            while runs(*pid) {
                assert!(Instant::now() < end, "{name} outlived its owner");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Whether a process is there and not just a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}
