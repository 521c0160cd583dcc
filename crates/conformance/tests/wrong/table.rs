//! Which rules are broken by which wrong.

use std::collections::BTreeSet;

use volmedic_conformance::{Verdict, rules};

use crate::fake::Fake;
use crate::fake::List::{Health, Volumes};
use crate::fake::Wrong::{self, *};

const ADVERSE: &str = "adverse-is-told";
const RECOVERY: &str = "recovery-is-told";

/// A wrong, and exactly the rules it breaks.
const TABLE: &[(Wrong, &[&str])] = &[
    (Name, &["plugin-name"]),
    (NoVersion, &["plugin-name"]),
    (ControllerCapability, &["controller-capabilities-known"]),
    (ControllerCapabilityTwice, &["controller-capabilities-known"]),
    (NodeCapability, &["node-capabilities-known"]),
    (ListHealthAlone, &["list-health-implies-get-health"]),
    (ConditionAlone, &["condition-has-a-carrier"]),
    (StorageUnimplemented, &["offered-calls-are-served", "storage-health-entries"]),
    (AnotherVolumeEachTime, &["volumes-are-made"]),
    (SameIdForAll, &["volumes-are-made"]),
    (DeleteTwice, &["delete-is-idempotent"]),
    (PublishTwice, &["volumes-are-published"]),
    (GetHealthAdverse, &["get-health-of-a-healthy-volume", RECOVERY]),
    (GetHealthAbsent, &["get-health-of-a-healthy-volume", "get-health-echoes-the-id", ADVERSE]),
    (GetHealthOther, &["get-health-echoes-the-id"]),
    (GetHealthUnknown, &["get-health-unknown-volume"]),
    (GetHealthDeleted, &["get-health-deleted-volume"]),
    (GetHealthNoId, &["get-health-needs-an-id"]),
    (ListHealthNoId, &["list-health-names-volumes"]),
    (ListHealthHealthy, &["list-health-omits-the-healthy", RECOVERY]),
    (GetVolumeOther, &["get-volume-echoes-the-id"]),
    (GetVolumeUnknown, &["get-volume-unknown-volume"]),
    (GetVolumeDeleted, &["get-volume-deleted-volume"]),
    (GetVolumeNoId, &["get-volume-needs-an-id"]),
    (GetVolumeNoCondition, &["get-volume-condition", ADVERSE]),
    (ListVolumesNoCondition, &["list-volumes-condition"]),
    (ListVolumesOmits, &["list-volumes-holds-what-exists"]),
    (ListVolumesDeleted, &["list-volumes-holds-what-exists"]),
    (PublishedNodes, &["published-node-ids"]),
    (PublishedNodesForever, &["published-node-ids"]),
    (ListPublishedNodes, &["published-node-ids"]),
    (MaxEntries(Volumes), &["list-volumes-max-entries"]),
    (Token(Volumes), &["list-volumes-tokens-progress", "list-volumes-pages-are-whole"]),
    (Skips(Volumes), &["list-volumes-pages-are-whole"]),
    (Doubles(Volumes), &["list-volumes-no-duplicates"]),
    (BadToken(Volumes), &["list-volumes-bad-token"]),
    (Negative(Volumes), &["list-volumes-negative-max"]),
    (MaxEntries(Health), &["list-health-max-entries"]),
    (Token(Health), &["list-health-tokens-progress", "list-health-pages-are-whole", ADVERSE]),
    (Skips(Health), &["list-health-pages-are-whole"]),
    (Doubles(Health), &["list-health-no-duplicates"]),
    (BadToken(Health), &["list-health-bad-token"]),
    (Negative(Health), &["list-health-negative-max"]),
    (NodeHealthNeedsMount, &["node-health-before-mounting"]),
    (NodeHealthAdverse, &["node-health-of-a-healthy-volume", RECOVERY]),
    (NodeHealthOther, &["node-health-echoes-the-id"]),
    (NodeHealthUnknown, &["node-health-unknown-volume"]),
    (NodeHealthNoId, &["node-health-needs-an-id"]),
    (NegativeUsage, &["stats-usage"]),
    (MoreThanWhole, &["stats-usage"]),
    (UnknownUnit, &["stats-usage"]),
    (UnitTwice, &["stats-usage"]),
    (NoUsage, &["stats-usage"]),
    (StatsNoCondition, &["stats-condition", ADVERSE]),
    (StatsNeedsStaging, &["stats-staging-path-is-optional"]),
    (StatsNoId, &["stats-needs-an-id"]),
    (StatsNoPath, &["stats-needs-a-path"]),
    (StatsUnknown, &["stats-unknown-volume"]),
    (StatsWrongPath, &["stats-at-the-wrong-path"]),
    (StorageStatus, &["storage-health-entries"]),
    (StorageMany, &["storage-health-entries"]),
    (StorageTwice, &["storage-health-entries"]),
    (StorageMode, &["storage-health-entries"]),
    (HarmUntold, &[ADVERSE]),
    (HarmForever, &[RECOVERY]),
    (Status, &["health-status-is-known"]),
    (Reason, &["health-reason-is-camel-case"]),
    (NoReason, &["health-reason-is-camel-case"]),
    (Message, &["health-message-fits"]),
    (EntryTwice, &["health-entries-are-unique"]),
    (ConditionMessage, &["condition-has-a-message"]),
    (LongNodeId, &["strings-are-short"]),
    (MuteErrors, &["errors-have-a-message"]),
    (Details, &["errors-have-no-details"]),
    (Secrets, &["secrets-stay-secret"]),
    (Hangs, &["calls-are-answered-in-time", "storage-health-entries"]),
];

#[tokio::test]
async fn a_driver_that_does_everything_right_passes_every_rule() {
    for wrong in [Nothing, ListsTheHealthyToo] {
        let fake = Fake::new(wrong);
        let report = fake.judge().await;
        assert_eq!(report.count(Verdict::Pass), rules().count(), "{wrong:?}\n{}", report.table());
        assert_eq!(report.leftovers, Vec::<String>::new());
        assert_eq!(fake.ours(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn each_wrong_breaks_its_rules_and_no_others() {
    let mut surprises = Vec::new();
    for (wrong, expected) in TABLE {
        let report = Fake::new(*wrong).judge().await;
        let broken: BTreeSet<&str> = report
            .outcomes
            .iter()
            .filter(|outcome| outcome.verdict == Verdict::Fail)
            .map(|outcome| outcome.rule)
            .collect();
        if broken != expected.iter().copied().collect() {
            surprises
                .push(format!("{wrong:?}: expected {expected:?}, broken {broken:?}\n{}", report.table()));
        }
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n\n"));
}

#[tokio::test]
async fn an_answer_that_changes_while_nothing_does_is_noticed() {
    let report = Fake::new(GetHealthChanges).judge().await;
    let outcome = report.outcomes.iter().find(|outcome| outcome.rule == "get-health-repeats-itself").unwrap();
    assert_eq!(outcome.verdict, Verdict::Fail, "{}", report.table());
}

#[test]
fn there_is_a_wrong_for_every_rule() {
    let mut covered: BTreeSet<&str> = TABLE.iter().flat_map(|(_, rules)| rules.iter().copied()).collect();
    covered.insert("get-health-repeats-itself");
    let all: BTreeSet<&str> = rules().map(|(name, _)| name).collect();
    assert_eq!(covered, all);
}
