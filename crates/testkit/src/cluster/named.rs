//! Clusters with a name, which outlive the command that started them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Options, base, log_file, node, read_json};
use crate::cache;
use crate::crew::Roster;
use crate::home::Home;
use crate::kubernetes;
use crate::part::Part;
use crate::process::{self, Lifetime};
use crate::remains;

const ASK_LIMIT: Duration = Duration::from_secs(20);
/// How long to wait for another command at work on the same cluster.
const CLAIM: Duration = Duration::from_secs(5);

/// The name of a cluster: small letters, digits and hyphens, at most twenty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 20 || !text.bytes().all(letter) {
            bail!("`{text}` is no name for a cluster: take at most twenty small letters, digits and hyphens");
        }
        Ok(Self(text.to_owned()))
    }
}

/// What was asked for, and whether it was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: String,
    node: bool,
    /// False from the first moment of a start to its last.
    complete: bool,
}

impl Record {
    fn path(home: &Path) -> PathBuf {
        home.join("cluster.json")
    }

    fn write(&self, home: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("cannot record the cluster")?;
        cache::write_whole(&Self::path(home), &text)
    }

    fn parts(&self) -> Vec<Part> {
        let control_plane = |part: &Part| !matches!(part, Part::Forward | Part::Containerd | Part::Kubelet);
        Part::ALL.into_iter().filter(|part| self.node || control_plane(part)).collect()
    }
}

/// What [`up`] found or did.
#[derive(Debug)]
pub struct Up {
    /// A kubeconfig with all rights.
    pub kubeconfig: PathBuf,
    /// It ran already, just as asked for.
    pub already: bool,
}

/// Starts the cluster `name`, or finds it running. What an earlier one of that name left is cleared away first.
pub fn up(name: &Name, options: Options) -> Result<Up> {
    let path = base()?.join(&name.0);
    if options.node {
        node::require(&path)?;
    }
    let home = claim(&path)?;
    let mut record =
        Record { version: options.plane.version.to_string(), node: options.node, complete: false };
    if path.exists() {
        if let Some(found) = running(&path) {
            if found == (Record { complete: true, ..record.clone() }) {
                return Ok(Up { kubeconfig: home.kubeconfig(), already: true });
            }
            bail!(
                "the cluster {name} runs already, as {} {} a node; end it first with `cargo xtask cluster down --name {name}`, \
                 or take another name",
                found.version,
                if found.node { "with" } else { "without" },
            );
        }
        cache::say(&format!("clearing away what an earlier cluster {name} left"));
        remains::clear(&path)?;
    }
    // Minutes at the first time; better spent before anything else is there to be cleared away.
    kubernetes::program(options.plane.version)?;
    home.furnish()?;
    record.write(&path)?;
    let kubeconfig = home.kubeconfig();
    let plane = options.launch(home, Lifetime::Detached)?;
    record.complete = true;
    record.write(&path)?;
    // The lock goes with it; the programs stay.
    drop(plane);
    Ok(Up { kubeconfig, already: false })
}

/// Ends the cluster `name` and removes everything of it. `false` when there is none.
pub fn down(name: &Name) -> Result<bool> {
    let path = base()?.join(&name.0);
    let home = claim(&path)?;
    let there = path.exists();
    home.clear()?;
    Ok(there)
}

/// How a cluster is, seen from outside.
#[derive(Debug)]
pub struct Status {
    /// The release of Kubernetes.
    pub version: String,
    /// A kubeconfig with all rights.
    pub kubeconfig: PathBuf,
    /// Its parts, and the process number of those that run.
    pub parts: Vec<(Part, Option<u32>)>,
    /// What the API server says about itself: `Ok`, or what is wrong.
    pub api: Result<(), String>,
    /// What the API server says about the node, unless there is none.
    pub node: Option<Result<(), String>>,
}

impl Status {
    /// Everything runs and says that it is healthy.
    pub fn healthy(&self) -> bool {
        let node = self.node.as_ref().is_none_or(Result::is_ok);
        self.parts.iter().all(|(_, pid)| pid.is_some()) && self.api.is_ok() && node
    }
}

