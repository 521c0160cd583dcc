//! Objects as they arrive from the API server: only what we use of them, and never an error for one of them alone.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The fields we use of a kind of object, and where the API server serves it.
pub trait Shape: DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    type Scope;
    const KIND: &'static str;
    const PLURAL: &'static str;
    /// Empty for the core group.
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
}

/// An object of a list or a watch. Decoding one always succeeds, so that one that makes no sense does not take the
/// whole page with it.
///
/// It borrows the object's text before it looks inside, so it decodes from JSON text only. In a watch event `type`
/// has to come before `object`, as the API server writes it.
#[derive(Clone, Debug)]
pub struct Arrived<T> {
    meta: ObjectMeta,
    pub body: Result<T, Malformed>,
}

/// Why an object could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    pub why: String,
}

impl<T> Arrived<T> {
    /// Empty if the object has none.
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.meta.uid.as_deref().unwrap_or_default()
    }

    pub fn resource_version(&self) -> &str {
        self.meta.resource_version.as_deref().unwrap_or_default()
    }

    pub fn created(&self) -> Option<jiff::Timestamp> {
        self.meta.creation_timestamp.as_ref().map(|time| time.0)
    }

    /// Somebody asked for its deletion; it is still there.
    pub fn is_going(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }
}

impl<'de, T: Shape> Deserialize<'de> for Arrived<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        // What it is called is read apart from what it says: a malformed body still has its name.
        let (meta, misnamed) = match serde_json::from_str::<Named>(text) {
            Ok(named) => (named.metadata.into(), None),
            Err(why) => (salvage(text), Some(why)),
        };
        let body = match misnamed {
            Some(why) => Err(why),
            None => serde_json::from_str::<T>(text),
        };
        Ok(Self { meta, body: body.map_err(|why| Malformed { why: why.to_string() }) })
    }
}

impl<T: Shape> Resource for Arrived<T> {
    type DynamicType = ();
    type Scope = T::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        T::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        T::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// Of metadata that makes no sense as a whole, what says which object it is.
fn salvage(text: &str) -> ObjectMeta {
    let whole: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let field = |name: &str| whole["metadata"][name].as_str().map(str::to_owned);
    ObjectMeta {
        name: field("name"),
        namespace: field("namespace"),
        uid: field("uid"),
        resource_version: field("resourceVersion"),
        ..ObjectMeta::default()
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: Meta,
}

/// What we keep of an object's metadata. Managed fields, labels and annotations are most of its text and are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        let Meta { name, namespace, uid, resource_version, creation_timestamp, deletion_timestamp } = meta;
        Self {
            name: Some(name),
            namespace,
            uid,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{ObjectList, WatchEvent};

    use super::*;
    use crate::slim::PersistentVolume;

    type Volume = Arrived<PersistentVolume>;

    /// One object that cannot be read hides no other, so every text of JSON arrives as an object.
    #[test]
    fn fuzz_api_objects() {
        use crate::resource::{NodeVolumeHealth, VolumeHealth};
        use crate::slim;

        fn arrived<T: Shape>(text: &str) -> bool {
            let object: Arrived<T> = serde_json::from_str(text).expect("whatever is in it, it has arrived");
            let _ = (object.name(), object.namespace(), object.uid(), object.created(), object.is_going());
            object.body.is_ok()
        }
        volmedic_testkit::fuzz("api-objects", |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            if let Ok(coverage) = crate::ControllerCoverage::parse(text) {
                let again = crate::ControllerCoverage::parse(&coverage.to_annotation());
                assert!(again.is_ok(), "{again:?}");
            }
            if serde_json::from_str::<&RawValue>(text).is_err() {
                return false;
            }
            let _ = serde_json::from_str::<VolumeHealth>(text);
            let _ = serde_json::from_str::<NodeVolumeHealth>(text);
            let readers = [
                arrived::<slim::Pod>,
                arrived::<slim::NodePod>,
                arrived::<slim::Node>,
                arrived::<PersistentVolume>,
                arrived::<slim::NodePersistentVolume>,
                arrived::<crate::addons::CsiAddonsNode>,
            ];
            readers.map(|reader| reader(text)).contains(&true)
        });
    }

    #[test]
    fn one_malformed_object_does_not_take_the_page_with_it() {
        let page = r#"{"kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [
            {"metadata": {"name": "good", "uid": "u", "resourceVersion": "5", "managedFields": [{"x": {}}]},
             "spec": {"csi": {"driver": "d", "volumeHandle": "h"}}, "status": {"phase": "Bound"}},
            {"metadata": {"name": "wrong", "resourceVersion": "6"}, "spec": {"csi": {"driver": 3}}},
            {"metadata": {"name": 17}, "spec": {}},
            {"metadata": {"name": "misdated", "creationTimestamp": "yesterday"}, "spec": {}},
            null,
            {"metadata": {"name": "bare"}}
        ]}"#;
        let page: ObjectList<Volume> = serde_json::from_str(page).unwrap();
        let seen: Vec<_> = page.items.iter().map(|item| (item.name(), item.body.is_ok())).collect();
        assert_eq!(
            seen,
            [("good", true), ("wrong", false), ("", false), ("misdated", false), ("", false), ("bare", true)]
        );
        assert_eq!(page.items[1].resource_version(), "6");
        let why = &page.items[1].body.as_ref().unwrap_err().why;
        assert!(why.contains("expected a string"), "{why}");
        assert!(page.items[0].meta().managed_fields.is_none());
    }

    #[test]
    fn watch_events_decode_as_the_server_writes_them() {
        let line = r#"{"type":"MODIFIED","object":{"kind":"PersistentVolume","apiVersion":"v1","metadata":{"name":"a",
            "resourceVersion":"9","deletionTimestamp":"2026-03-01T10:00:00Z"},"spec":{"csi":[]}}}"#;
        let WatchEvent::Modified(object) = serde_json::from_str::<WatchEvent<Volume>>(line).unwrap() else {
            panic!("not a modification")
        };
        assert_eq!((object.name(), object.resource_version(), object.is_going()), ("a", "9", true));
        assert!(object.body.is_err());
    }

    #[test]
    fn the_address_is_that_of_the_kind() {
        assert_eq!(Volume::url_path(&(), None), "/api/v1/persistentvolumes");
    }
}
