//! What must have been reported, computed from the driver's truth alone, and compared with what the API server was given.
//!
//! Nothing of the product is used in here, not even its types. What the product promises to be readable is read as anybody
//! could: an event's type, count and `volmedic.dev/story` annotation, a claim's status, a VolumeHealth.
//!
//! A condition's *stretches* are the times for which the driver had it without interruption. The rules, for each claim and
//! condition:
//!
//! 1. None false, none repeated: at any time, no more appearances were reported than stretches had begun, and no more ends
//!    than stretches had ended.
//! 2. None lost: a stretch within which nothing was wrong for long enough was reported, and once all is healthy, every reported
//!    appearance whose stretch is over has its end. Two stretches count as one if it could not be seen that there was an end
//!    between them.
//! 3. Order: the event that was written last says how it is.
//! 4. What is stored is what is true, for the claim or for the hub.
//! 5. While nothing changes, nothing is written.
//!
//! Two promises are weaker for a volume that several claims share. The controller does not trust events on such claims, because
//! an account of one namespace could forge one to have a warning written in another. So what was sent shortly before it died,
//! and not stored yet, may be reported again once per start, or never as over, and the time without probes is not remembered at all.
//!
//! The same two promises are weaker where the API server keeps events for less than the default hour, because only events say what
//! was reported and not stored yet, and that a volume could not be probed: an absence may be longer than they last.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::history::{Conditions, Dialect, History, Memory, What};
use crate::server::{Server, Written};
use crate::world::{NAMESPACE, Window};
use read::{About, News};

pub(crate) struct Evidence<'a> {
    pub(crate) history: &'a History,
    pub(crate) written: Vec<Written>,
    pub(crate) server: &'a Server,
    /// When something was wrong around the controller.
    pub(crate) windows: Vec<Window>,
    /// When a process of it was not there.
    pub(crate) absences: Vec<Window>,
    /// How often a process was started after the first.
    pub(crate) starts: usize,
    /// From when on nothing was wrong any more.
    pub(crate) quiet_from: Duration,
    /// From when on nothing may be written any more.
    pub(crate) settled: Duration,
    pub(crate) end: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) transitions: u64,
    pub(crate) demanded: u64,
}

/// For how long a volume had a condition; `None` where it still has it.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    from: Duration,
    to: Option<Duration>,
}

/// For how long an API server keeps events by default.
const USUAL_TTL: Duration = Duration::from_hours(1);

/// Of a request, from the process to the API server, as slow as the network ever is here.
const LONGEST_WAY: Duration = Duration::from_secs(12);

/// How long it takes at most until a change is reported while nothing is wrong: a list of the unhealthy, and a volume that
/// is gone, have to say it twice; and what failed before is retried after growing pauses, the longest being a minute.
fn patience(history: &History) -> Duration {
    let election = if history.election { Duration::from_secs(45) } else { Duration::ZERO };
    history.interval * rounds(history) + Duration::from_mins(3) + election
}

/// How many checks of a volume it takes until a change is reported.
fn rounds(history: &History) -> u32 {
    match history.dialect {
        Dialect::Get => 3,
        Dialect::ListHealth | Dialect::ListVolumes => 4,
    }
}

pub(crate) fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    let news: Vec<News> = evidence.written.iter().filter_map(News::read).collect();
    for (number, volume) in evidence.history.volumes.iter().enumerate() {
        let stretches = stretches(evidence.history, number);
        for claim in (0..volume.claims).map(|share| format!("claim-{number}-{share}")) {
            let of_claim: Vec<&News> = news.iter().filter(|news| news.claim == claim).collect();
            let relies_on_events = volume.claims == 1 && evidence.history.event_ttl >= USUAL_TTL;
            let slack = if relies_on_events { 0 } else { evidence.starts };
            check_conditions(evidence, &claim, &stretches, slack, &of_claim, &mut verdict);
            if relies_on_events || volume.claims == 1 && evidence.starts == 0 {
                check_views(&claim, &of_claim, &mut verdict);
            }
            check_stored(evidence, &claim, &stretches, &mut verdict);
        }
    }
    check_rest(evidence, &mut verdict);
    verdict
}

