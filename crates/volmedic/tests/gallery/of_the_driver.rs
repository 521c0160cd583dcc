//! Faults of the driver itself: the agent says once that it is unreachable, and goes on with host checks.

use std::time::Instant;

use libtest_mimic::Trial;
use volmedic_driver::fault::{Fault, Kind};

use crate::page::{self, Outage};
use crate::reported::{Reported, Tale};
use crate::role::Manner;
use crate::stage::{Stage, Usage};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    let faults = Fault::ALL.iter().copied().filter(|fault| fault.is_of_the_driver());
    let name = |fault: Fault| fault.name().replace('-', "_");
    faults.map(|fault| trial(&name(fault), move || row(fault))).collect()
}

async fn row(fault: Fault) {
    // A driver that is slow answers after five seconds, which must be too late.
    let manner = Manner { is_hurried: true, ..Manner::new("health") };
    let mut stage = Stage::new(manner).await.watched(true).await;
    // Events on nodes are in this namespace.
    let on_node = Reported::watch(&stage.client, "default").await;
    let volume = stage.volume("data", Kind::Ext4).await;
    let uid = stage.pod("web", &volume, Usage::default()).await;
    stage.checked(&volume).await.unwrap();
    stage.harm(fault, None).await.unwrap();
    let harmed = Instant::now();
    let lists_only = fault == Fault::InconsistentPages;
    let blind = if lists_only {
        None
    } else {
        let reported = on_node.reported(&stage.node, "node", "blindness").await.unwrap();
        Some(reported.saturating_duration_since(harmed))
    };

    // Whatever becomes of the driver, the host sees what happens to the volume.
    stage.harm(Fault::ReadOnly, Some(&volume)).await.unwrap();
    let harmed = Instant::now();
    let reported = stage.reported.reported("web", "host", "Inaccessible/ReadOnlyFilesystem").await.unwrap();
    let volume_reported = reported.saturating_duration_since(harmed);
    if lists_only {
        stage.reported.reported("web", "node", "Inaccessible/ReadOnlyFilesystem").await.unwrap();
    }
    stage.repair(Fault::ReadOnly, Some(&volume)).await.unwrap();
    stage.reported.over("web", "host").await.unwrap();
    stage.repair(fault, None).await.unwrap();
    if fault == Fault::DriverKilled {
        stage.start_driver_again().await;
    }
    let repaired = Instant::now();
    let over = if lists_only {
        stage.reported.over("web", "node").await.unwrap();
        None
    } else {
        Some(on_node.over(&stage.node, "node").await.unwrap().saturating_duration_since(repaired))
    };
    // One fact about the driver, and none about its volume but what happened to it. One that answers with an error about
    // each volume makes that a fact about each volume.
    let expected = |tale: &Tale| {
        tale.what.ends_with("ReadOnlyFilesystem") || fault == Fault::DriverErrors && tale.what == "blindness"
    };
    let others: Vec<_> = stage.reported.all().into_iter().filter(|tale| !expected(tale)).collect();
    assert!(others.is_empty(), "{others:#?}");
    page::record_outage(fault, Outage { blind, volume_reported, over });
    stage.take_down("web", &uid, &volume).await.unwrap();
}
