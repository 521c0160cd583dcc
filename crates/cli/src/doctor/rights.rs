//! Who may do what: the rights that each role needs, and those that the person who asks has.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::parts::Role;
use crate::look::innermost;

/// Group, resource and verbs; the resource may have a part of its own behind a slash.
pub(super) type Right = (&'static str, &'static str, &'static [&'static str]);

const READ: &[&str] = &["list", "watch"];

/// What `status`, `explain` and this command read.
pub(super) const OWN: &[Right] = &[
    ("", "persistentvolumeclaims", READ),
    ("", "persistentvolumes", READ),
    ("", "pods", READ),
    ("", "nodes", READ),
    ("", "events", &["list"]),
    ("storage.k8s.io", "csinodes", READ),
    ("storage.k8s.io", "csidrivers", &["list"]),
    ("storage.k8s.io", "volumeattachments", READ),
    ("coordination.k8s.io", "leases", READ),
    ("volmedic.dev", "volumehealths", READ),
    ("volmedic.dev", "nodevolumehealths", READ),
];

/// What a role cannot do without, in the whole cluster. As in deploy/chart/files/rbac-*.yaml, without what only some flags
/// need.
pub(super) fn needed(role: Role) -> &'static [Right] {
    match role {
        Role::Hub => &[
            ("", "persistentvolumeclaims", READ),
            ("", "persistentvolumes", READ),
            ("", "pods", READ),
            ("", "nodes", READ),
            ("storage.k8s.io", "csinodes", READ),
            ("storage.k8s.io", "volumeattachments", READ),
            ("volmedic.dev", "nodevolumehealths", &["list", "watch", "delete"]),
            ("volmedic.dev", "volumehealths", &["list", "watch", "create", "delete"]),
            ("volmedic.dev", "volumehealths/status", &["patch"]),
            ("coordination.k8s.io", "leases", &["get", "list"]),
        ],
        Role::Agent => &[
            ("", "pods", READ),
            ("", "persistentvolumes", &["get"]),
            ("", "events", &["create", "patch"]),
            ("volmedic.dev", "nodevolumehealths", &["get", "create", "patch"]),
        ],
        Role::Controller => &[
            ("", "persistentvolumes", READ),
            ("", "persistentvolumeclaims", &["list"]),
            ("", "persistentvolumeclaims/status", &["patch"]),
            ("", "events", &["create", "get", "list", "patch"]),
        ],
    }
}

/// The same in the role's own namespace.
pub(super) fn needed_at_home(role: Role) -> &'static [Right] {
    match role {
        Role::Hub => {
            &[("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "update", "delete"])]
        }
        Role::Agent => &[("coordination.k8s.io", "leases", &["get", "create", "update"])],
        Role::Controller => &[],
    }
}

/// What somebody may not do, as in `leases.coordination.k8s.io (list, watch)`. An error where that cannot be found out.
pub(super) async fn missing(
    client: &Client,
    who: Option<&str>,
    namespace: Option<&str>,
    rights: &[Right],
    deadline: Duration,
) -> Result<Vec<String>, String> {
    let mut asked = JoinSet::new();
    for (group, resource, verbs) in rights {
        for verb in *verbs {
            let (client, who) = (client.clone(), who.map(str::to_owned));
            let attributes = attributes(group, resource, verb, namespace);
            let name = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
            asked.spawn(async move {
                let allowed = timeout(deadline, may(&client, who, attributes)).await;
                (name, *verb, allowed.unwrap_or_else(|_| Err("no answer in time".to_owned())))
            });
        }
    }
    let mut missing = BTreeMap::<String, Vec<&str>>::new();
    while let Some(answer) = asked.join_next().await {
        let (name, verb, allowed) = answer.map_err(|error| innermost(&error))?;
        if !allowed? {
            missing.entry(name).or_default().push(verb);
        }
    }
    let line = |(name, mut verbs): (String, Vec<&str>)| {
        verbs.sort_unstable();
        format!("{name} ({})", verbs.join(", "))
    };
    Ok(missing.into_iter().map(line).collect())
}

async fn may(client: &Client, who: Option<String>, attributes: ResourceAttributes) -> Result<bool, String> {
    let params = PostParams::default();
    let status = match who {
        None => {
            let spec =
                SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
            let review = SelfSubjectAccessReview { spec, ..Default::default() };
            let api = Api::<SelfSubjectAccessReview>::all(client.clone());
            api.create(&params, &review).await.map(|review| review.status)
        }
        Some(who) => {
            let namespace = who.split(':').nth(2).unwrap_or_default();
            let groups = [
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ];
            let spec = SubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                groups: Some(groups.map(str::to_owned).to_vec()),
                user: Some(who),
                ..Default::default()
            };
            let review = SubjectAccessReview { spec, ..Default::default() };
            let api = Api::<SubjectAccessReview>::all(client.clone());
            api.create(&params, &review).await.map(|review| review.status)
        }
    };
    match status {
        Ok(status) => Ok(status.is_some_and(|status| status.allowed)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Err("you may not ask what others may do (create subjectaccessreviews)".to_owned())
        }
        Err(error) => Err(innermost(&error)),
    }
}

fn attributes(group: &str, resource: &str, verb: &str, namespace: Option<&str>) -> ResourceAttributes {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    ResourceAttributes {
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: (!part.is_empty()).then(|| part.to_owned()),
        verb: Some(verb.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    }
}
