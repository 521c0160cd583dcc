//! One agent, measured from its start to its end.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bare;
use super::node::{HUNG, NAME, Node};
use crate::audit::Requests;
use crate::fill::handle;
use crate::ground::Ground;
use crate::process::{Memory, Program};

/// Each volume is checked once in this time. By default it is a minute.
pub(super) const INTERVAL: Duration = Duration::from_secs(20);
/// What does not answer in this time is hung.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// The agent's own limit of helpers, and of helpers that are stuck.
pub(super) const HELPERS: usize = 16;
pub(super) const STUCK: usize = 64;
const QUIET_PASSES: u64 = 2;
const LIMIT: Duration = Duration::from_mins(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// While nothing happens, the agent's metrics are read this often: to write them for every look would be most of its work.
const SCRAPE_EVERY: Duration = Duration::from_secs(5);

/// While nothing happens.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) volumes: usize,
    /// From its start until every volume was checked.
    pub(super) first_pass: Duration,
    pub(super) memory: Memory,
    /// Of the agent alone, and of its helpers.
    pub(super) cpu_per_pass: Duration,
    pub(super) helpers_cpu_per_pass: Duration,
    /// Of a loop that does the least over the same mounts.
    pub(super) bare_cpu_per_pass: Duration,
    pub(super) helpers: Helpers,
    pub(super) passes: f64,
    pub(super) asked: Requests,
}

/// While some volumes hang.
#[derive(Debug)]
pub(super) struct Hang {
    pub(super) volumes: usize,
    /// From the hang until the last of the hung volumes is known as hung.
    pub(super) hung_seen: Duration,
    /// From a change of all others until the last of them was seen.
    pub(super) others_seen: Duration,
    /// From the end of both until all was seen to be well.
    pub(super) recovered: Duration,
    /// From then until no helper was at a volume.
    pub(super) reaped: Duration,
    /// While some hang and the others are healthy.
    pub(super) memory: Memory,
    /// At the end, when all others had changed together too.
    pub(super) peak_of_all: u64,
    pub(super) helpers: Helpers,
}

/// The most at any one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Helpers {
    pub(super) most: usize,
    pub(super) memory: u64,
}

pub(super) struct Agent {
    program: Program,
    log: PathBuf,
    volumes: usize,
    first_pass: Duration,
    helpers: Helpers,
}

impl Agent {
    /// Starts it and waits until it has checked every volume once.
    pub(super) async fn start(ground: &Ground, node: &Node, program: &Path, volumes: usize) -> Result<Self> {
        let log = ground.folder().join(format!("agent-{volumes}.log"));
        let arguments = [
            "agent".to_owned(),
            format!("--node-name={NAME}"),
            format!("--kubelet-root-dir={}", node.kubelet().display()),
            format!("--state-dir={}", ground.folder().join(format!("agent-{volumes}")).display()),
            format!("--kubeconfig={}", ground.kubeconfig().await?.display()),
            format!("--monitor-interval={}s", INTERVAL.as_secs()),
            format!("--probe-timeout={}s", DEADLINE.as_secs()),
            format!("--max-helpers={HELPERS}"),
            format!("--max-stuck-helpers={STUCK}"),
            "--http-endpoint=127.0.0.1:0".to_owned(),
            // Whose resource is not installed here.
            "--node-report=off".to_owned(),
        ];
        let started = Instant::now();
        let program = Program::start(program, &arguments, &log)?;
        let mut agent =
            Self { program, log, volumes, first_pass: Duration::ZERO, helpers: Helpers::default() };
        agent.until("it serves metrics", |agent| Ok(agent.log()?.contains("on http://"))).await?;
        agent.looked(volumes as u64, LOOK_EVERY).await.with_context(|| agent.tail())?;
        agent.first_pass = started.elapsed();
        Ok(agent)
    }

    pub(super) async fn rest(&mut self, ground: &Ground, node: &Node) -> Result<Rest> {
        let volumes = self.volumes as u64;
        // The first passes remember what they saw.
        self.looked(self.looks()? + volumes, SCRAPE_EVERY).await?;
        self.helpers = Helpers::default();
        let (mark, looks) = (ground.audit.mark(), self.looks()?);
        let (cpu, of_helpers) = (self.program.cpu()?, self.program.cpu_of_children()?);
        self.looked(looks + QUIET_PASSES * volumes, SCRAPE_EVERY).await?;
        let (cpu, of_helpers) = (
            self.program.cpu()?.saturating_sub(cpu),
            self.program.cpu_of_children()?.saturating_sub(of_helpers),
        );
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let passes = (self.looks()? - looks) as f64 / volumes as f64;
        if let Some(line) = self.log()?.lines().find(|line| line.contains("is Inaccessible/")) {
            bail!("something is wrong before anything was done: {line}");
        }
        Ok(Rest {
            volumes: self.volumes,
            first_pass: self.first_pass,
            memory: self.program.memory()?,
            cpu_per_pass: cpu.div_f64(passes),
            helpers_cpu_per_pass: of_helpers.div_f64(passes),
            bare_cpu_per_pass: bare::pass(node.targets())?,
            helpers: self.helpers,
            passes,
            asked: ground.audit.since(mark)?,
        })
    }

