//! None of the healer's rights in rbac-healer.yaml is too many: each is taken away in turn, and something fails that works with
//! all of them. The API server's audit log names the right that was missing.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use volmedic_api::{Kind, ObjectRef};
use volmedic_heal::healer::{
    Cluster, Dialer, Eviction, Filters, KubeCluster, Metrics, NodeStates, Options, Registry, Trust,
};
use volmedic_heal::relay::{Access, audience_of};
use volmedic_heal::{Outcome, Place};
use volmedic_proto::relay::HealRequest;
use volmedic_testkit::{ControlPlane, objects};

use crate::rights::{Right, Rights};
use crate::server::{self, Request};
use crate::stage::{AUDIENCE, PATIENCE, Stage, eventually};

/// The healer's account in these tests.
const POOR: &str = "poor";
/// From here on, a list is cheaper for the healer than single objects.
const MANY: usize = 201;

/// What needs a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Following relays and nodes.
    Follow,
    /// Which volumes are in use on a node.
    Survey,
    /// The same of many volumes.
    SurveyMany,
    /// Where a claim's volume is in use.
    Places,
    HasDriver,
    Evict,
    /// A call to a relay, with a token that was requested for it.
    Call,
    /// The same with a token from a file.
    CallWithFile,
    /// Only the hub's own parts need it: what people ask for, events, earlier attempts, and its own policy.
    OfTheHub,
}

const WORKS: [Work; 8] = [
    Work::Follow,
    Work::Survey,
    Work::SurveyMany,
    Work::Places,
    Work::HasDriver,
    Work::Evict,
    Work::Call,
    Work::CallWithFile,
];

/// Every right of the healer, and what fails without it.
const NEEDED: &[(&str, &str, Work)] = &[
    ("csiaddonsnodes", "heal", Work::Call),
    ("csiaddonsnodes", "list", Work::Follow),
    ("csiaddonsnodes", "watch", Work::Follow),
    ("csidrivers", "get", Work::Survey),
    ("csinodes", "get", Work::HasDriver),
    ("events", "create", Work::OfTheHub),
    ("events", "patch", Work::OfTheHub),
    ("nodes", "list", Work::Follow),
    ("nodes", "watch", Work::Follow),
    ("persistentvolumeclaims", "get", Work::Places),
    ("persistentvolumeclaims", "list", Work::OfTheHub),
    ("persistentvolumeclaims", "watch", Work::OfTheHub),
    ("persistentvolumes", "get", Work::Places),
    ("persistentvolumes", "list", Work::SurveyMany),
    ("pods", "get", Work::Call),
    ("pods", "list", Work::Places),
    ("pods/eviction", "create", Work::Evict),
    ("serviceaccounts/token", "create", Work::Call),
    ("tokenreviews", "create", Work::CallWithFile),
    ("validatingadmissionpolicies", "get", Work::OfTheHub),
    ("validatingadmissionpolicybindings", "get", Work::OfTheHub),
    ("volumeattachments", "list", Work::Survey),
    ("volumehealths", "get", Work::OfTheHub),
];

/// One whose audit log is read.
fn plane() -> &'static Arc<ControlPlane> {
    static PLANE: OnceLock<Arc<ControlPlane>> = OnceLock::new();
    PLANE.get_or_init(|| server::own(ControlPlane::options()))
}

fn shipped(plane: &ControlPlane) -> Rights {
    let healer = Rights::named(plane, "rbac-healer.yaml", "volmedic-healer");
    healer.and(Rights::named(plane, "rbac-healer.yaml", "volmedic-heal"))
}

/// A client that has these rights in the stage's namespace, and may request tokens for itself if the hub may.
async fn account(stage: &Stage, mut rights: Rights) -> Client {
    for rule in rights.namespace.iter_mut().filter(|rule| rule.resource_names.is_some()) {
        rule.resource_names = Some(vec![POOR.to_owned()]);
    }
    let config = rights.grant(stage.plane, &stage.client, &stage.namespace, POOR).await;
    let config: Kubeconfig = serde_json::from_value(config).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    for rule in rights.cluster.iter().chain(&rights.namespace) {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                granted(&client, &stage.namespace, rule, resource, verb).await;
            }
        }
    }
    client
}

