//! A controller process: started, read, asked to end, killed.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Generous, because the machine may be busy; everything waited for comes much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_volmedic"))
}

/// Killed when dropped.
pub(crate) struct Controller {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    /// With short intervals, and these arguments besides.
    pub(crate) fn start(socket: &Path, kubeconfig: &Path, arguments: &[&str]) -> Self {
        Self::launch(Command::new(program()), socket, kubeconfig, arguments)
    }

    /// The same on a machine of another name, as another pod is.
    pub(crate) fn start_on(host: &str, socket: &Path, kubeconfig: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command.args([
            "--uts",
            "--",
            "sh",
            "-c",
            r#"echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@""#,
        ]);
        command.args([OsStr::new("sh"), OsStr::new(host), program().as_os_str()]);
        Self::launch(command, socket, kubeconfig, arguments)
    }

    fn launch(mut command: Command, socket: &Path, kubeconfig: &Path, arguments: &[&str]) -> Self {
        command
            .arg("controller")
            .arg(format!("--csi-address={}", socket.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()));
        for (flag, value) in
            [("--monitor-interval", "1s"), ("--list-volumes-interval", "1s"), ("--timeout", "30s")]
        {
            if !arguments.iter().any(|argument| argument.starts_with(flag)) {
                command.arg(format!("{flag}={value}"));
            }
        }
        Self::spawn(command.args(arguments))
    }

    /// Any command of ours.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the controller starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().expect("piped")), log.clone());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                kept.lock().expect("not poisoned").push(line);
            }
        });
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("not poisoned").join("\n")
    }

    /// How many lines say this.
    pub(crate) fn says(&self, text: &str) -> usize {
        self.log.lock().expect("not poisoned").iter().filter(|line| line.contains(text)).count()
    }

    pub(crate) async fn wait_log(&self, text: &str) {
        self.wait_says(text, 1).await;
    }

    pub(crate) async fn wait_says(&self, text: &str, times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.says(text) < times {
            assert!(
                Instant::now() < deadline,
                "the log does not say {text:?} {times} times:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    #[allow(dead_code, reason = "only some of the tests that share this ask for it")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it the hard way.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Ends it in good order and answers its exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it can be told to end");
        self.ended(PATIENCE)
    }

    /// Waits for its end and answers its exit code.
    pub(crate) fn ended(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Where it serves HTTP, if it was asked to serve on any free port.
    pub(crate) async fn address(&self) -> SocketAddr {
        self.wait_log("serving health and metrics").await;
        let log = self.log();
        let (_, rest) = log.split_once("on http://").expect("an address");
        let (address, _) = rest.split_once('/').expect("a path behind it");
        address.parse().expect("an address")
    }

    /// Status and body of a page.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let address = self.address().await;
        get(address, path)
    }
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let limit = Some(PATIENCE);
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(limit).expect("a limit for reads");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {head}")), body.to_owned())
}

impl Drop for Controller {
    #[allow(clippy::print_stderr, reason = "the test program shows it with the failure")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the controller's log ---\n{}", self.log());
        }
    }
}
