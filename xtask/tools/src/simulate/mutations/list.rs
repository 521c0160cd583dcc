//! Defects, each as a piece of text that is right and one that is wrong.

pub(super) struct Mutation {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) right: &'static str,
    pub(super) wrong: &'static str,
}

#[rustfmt::skip]
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "events are ordered by the clock alone",
        file: "crates/report/src/recall/merge.rs",
        right: "self.versions(other).map_or(self.at > other.at, |(mine, theirs)| mine > theirs)",
        wrong: "self.at > other.at",
    },
    Mutation {
        name: "an event whose answer was lost counts twice",
        file: "crates/report/src/events.rs",
        right: "if more == 0 {",
        wrong: "if more < 0 {",
    },
    Mutation {
        name: "a report that failed is dropped",
        file: "crates/report/src/sender/work.rs",
        right: "queue.put_back(parcel, again);",
        wrong: "let _ = again;\n        queue.done(parcel.object());",
    },
    Mutation {
        name: "a report that failed goes behind later ones of its object",
        file: "crates/report/src/sender/queue.rs",
        right: "lane.jobs.push_front(job);",
        wrong: "lane.jobs.push_back(job);",
    },
    Mutation {
        name: "only the first report of an object is sent",
        file: "crates/report/src/sender/queue.rs",
        right: "lane.state = LaneState::Ready;\n            self.ready.push_back(object.clone());",
        wrong: "lane.state = LaneState::Ready;",
    },
    Mutation {
        name: "429 is final",
        file: "crates/report/src/failure.rs",
        right: "401 | 408 | 429 | 500.. =>",
        wrong: "401 | 408 | 500.. =>",
    },
    Mutation {
        name: "403 of an API server that just started is final",
        file: "crates/report/src/sender/work.rs",
        right: "const FORBIDDEN_AFTER: Duration = Duration::from_secs(20);",
        wrong: "const FORBIDDEN_AFTER: Duration = Duration::ZERO;",
    },
    Mutation {
        name: "an end has the name of its beginning",
        file: "crates/report/src/story.rs",
        right: "let ending = if good_news { \"end\" } else { \"trouble\" };",
        wrong: "let ending = if good_news { \"trouble\" } else { \"trouble\" };",
    },
    Mutation {
        name: "the claim's status is not read after a restart",
        file: "crates/report/src/recall.rs",
        right: "if !metadata.managed_fields.iter().any(|field| field.manager == manager) {",
        wrong: "if !manager.is_empty() {",
    },
    Mutation {
        name: "only the first page is read after a restart",
        file: "crates/report/src/recall/pages.rs",
        right: "next = page.metadata.next.filter(|token| !token.is_empty());",
        wrong: "next = page.metadata.next.filter(|_| false);",
    },
    Mutation {
        name: "nothing is recalled after a restart",
        file: "crates/roles/src/controller.rs",
        right: "board.lock_ledger().recall(memo);",
        wrong: "drop(memo);",
    },
    Mutation {
        name: "what was interrupted before its status is not settled",
        file: "crates/roles/src/controller.rs",
        right: "tasks.spawn(recalled::settle(reporter.clone(), board.clone(), recalled.unsettled));",
        wrong: "tasks.spawn(recalled::settle(reporter.clone(), board.clone(), Vec::new()));",
    },
    Mutation {
        name: "the objects that were reported on are forgotten",
        file: "crates/report/src/reporter.rs",
        right: "statuses.prime(stored);",
        wrong: "statuses.prime(&stored[..0]);",
    },
    Mutation {
        name: "a probe that failed heals",
        file: "crates/health/src/ledger/note.rs",
        right: "self.fail(policy, now, why, &mut news);\n            return news;",
        wrong: "self.fail(policy, now, why, &mut news);\n            self.hold(policy, now, now, Conditions::default());\n            self.tell_difference(policy, now, &mut news);\n            return news;", // tidy-ok: code
    },
    Mutation {
        name: "what is recalled counts as not reported",
        file: "crates/health/src/ledger/note.rs",
        right: "self.told = self.held.iter().map(", // tidy-ok: code
        wrong: "self.told = self.held.iter().take(0).map(", // tidy-ok: code
    },
    Mutation {
        name: "being seen again is reported at every probe",
        file: "crates/health/src/ledger/note.rs",
        right: "if let Some(since) = self.blind_since.take() {",
        wrong: "if let Some(since) = self.blind_since {",
    },
    Mutation {
        name: "one absence from a list of the unhealthy is not enough, and two neither",
        file: "crates/health/src/ledger/note.rs",
        right: "self.unlisted = self.unlisted.saturating_add(1);",
        wrong: "self.unlisted = 1;",
    },
    Mutation {
        name: "a list that broke off counts as complete",
        file: "crates/monitor/src/run.rs",
        right: "pipe.list_ended(&end, clock());",
        wrong: "let _ = end;\n                    pipe.list_ended(&ListEnd::Complete, clock());",
    },
    Mutation {
        name: "a leader that cannot renew goes on",
        file: "crates/lease/src/election.rs",
        right: "if self.remaining(now).is_some_and(|left| left.is_zero()) {",
        wrong: "if self.remaining(now).is_some_and(|left| !left.is_zero() && left.is_zero()) {",
    },
    Mutation {
        name: "a lease that is held is taken",
        file: "crates/lease/src/election.rs",
        right: "now.saturating_duration_since(*at) < Duration::from_secs(seconds)",
        wrong: "now.saturating_duration_since(*at) < Duration::from_secs(seconds.min(0))",
    },
    Mutation {
        name: "a status is never written",
        file: "crates/report/src/reporter.rs",
        right: "                && let Some(job) = StatusJob::new(object, notice)\n            {\n                self.sender.push(Errand::status(object, job));",
        wrong: "                && let Some(job) = StatusJob::new(object, notice)\n            {\n                drop(job);",
    },
    Mutation {
        name: "an event is changed without its version as a precondition",
        file: "crates/report/src/events.rs",
        right: "                \"resourceVersion\": old.resource_version(),\n",
        wrong: "",
    },
    Mutation {
        name: "the time of the last occurrence is not stored in an event",
        file: "crates/report/src/events.rs",
        right: "\"annotations\": { ANNOTATION: story.write() },",
        wrong: "\"annotations\": {},",
    },
    Mutation {
        name: "an event that is there counts as sent",
        file: "crates/report/src/events.rs",
        right: "Err(Failure::Exists) => {}",
        wrong: "Err(Failure::Exists) => return Ok(Verdict::Already),",
    },
    Mutation {
        name: "each update of an event counts one too many",
        file: "crates/report/src/events.rs",
        right: "old.count.unwrap_or(0).saturating_add(more)",
        wrong: "old.count.unwrap_or(0).saturating_add(more + 1)",
    },
    Mutation {
        name: "a conflict on an event counts as sent",
        file: "crates/report/src/events.rs",
        right: "Err(Failure::Conflict) => look = true,",
        wrong: "Err(Failure::Conflict) => return Ok(Verdict::Sent),",
    },
    Mutation {
        name: "a Lease is written over whatever version is there",
        file: "crates/lease/src/candidate.rs",
        right: "        let mut lease = self.lease.clone().unwrap_or_default();\n        self.fill",
        wrong: "        let mut lease = self.lease.clone().unwrap_or_default();\n        lease.metadata.resource_version = None;\n        self.fill",
    },
    Mutation {
        name: "who leads reports without asking whether it still leads",
        file: "crates/lease/src/election.rs",
        right: "self.remaining(now).is_some_and(|left| !left.is_zero())",
        wrong: "self.renewed.is_some() || self.remaining(now).is_some()",
    },
    Mutation {
        name: "a Lease's age is taken from the wall clock",
        file: "crates/lease/src/election.rs",
        right: "now.saturating_duration_since(*at) < Duration::from_secs(seconds)\n",
        wrong: "{\n                let _ = (now, at);\n                let age = record.renewed.map_or(0, |then| Timestamp::now().duration_since(then).as_secs());\n                age < i64::try_from(seconds).unwrap_or(0)\n            }\n",
    },
    Mutation {
        name: "one absence from the driver's list is enough",
        file: "crates/health/src/ledger/note.rs",
        right: "if self.missing.count >= policy.missing_after {",
        wrong: "if self.missing.count >= policy.missing_after.min(1) {",
    },
    Mutation {
        name: "one absence from a list of the unhealthy is enough",
        file: "crates/health/src/ledger/note.rs",
        right: "self.unlisted >= policy.unlisted_after {",
        wrong: "self.unlisted >= policy.unlisted_after.min(1) {",
    },
    Mutation {
        name: "one failed probe is reported",
        file: "crates/health/src/ledger/note.rs",
        right: "self.failed.count >= policy.blind_after && self.blind_since.is_none()",
        wrong: "self.failed.count >= policy.blind_after.min(1) && self.blind_since.is_none()",
    },
    Mutation {
        name: "a failed probe is reported each time",
        file: "crates/health/src/ledger/note.rs",
        right: "self.failed.count >= policy.blind_after && self.blind_since.is_none()",
        wrong: "self.failed.count >= policy.blind_after",
    },
    Mutation {
        name: "an end is not reported",
        file: "crates/health/src/ledger/note.rs",
        right: "news.push(Change::Cleared { condition, since, ending: Ending::Recovered });",
        wrong: "let _ = (condition, since);",
    },
    Mutation {
        name: "what was reported is not remembered",
        file: "crates/health/src/ledger/note.rs",
        right: "                self.told.push(told);\n                continue;", // tidy-ok: code
        wrong: "                drop(told);\n                continue;", // tidy-ok: code
    },
    Mutation {
        name: "two changes are flapping",
        file: "crates/health/src/ledger/note.rs",
        right: "None if self.changes.len() > policy.flap_limit as usize => {",
        wrong: "None if self.changes.len() > policy.flap_limit.min(1) as usize => {",
    },
    Mutation {
        name: "a new condition replaces the others",
        file: "crates/health/src/ledger/note.rs",
        right: "        for condition in conditions {\n            let old",
        wrong: "        for condition in conditions.into_iter().take(1) {\n            let old",
    },
    Mutation {
        name: "a failed report whose server is away is dropped",
        file: "crates/report/src/sender/work.rs",
        right: "                    self.away = true;\n                    (None, why, false)",
        wrong: "                    let _ = why;\n                    self.away = true;\n                    return self.done(queue, &parcel, Verdict::GaveUp);",
    },
    Mutation {
        name: "what is stored is written again and again",
        file: "crates/report/src/status.rs",
        right: "        if stored == conditions {\n            return None;\n        }",
        wrong: "        if stored == conditions && conditions.is_empty() {\n            return None;\n        }",
    },
    Mutation {
        name: "after a restart an event that says that it is over is ignored",
        file: "crates/report/src/recall/merge.rs",
        right: "reported.story.state == Open::Closed\n",
        wrong: "reported.story.state == Open::Open && reported.story.state == Open::Closed\n",
    },
    Mutation {
        name: "after a restart an event that says that it is there is ignored",
        file: "crates/report/src/recall/merge.rs",
        right: "if story.state == Open::Open && !has_turned(reported) {",
        wrong: "if story.state == Open::Open && has_turned(reported) {",
    },
    Mutation {
        name: "what was stored in VolumeHealths is not read after a restart",
        file: "crates/report/src/recall.rs",
        right: "evidence.reported(volume, reported);",
        wrong: "drop((volume, reported));",
    },
    Mutation {
        name: "a place in a list that expired ends the list",
        file: "crates/report/src/recall/pages.rs",
        right: "Err(Failure::Gone) if params.continue_token.is_some() && self.restarts < RESTARTS => {\n                    self.restarts += 1;\n                    self.state = State::At(None);",
        wrong: "Err(Failure::Gone) if params.continue_token.is_some() && self.restarts < RESTARTS => {\n                    self.restarts += 1;\n                    self.state = State::Over;",
    },
    Mutation {
        name: "an answer is applied after one of a probe that began later",
        file: "crates/monitor/src/order.rs",
        right: "(1..u32::MAX / 2).contains(&other.0.wrapping_sub(self.0))",
        wrong: "(1..u32::MAX / 2).contains(&other.0.wrapping_sub(self.0)) && other.0 == self.0",
    },
];
