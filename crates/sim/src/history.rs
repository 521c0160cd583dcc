//! What happens in one history: the driver's truth, and what goes wrong around the controller. All of it follows from the
//! seed, except for what is left out of it while a failing history is made shorter.

mod generate;

use std::fmt;
use std::time::Duration;

/// How the driver's controller plugin can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Volume by volume.
    Get,
    /// By a list of the unhealthy volumes, and volume by volume.
    ListHealth,
    /// By a list of all volumes.
    ListVolumes,
}

/// Where reported health is kept for longer than an event lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The API server keeps `status.healthStatus` of claims.
    Claims,
    /// It drops that, but VolumeHealths are installed.
    Healths,
    /// Neither; only events, which here live as long as the history.
    Events,
}

/// What is wrong with a volume, as `Status/Reason`. Nothing, if it is healthy.
pub(crate) type Conditions = Vec<&'static str>;

/// What a driver's list of volumes no longer has, and a query answers with `NOT_FOUND`.
pub(crate) const GONE: &str = "Inaccessible/VolumeNotFound";

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) handle: String,
    /// How many claims share it.
    pub(crate) claims: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Its place in the whole history, by which it can be left out.
    pub(crate) number: usize,
    pub(crate) at: Duration,
    pub(crate) what: What,
}

/// When a replica is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    /// Before the n-th request from now on reaches the API server.
    Before(u32),
    /// After the API server carried out the n-th request from now on, and before the answer arrives.
    After(u32),
    /// The same, but only requests that report something count.
    BeforeReport(u32),
    AfterReport(u32),
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Truth {
        volume: usize,
        conditions: Conditions,
    },
    Kill {
        replica: usize,
        when: When,
        down: Duration,
    },
    /// SIGTERM: it may send what is left.
    Stop {
        replica: usize,
        down: Duration,
    },
    /// The API server refuses connections, or does not answer at all.
    ApiDown {
        hangs: bool,
        lasts: Duration,
    },
    /// It answers part of the requests with 429, 500 or 503.
    ApiBusy {
        code: u16,
        retry_after: Option<u32>,
        share: u32,
        lasts: Duration,
    },
    /// It carries requests out, but part of the answers never arrive.
    AnswersLost {
        share: u32,
        hangs: bool,
        lasts: Duration,
    },
    ApiSlow {
        up_to: Duration,
        lasts: Duration,
    },
    /// As just after its start, when it knows nobody's rights yet.
    ApiForbids {
        lasts: Duration,
    },
    /// What is older than now is forgotten: watches and lists that go on from there get 410.
    Compacted,
    WatchesCut,
    WatchesSilent {
        lasts: Duration,
    },
    DriverDown {
        lasts: Duration,
    },
    DriverFails {
        share: u32,
        lasts: Duration,
    },
    DriverHangs {
        volume: usize,
        lasts: Duration,
    },
    /// Its lists end with an error after some pages.
    ListsBreak {
        lasts: Duration,
    },
    ClockSteps {
        by: i64,
    },
}

/// One whole history.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) seed: u64,
    pub(crate) dialect: Dialect,
    pub(crate) memory: Memory,
    pub(crate) replicas: usize,
    pub(crate) election: bool,
    /// From one probe of a volume, or one list, to the next.
    pub(crate) interval: Duration,
    /// For how long the API server keeps an event after its last update.
    pub(crate) event_ttl: Duration,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) steps: Vec<Step>,
    /// When the last step, and what it causes, is over.
    pub(crate) length: Duration,
}

impl What {
    /// By which faults are counted; nothing, if it is none.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        Some(match self {
            Self::Truth { .. } => return None,
            Self::Kill { when: When::Now, .. } => "killed at a time",
            Self::Kill { when: When::Before(_) | When::After(_), .. } => "killed at a request",
            Self::Kill { when: When::BeforeReport(_) | When::AfterReport(_), .. } => "killed at a report",
            Self::Stop { .. } => "terminated",
            Self::ApiDown { hangs: false, .. } => "API server refuses connections",
            Self::ApiDown { hangs: true, .. } => "API server does not answer",
            Self::ApiBusy { code: 429, .. } => "API server answers 429",
            Self::ApiBusy { .. } => "API server answers 500 or 503",
            Self::AnswersLost { .. } => "answers lost after the write",
            Self::ApiSlow { .. } => "API server slow",
            Self::ApiForbids { .. } => "API server answers 403 after a start",
            Self::Compacted => "watches and pages expire",
            Self::WatchesCut => "watches cut",
            Self::WatchesSilent { .. } => "watches silent",
            Self::DriverDown { .. } => "driver unreachable",
            Self::DriverFails { .. } => "driver answers with errors",
            Self::DriverHangs { .. } => "driver hangs on a volume",
            Self::ListsBreak { .. } => "driver's lists break off",
            Self::ClockSteps { .. } => "wall clock steps",
        })
    }
}

