//! Which Leases of controllers are asked for.

use super::*;

/// A report of this driver's controller on a claim, as it is stored where claims have no `healthStatus`.
fn reported(world: &mut World, claim: &str, driver: &str) {
    let condition = json!({"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible",
        "reason": "NetworkError", "lastTransitionTime": "2026-08-21T10:00:00Z"});
    let report = json!({"driver": driver, "lease": {"namespace": "csi", "name": lease_of(driver)},
        "healthConditions": [condition], "since": "2026-08-21T10:00:00Z"});
    let owner = json!([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim, "uid": format!("uid-{claim}")}]);
    let metadata = json!({"uid": "u", "resourceVersion": "1", "ownerReferences": owner});
    world.put_stored(
        "shop",
        claim,
        &read(json!({"metadata": metadata, "status": {"controllerReport": report}})),
    );
}

/// The bound is on Leases and not on reports: those were once counted before the ones with the same Lease were put together.
#[test]
fn many_unhealthy_claims_of_one_driver_do_not_crowd_out_the_lease_of_another() {
    let lease = |driver: &str| LeaseName { namespace: "csi".to_owned(), name: lease_of(driver) };
    let both: BTreeSet<LeaseName> = [lease(DRIVER), lease("other.example.net")].into();
    // They are kept in no order, so each world has another one.
    for _ in 0..3 {
        let mut world = World::default();
        reported(&mut world, "one", "other.example.net");
        for number in 0..5_000 {
            reported(&mut world, &format!("many-{number}"), DRIVER);
        }
        assert_eq!(world.controller_leases(), both);
    }
}
