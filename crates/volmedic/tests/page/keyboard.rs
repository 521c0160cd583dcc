//! Everything can be reached with the keyboard.

use crate::stage::{DEGRADED, Stage};

const FOCUS: &str = "document.activeElement.getAttribute('href') || document.activeElement.id";

#[test]
fn the_keyboard_reaches_everything() {
    let mut stage = Stage::new((0..5).map(|number| format!("vol-{number}")));
    stage.sim.harm("vol-3", DEGRADED, "OutOfCapacity", "99 % used");
    stage.open("");
    stage.chrome.wait("document.title.startsWith('1 degraded')");

    // The first thing is the way past the header.
    stage.chrome.press("Tab");
    assert_eq!(stage.chrome.text(FOCUS), "#main");
    stage.chrome.press("Enter");
    stage.chrome.wait("document.activeElement.id === 'main'");

    stage.chrome.press("/");
    assert_eq!(stage.chrome.text(FOCUS), "search");
    stage.chrome.write("j");
    assert_eq!(stage.chrome.text("document.getElementById('search').value"), "j", "typing is not moving");
    stage.chrome.press("Escape");
    stage.chrome.press("j");
    assert!(stage.chrome.text(FOCUS).ends_with("volume=vol-3"), "worst first");
    stage.chrome.press("j");
    assert!(stage.chrome.text(FOCUS).ends_with("volume=vol-0"));
    stage.chrome.press("k");
    assert!(stage.chrome.text(FOCUS).ends_with("volume=vol-3"));
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(stage.chrome.text(outline), "solid", "what has the focus is seen to have it");
    stage.chrome.press("Enter");
    stage.chrome.wait("document.querySelector('h1')?.innerText === 'vol-3'");
    stage.assert_clean();
}
