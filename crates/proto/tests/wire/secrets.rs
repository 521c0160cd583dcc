//! No secret can be printed: for every message with a secret field, whatever is in that field stays out of `Debug`.

use std::any::type_name;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;

use prost::Message;
use volmedic_proto::{csi, healer};

use crate::descriptor::{Field, Msg};
use crate::ours;

const KEY: &str = "canary-key";
const VALUE: &str = "canary-value";

/// A map entry on the wire.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// Checks each type and that there is no message with secrets besides them.
macro_rules! check_all {
    ($($package:literal $module:ident { $($name:ident),* $(,)? })*) => {{
        let mut checked = BTreeSet::new();
        $($(
            check::<$module::$name>($package, stringify!($name));
            checked.insert(concat!($package, ".", stringify!($name)).to_owned());
        )*)*
        checked
    }};
}

#[test]
fn no_secret_is_printed() {
    let checked = check_all! {
        "csi.v1" csi {
            CreateVolumeRequest, DeleteVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
            ValidateVolumeCapabilitiesRequest, ControllerListVolumeHealthRequest, ControllerGetVolumeHealthRequest,
            ControllerModifyVolumeRequest, CreateSnapshotRequest, DeleteSnapshotRequest, ListSnapshotsRequest,
            GetSnapshotRequest, ControllerExpandVolumeRequest, NodeStageVolumeRequest, NodePublishVolumeRequest,
            NodeGetStorageHealthRequest, NodeExpandVolumeRequest, CreateVolumeGroupSnapshotRequest,
            DeleteVolumeGroupSnapshotRequest, GetVolumeGroupSnapshotRequest, GetMetadataAllocatedRequest,
            GetMetadataDeltaRequest,
        }
        "healer" healer { NodeHealerRequest }
    };
    let mut marked = BTreeSet::new();
    for package in ["csi.v1", "identity", "healer"] {
        ours(package).messages.iter().for_each(|message| collect_marked(package, message, &mut marked));
    }
    assert_eq!(
        checked, marked,
        "the types checked above and the messages marked in the proto files must be the same"
    );
}

/// The test above would prove nothing if the canary were not printed where nothing is secret.
#[test]
fn what_is_not_secret_is_printed() {
    let canary = HashMap::from([(KEY.to_owned(), VALUE.to_owned())]);
    let request = csi::NodeStageVolumeRequest {
        volume_id: "vol-1".to_owned(),
        volume_context: canary.clone(),
        secrets: canary,
        ..Default::default()
    };
    let printed = format!("{request:?}");
    assert!(printed.contains(r#"volume_id: "vol-1""#), "{printed}");
    assert!(
        printed.contains(r#"secrets: [redacted], volume_context: {"canary-key": "canary-value"}"#),
        "{printed}"
    );
}

fn check<T: Message + Default + Debug>(package: &str, name: &str) {
    let file = ours(package);
    let message = file.messages.iter().find(|message| message.name.as_deref() == Some(name));
    let fields = &message.unwrap_or_else(|| panic!("{package}.{name} is not in our proto files")).fields;
    let secrets: Vec<&Field> = fields.iter().filter(|field| is_secret(field)).collect();

    let mut bytes = Vec::new();
    let entry = Entry { key: KEY.to_owned(), value: VALUE.to_owned() };
    for field in &secrets {
        let number = field.number.and_then(|number| u32::try_from(number).ok()).expect("fields have numbers");
        prost::encoding::message::encode(number, &entry, &mut bytes);
    }
    let request = T::decode(bytes.as_slice()).expect("a secret is a map from strings to strings");
    assert_eq!(
        request.encode_to_vec(),
        bytes,
        "{name}: the secret must be in the message, or nothing is proved"
    );

    for printed in
        [format!("{request:?}"), format!("{request:#?}"), format!("{:?}", tonic::Request::new(request))]
    {
        let secret_free = !printed.contains(KEY) && !printed.contains(VALUE);
        assert!(secret_free, "{} prints its secret: {printed}", type_name::<T>());
        assert_eq!(printed.matches("[redacted]").count(), secrets.len(), "{printed}");
        for field in fields {
            let name = field.name.as_deref().expect("fields have names");
            assert!(
                printed.contains(&format!("{name}: ")),
                "{} does not show {name}: {printed}",
                type_name::<T>()
            );
        }
    }
}

fn collect_marked(scope: &str, message: &Msg, marked: &mut BTreeSet<String>) {
    let path = format!("{scope}.{}", message.name.as_deref().unwrap_or_default());
    message.messages.iter().for_each(|nested| collect_marked(&path, nested, marked));
    if message.fields.iter().any(is_secret) {
        marked.insert(path);
    }
}

fn is_secret(field: &Field) -> bool {
    field.options.as_ref().is_some_and(|options| options.secret == Some(true))
}