/// The API server needs a moment to take new rights in. A request before that would be refused for another reason.
async fn granted(client: &Client, namespace: &str, rule: &PolicyRule, resource: &str, verb: &str) {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (resource, None),
    };
    let attributes = ResourceAttributes {
        group: rule.api_groups.iter().flatten().next().cloned(),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        verb: Some(verb.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: rule.resource_names.iter().flatten().next().cloned(),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    eventually("the account has its rights", async || {
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.is_some_and(|status| status.allowed)
    })
    .await;
}

/// What the account was refused.
fn refused(stage: &Stage) -> Vec<Request> {
    let user = format!("system:serviceaccount:{}:{POOR}", stage.namespace);
    server::requests(stage.plane, &user).into_iter().filter(|request| request.code == 403).collect()
}

impl Work {
    /// Whether it works under this account.
    async fn works(self, stage: &Stage, client: &Client) -> Result<(), String> {
        let cluster = KubeCluster::new(client.clone(), Filters::default());
        let place = Place::new(stage.driver.as_str(), "vol-1", stage.node.as_str());
        let of_node = [(stage.driver.as_str().into(), stage.node.as_str().into())];
        match self {
            Self::Follow => follow(stage, client).await,
            Self::Survey => cluster.in_use_on(&of_node).await.map(drop),
            Self::SurveyMany => {
                for number in 0..MANY {
                    stage.attach(&format!("none-{}-{number}", stage.namespace), true).await;
                }
                cluster.in_use_on(&of_node).await.map(drop)
            }
            Self::Places => {
                used(stage).await;
                let places = cluster.places_of(&stage.namespace, "data").await?;
                if places.len() == 1 { Ok(()) } else { Err(format!("it is used at {places:?}")) }
            }
            Self::HasDriver => {
                let has = cluster.has_driver(&place).await?;
                if has { Ok(()) } else { Err("the node has no such driver".to_owned()) }
            }
            Self::Evict => {
                used(stage).await;
                let claim = ObjectRef::new(Kind::PersistentVolumeClaim, &stage.namespace, "data", "");
                let pods = cluster.pods_of(&claim).await?;
                match cluster.evict(pods.first().ok_or("no pod uses the claim")?).await {
                    Eviction::Accepted => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }
            Self::Call => call(stage, client, Trust { token: None, ..stage.trust() }).await,
            Self::CallWithFile => call(stage, client, stage.trust()).await,
            Self::OfTheHub => unreachable!("it is not tried here"),
        }
    }
}

/// A claim that a pod uses.
async fn used(stage: &Stage) {
    stage.volume("data", "vol-1").await;
    objects::pod(&stage.client, &stage.namespace, "user", &stage.node, &["data"]).await.unwrap();
}

/// Works if everything that is followed was listed and is watched.
async fn follow(stage: &Stage, client: &Client) -> Result<(), String> {
    let (news, _heard) = mpsc::channel(8);
    let dialer = Dialer::new(client.clone(), stage.trust());
    let registry = Registry::new(client.clone(), dialer, &Options::default(), Metrics::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(registry.run(news));
    let _nodes = NodeStates::start(client.clone());
    let user = format!("system:serviceaccount:{}:{POOR}", stage.namespace);
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        // Read once: a refusal that is written down between two readings would be taken for a watch.
        let requests = server::requests(stage.plane, &user);
        if let Some(refused) = requests.iter().find(|request| request.code == 403) {
            return Err(format!("{refused:?}"));
        }
        let listed = ["csiaddonsnodes", "nodes"].into_iter().all(|resource| {
            requests.iter().any(|request| request.is("list", resource) && request.code == 200)
        });
        // The API server writes a watch down when it begins.
        let watched = ["csiaddonsnodes", "nodes"]
            .into_iter()
            .all(|resource| requests.iter().any(|request| request.is("watch", resource)));
        if listed && watched {
            return Ok(());
        }
        assert!(std::time::Instant::now() < deadline, "neither refused nor watched: {requests:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One call to a relay that is there, whose driver heals.
async fn call(stage: &Stage, client: &Client, trust: Trust) -> Result<(), String> {
    let fake = stage.fake();
    let _driver = fake.serve();
    let audience = if trust.token.is_some() { AUDIENCE.to_owned() } else { audience_of(&stage.node) };
    let relay = stage
        .relay_with(&fake, &volmedic_heal::relay::Metrics::default(), |options| {
            options.access = Access::Checked { audience };
        })
        .await;
    let pv = stage.volume("data", "vol-1").await;
    let request = HealRequest { persistent_volume: pv, ..HealRequest::default() };
    let outcome =
        Dialer::new(client.clone(), trust).ask(&stage.relayed(&relay).await, request, PATIENCE).await;
    relay.stop().await;
    match outcome {
        Outcome::Well { .. } => Ok(()),
        Outcome::NotReached { why } => Err(why),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn with_all_rights_everything_works() {
    let plane = plane();
    let mut works = JoinSet::new();
    for work in WORKS {
        works.spawn(async move {
            let stage = Stage::on(plane).await;
            let client = account(&stage, shipped(plane)).await;
            let done = work.works(&stage, &client).await;
            assert_eq!((done, refused(&stage)), (Ok(()), Vec::new()), "{work:?}");
        });
    }
    all(works).await;
}

#[tokio::test]
async fn without_any_right_something_fails() {
    let plane = plane();
    let right = |(resource, verb, _): &(&str, &str, Work)| Right {
        resource: (*resource).to_owned(),
        verb: (*verb).to_owned(),
    };
    let needed: Vec<Right> = NEEDED.iter().map(right).collect();
    let mut all_rights = shipped(plane).all();
    all_rights.dedup();
    assert_eq!(
        all_rights, needed,
        "each right in the manifest has its line in this test, and each line its right"
    );
    let mut cases = JoinSet::new();
    for (right, (_, _, work)) in needed.into_iter().zip(NEEDED).filter(|(_, line)| line.2 != Work::OfTheHub) {
        cases.spawn(lacks(plane, right, *work));
    }
    all(cases).await;
}

#[allow(clippy::print_stdout, reason = "what fails is shown with --nocapture, or with a failure")]
async fn lacks(plane: &'static ControlPlane, right: Right, work: Work) {
    let stage = Stage::on(plane).await;
    let client = account(&stage, shipped(plane).without(&right)).await;
    let why = work.works(&stage, &client).await.expect_err(&format!("{work:?} works without {right:?}"));
    println!("without {} {}: {why}", right.verb, right.resource);
    // No API server serves it. The relay asks whether the caller has it.
    if right.verb == "heal" {
        assert!(why.contains("may not heal"), "{why}");
        return;
    }
    // The API server writes a request down after it has answered it.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let refused = refused(&stage);
        if refused.iter().any(|request| request.is(&right.verb, &right.resource)) {
            let others = refused.iter().find(|request| !request.is(&right.verb, &right.resource));
            assert!(others.is_none(), "{others:?} was refused too, without {right:?}");
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{right:?} was not asked for, but {refused:?}: {why}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn all(mut cases: JoinSet<()>) {
    while let Some(case) = cases.join_next().await {
        if let Err(error) = case {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
