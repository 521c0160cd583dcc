//! The running programs of one cluster: started, recorded, watched, stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use volmedic_host::process::wait_until_stopped;

use crate::cache;
use crate::home::Home;
use crate::part::Part;
use crate::process::{self, Identity, Lifetime, PAUSE, Process};

/// In the environment of everything that belongs to a cluster; its value is the cluster's folder. It finds what was
/// started but not recorded yet, and what the recorded programs started themselves.
pub(crate) const MARK: &str = "VOLMEDIC_CLUSTER";
/// Only a program that is stuck in the kernel takes longer than a moment.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// How many lines of its log an error about a program shows.
const SHOWN: usize = 15;
/// How often a start is tried with other ports when somebody else was faster.
const ATTEMPTS: usize = 5;

/// A program and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) part: Part,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
}

#[derive(Debug)]
struct Member {
    launch: Launch,
    /// `None` while it is stopped on purpose.
    process: Option<Process>,
}

#[derive(Debug)]
pub(crate) struct Crew {
    lifetime: Lifetime,
    home: PathBuf,
    members: Mutex<BTreeMap<Part, Member>>,
}

/// What is known about a cluster's programs from outside.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Roster {
    pub(crate) boot: String,
    pub(crate) members: BTreeMap<Part, Identity>,
}

impl Roster {
    fn path(home: &Path) -> PathBuf {
        home.join("processes.json")
    }

    /// Empty when nothing was recorded, when the record is damaged, and after a reboot: then no number in it means
    /// anything any more, and what still runs is found by its mark.
    pub(crate) fn read(home: &Path) -> Self {
        let text = fs::read(Self::path(home)).unwrap_or_default();
        let roster: Self = serde_json::from_slice(&text).unwrap_or_default();
        if roster.boot == process::boot() { roster } else { Self::default() }
    }
}

impl Crew {
    pub(crate) fn new(home: &Home, lifetime: Lifetime) -> Self {
        Self { lifetime, home: home.path().to_owned(), members: Mutex::default() }
    }

    /// Starts a program and forgets an earlier one of the same part.
    pub(crate) fn start(&self, launch: Launch) -> Result<()> {
        let part = launch.part;
        let mut members = self.members();
        if let Some(mut former) = members.remove(&part).and_then(|member| member.process) {
            former.kill().with_context(|| format!("cannot end the former {part}"))?;
        }
        members.insert(part, Member { launch, process: None });
        self.wake(&mut members, part)
    }

    /// Starts a part again that was stopped or killed, with the same arguments.
    pub(crate) fn restart(&self, part: Part) -> Result<()> {
        let mut members = self.members();
        let process = member(&mut members, part)?.process.as_mut();
        if process.is_some_and(|process| process.ended().is_none()) {
            bail!("{part} runs already");
        }
        self.wake(&mut members, part)
    }

    fn wake(&self, members: &mut BTreeMap<Part, Member>, part: Part) -> Result<()> {
        let member = member(members, part)?;
        let mut command = Command::new(&member.launch.program);
        command.args(&member.launch.arguments).current_dir(&self.home).env(MARK, &self.home);
        for (name, value) in &member.launch.environment {
            command.env(name, value);
        }
        let log = self.log(part);
        let started = Process::start(command, self.lifetime, &log);
        member.process = Some(started.with_context(|| format!("{part} did not start"))?);
        self.record(members)
    }

    /// Asks a part to end, then makes it.
    pub(crate) fn stop(&self, part: Part, grace: Duration) -> Result<()> {
        self.end(part, |process| process.stop(grace))
    }

    /// Ends a part immediately.
    pub(crate) fn kill(&self, part: Part) -> Result<()> {
        self.end(part, Process::kill)
    }

    fn end(&self, part: Part, how: impl FnOnce(&mut Process) -> std::io::Result<()>) -> Result<()> {
        let mut members = self.members();
        if let Some(mut process) = member(&mut members, part)?.process.take() {
            how(&mut process).with_context(|| format!("{part} cannot be stopped"))?;
        }
        self.record(&members)
    }

