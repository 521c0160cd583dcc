//! Single objects of which all fields may be needed, read although others can write times into them that no date type holds.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object without its `managedFields`: every account that may write an object can put a time in there that the API server
/// accepts. For single objects; those of a list or a watch are [`Arrived`](crate::Arrived).
#[derive(Clone, Debug)]
pub struct Readable<K>(pub K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        serde_json::from_value(object).map(Self).map_err(D::Error::custom)
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Readable<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn a_time_that_no_date_type_holds_hides_nothing_else() {
        let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u","managedFields":[{"manager":"m",
            "operation":"Update","time":"9999-12-31T23:59:59Z"}]},"status":{"phase":"Running"}}"#;
        assert!(serde_json::from_str::<Pod>(text).is_err(), "there is nothing to work around any more");
        let Readable(pod) = serde_json::from_str::<Readable<Pod>>(text).unwrap();
        assert_eq!(pod.metadata.uid.as_deref(), Some("u"));
        assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
        assert_eq!(Readable::<Pod>::url_path(&(), Some("n")), "/api/v1/namespaces/n/pods");
    }
}