/// When which condition of a volume was there.
fn stretches(history: &History, volume: usize) -> BTreeMap<&'static str, Vec<Stretch>> {
    let mut all: BTreeMap<&'static str, Vec<Stretch>> = BTreeMap::new();
    let mut now = Conditions::new();
    for step in &history.steps {
        let What::Truth { volume: changed, conditions } = &step.what else { continue };
        if *changed != volume {
            continue;
        }
        for ended in now.iter().filter(|old| !conditions.contains(old)) {
            if let Some(stretch) = all.get_mut(ended).and_then(|all| all.last_mut()) {
                stretch.to = Some(step.at);
            }
        }
        for began in conditions.iter().filter(|new| !now.contains(new)) {
            all.entry(began).or_default().push(Stretch { from: step.at, to: None });
        }
        now.clone_from(conditions);
    }
    all
}

fn check_conditions(
    evidence: &Evidence,
    claim: &str,
    truth: &BTreeMap<&'static str, Vec<Stretch>>,
    slack: usize,
    news: &[&News],
    verdict: &mut Verdict,
) {
    let reported = news
        .iter()
        .filter_map(|news| if let About::Condition(word) = &news.about { Some(word.as_str()) } else { None });
    let words: BTreeSet<&str> = truth.keys().copied().chain(reported).collect();
    for word in words {
        let none = Vec::new();
        let stretches = truth.get(word).unwrap_or(&none);
        let about: Vec<&&News> =
            news.iter().filter(|news| news.about == About::Condition(word.to_owned())).collect();
        let (mut appeared, mut ended) = (0, 0);
        for news in &about {
            if news.is_warning {
                appeared += news.times;
            } else {
                ended += news.times;
            }
            let (count, what) = if news.is_warning { (appeared, "appearances") } else { (ended, "ends") };
            let is_over = |stretch: &&Stretch| stretch.to.is_some_and(|to| to <= news.at);
            let began = |stretch: &&Stretch| stretch.from <= news.at;
            let happened = stretches
                .iter()
                .filter(|stretch| if news.is_warning { began(stretch) } else { is_over(stretch) })
                .count();
            if count > happened + slack {
                verdict.violations.push(format!(
                    "{claim}: by {} the event of {word} counts {count} {what}, but there were {happened}",
                    time(news.at)
                ));
                // All that follows from it would be said again and again.
                break;
            }
        }
        let patience = patience(evidence.history);
        let must = demanded(evidence, stretches, patience);
        verdict.transitions +=
            stretches.iter().map(|stretch| 1 + u64::from(stretch.to.is_some())).sum::<u64>();
        verdict.demanded += must as u64;
        if appeared < must {
            verdict.violations.push(format!(
                "{claim}: {word} was there {} time(s), of which {must} had to be reported, but {appeared} were",
                stretches.len()
            ));
        }
        let stands = stretches.last().is_some_and(|stretch| stretch.to.is_none());
        if (ended + usize::from(stands)).abs_diff(appeared) > slack {
            verdict.violations.push(format!(
                "{claim}: {appeared} appearance(s) and {ended} end(s) of {word} were reported, and in the end it {}",
                if stands { "is there" } else { "is not there" }
            ));
        }
        // What was sent before a death and not stored is not remembered. It may have been on its way when its sender died.
        let forgotten =
            |last: &News| slack > 0 && evidence.absences.iter().any(|away| away.to + LONGEST_WAY >= last.at);
        if about.last().is_some_and(|last| last.is_warning != stands && !forgotten(last)) {
            verdict.violations.push(format!(
                "{claim}: the last event of {word} says that it {}",
                if stands { "is over, but it is there" } else { "is there, but it is over" }
            ));
        }
    }
}

