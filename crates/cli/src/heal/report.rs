//! What would have been done where healing only observes or waits for consent, and how long the problem lasted without it: from
//! what the hub stored in the VolumeHealths.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use anyhow::anyhow;
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;
use volmedic_api::Arrived;
use volmedic_api::resource::{HealOutcome, HealthWord, PastHeadline, VolumeHealthStatus};
use volmedic_hub::StoredHealth;
use volmedic_view::render::{Inline, Markdown};
use volmedic_view::text::{Age, plain};

use crate::look::each;
use crate::output;

/// What kept the healer from acting, as the healer stores it.
const SPARED: [&str; 2] = ["observe", "awaiting_approval"];

/// Something that would have been done.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    namespace: String,
    claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    remedy: String,
    /// When all other guards allowed it.
    time: Timestamp,
    /// `observe` or `awaiting_approval`.
    why_not: String,
    /// The reason of the claim's headline then.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// As the history of the claim's headline has it; absent if it does not reach back so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    unhealthy_since: Option<Timestamp>,
    /// Absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    unhealthy_until: Option<Timestamp>,
    /// From `time` to the end of the problem, or until now.
    lasted_seconds: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shadow {
    from: Timestamp,
    to: Timestamp,
    rows: Vec<Row>,
    /// Objects that could not be read.
    malformed: usize,
}

/// Of which claims, and since when.
pub(super) struct Scope {
    pub(super) client: Client,
    /// `None` for all.
    pub(super) namespace: Option<String>,
    pub(super) claim: Option<String>,
    pub(super) since: Duration,
    /// Of one request.
    pub(super) deadline: Duration,
}

impl Scope {
    pub(super) async fn report(&self, now: Timestamp) -> anyhow::Result<Shadow> {
        let api: Api<Arrived<StoredHealth>> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let back = SignedDuration::try_from(self.since).unwrap_or(SignedDuration::MAX);
        let from = now.saturating_sub(back).unwrap_or(Timestamp::MIN);
        let mut params = ListParams::default();
        if let Some(claim) = &self.claim {
            params = params.fields(&format!("metadata.name={claim}"));
        }
        let mut rows = Vec::new();
        let take = |object: &Arrived<StoredHealth>, body: &StoredHealth| {
            if let Some(status) = &body.status {
                rows.extend(of(object.namespace(), object.name(), status, from, now));
            }
        };
        let malformed = each(&api, params, self.deadline, take).await.map_err(|why| {
            anyhow!("the VolumeHealths cannot be read: {why}; they are written by volmedic hub")
        })?;
        rows.sort_by(|a, b| (b.time, &a.namespace, &a.claim).cmp(&(a.time, &b.namespace, &b.claim)));
        // A list that began again passes some objects twice.
        rows.dedup();
        Ok(Shadow { from, to: now, rows, malformed })
    }
}

