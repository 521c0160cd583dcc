//! Asks the official Go modules for their descriptors, once for each version; the answer is kept outside the checkout.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, io, thread};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::descriptor;

/// A version of the CSI spec, and the module file that asks for it.
pub(crate) struct Oracle {
    pub(crate) version: &'static str,
    module: &'static str,
    module_text: &'static str,
    answer: OnceLock<Vec<u8>>,
}

/// The last release with the old dialect.
pub(crate) static OLD: Oracle = Oracle {
    version: "v1.12.0",
    module: "v1.12.0.mod",
    module_text: include_str!("../oracle/v1.12.0.mod"),
    answer: OnceLock::new(),
};

/// The one Kubernetes 1.37 requires, with the new dialect.
pub(crate) static NEW: Oracle = Oracle {
    version: "v1.12.1-0.20260720052920-cd9e7ad1ae09",
    module: "go.mod",
    module_text: include_str!("../oracle/go.mod"),
    answer: OnceLock::new(),
};

const PROGRAM: &str = include_str!("../oracle/main.go");

/// A cold build downloads and compiles gRPC for Go; two busy cores need a minute or so for it.
const DEADLINE: Duration = Duration::from_mins(10);

impl Oracle {
    /// The official `FileDescriptorSet`: csi.proto of this version, and identity.proto of csi-addons.
    pub(crate) fn ask(&self) -> &[u8] {
        self.answer.get_or_init(|| cached(self).unwrap_or_else(|error| panic!("{error}")))
    }
}

fn cached(oracle: &Oracle) -> Result<Vec<u8>, String> {
    let folder = cache_folder(|name| env::var_os(name).map(PathBuf::from))?.join("wire");
    // The version alone would not notice a change of our program or of the other modules it asks.
    let mut hasher = DefaultHasher::new();
    (PROGRAM, oracle.module_text).hash(&mut hasher);
    let path = folder.join(format!("{}-{:016x}.fds", oracle.version, hasher.finish()));
    if let Ok(bytes) = fs::read(&path)
        && check(&bytes).is_ok()
    {
        return Ok(bytes);
    }
    let bytes = run(oracle)?;
    check(&bytes)
        .map_err(|error| format!("the Go oracle for {} gave no usable answer: {error}", oracle.version))?;
    keep(&folder, &path, &bytes).map_err(|error| {
        let path = path.display();
        format!(
            "cannot keep the Go oracle's answer at {path}: {error}; set VOLMEDIC_CACHE to a folder that can be written"
        )
    })?;
    Ok(bytes)
}

fn check(bytes: &[u8]) -> Result<(), String> {
    descriptor::file(bytes, "csi.v1").and_then(|_| descriptor::file(bytes, "identity")).map(drop)
}

/// Never leaves a half-written file under the final name, and does not mind another process doing the same.
fn keep(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(bytes)?;
    draft.persist(path)?;
    Ok(())
}

/// `VOLMEDIC_CACHE`, else the user's cache folder. A relative XDG_CACHE_HOME is void, as its specification says.
pub(crate) fn cache_folder(var: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, String> {
    let set = |name| var(name).filter(|path| !path.as_os_str().is_empty());
    set("VOLMEDIC_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME").filter(|path| path.is_absolute())?.join("volmedic")))
        .or_else(|| Some(set("HOME")?.join(".cache/volmedic")))
        .ok_or_else(|| {
            "neither VOLMEDIC_CACHE nor XDG_CACHE_HOME nor HOME is set; \
             set one, to say where to keep the Go oracle's answer"
                .to_owned()
        })
}

fn run(oracle: &Oracle) -> Result<Vec<u8>, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let mut command = Command::new("go");
    command
        .current_dir(source)
        .env("GOWORK", "off")
        .args(["run", "-buildvcs=false", "-mod=readonly"])
        .arg(format!("-modfile={}", oracle.module))
        .args([".", oracle.version]);
    let what = format!("asking github.com/container-storage-interface/spec {} through Go", oracle.version);
    let (status, output, errors) = run_within(&mut command, DEADLINE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{what} failed: there is no `go` command; install Go 1.24 or newer (on Debian 13 and later the package \
             golang-go, elsewhere from https://go.dev/dl) and put it on the PATH"
        ),
        _ => format!("{what} failed: {error}"),
    })?;
    if status.success() {
        return Ok(output);
    }
    Err(format!(
        "{what} failed with {status}; Go 1.24 or newer and a reachable module proxy (GOPROXY) are needed. \
         Go said:\n{}",
        String::from_utf8_lossy(&errors)
    ))
}

/// Runs a command to its end, but not past the deadline. Then its whole process group is killed: `go run` has children.
pub(crate) fn run_within(
    command: &mut Command,
    deadline: Duration,
) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    // Files instead of pipes, so that a child that writes much never waits for a reader.
    let folder = tempfile::tempdir()?;
    let (output, errors) = (folder.path().join("stdout"), folder.path().join("stderr"));
    command.stdin(std::process::Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let mut child = command.process_group(0).spawn()?;
    let end = Instant::now() + deadline;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, fs::read(output)?, fs::read(errors)?));
        }
        if Instant::now() >= end {
            let group = Pid::from_child(&child);
            kill_process_group(group, Signal::KILL)?;
            child.wait()?;
            let program = command.get_program().to_string_lossy();
            let text = format!("`{program}` did not end within {deadline:?} and was killed");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(Duration::from_millis(20));
    }
}
