//! The node plugin of the reference driver on its real socket, in both dialects.

use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use volmedic_csi::dialect::NodeProbe;
use volmedic_csi::{Address, Driver as Link, Metrics, Settings};
use volmedic_driver::fault::{Fault, Kind};
use volmedic_health::Sight;
use volmedic_monitor::{Seen, Way};
use volmedic_probe::Usage;
use volmedic_probe::node::{Looked, Node, Published};

use super::Test;
use super::eyes::shown;
use super::stage::{Driver, PATIENCE, Volume};

pub(crate) const TESTS: &[Test] = &[
    ("the_newer_dialect_tells_health_and_usage", newer),
    ("the_older_dialect_tells_a_condition_with_the_usage", older),
    ("a_driver_that_restarts_with_another_dialect_is_asked_again", restarted),
    ("a_frozen_driver_is_told_from_a_frozen_volume", frozen),
    ("errors_of_the_driver_never_look_like_health", errors),
];

fn connect(driver: &Driver, deadline: Duration) -> Node {
    let _inside = driver.runtime.enter();
    let address: Address = driver.socket().to_str().unwrap().parse().unwrap();
    let settings = Settings { deadline, first_pause: Duration::from_millis(20), ..Settings::default() };
    let link = Link::start(address, settings, Metrics::register(&mut Registry::default()));
    driver.runtime.block_on(link.ready_within(PATIENCE)).unwrap();
    Node::new(link, true)
}

fn published(volume: &Volume<'_>) -> Published {
    Published {
        handle: volume.id.as_str().into(),
        staging: Some(volume.staging.clone()),
        targets: volume.targets.clone(),
    }
}

fn words(seen: &Seen) -> String {
    match seen {
        Seen::Volume(sight) => shown(sight),
        Seen::Overloaded(_) => "overloaded".to_owned(),
        Seen::Nothing => "nothing".to_owned(),
        Seen::DriverGone(_) => "driver gone".to_owned(),
    }
}

fn look(driver: &Driver, node: &Node, volume: &Published) -> Looked {
    driver.runtime.block_on(async {
        tokio::time::timeout(PATIENCE, node.look(volume)).await.expect("a look has an end")
    })
}

/// Looks until it sees what it should; the driver's own checks need a moment.
fn settle(driver: &Driver, node: &Node, volume: &Published, wanted: &str) -> Option<Usage> {
    let end = Instant::now() + PATIENCE;
    loop {
        let looked = look(driver, node, volume);
        if words(&looked.seen) == wanted {
            return looked.usage;
        }
        assert!(Instant::now() < end, "{wanted}: {:?}", looked.seen);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn newer() {
    let driver = Driver::start("health");
    let node = connect(&driver, PATIENCE / 2);
    assert!(node.choice().is_ok_and(|choice| choice.volume == NodeProbe::VolumeHealth));
    for kind in [Kind::Ext4, Kind::Block, Kind::Fuse] {
        let volume = Volume::published(&driver, kind, 2, false);
        let asked = published(&volume);
        let bytes = settle(&driver, &node, &asked, "-").unwrap().bytes.unwrap();
        assert!(bytes.total > 0);
        driver.faults().inject(Fault::DriveBad, Some(&volume.id)).unwrap();
        settle(&driver, &node, &asked, "Inaccessible/DriveBad");
        driver.faults().clear(Fault::DriveBad, Some(&volume.id)).unwrap();
        settle(&driver, &node, &asked, "-");
    }
    let storage = driver.runtime.block_on(node.storage()).unwrap();
    assert!(matches!(storage, Sight::Healthy | Sight::Adverse(_)), "{storage:?}");
    let stranger = Published { handle: "nobody".into(), staging: None, targets: vec!["/nowhere".into()] };
    assert!(matches!(look(&driver, &node, &stranger).seen, Seen::Volume(Sight::Missing(_))));
}

fn older() {
    let driver = Driver::start("legacy");
    let node = connect(&driver, PATIENCE / 2);
    assert!(node.choice().is_ok_and(|choice| choice.volume == NodeProbe::StatsCondition));
    let volume = Volume::new(&driver, Kind::Ext4);
    let asked = published(&volume);
    let usage = settle(&driver, &node, &asked, "-").unwrap();
    assert!(usage.bytes.is_some() && usage.inodes.is_some(), "{usage:?}");
    driver.faults().inject(Fault::TargetUnmounted, Some(&volume.id)).unwrap();
    settle(&driver, &node, &asked, "Degraded/VolumeConditionAbnormal");
    driver.faults().clear(Fault::TargetUnmounted, Some(&volume.id)).unwrap();
    settle(&driver, &node, &asked, "-");
    assert_eq!(driver.runtime.block_on(node.storage()), None, "it does not tell");
}

fn restarted() {
    let mut driver = Driver::start("health");
    let node = connect(&driver, PATIENCE / 2);
    assert!(node.way() == Way::Look && node.choice().is_ok_and(|choice| choice.storage));
    driver.restart("legacy");
    let end = Instant::now() + PATIENCE;
    while !node.choice().is_ok_and(|choice| choice.volume == NodeProbe::StatsCondition) {
        assert!(Instant::now() < end, "still {:?}", node.choice());
        driver.runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_secs(1), node.changed()).await;
        });
    }
    assert!(node.choice().is_ok_and(|choice| !choice.storage));
}

fn frozen() {
    let driver = Driver::start("health");
    let volume = Volume::new(&driver, Kind::Ext4);
    let node = connect(&driver, Duration::from_secs(2));
    let asked = published(&volume);
    settle(&driver, &node, &asked, "-");
    driver.faults().inject(Fault::DriverFrozen, None).unwrap();
    settle(&driver, &node, &asked, "driver gone");
    driver.faults().clear(Fault::DriverFrozen, None).unwrap();
    settle(&driver, &node, &asked, "-");
}

fn errors() {
    let driver = Driver::start("both");
    let volume = Volume::new(&driver, Kind::Ext4);
    let node = connect(&driver, PATIENCE / 2);
    let asked = published(&volume);
    settle(&driver, &node, &asked, "-");
    driver.faults().inject(Fault::DriverErrors, None).unwrap();
    let failed = look(&driver, &node, &asked);
    assert!(matches!(&failed.seen, Seen::Volume(Sight::NotSeen(_)) | Seen::DriverGone(_)), "{failed:?}");
    assert_eq!(failed.usage, None);
    driver.faults().clear(Fault::DriverErrors, None).unwrap();
    settle(&driver, &node, &asked, "-");
}
