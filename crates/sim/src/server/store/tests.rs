use super::*;

const NOW: Duration = Duration::ZERO;

fn key(resource: &str, name: &str) -> Key {
    (resource.to_owned(), "shop".to_owned(), name.to_owned())
}

fn store(resource: &str, names: &[&str]) -> Store {
    let mut store = Store::new(Duration::from_hours(1));
    for name in names {
        store.create(NOW, "", key(resource, name), json!({"metadata": {}}), "admin").unwrap();
    }
    store
}

fn code(answer: &Answer) -> u16 {
    answer.as_ref().map_or_else(|refusal| refusal.code, |_| 200)
}

#[test]
fn a_write_over_a_version_that_is_not_the_newest_is_refused() {
    let mut store = store("leases", &["a"]);
    let read = store.get(&key("leases", "a")).unwrap();
    let mut first = read.clone();
    first["spec"] = json!({"holderIdentity": "x"});
    let written = store.replace(NOW, "", key("leases", "a"), first).unwrap();
    assert_eq!(code(&store.replace(NOW, "", key("leases", "a"), read)), 409);
    assert_eq!(code(&store.replace(NOW, "", key("leases", "a"), written)), 200);
}

#[test]
fn an_applied_field_goes_when_its_owner_applies_without_it() {
    let mut store = store("persistentvolumeclaims", &["a"]);
    let mut apply = |status: Value, manager: &str, force| {
        let body = json!({"metadata": {}, "status": status});
        store.apply_status(NOW, key("persistentvolumeclaims", "a"), &body, manager, force)
    };
    let ours = json!({"healthStatus": {"x": 1}});
    assert_eq!(apply(ours.clone(), "us", false).unwrap()["status"], ours);
    assert_eq!(apply(json!({"healthStatus": {"x": 2}}), "them", false).unwrap_err().reason, "Conflict");
    let version = apply(ours.clone(), "us", false).unwrap()["metadata"]["resourceVersion"].clone();
    assert_eq!(
        apply(ours, "us", true).unwrap()["metadata"]["resourceVersion"],
        version,
        "no change is no write"
    );
    assert_eq!(apply(json!({}), "us", false).unwrap()["status"], json!({}));
}

#[test]
fn two_appliers_own_field_by_field() {
    let mut store = store("persistentvolumeclaims", &["a"]);
    let mut apply = |health: Value, manager: &str| {
        let body = json!({"metadata": {}, "status": {"healthStatus": health}});
        store.apply_status(NOW, key("persistentvolumeclaims", "a"), &body, manager, true).unwrap()
    };
    apply(json!({"time": 1, "list": [1]}), "us");
    apply(json!({"time": 1, "list": [2]}), "them");
    let left = apply(json!({}), "them");
    assert_eq!(left["status"]["healthStatus"], json!({"time": 1}), "the list was theirs, the time also ours");
    assert_eq!(apply(json!({}), "us")["status"], json!({"healthStatus": {}}));
}

#[test]
fn a_field_that_the_server_does_not_keep_is_dropped_or_refused() {
    let mut store = store("persistentvolumeclaims", &["a"]);
    let body = json!({"metadata": {}, "status": {"healthStatus": {}}});
    let claims = "persistentvolumeclaims";
    store.forget_status(claims, "healthStatus", Unkept::Dropped);
    let answer = store.apply_status(NOW, key(claims, "a"), &body, "us", true).unwrap();
    assert_eq!(answer["status"], json!({}));
    store.forget_status(claims, "healthStatus", Unkept::Refused);
    assert_eq!(code(&store.apply_status(NOW, key(claims, "a"), &body, "us", true)), 500);
    let nothing = json!({"metadata": {}, "status": {}});
    assert_eq!(code(&store.apply_status(NOW, key(claims, "a"), &nothing, "us", true)), 200);
}

#[test]
fn a_list_shows_one_moment_and_is_lost_when_that_is_forgotten() {
    let mut store = store("events", &["a", "b", "c", "d"]);
    let page = store.list("events", None, None, 500).unwrap();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(PAGE));
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    store.create(NOW, "", key("events", "e"), json!({"metadata": {}}), "").unwrap();
    let rest = store.list("events", None, Some(&token), 500).unwrap();
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(1));
    store.compact();
    assert_eq!(code(&store.list("events", None, Some(&token), 500)), 410);
}

#[test]
fn an_event_is_forgotten_an_hour_after_it_was_last_written() {
    let mut store = store("events", &["a"]);
    let minutes = |count| Duration::from_mins(count);
    store.merge(minutes(50), key("events", "a"), &json!({"count": 2}), false).unwrap();
    store.expire(minutes(70));
    assert_eq!(code(&store.get(&key("events", "a"))), 200);
    store.expire(minutes(111));
    assert_eq!(code(&store.get(&key("events", "a"))), 404);
}

#[test]
fn a_patch_with_a_precondition_that_does_not_hold_is_refused() {
    let mut store = store("events", &["a"]);
    let patch = json!({"metadata": {"resourceVersion": "1"}, "count": 2});
    assert_eq!(code(&store.merge(NOW, key("events", "a"), &patch, false)), 409);
    let nothing = json!({"metadata": {"labels": null}});
    let before = store.version();
    assert_eq!(code(&store.merge(NOW, key("events", "a"), &nothing, false)), 200);
    assert_eq!(store.version(), before);
}
