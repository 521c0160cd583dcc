//! One log line per transition. Text or JSON is the program's choice.

use volmedic_health::{Change, Subject, Transition};

const TARGET: &str = "volmedic::transition";

pub(crate) fn tell(transition: &Transition) {
    let Transition { at: _, subject, vantage, change } = transition;
    let handle = match subject {
        Subject::Volume(volume) => Some(&*volume.handle),
        Subject::Backend(_) => None,
    };
    let condition = match change {
        Change::Appeared { condition, .. }
        | Change::Reworded { condition, .. }
        | Change::Reminder { condition, .. }
        | Change::Cleared { condition, .. }
        | Change::Changed { to: condition, .. } => Some(condition),
        Change::Flapping { now, .. } => now.worst(),
        Change::Settled { .. } | Change::WentBlind { .. } | Change::SeesAgain { .. } => None,
    };
    let status = condition.map(|condition| condition.status.to_string());
    let reason = condition.map(|condition| condition.reason.as_str());
    let vantage = vantage.name();
    let driver: &str = subject.driver();
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(target: TARGET, driver, handle, vantage, kind = change.kind(), status, reason, "{transition}")
        };
    }
    if change.is_warning() { line!(warn) } else { line!(info) }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::io;
    use std::sync::Arc;

    use volmedic_health::{Condition, Ending, Reason, Status, Vantage};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn reported(change: Change) -> serde_json::Value {
        let paper = Paper::default();
        let writer = paper.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        let transition = Transition {
            at: "2026-08-21T10:14:30Z".parse().unwrap(),
            subject: Subject::volume("disk.example.net", "vol-1"),
            vantage: Vantage::Node("worker-7".into()),
            change,
        };
        tracing::subscriber::with_default(subscriber, || tell(&transition));
        serde_json::from_slice(&paper.0.lock()).unwrap()
    }

    #[test]
    fn one_line_with_fields_for_machines_and_a_sentence_for_people() {
        let since = "2026-08-21T10:02:00Z".parse().unwrap();
        let condition = Condition::new(Status::Degraded, Reason::new("OutOfCapacity"), "99 % used");
        let line = reported(Change::Appeared { condition: condition.clone(), since });
        assert_eq!(line["level"], "WARN");
        let fields = &line["fields"];
        for (name, value) in [
            ("driver", "disk.example.net"),
            ("handle", "vol-1"),
            ("vantage", "node/worker-7"),
            ("kind", "appeared"),
            ("status", "Degraded"),
            ("reason", "OutOfCapacity"),
        ] {
            assert_eq!(fields[name], value, "{name} in {line}");
        }
        assert!(
            fields["message"].as_str().unwrap().contains("is Degraded/OutOfCapacity (99 % used)"),
            "{line}"
        );

        let line = reported(Change::Cleared { condition, since, ending: Ending::Recovered });
        assert_eq!(line["level"], "INFO");
    }
}
