//! What a survey asks of an API server that has no more than these objects.

use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::healer::Filters;

const DRIVER: &str = "disk.example.net";

/// A driver that attaches nothing, and on each node one pod with a claim of its own.
struct Objects {
    nodes: usize,
    asked: Mutex<Vec<String>>,
}

fn named(namespace: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": spec, "status": status})
}

impl Objects {
    fn pod(number: usize) -> Value {
        let uses =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": format!("claim-{number}")}}]);
        let spec = json!({"nodeName": format!("node-{number}"), "volumes": uses});
        named("shop", &format!("pod-{number}"), &spec, &json!({"phase": "Running"}))
    }

    fn claim(number: &str) -> Value {
        let spec = json!({"volumeName": format!("pv-{number}")});
        named("shop", &format!("claim-{number}"), &spec, &json!({}))
    }

    fn volume(number: &str) -> Value {
        let csi = json!({"driver": DRIVER, "volumeHandle": format!("handle-{number}")});
        named("", &format!("pv-{number}"), &json!({"csi": csi}), &json!({"phase": "Bound"}))
    }

    /// What there is, in pages of two.
    fn list(&self, query: &str, make: impl Fn(usize) -> Value) -> Value {
        let first = query.split('&').find_map(|part| part.strip_prefix("continue="));
        let first: usize = first.map_or(0, |first| first.parse().expect("the token is ours"));
        let last = (first + 2).min(self.nodes);
        let next = if last < self.nodes { last.to_string() } else { String::new() };
        let items: Vec<Value> = (first..last).map(make).collect();
        json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items})
    }

    fn answer(&self, path: &str, query: &str) -> Value {
        let driver = named("", DRIVER, &json!({"attachRequired": false}), &json!({}));
        let one = |kind: &str| path.rsplit_once(kind).map(|(_, number)| number);
        match path {
            "/apis/storage.k8s.io/v1/volumeattachments" => json!({"metadata": {}, "items": []}),
            "/api/v1/pods" if query.contains("spec.nodeName%3Dnode-1&") => {
                json!({"metadata": {}, "items": [Self::pod(1)]})
            }
            "/api/v1/pods" => self.list(query, Self::pod),
            "/api/v1/persistentvolumeclaims" => self.list(query, |number| Self::claim(&number.to_string())),
            "/api/v1/persistentvolumes" => self.list(query, |number| Self::volume(&number.to_string())),
            _ if path.ends_with(DRIVER) => driver,
            _ => match (one("persistentvolumeclaims/claim-"), one("persistentvolumes/pv-")) {
                (Some(number), _) => Self::claim(number),
                (_, Some(number)) => Self::volume(number),
                _ => panic!("a request that no survey makes: {path}"),
            },
        }
    }
}

/// A survey of these nodes: what was found, and which requests it took, each once with how often it came.
async fn survey(nodes: usize, wanted: &[usize]) -> (Vec<String>, BTreeMap<String, usize>) {
    let objects = Arc::new(Objects { nodes, asked: Mutex::default() });
    let server = objects.clone();
    let answer = move |request: Request<Body>| {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
        server.asked.lock().push(path.clone());
        let body = server.answer(&path, query).to_string().into_bytes();
        async move { Ok::<_, Infallible>(Response::new(Body::from(body))) }
    };
    let filters = Filters::default();
    let cluster = KubeCluster::new(Client::new(service_fn(answer), "default"), filters);
    let wanted: Vec<(Arc<str>, Arc<str>)> =
        wanted.iter().map(|number| (DRIVER.into(), format!("node-{number}").into())).collect();
    let found = in_use_on(&cluster, &wanted).await.expect("everything can be read");
    let found = found.iter().map(|one| format!("{} {} {}", one.pv, one.place.handle, one.place.node));
    let mut asked = BTreeMap::new();
    for path in objects.asked.lock().iter() {
        *asked.entry(path.rsplit('/').next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    (found.collect(), asked)
}

fn times(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

#[tokio::test]
async fn several_nodes_cost_one_list_of_pods() {
    let (found, asked) = survey(5, &[0, 2, 3]).await;
    assert_eq!(found, ["pv-0 handle-0 node-0", "pv-2 handle-2 node-2", "pv-3 handle-3 node-3"]);
    let mut expected = times(&[("volumeattachments", 1), (DRIVER, 1), ("pods", 3)]);
    for number in [0, 2, 3] {
        expected.extend(times(&[(&format!("claim-{number}"), 1), (&format!("pv-{number}"), 1)]));
    }
    assert_eq!(asked, expected, "five pods are three pages of two");
}

#[tokio::test]
async fn one_node_costs_the_list_of_its_own_pods() {
    let (found, asked) = survey(5, &[1]).await;
    assert_eq!(found, ["pv-1 handle-1 node-1"]);
    let expected = [("volumeattachments", 1), (DRIVER, 1), ("pods", 1), ("claim-1", 1), ("pv-1", 1)];
    assert_eq!(asked, times(&expected));
}

#[tokio::test]
async fn many_claims_and_volumes_are_listed_and_not_read_one_by_one() {
    let all: Vec<usize> = (0..=ONE_BY_ONE).collect();
    let (found, asked) = survey(all.len(), &all).await;
    assert_eq!(found.len(), all.len());
    let pages = all.len().div_ceil(2);
    let mut expected = times(&[("volumeattachments", 1), (DRIVER, 1)]);
    for list in ["pods", "persistentvolumeclaims", "persistentvolumes"] {
        expected.extend(times(&[(list, pages)]));
    }
    assert_eq!(asked, expected);
}
