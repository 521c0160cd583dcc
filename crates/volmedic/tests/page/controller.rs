//! The controller's page: the volumes of its driver, with their claims.

use volmedic_testkit::objects;
use volmedic_testkit::sim::capability;

use crate::chrome::Chrome;
use crate::controller_stage::{INACCESSIBLE, Stage};
use crate::{inspect, page_of};

#[tokio::test]
async fn the_drivers_volumes_are_shown_with_their_claims_and_live() {
    let stage = Stage::new(&[capability::LIST_VOLUME_HEALTH, capability::GET_VOLUME_HEALTH]).await;
    stage.claims(&["data", "logs"]).await;
    let node = format!("{}-node", stage.namespace);
    objects::node(&stage.client, &node).await.expect("a node");
    objects::pod(&stage.client, &stage.namespace, "web", &node, &["data"]).await.expect("a pod");
    let controller = stage.watching(&["--page=127.0.0.1:0", "--enable-node-watcher=true"]).await;
    let url = page_of(&controller).await;
    let mut chrome = Chrome::start();
    chrome.open(&url);
    chrome.wait("document.title.startsWith('2 healthy')");
    chrome.wait_text("document.querySelector('.calm').innerText", &["the driver's controller (2)"]);
    chrome.eval("window.marker = 7");
    stage.harm("data", INACCESSIBLE, "DiskFailure", "the disk does not answer");
    let first = "document.querySelector('table.volumes tbody tr').innerText";
    chrome.wait(&format!("{first}.includes('DiskFailure')"));
    chrome.wait("document.querySelector('.changes a')?.innerText.endsWith('/data')");
    // Health, pods and nodes come by different ways, in no order.
    let place = format!("{}/data", stage.namespace);
    chrome.wait_text(first, &[&place, "web", &node, "controller", "the disk does not answer"]);
    assert_eq!(chrome.eval("window.marker"), 7, "the page was loaded again");
    inspect::assert_accessible(&mut chrome, "the list");
    chrome.screenshot("controller");
    for path in ["nodes", "source"] {
        chrome.open(&format!("{url}{path}"));
        inspect::assert_accessible(&mut chrome, path);
    }
    assert!(chrome.text("document.querySelector('.calls').innerText").contains("ControllerListVolumeHealth"));
    chrome.open(&url);
    stage.repair("data");
    chrome.wait("document.title.startsWith('2 healthy')");
    inspect::assert_clean(&mut chrome, &url);
    assert_eq!(controller.terminate(), Some(0));
}
