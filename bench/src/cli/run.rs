//! One command, from its start to its end: how long it takes and how much memory it has at most.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::Program;

/// How often the memory is read.
const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// What one command took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) time: Duration,
    /// Memory of its own at most, without pages of the program's file.
    pub(crate) own: u64,
    pub(crate) resident: u64,
    /// Bytes that it printed.
    pub(crate) printed: u64,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, time, own, resident, printed } = self;
        write!(
            f,
            "{name}: {:.2} s, {} MiB of its own, {} MiB resident, {printed} bytes printed",
            time.as_secs_f64(),
            own >> 20,
            resident >> 20
        )
    }
}

/// Runs a command to its end. It must succeed.
pub(super) async fn once(subject: &Subject, folder: &Path, limit: Duration) -> Result<Figure> {
    let log = folder.join("printed");
    let start = Instant::now();
    let mut program = Program::start(&subject.program, &subject.arguments, &log)?;
    let mut figure = Figure { name: subject.name, time: Duration::ZERO, own: 0, resident: 0, printed: 0 };
    loop {
        // Gone between two questions: what was seen before counts.
        if let Ok(memory) = program.memory() {
            figure.own = figure.own.max(memory.own);
            figure.resident = figure.resident.max(memory.peak);
        }
        if let Some(worked) = program.ended()? {
            figure.time = start.elapsed();
            figure.printed = std::fs::metadata(&log).map_or(0, |log| log.len());
            if !worked {
                bail!("{} failed; the end of what it said:\n{}", subject.name, program.tail());
            }
            return Ok(figure);
        }
        if start.elapsed() > limit {
            bail!("{} did not end within {} s", subject.name, limit.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Of each command the median of each figure.
pub(super) fn medians(subjects: &[Subject], figures: &[Figure]) -> Vec<Figure> {
    let of = |name: &'static str| {
        let mine: Vec<&Figure> = figures.iter().filter(|figure| figure.name == name).collect();
        let median = |value: fn(&Figure) -> u64| {
            let mut all: Vec<u64> = mine.iter().map(|figure| value(figure)).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        Figure {
            name,
            time: Duration::from_millis(median(|figure| {
                u64::try_from(figure.time.as_millis()).unwrap_or(u64::MAX)
            })),
            own: median(|figure| figure.own),
            resident: median(|figure| figure.resident),
            printed: median(|figure| figure.printed),
        }
    };
    subjects.iter().map(|subject| of(subject.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_each_figure() {
        let figure =
            |time, own| Figure { name: "a", time: Duration::from_millis(time), own, resident: 0, printed: 1 };
        let subject = Subject { name: "a", program: PathBuf::new(), arguments: Vec::new() };
        let figures = [figure(30, 1), figure(10, 3), figure(20, 2)];
        assert_eq!(medians(&[subject], &figures), [figure(20, 2)]);
    }
}