/// What would have been done for one claim.
fn of<'a>(
    namespace: &'a str,
    claim: &'a str,
    status: &'a VolumeHealthStatus,
    from: Timestamp,
    now: Timestamp,
) -> impl Iterator<Item = Row> + 'a {
    let spared = status.heals.iter().filter(move |heal| {
        heal.outcome == HealOutcome::Skipped && SPARED.contains(&&*heal.code) && heal.time.0 >= from
    });
    spared.map(move |heal| {
        let time = heal.time.0;
        let Episode { reason, since, until } = episode(&status.history, time);
        Row {
            namespace: namespace.to_owned(),
            claim: claim.to_owned(),
            node: heal.node.clone(),
            remedy: heal.remedy.clone(),
            time,
            why_not: heal.code.clone(),
            reason,
            unhealthy_since: since,
            unhealthy_until: until,
            lasted_seconds: until.unwrap_or(now).duration_since(time).as_secs().max(0),
        }
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Episode {
    reason: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

/// The problem that there was at this time. That the health was unknown for a while does not end a problem.
fn episode(history: &[PastHeadline], at: Timestamp) -> Episode {
    let mut episode = Episode::default();
    // Newest first.
    for past in history.iter().rev() {
        let time = past.time.0;
        match past.health {
            HealthWord::Healthy if time <= at => episode = Episode::default(),
            HealthWord::Healthy => return Episode { until: Some(time), ..episode },
            HealthWord::HealthUnknown => {}
            HealthWord::HealthWarning | HealthWord::HealthFailure => {
                if time <= at {
                    episode.since.get_or_insert(time);
                    episode.reason.clone_from(&past.reason);
                } else if episode.reason.is_none() {
                    episode.reason.clone_from(&past.reason);
                }
            }
        }
    }
    episode
}

const COLUMNS: [&str; 7] =
    ["CLAIM", "NODE", "REMEDY", "REASON", "WHY NOT", "WOULD HAVE BEGUN", "LASTED WITHOUT IT"];

fn cells(row: &Row) -> [String; 7] {
    let lasts = if row.unhealthy_until.is_none() { ", not over" } else { "" };
    let lasted = Age(SignedDuration::from_secs(row.lasted_seconds));
    [
        plain(&format!("{}/{}", row.namespace, row.claim)).into_owned(),
        plain(row.node.as_deref().unwrap_or("-")).into_owned(),
        plain(&row.remedy).into_owned(),
        plain(row.reason.as_deref().unwrap_or("-")).into_owned(),
        plain(&row.why_not.replace('_', " ")).into_owned(),
        format!("{:.0}", row.time),
        format!("{lasted}{lasts}"),
    ]
}

impl Shadow {
    fn title(&self) -> String {
        format!("What healing would have done from {:.0} to {:.0}, had it been allowed", self.from, self.to)
    }

    /// One sentence about all.
    fn sum(&self) -> String {
        let open = self.rows.iter().filter(|row| row.unhealthy_until.is_none()).count();
        let all = self.rows.len();
        let unread = match self.malformed {
            0 => String::new(),
            some => format!(" {some} VolumeHealths could not be read."),
        };
        format!("{all} in all, of which {open} are not over.{unread}")
    }

    pub(super) fn table(&self) -> String {
        let rows: Vec<[String; 7]> = self.rows.iter().map(cells).collect();
        let mut text = format!("{}\n", self.title());
        if !rows.is_empty() {
            let width = |column: usize| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.chain([COLUMNS[column].len()]).max().unwrap_or_default()
            };
            let widths: [usize; 7] = std::array::from_fn(width);
            for row in std::iter::once(&COLUMNS.map(str::to_owned)).chain(&rows) {
                let line: Vec<String> =
                    row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
                // Writing into a string does not fail.
                let _ = writeln!(text, "{}", line.join("  ").trim_end());
            }
        }
        text + &self.sum() + "\n"
    }

    pub(super) fn markdown(&self) -> String {
        let mut document = Markdown::default();
        document.heading(2, &Inline::prose(&self.title()));
        if !self.rows.is_empty() {
            let header =
                ["Claim", "Node", "Remedy", "Reason", "Why not", "Would have begun", "Lasted without it"];
            let row = |row: &Row| cells(row).each_ref().map(|cell| Inline::code(cell));
            document.table(header, self.rows.iter().map(row));
        }
        document.paragraph(&Inline::prose(&self.sum()));
        document.finish()
    }

    /// The names of the claims, each once.
    pub(super) fn names(&self) -> String {
        let claims: BTreeSet<&str> = self.rows.iter().map(|row| row.claim.as_str()).collect();
        claims.into_iter().map(output::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(history: &[(&str, &str)], heals: &[(&str, &str, &str)]) -> VolumeHealthStatus {
        let past = |(time, health): &(&str, &str)| {
            let mut past = json!({"time": time, "health": health});
            if health.starts_with("HealthF") {
                past["status"] = json!("Inaccessible");
                past["reason"] = json!("StaleHandle");
            }
            past
        };
        let heal = |(time, outcome, code): &(&str, &str, &str)| json!({"time": time, "outcome": outcome, "remedy": "RecreatePods", "node": "n|1", "code": code});
        let history: Vec<_> = history.iter().map(past).collect();
        let heals: Vec<_> = heals.iter().map(heal).collect();
        serde_json::from_value(json!({"headline": {"health": "Healthy"}, "history": history, "heals": heals}))
            .unwrap()
    }

    fn at(minute: u32) -> String {
        format!("2026-11-16T12:{minute:02}:00Z")
    }

    #[track_caller]
    fn check(history: &[(u32, &str)], minute: u32, expected: (Option<u32>, Option<u32>)) {
        let times: Vec<String> = history.iter().map(|(minute, _)| at(*minute)).collect();
        let history: Vec<(&str, &str)> =
            times.iter().zip(history).map(|(time, (_, health))| (&**time, *health)).collect();
        let Episode { since, until, .. } =
            episode(&status(&history, &[]).history, at(minute).parse().unwrap());
        let parsed = |minute: Option<u32>| minute.map(|minute| at(minute).parse::<Timestamp>().unwrap());
        assert_eq!((since, until), (parsed(expected.0), parsed(expected.1)));
    }

    #[test]
    fn a_problem_lasts_from_its_first_bad_headline_to_the_next_healthy_one() {
        let (good, bad, dark) = ("Healthy", "HealthFailure", "HealthUnknown");
        check(&[(9, good), (2, bad), (1, good)], 3, (Some(2), Some(9)));
        check(&[(2, bad), (1, good)], 3, (Some(2), None));
        check(&[(9, good), (7, bad), (5, dark), (2, bad), (1, good)], 3, (Some(2), Some(9)));
        check(&[(9, good), (8, bad), (6, good), (2, bad), (0, good)], 3, (Some(2), Some(6)));
        check(&[(9, good)], 3, (None, Some(9)));
        check(&[], 3, (None, None));
    }

    #[test]
    fn the_report_reads_the_same_in_each_format() {
        let (t1, t2, t5, t9) = (at(1), at(2), at(5), at(9));
        let status = status(
            &[(&*t9, "Healthy"), (&*t1, "HealthFailure")],
            &[(&*t2, "Skipped", "observe"), (&*t5, "Skipped", "brake"), (&*t1, "Failed", "lost")],
        );
        let (from, to) = ("2026-11-16T00:00:00Z".parse().unwrap(), "2026-11-16T13:00:00Z".parse().unwrap());
        let rows: Vec<Row> = of("shop", "data", &status, from, to).collect();
        assert_eq!(rows.len(), 1, "{rows:?}");
        let late = of("shop", "data", &status, t5.parse().unwrap(), to);
        assert_eq!(late.count(), 0, "older than was asked for");
        let shadow = Shadow { from, to, rows, malformed: 0 };
        assert_eq!(
            shadow.table(),
            "What healing would have done from 2026-11-16T00:00:00Z to 2026-11-16T13:00:00Z, had it been allowed\n\
             CLAIM      NODE  REMEDY        REASON       WHY NOT  WOULD HAVE BEGUN      LASTED WITHOUT IT\n\
             shop/data  n|1   RecreatePods  StaleHandle  observe  2026-11-16T12:02:00Z  7 min\n\
             1 in all, of which 0 are not over.\n"
        );
        let markdown = shadow.markdown();
        assert!(
            markdown.contains("| `shop/data` | `n\\u{7c}1` | `RecreatePods` | `StaleHandle` | `observe` |"),
            "{markdown}"
        );
        assert_eq!(markdown.matches("---|").count(), 7);
        let json = serde_json::to_value(&shadow).unwrap();
        assert_eq!(json["rows"][0]["lastedSeconds"], 420);
        assert_eq!(json["rows"][0]["unhealthyUntil"], "2026-11-16T12:09:00Z");
    }
}
