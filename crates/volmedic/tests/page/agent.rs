//! The agent's page: the volumes of the pods on its node, as the host and the driver there see them.

use crate::agent_stage::{Stage, unmount};
use crate::chrome::Chrome;
use crate::{inspect, page_of};

#[tokio::test]
async fn the_nodes_volumes_are_shown_with_their_pods_and_live() {
    let mut stage = Stage::new().await;
    let (data, logs) = (stage.volume("data", "ext4").await, stage.volume("logs", "ext4").await);
    let uid = stage.pod("web", &[&data, &logs]).await;
    let agent = stage.watching(&["--page=127.0.0.1:0"]).await;
    let url = page_of(&agent).await;
    let mut chrome = Chrome::start();
    chrome.open(&url);
    chrome.wait("document.title.startsWith('2 healthy')");
    // Both look after it.
    chrome.wait("document.querySelector('.calm')?.innerText.includes('host checks on nodes (2)')");
    chrome.wait("document.querySelector('.calm')?.innerText.includes('the driver on nodes (2)')");
    chrome.eval("window.marker = 7");
    unmount(&stage.kubelet.publish(&uid, &data.pv).unwrap());
    let first = "document.querySelector('table.volumes tbody tr').innerText";
    chrome.wait(&format!("{first}.includes('VolumeUnmounted')"));
    chrome.wait("document.querySelector('.changes a')?.innerText.endsWith('/data')");
    // Health and pods come by different ways, in no order.
    let (place, vantage) = (format!("{}/data", stage.namespace), format!("host/{}", stage.node));
    chrome.wait_text(first, &[&place, "web", &stage.node, &vantage]);
    assert_eq!(chrome.eval("window.marker"), 7, "the page was loaded again");
    inspect::assert_accessible(&mut chrome, "the list");
    chrome.screenshot("agent");
    for path in ["nodes", "source"] {
        chrome.open(&format!("{url}{path}"));
        inspect::assert_accessible(&mut chrome, path);
    }
    chrome.open(&format!("{url}volume?driver={}&volume={}", stage.driver, data.id));
    chrome.wait("document.querySelectorAll('svg.timeline rect.span').length >= 1");
    stage.publish(&uid, &data).await;
    chrome.wait("document.querySelector('.headline')?.innerText.includes('Healthy')");
    inspect::assert_clean(&mut chrome, &url);
    assert_eq!(agent.terminate(), Some(0));
}
