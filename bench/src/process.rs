//! A program under measurement.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::machine::field;

/// Time in which it must end after SIGTERM; then it is killed.
const GRACE: Duration = Duration::from_secs(20);

/// Killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
}

/// What the kernel knows of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Of that, what is not pages of the program's file.
    pub(crate) own: u64,
    pub(crate) peak: u64,
}

impl Program {
    /// Starts `program` with its output in `log`.
    pub(crate) fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("cannot share a log")?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Fails with the end of its log if it has ended.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot ask whether it runs")? {
            None => Ok(()),
            Some(status) => bail!("it ended ({status}); the end of its log:\n{}", self.tail()),
        }
    }

    /// Whether it ended well; nothing while it runs.
    pub(crate) fn ended(&mut self) -> Result<Option<bool>> {
        let ended = self.child.try_wait().context("cannot ask whether it runs")?;
        Ok(ended.map(|status| status.success()))
    }

    pub(crate) fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let text = self.proc("status")?;
        let read = |name| field(&text, name).with_context(|| format!("the kernel does not report {name}"));
        Ok(Memory { resident: read("VmRSS")?, own: read("RssAnon")?, peak: read("VmHWM")? })
    }

    /// Processor time used so far, in user and kernel mode.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.time(0)
    }

    /// The same of all processes that it started, whether they have ended or not.
    pub(crate) fn cpu_of_children(&self) -> Result<Duration> {
        // One that ends between the two is left out once, and is counted the next time.
        let ended = self.time(2)?;
        let stats = self.child_ids()?.into_iter().map(|id| fs::read_to_string(format!("/proc/{id}/stat")));
        let there: u64 = stats.filter_map(|stat| ticks(&stat.ok()?, 0)).sum();
        Ok(ended + duration(there))
    }

    fn time(&self, skip: usize) -> Result<Duration> {
        let ticks =
            ticks(&self.proc("stat")?, skip).context("the kernel does not report the processor time")?;
        Ok(duration(ticks))
    }

    fn child_ids(&self) -> Result<Vec<u32>> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))?;
        let lists: Vec<String> = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .collect();
        Ok(lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|id| id.parse().ok()).collect())
    }

    /// How many processes it has started that are still there, and the memory that they have written to.
    pub(crate) fn children(&self) -> Result<(usize, u64)> {
        let children = self.child_ids()?;
        let mine = self.proc("cmdline")?;
        let memory = |id: &u32| {
            let proc = Path::new("/proc").join(id.to_string());
            // One that has not become its program yet still has all of its parent's memory.
            let begun = fs::read_to_string(proc.join("cmdline")).ok()? != mine;
            let text = fs::read_to_string(proc.join("smaps_rollup")).ok()?;
            begun.then_some(field(&text, "Private_Dirty")?)
        };
        Ok((children.len(), children.iter().filter_map(memory).sum()))
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }

    /// Sends it SIGTERM, and waits until it has ended.
    pub(crate) fn end(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .context("it cannot be sent SIGTERM")?;
        let deadline = Instant::now() + GRACE;
        while self.child.try_wait().context("cannot wait for its end")?.is_none() {
            if Instant::now() >= deadline {
                bail!("it did not end within {} s of SIGTERM", GRACE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn duration(ticks: u64) -> Duration {
    let each = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs(ticks) / u32::try_from(each).unwrap_or(100)
}

/// Fields 14 and 15 of `/proc/<pid>/stat`, or two behind these. The second, a name in parentheses, may hold anything.
fn ticks(stat: &str, skip: usize) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11 + skip);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "77 (a) b) c) S 1 77 77 0 -1 4194560 1 2 3 4 120 34 9 9 20 0 1 0";
        assert_eq!(ticks(stat, 0), Some(154));
        assert_eq!(ticks(stat, 2), Some(18));
        assert_eq!(ticks("77 (cut) S 1", 0), None);
    }

    #[test]
    fn a_program_that_ends_by_itself_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let script = ["-c".to_owned(), "echo no driver here >&2; exit 3".to_owned()];
        let mut program = Program::start(Path::new("/bin/sh"), &script, &folder.path().join("log")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let error = loop {
            match program.must_run() {
                Ok(()) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(()) => panic!("it does not end"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("exit status: 3") && error.ends_with("no driver here"), "{error}");
    }
}