    pub(crate) fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        let mut members = self.members();
        let Some(process) = member(&mut members, part)?.process.as_mut() else { bail!("{part} is stopped") };
        process.signal(signal).with_context(|| format!("cannot send a signal to {part}"))
    }

    /// Stops all threads of a part where they are. It may answer until the signal has its effect, so that is waited for.
    pub(crate) fn pause(&self, part: Part) -> Result<()> {
        self.signal(part, Signal::STOP)?;
        let pid = self.pid(part).and_then(|pid| i32::try_from(pid).ok());
        ensure!(
            pid.is_none_or(|pid| wait_until_stopped(pid, STOPS_WITHIN)),
            "{part} runs on {} s after it was sent a signal to stop",
            STOPS_WITHIN.as_secs()
        );
        Ok(())
    }

    /// The process number of a part that runs.
    pub(crate) fn pid(&self, part: Part) -> Option<u32> {
        let mut members = self.members();
        let process = members.get_mut(&part)?.process.as_mut()?;
        process.ended().is_none().then(|| process.identity().pid)
    }

    /// Ends everything at the same time, last started first.
    pub(crate) fn kill_all(&self) -> Result<()> {
        let mut members = self.members();
        let mut result = Ok(());
        for (part, member) in members.iter_mut().rev() {
            if let Some(mut process) = member.process.take() {
                let killed = process.kill().with_context(|| format!("{part} cannot be stopped"));
                result = result.and(killed);
            }
        }
        result
    }

    /// Waits until `ready` says so. Fails as soon as any program of the crew ends on its own.
    pub(crate) fn wait_for(
        &self,
        part: Part,
        limit: Duration,
        mut ready: impl FnMut() -> Result<Result<(), String>>,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let obstacle = match ready()? {
                Ok(()) => return Ok(()),
                Err(obstacle) => obstacle,
            };
            self.all_run()?;
            if Instant::now() >= end {
                bail!(
                    "{part} is not ready after {} s: {obstacle}\n{}",
                    limit.as_secs(),
                    self.last_words(part)
                );
            }
            thread::sleep(PAUSE);
        }
    }

    /// An error about the first program that ended on its own, with the end of its log.
    pub(crate) fn all_run(&self) -> Result<()> {
        for (part, member) in self.members().iter_mut() {
            if let Some(status) = member.process.as_mut().and_then(Process::ended) {
                bail!("{part} ended on its own ({status})\n{}", self.last_words(*part));
            }
        }
        Ok(())
    }

    /// Starts `parts` with `attempt`, which picks free ports for them, and again with others as long as somebody else is
    /// faster to take one.
    pub(crate) fn with_free_ports<T>(
        &self,
        parts: &[Part],
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut tries = 1;
        loop {
            let error = match attempt() {
                Ok(started) => return Ok(started),
                Err(error) => error,
            };
            let busy = parts.iter().any(|part| process::says_port_is_busy(&self.log(*part)));
            for part in parts.iter().rev().filter(|part| self.members().contains_key(part)) {
                self.kill(*part)?;
            }
            if !busy || tries == ATTEMPTS {
                return Err(error);
            }
            cache::say("somebody else took a port in between; starting again with others");
            tries += 1;
            for log in parts.iter().map(|part| self.log(*part)).filter(|log| log.exists()) {
                // Or the next look would find the old complaint in it.
                fs::remove_file(&log).with_context(|| format!("cannot remove {}", log.display()))?;
            }
        }
    }

    pub(crate) fn log(&self, part: Part) -> PathBuf {
        self.home.join("logs").join(format!("{part}.log"))
    }

    fn last_words(&self, part: Part) -> String {
        let log = self.log(part);
        format!("The end of {}:\n{}", log.display(), process::tail(&log, SHOWN))
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<Part, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, members: &BTreeMap<Part, Member>) -> Result<()> {
        let running = |(part, member): (&Part, &Member)| Some((*part, member.process.as_ref()?.identity()));
        let roster = Roster { boot: process::boot(), members: members.iter().filter_map(running).collect() };
        let text = serde_json::to_vec_pretty(&roster).context("cannot record the processes")?;
        cache::write_whole(&Roster::path(&self.home), &text)
    }
}

fn member(members: &mut BTreeMap<Part, Member>, part: Part) -> Result<&mut Member> {
    members.get_mut(&part).with_context(|| format!("this cluster has no {part}"))
}

impl Drop for Crew {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::Tied {
            // What cannot be ended here dies with this process, or is found by the next start.
            let _ = self.kill_all();
        }
    }
}
