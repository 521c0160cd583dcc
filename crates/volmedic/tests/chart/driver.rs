//! The reference driver's manifest grants what its parts need, without the chart.

use serde_json::{Value, json};

use crate::root;
use crate::server::{find, taken_file};

fn rules_for(mut rules: Value, driver: &str) -> Value {
    let rule = rules
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .find(|rule| rule["resources"] == json!(["drivers"]))
        .unwrap();
    rule["resourceNames"] = json!([driver]);
    rules
}

#[test]
fn the_sidecar_of_the_reference_driver_has_the_rights_of_a_controller_for_its_own_driver() {
    let deploy = root().join("deploy");
    let shipped = taken_file(&deploy.join("chart/files/rbac-controller.yaml"));
    let workload = taken_file(&deploy.join("driver/workload.yaml"));
    let registered = taken_file(&deploy.join("driver/csidriver.yaml"));
    let driver = find(&registered, "CSIDriver", "driver.volmedic.dev")["metadata"]["name"].as_str().unwrap();

    let wanted = find(&shipped, "ClusterRole", "volmedic-controller")["rules"].clone();
    assert_eq!(
        find(&workload, "ClusterRole", "volmedic-driver-controller")["rules"],
        rules_for(wanted, driver)
    );
    let wanted = &find(&shipped, "Role", "volmedic-controller")["rules"];
    assert_eq!(&find(&workload, "Role", "volmedic-driver-leases")["rules"], wanted);
    // Every role that it binds is in it.
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        for binding in workload.iter().filter(|object| object["kind"] == kind) {
            let role = &binding["roleRef"];
            find(&workload, role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
        }
    }
}
