//! A time that the API server accepts and no date type holds.

use kube::Client;
use kube::api::{Patch, PatchParams, Request};
use serde_json::json;

/// Writes such a time into the object at this path, as every account that may write the object can.
pub(crate) async fn poison(client: &Client, folder: &str, name: &str) {
    let mut parts = folder.trim_start_matches('/').split('/');
    let api_version = match parts.next() {
        Some("api") => parts.next().unwrap().to_owned(),
        _ => format!("{}/{}", parts.next().unwrap(), parts.next().unwrap()),
    };
    let field = json!({
        "manager": "m", "operation": "Update", "apiVersion": api_version, "time": "9999-12-31T23:59:59Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:annotations": {"f:x": {}}}},
    });
    let mut stored = String::new();
    // A field that changes belongs to the account that changes it, so the annotation comes first.
    for metadata in [json!({"annotations": {"x": "y"}}), json!({"managedFields": [field]})] {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let request = Request::new(folder).patch(name, &PatchParams::default(), &patch).unwrap();
        stored = client.request_text(request).await.unwrap();
    }
    assert!(stored.contains("9999-12-31T23:59:59Z"), "the API server kept another time: {stored}");
}
