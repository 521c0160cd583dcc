//! The rules: what is demanded, and how it is found out.

pub(crate) mod adverse;
mod capabilities;
mod condition;
mod health;
mod node;
mod paging;
mod volumes;

use std::pin::Pin;

use tonic::Code;

use crate::bench::Bench;
use crate::call::Answer;
use crate::listing::Listing::{Health, Volumes};
use crate::offers::Offers;
use crate::report::{Judged, Not, broken};
use crate::seen::{Seen, Tally};
use crate::text::{code, said};

type Ask = for<'a> fn(&'a mut Bench) -> Pin<Box<dyn Future<Output = Judged> + 'a>>;

/// How a rule is judged.
pub(crate) enum How {
    /// From what the driver says it can do.
    Said(fn(&Offers) -> Judged),
    /// By asking.
    Asked(Ask),
    /// From every answer of the run, and what each answer was checked for.
    Tallied(fn(&Seen) -> &Tally, &'static str),
}

pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) demands: &'static str,
    pub(crate) how: How,
}

/// The names of all rules with what each demands.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.name, rule.demands))
}

macro_rules! rules {
    ($($name:literal $how:ident($($what:expr),+): $demands:literal;)*) => {
        &[$(Rule { name: $name, demands: $demands, how: rules!(@$how $($what),+) },)*]
    };
    (@said $of:expr) => { How::Said($of) };
    (@ask $first:expr) => { How::Asked(|bench| Box::pin($first(bench))) };
    (@ask $first:expr, $($more:expr),+) => { How::Asked(|bench| Box::pin($first(bench, $($more),+))) };
    (@every $of:expr, $what:literal) => { How::Tallied($of, $what) };
}