    /// Some volumes hang; while they do, all others change; then all recover.
    pub(super) async fn hang(&mut self, node: &mut Node) -> Result<Hang> {
        self.helpers = Helpers::default();
        let (hung, others): (Vec<String>, Vec<String>) =
            ((0..HUNG).map(handle).collect(), (HUNG..self.volumes).map(handle).collect());
        let began = Instant::now();
        node.freeze(true)?;
        self.all_said("is Inaccessible/IOHung", &hung).await?;
        let hung_seen = began.elapsed();
        // Let it meet them again, now that it knows.
        let again = Instant::now() + INTERVAL;
        self.until("an interval has passed", |_| Ok(Instant::now() >= again)).await?;
        let memory = self.program.memory()?;
        let began = Instant::now();
        node.full(true)?;
        self.all_said("/OutOfCapacity", &others).await?;
        let others_seen = began.elapsed();

        let began = Instant::now();
        node.full(false)?;
        node.freeze(false)?;
        self.all_said("recovered from Inaccessible/IOHung", &hung).await?;
        let of_capacity = |line: &str| line.contains("recovered from") && line.contains("/OutOfCapacity");
        self.all_of(of_capacity, &others).await?;
        let (recovered, began) = (began.elapsed(), Instant::now());
        let helpers = self.helpers;
        // A few wait for the next question.
        self.until("no helper is at a volume", |agent| {
            let busy = ["stuck", "running"].map(|state| format!("volmedic_helpers{{state=\"{state}\"}}"));
            Ok(agent.metric(&busy[0])? == 0 && agent.metric(&busy[1])? == 0)
        })
        .await?;
        Ok(Hang {
            volumes: self.volumes,
            hung_seen,
            others_seen,
            recovered,
            reaped: began.elapsed(),
            memory,
            peak_of_all: self.program.memory()?.peak,
            helpers,
        })
    }

    pub(super) fn tail(&self) -> String {
        format!("the end of the agent's log:\n{}", self.program.tail())
    }

    pub(super) fn end(self) -> Result<()> {
        self.program.end()
    }

    async fn all_said(&mut self, text: &str, handles: &[String]) -> Result<()> {
        self.all_of(|line| line.contains(text), handles).await
    }

    /// Waits until the log has such a line about each of these.
    async fn all_of(&mut self, wanted: impl Fn(&str) -> bool, handles: &[String]) -> Result<()> {
        let mut left: HashSet<&str> = handles.iter().map(String::as_str).collect();
        let (what, mut read) = (format!("the log reports all {} volumes", left.len()), 0);
        self.until(&what, |agent| {
            let log = agent.log()?;
            // Only whole lines, and each once.
            let end = log.rfind('\n').map_or(0, |end| end + 1);
            for line in log[read..end].lines().filter(|line| wanted(line)) {
                left.retain(|handle| !line.contains(handle));
            }
            read = end;
            Ok(left.is_empty())
        })
        .await
    }

    /// Waits until it has done this many host checks, and asks it about that no more often than this.
    async fn looked(&mut self, enough: u64, every: Duration) -> Result<()> {
        let mut next = Instant::now();
        self.until("it checks volumes", |agent| {
            let now = Instant::now();
            if now < next {
                return Ok(false);
            }
            next = now + every;
            Ok(agent.looks()? >= enough)
        })
        .await
    }

    /// Asks again and again, and meanwhile counts helpers.
    async fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while !is_so(self)? {
            self.program.must_run()?;
            if Instant::now() >= end {
                bail!("not within {} s: {what}", LIMIT.as_secs());
            }
            let (count, memory) = self.program.children()?;
            self.helpers.most = self.helpers.most.max(count);
            self.helpers.memory = self.helpers.memory.max(memory);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// Number of host checks so far.
    fn looks(&self) -> Result<u64> {
        let metrics = self.metrics()?;
        let counts = metrics.lines().filter(|line| {
            line.starts_with("csi_volume_health_probe_total{") && line.contains(r#"method_name="host""#)
        });
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    fn metric(&self, name: &str) -> Result<u64> {
        let metrics = self.metrics()?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.with_context(|| format!("the agent has no metric {name}"))
    }

    fn metrics(&self) -> Result<String> {
        let log = self.log()?;
        let (_, rest) = log.split_once("on http://").context("it does not say where its metrics are")?;
        let address = rest.split('/').next().unwrap_or_default();
        let mut stream = TcpStream::connect(address).context("cannot reach the agent's metrics")?;
        stream.set_read_timeout(Some(DEADLINE))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("the agent's metrics cannot be read")?;
        Ok(answer)
    }
}