impl History {
    /// The same without these steps.
    pub(crate) fn without(mut self, numbers: &[usize]) -> Self {
        self.steps.retain(|step| !numbers.contains(&step.number));
        self
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} ", self.number)?;
        let secs = |duration: &Duration| format!("{:.1} s", duration.as_secs_f64());
        match &self.what {
            What::Truth { volume, conditions } if conditions.is_empty() => {
                write!(f, "vol-{volume} is healthy")
            }
            What::Truth { volume, conditions } => write!(f, "vol-{volume} is {}", conditions.join(" + ")),
            What::Kill { replica, when, down } => {
                let when = match when {
                    When::Now => String::new(),
                    When::Before(n) => format!(" before request {n} from now"),
                    When::After(n) => format!(" after request {n} from now was carried out"),
                    When::BeforeReport(n) => format!(" before report {n} from now"),
                    When::AfterReport(n) => format!(" after report {n} from now was carried out"),
                };
                write!(f, "replica-{replica} is killed{when}, and starts again after {}", secs(down))
            }
            What::Stop { replica, down } => {
                write!(f, "replica-{replica} is terminated, and starts again after {}", secs(down))
            }
            What::ApiDown { hangs, lasts } => {
                let how = if *hangs { "does not answer" } else { "refuses connections" };
                write!(f, "the API server {how} for {}", secs(lasts))
            }
            What::ApiBusy { code, retry_after, share, lasts } => {
                write!(f, "the API server answers {share} % with {code}")?;
                if let Some(after) = retry_after {
                    write!(f, " (Retry-After: {after})")?;
                }
                write!(f, " for {}", secs(lasts))
            }
            What::AnswersLost { share, hangs, lasts } => {
                let how = if *hangs { "never arrive" } else { "are cut off" };
                write!(f, "{share} % of the API server's answers {how} for {}", secs(lasts))
            }
            What::ApiSlow { up_to, lasts } => {
                write!(f, "the API server takes up to {} for {}", secs(up_to), secs(lasts))
            }
            What::ApiForbids { lasts } => write!(f, "the API server forbids everything for {}", secs(lasts)),
            What::Compacted => f.write_str("the API server forgets all older versions"),
            What::WatchesCut => f.write_str("all watches are cut"),
            What::WatchesSilent { lasts } => write!(f, "all watches say nothing for {}", secs(lasts)),
            What::DriverDown { lasts } => write!(f, "the driver cannot be reached for {}", secs(lasts)),
            What::DriverFails { share, lasts } => {
                write!(f, "the driver answers {share} % with an error for {}", secs(lasts))
            }
            What::DriverHangs { volume, lasts } => {
                write!(f, "the driver does not answer about vol-{volume} for {}", secs(lasts))
            }
            What::ListsBreak { lasts } => write!(f, "the driver's lists break off for {}", secs(lasts)),
            What::ClockSteps { by } => write!(f, "the wall clock steps by {} s", by / 1000),
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            dialect,
            memory,
            replicas,
            election,
            interval,
            event_ttl,
            volumes,
            steps,
            length: _,
        } = self;
        let shared = volumes.iter().filter(|volume| volume.claims > 1).count();
        write!(
            f,
            "seed {seed}: {replicas} replica(s), election {election}, {} volumes ({shared} shared), asked by {dialect:?} \
             every {} s, remembered in {memory:?}, events for {} min, {} steps",
            volumes.len(),
            interval.as_secs(),
            event_ttl.as_secs() / 60,
            steps.len()
        )
    }
}