/// Inspects the cluster `name`; `None` when there is none.
pub fn status(name: &Name) -> Result<Option<Status>> {
    let path = base()?.join(&name.0);
    if !path.exists() {
        return Ok(None);
    }
    let record: Record = read_json(&Record::path(&path))
        .with_context(|| format!("the cluster {name} was never whole; `up` or `down` clears it away"))?;
    let roster = Roster::read(&path);
    let pid =
        |part: &Part| roster.members.get(part).filter(|process| process.alive()).map(|process| process.pid);
    let parts = record.parts().into_iter().map(|part| (part, pid(&part))).collect();
    let ask = |arguments: &[&str], expected: &str| {
        let mut command = kubectl(name).map_err(|error| format!("{error:#}"))?;
        command.arg("--request-timeout=10s").args(arguments);
        match process::run(command, ASK_LIMIT) {
            Ok(said) if said.success && said.stdout.trim() == expected => Ok(()),
            Ok(said) => Err(format!("{} {}", said.stdout.trim(), said.stderr.trim()).trim().to_owned()),
            Err(error) => Err(format!("{error:#}")),
        }
    };
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let api = ask(&["get", "--raw", "/readyz"], "ok");
    let node = (record.node && api.is_ok()).then(|| ask(&["get", "node", crate::NODE, "-o", ready], "True"));
    Ok(Some(Status { version: record.version, kubeconfig: path.join("kubeconfig"), parts, api, node }))
}

/// The last `lines` lines of what a part of the cluster `name` wrote to its log.
pub fn log(name: &Name, part: Part, lines: usize) -> Result<String> {
    let path = base()?.join(&name.0);
    if !path.exists() {
        bail!("there is no cluster {name}; start it with `cargo xtask cluster up --name {name}`");
    }
    let log = log_file(&path, part);
    if !log.exists() {
        bail!("the cluster {name} has no {part}, so there is no {}", log.display());
    }
    Ok(process::tail(&log, lines))
}

/// The kubeconfig of the cluster `name`, with all rights.
pub fn kubeconfig(name: &Name) -> Result<PathBuf> {
    let (path, _) = find(name)?;
    Ok(path.join("kubeconfig"))
}

/// The folder that on other machines is `/var/lib/kubelet`.
pub fn kubelet_folder(name: &Name) -> Result<PathBuf> {
    Ok(with_node(name)?.join("kubelet"))
}

/// Puts the image in the file `archive` on the node of the cluster `name`.
pub fn load(name: &Name, archive: &Path) -> Result<()> {
    let home = with_node(name)?;
    if !archive.is_file() {
        bail!("there is no file {}; `cargo xtask dist` makes the image of Volmedic", archive.display());
    }
    node::import_archive(&home, archive)
}

/// `kubectl` for the cluster `name`, to which arguments can be added.
pub fn kubectl(name: &Name) -> Result<Command> {
    let (path, record) = find(name)?;
    let mut command = Command::new(kubernetes::program(record.version.parse()?)?);
    command.arg("kubectl").arg("--kubeconfig").arg(path.join("kubeconfig"));
    Ok(command)
}

/// The folder and the record of a cluster that was started.
fn find(name: &Name) -> Result<(PathBuf, Record)> {
    let path = base()?.join(&name.0);
    let record = read_json(&Record::path(&path)).with_context(|| {
        format!("there is no cluster {name}; start it with `cargo xtask cluster up --name {name}`")
    })?;
    Ok((path, record))
}

fn with_node(name: &Name) -> Result<PathBuf> {
    let (path, record) = find(name)?;
    if !record.node {
        bail!("the cluster {name} has no node: it was started with --control-plane-only");
    }
    Ok(path)
}

/// A command that was killed holds its lock for another moment: a child that it was just starting shares it until it has become
/// another program.
fn claim(path: &Path) -> Result<Home> {
    let end = Instant::now() + CLAIM;
    loop {
        match Home::claim(path)? {
            Some(home) => return Ok(home),
            None if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
            None => bail!("another command is at work on {}; wait for it, then try again", path.display()),
        }
    }
}

/// The record of a cluster whose parts all run.
fn running(home: &Path) -> Option<Record> {
    let record: Record = read_json(&Record::path(home)).ok()?;
    let roster = Roster::read(home);
    let runs = |part: &Part| roster.members.get(part).is_some_and(|process| process.alive());
    (record.complete && record.parts().iter().all(runs)).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_folder() {
        for good in ["default", "a", "v1-37", "12345678901234567890"] {
            assert_eq!(good.parse::<Name>().unwrap().to_string(), good);
        }
        for bad in ["", "..", "a/b", "A", "a.b", "a b", "123456789012345678901"] {
            let error = bad.parse::<Name>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}` is no name")), "{error}");
        }
    }

    #[test]
    fn without_a_node_there_are_no_parts_of_one() {
        let record = |node| Record { version: "v1.37.1".into(), node, complete: true };
        assert_eq!(record(true).parts(), Part::ALL);
        assert_eq!(
            record(false).parts(),
            [Part::Etcd, Part::ApiServer, Part::ControllerManager, Part::Scheduler]
        );
    }
}
