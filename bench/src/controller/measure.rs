//! One program, measured from its start to its end.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use volmedic_testkit::sim::{Adverse, Sim, capability as can};

use super::Mode;
use crate::audit::{self, Requests};
use crate::fill::handle;
use crate::ground::Ground;
use crate::news::{Came, News};
use crate::process::{Memory, Program};
use crate::say;

/// From one list to the next. Short, to see many; long enough for each to end before the next begins.
pub(crate) const INTERVAL: Duration = Duration::from_secs(3);
/// Number of volumes that fail together.
pub(crate) const FAILURES: usize = 1000;
/// For the first list, which waits for everything to be read from the API server.
const FIRST_LIMIT: Duration = Duration::from_mins(10);
/// For a list more.
const PASS_LIMIT: Duration = Duration::from_mins(2);
/// For all events of a thousand failures.
const NEWS_LIMIT: Duration = Duration::from_mins(8);
/// Nothing written for so long is nothing left to write.
const QUIET: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const DEGRADED: i32 = 1;

/// Who is measured.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) program: &'a Path,
    pub(crate) role: &'a [&'a str],
    pub(crate) name: &'a str,
}

/// The figures.
#[derive(Debug)]
pub(crate) struct Measured {
    /// From its start to the end of its first list.
    pub(crate) first_pass: Duration,
    /// After the quiet passes.
    pub(crate) resident: u64,
    /// Up to then.
    pub(crate) peak: u64,
    /// Up to the end, with a thousand failures reported and recovered.
    pub(crate) peak_of_all: u64,
    pub(crate) cpu_per_pass: Duration,
    /// From the question for the first page to the answer with the last, as the driver saw it.
    pub(crate) pass: Duration,
    pub(crate) quiet_passes: usize,
    /// What it asked of the API server during the quiet passes.
    pub(crate) at_rest: Requests,
    pub(crate) failures: usize,
    /// From the list that showed the failures to the last event.
    pub(crate) reported: Reach,
    /// From the list that showed the recovery to the last event.
    pub(crate) took_back: Reach,
    /// Why the program did not come to rest after its last event, or did not end, if so.
    pub(crate) restless: Option<String>,
}

/// How far the reports of a change came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    All(Duration),
    Part {
        claims: usize,
        of: usize,
        after: Duration,
    },
    /// It could not be measured at all: why.
    Not(String),
}

impl Reach {
    /// How long it took, if it came to its end.
    pub(crate) fn time(&self) -> Option<Duration> {
        match self {
            Self::All(time) => Some(*time),
            Self::Part { .. } | Self::Not(_) => None,
        }
    }
}

/// As it is printed in a column of seconds.
impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(time) => write!(f, "{:.1}", time.as_secs_f64()),
            Self::Part { claims, of, after } => {
                write!(f, "{claims} of {of} after {} s", after.as_secs())
            }
            Self::Not(_) => f.write_str("not measured"),
        }
    }
}

impl Measured {
    /// What was to be measured and was not reached, a sentence each.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (what, reach) in [("failures", &self.reported), ("recoveries", &self.took_back)] {
            match reach {
                Reach::All(_) => {}
                Reach::Part { claims, of, after } => missing.push(format!(
                    "{what} were reported for {claims} of {of} claims within {} s",
                    after.as_secs()
                )),
                Reach::Not(why) => missing.push(format!("{what} could not be measured: {why}")),
            }
        }
        missing.extend(self.restless.clone());
        missing
    }
}

/// The driver speaks one dialect from now on.
pub(crate) fn set_mode(ground: &mut Ground, mode: Mode) -> Result<()> {
    ground.sim.behaviour().capabilities = match mode {
        Mode::Volumes => vec![can::LIST_VOLUMES, can::VOLUME_CONDITION],
        Mode::Health => vec![can::LIST_VOLUME_HEALTH],
    };
    ground.sim.restart().context("the driver cannot listen again")
}

