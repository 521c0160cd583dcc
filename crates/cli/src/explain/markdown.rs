//! One claim as a post-mortem: a document that goes into an incident report as it is.

use jiff::Timestamp;
use volmedic_health::{Health, Vantage};
use volmedic_view::Grade;
use volmedic_view::render::{Inline, Markdown};
use volmedic_view::text::Age;

use super::gather::{Advice, Explained, Reported, health};

/// One line of the timeline.
struct Moment {
    at: Timestamp,
    what: Inline,
    /// The vantage, or the program that acted.
    by: String,
    detail: String,
}

pub(super) fn compose(explained: &Explained) -> String {
    let mut document = Markdown::default();
    let claim = &explained.claim;
    let name = Inline::code(&format!("{}/{}", claim.namespace, claim.claim));
    document.heading(1, &Inline::words("Volume health: claim ").then(&name));
    summary(&mut document, explained);
    document.heading(2, &Inline::words("Timeline"));
    let moments = timeline(explained);
    if moments.is_empty() {
        document.paragraph(&Inline::words("Nothing is stored about its past."));
    } else {
        let row = |moment: Moment| {
            let at = Inline::prose(&format!("{:.0}", moment.at));
            [at, moment.what, Inline::code(&moment.by), Inline::code(&moment.detail)]
        };
        document.table(["Time (UTC)", "What", "Seen or done by", "Details"], moments.into_iter().map(row));
    }
    evidence(&mut document, explained);
    done(&mut document, explained);
    users(&mut document, explained);
    advice(&mut document, explained);
    if !explained.limits.is_empty() {
        document.heading(2, &Inline::words("What could not be read"));
        document.list(explained.limits.iter().map(|limit| Inline::prose(limit)));
    }
    document.finish()
}

fn state(health: Health, reason: &str) -> Inline {
    let word = Inline::prose(&health.to_string());
    if reason.is_empty() { word } else { word.then(&Inline::words(" ")).then(&Inline::code(reason)) }
}

fn summary(document: &mut Markdown, explained: &Explained) {
    let Explained { claim, at: now, persistent_volume, storage_class, .. } = explained;
    document.heading(2, &Inline::words("Summary"));
    let seers: Vec<String> = claim.seers().map(Vantage::name).collect();
    let since = claim.since.map(|since| format!("{since:.0}, for {}", Age::between(since, *now)));
    let mut rows = vec![
        [Inline::words("Health"), state(claim.health, claim.reason())],
        [Inline::words("Since"), Inline::prose(&since.unwrap_or_default())],
        [Inline::words("Message"), Inline::code(claim.message())],
        [Inline::words("Seen by"), Inline::code(&seers.join(", "))],
        [Inline::words("Volume"), Inline::code(&claim.volume)],
        [Inline::words("Driver"), Inline::code(&claim.driver)],
        [Inline::words("PersistentVolume"), Inline::code(persistent_volume)],
        [Inline::words("StorageClass"), Inline::code(storage_class.as_deref().unwrap_or_default())],
    ];
    rows.extend(worst(explained).map(|text| [Inline::words("Worst in the stored history"), text]));
    rows.push([Inline::words("Written"), Inline::prose(&format!("{now:.0}"))]);
    document.table(["", ""], rows);
}

/// The worst stretch of the stored history, the latest of equals, with how long it lasted.
fn worst(explained: &Explained) -> Option<Inline> {
    let whole = explained.lanes.iter().find(|lane| lane.whole)?;
    let span = whole.spans.iter().max_by_key(|span| (Grade::of(span.health).is_adverse(), span.health))?;
    if !Grade::of(span.health).is_adverse() {
        return None;
    }
    let lasted = Age::between(span.from, span.to);
    let end = if span.open { "until now".to_owned() } else { format!("until {:.0}", span.to) };
    let when = format!("from {:.0} {end}, for {lasted}", span.from);
    Some(state(span.health, &span.reason).then(&Inline::words(" ")).then(&Inline::prose(&when)))
}