/// In the order in which they run; what is judged of every answer comes last.
pub(crate) const RULES: &[Rule] = rules! {
    "plugin-name" ask(capabilities::plugin_name):
        "GetPluginInfo gives a name of at most 63 characters in domain notation, and a version.";
    "controller-capabilities-known" said(capabilities::controller):
        "Every capability of the controller names a call with a number that CSI defines, and none comes twice.";
    "node-capabilities-known" said(capabilities::node):
        "Every capability of the node names a call with a number that CSI defines, and none comes twice.";
    "list-health-implies-get-health" said(capabilities::list_implies_get):
        "A controller with LIST_VOLUME_HEALTH has GET_VOLUME_HEALTH too.";
    "condition-has-a-carrier" said(capabilities::carrier):
        "A controller with VOLUME_CONDITION has LIST_VOLUMES or GET_VOLUME, whose answers carry the condition.";
    "offered-calls-are-served" ask(capabilities::served):
        "No call about health that a capability offers is answered with UNIMPLEMENTED.";
    "volumes-are-made" ask(volumes::made):
        "CreateVolume makes volumes with different ids, and called again gives the same one.";
    "delete-is-idempotent" ask(volumes::deleted):
        "DeleteVolume of a volume that is deleted already succeeds.";
    "volumes-are-published" ask(volumes::published):
        "A volume can be staged and published on this node, and doing so again succeeds.";

    "get-health-of-a-healthy-volume" ask(health::healthy):
        "ControllerGetVolumeHealth of a healthy volume answers with an empty list.";
    "get-health-echoes-the-id" ask(health::echoes):
        "ControllerGetVolumeHealth names the volume that was asked for.";
    "get-health-unknown-volume" ask(health::unknown):
        "ControllerGetVolumeHealth of an id that never existed answers NOT_FOUND.";
    "get-health-deleted-volume" ask(health::deleted):
        "ControllerGetVolumeHealth of a deleted volume answers NOT_FOUND.";
    "get-health-needs-an-id" ask(health::no_id):
        "ControllerGetVolumeHealth without volume_id answers INVALID_ARGUMENT.";
    "get-health-repeats-itself" ask(health::repeats):
        "Asked again while nothing changed, ControllerGetVolumeHealth answers the same.";
    "list-health-names-volumes" ask(health::list_ids):
        "Every entry of ControllerListVolumeHealth names a volume.";
    "list-health-omits-the-healthy" ask(health::list_healthy):
        "ControllerListVolumeHealth leaves healthy volumes out, or reports them with an empty list.";

    "get-volume-echoes-the-id" ask(condition::get_echoes):
        "ControllerGetVolume answers with the volume that was asked for.";
    "get-volume-unknown-volume" ask(condition::get_unknown):
        "ControllerGetVolume of an id that never existed answers NOT_FOUND.";
    "get-volume-deleted-volume" ask(condition::get_deleted):
        "ControllerGetVolume of a vanished volume answers NOT_FOUND.";
    "get-volume-needs-an-id" ask(condition::get_no_id):
        "ControllerGetVolume without volume_id answers INVALID_ARGUMENT.";
    "get-volume-condition" ask(condition::get_condition):
        "With VOLUME_CONDITION, ControllerGetVolume reports the condition, and that of a healthy volume is normal.";
    "list-volumes-condition" ask(condition::list_condition):
        "With VOLUME_CONDITION, every entry of ListVolumes has a condition, and that of a healthy volume is normal.";
    "list-volumes-holds-what-exists" ask(condition::list_holds):
        "ListVolumes has every volume that exists, and none that was deleted.";
    "published-node-ids" ask(condition::published_nodes):
        "ControllerGetVolume, and ListVolumes with LIST_VOLUMES_PUBLISHED_NODES, report the nodes that a volume is published to, and only while it is.";

    "list-volumes-max-entries" ask(paging::max_entries, Volumes):
        "ListVolumes answers with no more than max_entries entries.";
    "list-volumes-tokens-progress" ask(paging::progress, Volumes):
        "Walking ListVolumes page by page comes to an end, and no token comes twice.";
    "list-volumes-pages-are-whole" ask(paging::whole, Volumes):
        "The pages of ListVolumes together are the whole list.";
    "list-volumes-no-duplicates" ask(paging::duplicates, Volumes):
        "No volume comes twice in one walk of ListVolumes.";
    "list-volumes-bad-token" ask(paging::bad_token, Volumes):
        "ListVolumes answers a token that it never gave with ABORTED.";
    "list-volumes-negative-max" ask(paging::negative, Volumes):
        "ListVolumes refuses a negative max_entries with INVALID_ARGUMENT.";
    "list-health-max-entries" ask(paging::max_entries, Health):
        "ControllerListVolumeHealth answers with no more than max_entries entries.";
    "list-health-tokens-progress" ask(paging::progress, Health):
        "Walking ControllerListVolumeHealth page by page comes to an end, and no token comes twice.";
    "list-health-pages-are-whole" ask(paging::whole, Health):
        "The pages of ControllerListVolumeHealth together are the whole list.";
    "list-health-no-duplicates" ask(paging::duplicates, Health):
        "No volume comes twice in one walk of ControllerListVolumeHealth.";
    "list-health-bad-token" ask(paging::bad_token, Health):
        "ControllerListVolumeHealth answers a token that it never gave with ABORTED.";
    "list-health-negative-max" ask(paging::negative, Health):
        "ControllerListVolumeHealth refuses a negative max_entries with INVALID_ARGUMENT.";

    "node-health-before-mounting" ask(node::before_mount):
        "NodeGetVolumeHealth can be asked without paths about a volume that is not mounted yet.";
    "node-health-of-a-healthy-volume" ask(node::healthy):
        "NodeGetVolumeHealth of a healthy, published volume answers with an empty list.";
    "node-health-echoes-the-id" ask(node::echoes):
        "NodeGetVolumeHealth names the volume that was asked for.";
    "node-health-unknown-volume" ask(node::unknown):
        "NodeGetVolumeHealth of an id that never existed answers NOT_FOUND.";
    "node-health-needs-an-id" ask(node::no_id):
        "NodeGetVolumeHealth without volume_id answers INVALID_ARGUMENT.";
    "stats-usage" ask(node::usage):
        "NodeGetVolumeStats reports usage in BYTES or INODES, each unit once, never negative, never more than the whole.";
    "stats-condition" ask(node::condition):
        "With VOLUME_CONDITION, NodeGetVolumeStats reports the condition, and that of a healthy volume is normal.";
    "stats-staging-path-is-optional" ask(node::staging_optional):
        "NodeGetVolumeStats answers with and without staging_target_path.";
    "stats-needs-an-id" ask(node::stats_no_id):
        "NodeGetVolumeStats without volume_id answers INVALID_ARGUMENT.";
    "stats-needs-a-path" ask(node::stats_no_path):
        "NodeGetVolumeStats without volume_path answers INVALID_ARGUMENT.";
    "stats-unknown-volume" ask(node::stats_unknown):
        "NodeGetVolumeStats of an id that never existed answers NOT_FOUND.";
    "stats-at-the-wrong-path" ask(node::stats_wrong_path):
        "NodeGetVolumeStats at a path where the volume is not answers NOT_FOUND.";
    "storage-health-entries" ask(node::storage):
        "NodeGetStorageHealth has at most 16 entries, with a known status and access mode, none of them twice.";

    "adverse-is-told" ask(adverse::reported):
        "While a volume is hurt, every call about its health that the driver offers says so.";
    "recovery-is-told" ask(adverse::recovered):
        "When the injury is over, no call about its health reports it any more.";

    "health-status-is-known" every(|seen| &seen.statuses, "health entries"):
        "The status of a health entry is DEGRADED, INACCESSIBLE or DATA_LOSS.";
    "health-reason-is-camel-case" every(|seen| &seen.reasons, "health entries"):
        "The reason of a health entry is CamelCase, not empty, and at most 256 bytes long.";
    "health-message-fits" every(|seen| &seen.messages, "health entries"):
        "The message of a health entry has at most the 1024 bytes that Kubernetes keeps.";
    "health-entries-are-unique" every(|seen| &seen.unique, "health entries"):
        "Status and reason together come once per volume.";
    "condition-has-a-message" every(|seen| &seen.condition_messages, "volume conditions"):
        "A volume condition has a message, also when it is normal.";
    "strings-are-short" every(|seen| &seen.strings, "strings"):
        "Ids, names and tokens have at most 128 bytes, node ids 256.";
    "errors-have-a-message" every(|seen| &seen.sentences, "refused calls"):
        "A refused call comes with a message for people.";
    "errors-have-no-details" every(|seen| &seen.details, "refused calls"):
        "The details of a status stay empty.";
    "secrets-stay-secret" every(|seen| &seen.secrets, "answers"):
        "No answer and no error repeats a secret of the request.";
    "calls-are-answered-in-time" every(|seen| &seen.deadlines, "calls"):
        "Every call is answered before its deadline.";
};

/// An id that no driver has given out.
pub(crate) const NOBODY: &str = "volmedic-conformance-never-existed";

/// The call must have succeeded.
pub(crate) fn answered<T>(call: &str, answer: Answer<T>) -> Result<T, Not> {
    answer.or_else(|status| broken(format!("{call} answered {}", said(&status))))
}

/// The call must have been refused with this code.
pub(crate) fn refused<T>(call: &str, answer: Answer<T>, wanted: Code) -> Judged {
    match answer {
        Err(status) if status.code() == wanted => Ok(format!("{call} answered {}", said(&status))),
        Err(status) => broken(format!("{call} answered {}, not {}", said(&status), code(wanted))),
        Ok(_) => broken(format!("{call} answered OK, not {}", code(wanted))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_a_sentence() {
        let mut names = HashSet::new();
        for rule in RULES {
            assert!(names.insert(rule.name), "{} comes twice", rule.name);
            assert!(rule.demands.ends_with('.'), "{}", rule.name);
        }
    }

    #[test]
    fn what_is_judged_of_every_answer_comes_after_all_that_ask() {
        let is_tallied = |rule: &Rule| matches!(rule.how, How::Tallied(..));
        assert!(RULES.is_sorted_by_key(is_tallied));
    }
}