pub(crate) async fn measure(
    ground: &Ground,
    subject: &Subject<'_>,
    volumes: usize,
    quiet_passes: usize,
) -> Result<Measured> {
    say::line(&format!("measuring {} with {volumes} volumes", subject.name));
    ground.forget_events().await?;
    ground.sim.behaviour().walks.clear();
    let kubeconfig = ground.kubeconfig().await?;
    let mut arguments: Vec<String> = subject.role.iter().map(|word| (*word).to_owned()).collect();
    arguments.extend([
        format!("--csi-address={}", ground.sim.socket().display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--list-volumes-interval={}s", INTERVAL.as_secs()),
        "--timeout=2m".to_owned(),
        "--leader-election=true".to_owned(),
        "--leader-election-namespace=default".to_owned(),
    ]);
    let log = ground.folder().join(format!("{}.log", subject.name));
    let started = Instant::now();
    let mut program = Program::start(subject.program, &arguments, &log)?;
    let measured = watch(ground, &mut program, started, volumes, quiet_passes).await;
    let mut measured = measured.with_context(|| format!("the end of its log:\n{}", program.tail()))?;
    // What was measured until then is worth as much if the program does not end well.
    if let Err(error) = program.end() {
        measured.restless.get_or_insert(format!("{error:#}"));
    }
    Ok(measured)
}

async fn watch(
    ground: &Ground,
    program: &mut Program,
    started: Instant,
    volumes: usize,
    quiet_passes: usize,
) -> Result<Measured> {
    let sim = &ground.sim;
    walks(sim, program, 1, FIRST_LIMIT).await?;
    let first_pass = started.elapsed();
    walks(sim, program, 3, PASS_LIMIT).await?;

    let (mark, cpu) = (ground.audit.mark(), program.cpu()?);
    walks(sim, program, 3 + quiet_passes, PASS_LIMIT).await?;
    let cpu_per_pass = program.cpu()?.saturating_sub(cpu) / u32::try_from(quiet_passes)?.max(1);
    let at_rest = ground.audit.since(mark)?;
    let pass = median(times(sim, 3)).context("no list came to its end")?;
    let Memory { resident, peak, .. } = program.memory()?;

    let failures = FAILURES.min(volumes);
    let victims: Vec<String> = (0..failures).map(|nth| handle(nth * volumes / failures)).collect();
    let trouble = Adverse {
        status: DEGRADED,
        reason: "DiskDegrading".into(),
        message: "the disk is slow to answer".into(),
    };
    let reported = turn(ground, program, &victims, Some(&trouble), "VolumeConditionAbnormal").await;
    let took_back = turn(ground, program, &victims, None, "VolumeConditionNormal").await;
    let [reported, took_back] =
        [reported, took_back].map(|reach| reach.unwrap_or_else(|error| Reach::Not(format!("{error:#}"))));
    let restless = settle(ground).await.err().map(|error| format!("{error:#}"));
    let peak_of_all = program.memory().map_or(peak, |memory| memory.peak);
    Ok(Measured {
        first_pass,
        resident,
        peak,
        peak_of_all,
        cpu_per_pass,
        pass,
        quiet_passes,
        at_rest,
        failures,
        reported,
        took_back,
        restless,
    })
}

/// Changes the health of many volumes between two lists. From the list that shows it, how long until all is reported?
async fn turn(
    ground: &Ground,
    program: &mut Program,
    victims: &[String],
    trouble: Option<&Adverse>,
    reason: &str,
) -> Result<Reach> {
    let mut news = News::from_now(&ground.client).await?;
    // Right after a list, so that the next one shows all of it.
    let seen = ground.sim.behaviour().walks.len();
    walks(&ground.sim, program, seen + 1, PASS_LIMIT).await?;
    let changed = Instant::now();
    {
        let mut behaviour = ground.sim.behaviour();
        for victim in victims {
            behaviour.volumes.insert(victim.clone(), trouble.cloned().into_iter().collect());
        }
    }
    let reported = news.reported(reason, victims.len(), NEWS_LIMIT).await?;
    program.must_run()?;
    let shown = ground.sim.behaviour().walks.iter().map(|walk| walk.began).find(|began| *began >= changed);
    let shown = shown.context("no list has shown the change")?;
    Ok(match reported {
        Came::All(last) => Reach::All(last.saturating_duration_since(shown)),
        Came::Only(claims) => Reach::Part { claims, of: victims.len(), after: NEWS_LIMIT },
    })
}

/// Waits until the program has written all it had to: it is still storing what its events have reported already, and
/// the rest would be left to the next program.
async fn settle(ground: &Ground) -> Result<()> {
    let deadline = Instant::now() + NEWS_LIMIT;
    loop {
        let mark = ground.audit.mark();
        tokio::time::sleep(QUIET).await;
        if audit::writes(&ground.audit.since(mark)?) == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("it still wrote to the API server {} s after its last event", NEWS_LIMIT.as_secs());
        }
    }
}

/// Waits until this many lists have ended.
async fn walks(sim: &Sim, program: &mut Program, count: usize, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    // A list that is begun while another fails never ends; only those that did count.
    while times(sim, 0).len() < count {
        program.must_run()?;
        if Instant::now() >= deadline {
            bail!("the list number {count} did not come to its end within {} s", limit.as_secs());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// How long the lists took that ended, without the first `after`.
pub(crate) fn times(sim: &Sim, after: usize) -> Vec<Duration> {
    sim.behaviour().walks.iter().filter_map(|walk| walk.took).skip(after).collect()
}

pub(crate) fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_reached_is_printed_beside_what_was() {
        let mut measured = Measured {
            first_pass: Duration::from_secs(1),
            resident: 1,
            peak: 1,
            peak_of_all: 1,
            cpu_per_pass: Duration::from_millis(1),
            pass: Duration::from_millis(1),
            quiet_passes: 1,
            at_rest: Requests::default(),
            failures: 1000,
            reported: Reach::All(Duration::from_millis(6_840)),
            took_back: Reach::Part { claims: 772, of: 1000, after: Duration::from_mins(8) },
            restless: None,
        };
        assert_eq!(measured.reported.to_string(), "6.8");
        assert_eq!(measured.took_back.to_string(), "772 of 1000 after 480 s");
        assert_eq!(measured.missing(), ["recoveries were reported for 772 of 1000 claims within 480 s"]);
        measured.took_back = Reach::Not("it ended with exit status: 1".to_owned());
        measured.restless = Some("it still wrote".to_owned());
        assert_eq!(measured.took_back.to_string(), "not measured");
        assert_eq!(
            measured.missing(),
            ["recoveries could not be measured: it ended with exit status: 1", "it still wrote"]
        );
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let seconds = |all: &[u64]| all.iter().map(|s| Duration::from_secs(*s)).collect();
        assert_eq!(median(seconds(&[9, 1, 3])), Some(Duration::from_secs(3)));
        assert_eq!(median(Vec::new()), None);
    }
}