/// Oldest first: what is stored of its health, the heals, and the events.
fn timeline(explained: &Explained) -> Vec<Moment> {
    let past = explained.history.iter().map(|past| Moment {
        at: past.time.0,
        what: state(health(past), past.reason.as_deref().unwrap_or_default()),
        by: past.vantage.clone().unwrap_or_default(),
        detail: past.message.clone(),
    });
    let heals = explained.heals.iter().map(|heal| Moment {
        at: heal.time.0,
        what: Inline::words("Heal ")
            .then(&Inline::code(&heal.remedy))
            .then(&Inline::words(": "))
            .then(&Inline::prose(&format!("{:?}", heal.outcome))),
        by: heal.node.as_ref().map_or_else(|| "healer".to_owned(), |node| format!("healer, on node {node}")),
        detail: heal.message.clone(),
    });
    let events = explained.events.iter().filter_map(|event| {
        let Reported { at, reason, on, from, count, message, .. } = event;
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        let what = Inline::words("Event ")
            .then(&Inline::code(reason))
            .then(&Inline::words(" "))
            .then(&Inline::prose(&format!("on {on}{times}")));
        Some(Moment { at: (*at)?, what, by: from.clone(), detail: message.clone() })
    });
    let mut moments: Vec<Moment> = past.chain(heals).chain(events).collect();
    moments.sort_by_key(|moment| moment.at);
    moments
}

fn evidence(document: &mut Markdown, explained: &Explained) {
    let claim = &explained.claim;
    document.heading(2, &Inline::words("Evidence"));
    if claim.seen_by.is_empty() {
        document.paragraph(&Inline::words("No vantage reports this volume."));
        return;
    }
    let rows = claim.seen_by.iter().flat_map(|sighting| {
        let vantage = sighting.vantage.name();
        let unverified = explained.unverified.contains(&vantage);
        let name = move || {
            let note = if unverified { Inline::words(" (unverified)") } else { Inline::words("") };
            Inline::code(&vantage).then(&note)
        };
        let none = sighting.conditions.is_empty().then(|| {
            let since = sighting.since().map(|since| format!("{since:.0}")).unwrap_or_default();
            [name(), state(sighting.health, ""), Inline::prose(&since), Inline::code("")]
        });
        let held = sighting.conditions.iter().map(|held| {
            let since = Inline::prose(&format!("{:.0}", held.since));
            let condition = &held.condition;
            let word = Inline::prose(&condition.status.to_string()).then(&Inline::words(" "));
            [
                name(),
                word.then(&Inline::code(condition.reason.as_str())),
                since,
                Inline::code(&condition.message),
            ]
        });
        none.into_iter().chain(held).collect::<Vec<_>>()
    });
    document.table(["Vantage", "Health", "Since", "Message"], rows);
    let lines = explained.evidence.iter().flat_map(|evidence| {
        let from = |line: &String| {
            Inline::code(&evidence.vantage).then(&Inline::words(": ")).then(&Inline::code(line))
        };
        evidence.lines.iter().map(from).collect::<Vec<_>>()
    });
    let lines: Vec<Inline> = lines.collect();
    if !lines.is_empty() {
        document.list(lines);
    }
}

fn done(document: &mut Markdown, explained: &Explained) {
    document.heading(2, &Inline::words("What was done"));
    if explained.heals.is_empty() {
        document.paragraph(&Inline::words("No attempt to heal it is stored."));
        return;
    }
    let row = |heal: &volmedic_api::resource::Heal| {
        let attempt = if heal.attempt > 0 { heal.attempt.to_string() } else { String::new() };
        [
            Inline::prose(&format!("{:.0}", heal.time.0)),
            Inline::code(&heal.remedy),
            Inline::prose(&format!("{:?}", heal.outcome)),
            Inline::code(heal.node.as_deref().unwrap_or_default()),
            Inline::prose(&attempt),
            Inline::code(&heal.message),
        ]
    };
    document.table(
        ["Time (UTC)", "Remedy", "Outcome", "Node", "Attempt", "Message"],
        explained.heals.iter().rev().map(row),
    );
}

fn users(document: &mut Markdown, explained: &Explained) {
    document.heading(2, &Inline::words("Who used it"));
    if explained.users.is_empty() {
        document.paragraph(&Inline::words(if explained.pods_read {
            "No pod uses it now."
        } else {
            "Not known: the pods could not be read."
        }));
        return;
    }
    let row = |user: &super::gather::User| {
        [
            Inline::code(&user.pod),
            Inline::code(&user.node),
            Inline::prose(&user.node_state),
            Inline::prose(&user.agent),
        ]
    };
    document.table(["Pod", "Node", "Node's state", "Agent"], explained.users.iter().map(row));
}

fn advice(document: &mut Markdown, explained: &Explained) {
    if explained.advice.is_empty() {
        return;
    }
    document.heading(2, &Inline::words("What to do"));
    for Advice { reason, meaning, next, steps } in &explained.advice {
        let text = meaning.iter().map(String::as_str).chain([next.as_str()]).collect::<Vec<_>>().join(" ");
        document.paragraph(&Inline::code(reason).then(&Inline::words(": ")).then(&Inline::prose(&text)));
        if !steps.is_empty() {
            document.steps(steps.iter().map(|step| Inline::prose(step)));
        }
    }
}