/// How many stretches had to be reported. Two of them look like one where something was wrong around the controller for the
/// whole time between them.
fn demanded(evidence: &Evidence, stretches: &[Stretch], patience: Duration) -> usize {
    let (mut count, mut is_known, mut ended) = (0, false, None);
    for stretch in stretches {
        if let Some(from) = ended {
            is_known &= !had_to_be_noticed(evidence, Stretch { from, to: Some(stretch.from) }, patience);
        }
        if !is_known && has_quiet(evidence, *stretch, patience) {
            count += 1;
            is_known = true;
        }
        ended = stretch.to;
    }
    count
}

/// Whether a change had to be noticed: where nothing was wrong, after the rounds that it takes; else when nothing had been wrong
/// for long enough.
fn had_to_be_noticed(evidence: &Evidence, change: Stretch, patience: Duration) -> bool {
    let to = change.to.unwrap_or(evidence.end);
    let disturbs = |window: &Window| window.from < to && window.to + patience > change.from;
    if evidence.windows.iter().any(disturbs) {
        return has_quiet(evidence, change, patience);
    }
    to >= change.from + evidence.history.interval * rounds(evidence.history)
}

/// Whether nothing was wrong for `patience` within a stretch.
fn has_quiet(evidence: &Evidence, stretch: Stretch, patience: Duration) -> bool {
    let mut from = stretch.from;
    let to = stretch.to.unwrap_or(evidence.end);
    let mut windows = evidence.windows.clone();
    windows.sort_by_key(|window| window.from);
    for window in windows {
        if window.from >= from + patience {
            break;
        }
        from = from.max(window.to);
    }
    to >= from + patience
}

/// What was reported as unknown, or as changing too often, has its end too.
fn check_views(claim: &str, news: &[&News], verdict: &mut Verdict) {
    let mut open: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for news in news {
        let About::View(view) = &news.about else { continue };
        let (began, ended) = open.entry(view).or_default();
        if news.is_warning { *began += news.times } else { *ended += news.times }
    }
    for (view, (began, ended)) in open {
        if view == "flapping" && began > 0 {
            verdict
                .violations
                .push(format!("{claim}: flapping was reported, but it never changed that often"));
        } else if began != ended {
            verdict
                .violations
                .push(format!("{claim}: {view} began {began} time(s) and ended {ended} time(s)"));
        }
    }
}

fn check_stored(
    evidence: &Evidence,
    claim: &str,
    truth: &BTreeMap<&'static str, Vec<Stretch>>,
    verdict: &mut Verdict,
) {
    let stored = match evidence.history.memory {
        Memory::Claims => read::claim(evidence.server.object("persistentvolumeclaims", NAMESPACE, claim)),
        Memory::Healths => read::health(evidence.server.object("volumehealths", NAMESPACE, claim)),
        Memory::Events => return,
    };
    let stands = |stretches: &&Vec<Stretch>| stretches.last().is_some_and(|stretch| stretch.to.is_none());
    let expected: BTreeSet<String> =
        truth.iter().filter(|(_, stretches)| stands(stretches)).map(|(word, _)| (*word).to_owned()).collect();
    if stored != expected {
        verdict.violations.push(format!("{claim}: {stored:?} is stored, but {expected:?} is true"));
    }
}

fn check_rest(evidence: &Evidence, verdict: &mut Verdict) {
    let late: Vec<&Written> =
        evidence.written.iter().filter(|written| written.at > evidence.settled).collect();
    if let Some(first) = late.first() {
        verdict.violations.push(format!(
            "{} write(s) while nothing changed since {}, the first by {} to {} {} at {}",
            late.len(),
            time(evidence.quiet_from),
            first.process,
            first.resource,
            first.name,
            time(first.at)
        ));
    }
}

fn time(at: Duration) -> String {
    format!("{}m{:02}s", at.as_secs() / 60, at.as_secs() % 60)
}
