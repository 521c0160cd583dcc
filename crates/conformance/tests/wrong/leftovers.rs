//! What a run made is taken away however the run ends, and what cannot be is named.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use volmedic_conformance::{Error, Harm, Verdict, run};

use crate::fake::{Fake, Wrong};

fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_stopped_run_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(Wrong::Hangs);
    let mut options = fake.serve(directory.path());
    options.deadline = Duration::from_mins(5);
    let watched = fake.clone();
    // By the time the driver hangs in the storage rule, a volume is published.
    let stop = async move {
        while !watched.state().volumes.values().any(|volume| volume.target.is_some()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    options.only = ["volumes-are-published", "storage-health-entries"].map(str::to_owned).to_vec();
    let report = run(options, None, stop).await.unwrap();
    assert!(report.stopped);
    assert_eq!(report.leftovers, Vec::<String>::new());
    assert_eq!(fake.ours(), Vec::<String>::new());
    assert_eq!(names(directory.path()), ["csi.sock"]);
    assert!(report.table().contains("was stopped"));
}

#[tokio::test]
async fn what_stays_is_named() {
    let fake = Fake::new(Wrong::KeepsVolumes);
    let report = fake.judge().await;
    let left = report.leftovers.join("\n");
    for id in fake.ours() {
        assert!(left.contains(&id), "{id} is not named in\n{left}");
    }
    assert!(left.contains("dear to us") && report.table().contains("Left behind: volume ours-1"), "{left}");
}

#[tokio::test]
async fn one_rule_can_be_judged_alone() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(Wrong::Nothing);
    let mut options = fake.serve(directory.path());
    options.only = vec!["plugin-name".to_owned()];
    let report = run(options.clone(), None, std::future::pending()).await.unwrap();
    assert_eq!(report.outcomes.len(), 1);
    assert_eq!(fake.state().made, 0, "that rule needs no volume");
    // What is judged of every answer needs every question.
    options.only = vec!["errors-have-a-message".to_owned()];
    let harm: Arc<dyn Harm> = Arc::new(fake.clone());
    let report = run(options.clone(), Some(harm), std::future::pending()).await.unwrap();
    assert_eq!(report.count(Verdict::Pass), 1, "{}", report.table());
    assert_eq!(report.outcomes.len(), 1);
    options.only = vec!["no-such-rule".to_owned()];
    let error = run(options, None, std::future::pending()).await.unwrap_err();
    assert!(matches!(error, Error::NoRule { .. }), "{error}");
}

#[tokio::test]
async fn a_driver_that_is_not_there_is_an_error_and_not_a_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let fake = Fake::new(Wrong::Nothing);
    let mut options = fake.serve(directory.path());
    options.socket = directory.path().join("nobody.sock");
    let error = run(options, None, std::future::pending()).await.unwrap_err();
    assert!(error.to_string().contains("nobody.sock: No such file"), "{error}");
}
