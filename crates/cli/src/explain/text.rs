//! One claim in full, for people.

use std::fmt::Write as _;

use volmedic_view::Grade;
use volmedic_view::render::{Paint, drawing};
use volmedic_view::text::{Age, plain};

use volmedic_roles::hub::rows::NO_DRIVER;

use super::gather::{Advice, Explained, health};

/// Past headlines that are listed; the drawing has them all.
const PAST: usize = 10;

pub(super) fn compose(explained: &Explained, paint: Paint) -> String {
    let mut page = Page { out: String::new(), paint };
    page.whose(explained);
    page.seen(explained);
    page.past(explained);
    page.done(explained);
    page.reported(explained);
    page.advice(explained);
    if !explained.limits.is_empty() {
        page.title("Not seen from here");
        for limit in &explained.limits {
            page.line(&format!("  - {}", plain(limit)));
        }
    }
    page.out
}

struct Page {
    out: String,
    paint: Paint,
}

impl Page {
    fn line(&mut self, line: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{line}");
    }

    fn title(&mut self, title: &str) {
        let title = self.paint.strong(title);
        self.line(&format!("\n{title}"));
    }

    fn field(&mut self, name: &str, text: &str) {
        self.line(&format!("  {name:9} {}", plain(text)));
    }

    fn whose(&mut self, explained: &Explained) {
        let Explained { claim, at: now, .. } = explained;
        let title = format!("Claim {}/{}", plain(&claim.namespace), plain(&claim.claim));
        self.line(&self.paint.strong(&title));
        let since =
            claim.since.map(|since| format!(", for {}", Age::between(since, *now))).unwrap_or_default();
        let reason = if claim.reason().is_empty() { String::new() } else { format!(" {}", claim.reason()) };
        let health = self.paint.grade(claim.grade(), &format!("{} {}", claim.grade().sign(), claim.health));
        self.line(&format!("  health    {health}{reason}{since}"));
        if !claim.message().is_empty() {
            self.field("what", claim.message());
        }
        if !claim.next().is_empty() {
            self.field("next", claim.next());
        }
        let class =
            explained.storage_class.as_deref().map(|class| format!(", class {class}")).unwrap_or_default();
        match (&*claim.driver, &*explained.persistent_volume) {
            ("", "") => self.field("volume", "none yet"),
            ("", name) if !explained.volume_read => {
                self.field("volume", &format!("PersistentVolume {name}{class}"));
            }
            (NO_DRIVER, name) => {
                self.field("volume", &format!("PersistentVolume {name}, of no CSI driver{class}"));
            }
            ("", name) => {
                self.field("volume", &format!("PersistentVolume {name}, which is not there{class}"));
            }
            (driver, name) => {
                let known =
                    if name.is_empty() { String::new() } else { format!(" (PersistentVolume {name})") };
                self.field("volume", &format!("{} of {driver}{known}{class}", claim.volume));
            }
        }
        if explained.users.is_empty() {
            self.field("used by", if explained.pods_read { "no pod" } else { "not known" });
        }
        for user in &explained.users {
            self.field(
                "used by",
                &format!("pod {} on node {} ({}, {})", user.pod, user.node, user.node_state, user.agent),
            );
        }
    }

    fn seen(&mut self, explained: &Explained) {
        let Explained { claim, at: now, .. } = explained;
        self.title("Seen by");
        if claim.seen_by.is_empty() {
            self.line("  nobody");
        }
        for sighting in &claim.seen_by {
            let word = sighting.vantage.name();
            let unverified = if explained.unverified.contains(&word) { " (unverified)" } else { "" };
            let health = self.paint.grade(Grade::of(sighting.health), &sighting.health.to_string());
            let since = sighting.since().map(|since| format!(" since {since:.0}")).unwrap_or_default();
            self.line(&format!("  {}{unverified}: {health}{since}", plain(&sighting.vantage.to_string())));
            for held in &sighting.conditions {
                let age = Age::between(held.since, *now);
                let message = plain(&held.condition.message);
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                self.line(&format!("    {} for {age}{message}", held.condition));
            }
            for line in
                explained.evidence.iter().filter(|evidence| evidence.vantage == word).flat_map(|e| &e.lines)
            {
                self.line(&format!("    evidence: {}", plain(line)));
            }
        }
    }

    fn past(&mut self, explained: &Explained) {
        if explained.lanes.is_empty() {
            return;
        }
        self.title("How it was");
        self.out.push_str(&drawing(&explained.lanes, explained.at, self.paint));
        for past in explained.history.iter().take(PAST) {
            let health = health(past);
            let word = self.paint.grade(Grade::of(health), &format!("{:13}", health.to_string()));
            let reason = past.reason.as_deref().unwrap_or_default();
            let seer = past.vantage.as_deref().map(|name| format!("seen by {name}")).unwrap_or_default();
            let line = format!("  {:.0}  {word} {:22} {seer}", past.time.0, plain(reason));
            self.line(line.trim_end());
        }
        if explained.history.len() > PAST {
            let more = format!("  and {} before these; -o json has them", explained.history.len() - PAST);
            self.line(&self.paint.faint(&more));
        }
    }

    fn done(&mut self, explained: &Explained) {
        if explained.heals.is_empty() {
            return;
        }
        self.title("What was done to heal it");
        for heal in &explained.heals {
            let node = heal.node.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
            let message = if heal.message.is_empty() { String::new() } else { format!(": {}", heal.message) };
            let line = format!("  {:.0}  {:?} {}{node}{message}", heal.time.0, heal.outcome, heal.remedy);
            self.line(&plain(&line));
        }
    }

    fn reported(&mut self, explained: &Explained) {
        if explained.events.is_empty() {
            return;
        }
        self.title("Events");
        for reported in &explained.events {
            let at = reported.at.map(|at| format!("{at:.0}")).unwrap_or_default();
            let count =
                if reported.count > 1 { format!(" ({} times)", reported.count) } else { String::new() };
            let line =
                format!("  {at}  {}{count} on {}: {}", reported.reason, reported.on, reported.message.trim());
            let line = plain(&line).into_owned();
            self.line(&if reported.warning { self.paint.grade(Grade::Degraded, &line) } else { line });
        }
    }

    fn advice(&mut self, explained: &Explained) {
        self.title("What to do");
        if explained.advice.is_empty() {
            let mut warnings: Vec<&str> = explained
                .events
                .iter()
                .filter(|reported| reported.warning)
                .map(|reported| reported.reason.as_str())
                .collect();
            warnings.sort_unstable();
            warnings.dedup();
            self.line(&match warnings.as_slice() {
                [] => "  Nothing: the volume is healthy.".to_owned(),
                some => format!(
                    "  The volume is healthy by now. Read the warnings above ({}): they may be over, or be about the pod.",
                    plain(&some.join(", "))
                ),
            });
        }
        for Advice { reason, meaning, next, steps } in &explained.advice {
            self.line(&format!("  {}", plain(reason)));
            for text in meaning.iter().chain([next]) {
                self.line(&format!("    {}", plain(text)));
            }
            for (number, step) in (1..).zip(steps) {
                self.line(&format!("    {number}. {}", plain(step)));
            }
        }
        let claim = &explained.claim;
        if claim.grade().is_adverse() {
            let command = format!("volmedic heal {} -n {} --dry-run", claim.claim, claim.namespace);
            self.line(&self.paint.faint(&format!("  What healing would do: {}", plain(&command))));
        }
    }
}
