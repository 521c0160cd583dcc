//! What changes is shown as it changes, and drawn.

use crate::inspect;
use crate::stage::{DEGRADED, INACCESSIBLE, Stage};

const FIRST: &str = "document.querySelector('table.volumes tbody tr')";

#[test]
fn a_change_is_shown_without_a_reload_and_the_past_is_drawn() {
    let mut stage = Stage::new((0..12).map(|number| format!("vol-{number:02}")));
    stage.open("");
    stage.chrome.wait("document.title.startsWith('12 healthy')");
    // Gone if the page is loaded again.
    stage.chrome.eval("window.marker = 7");
    stage.chrome.eval("document.querySelector('a[href*=\"vol-05\"]').focus()");

    stage.sim.harm("vol-05", DEGRADED, "OutOfCapacity", "99 % used");
    stage.chrome.wait(&format!("{FIRST}.innerText.includes('OutOfCapacity')"));
    stage.chrome.wait("document.title.startsWith('1 degraded, 11 healthy')");
    stage
        .chrome
        .wait("document.getElementById('announce').textContent.includes('is Degraded/OutOfCapacity')");
    stage.chrome.wait("document.querySelector('.changes li').innerText.includes('99 % used')");
    assert_eq!(stage.chrome.eval("window.marker"), 7, "the page was loaded again");
    let focus = stage.chrome.text("document.activeElement.getAttribute('href')");
    assert!(focus.contains("vol-05"), "the keyboard's place was lost: {focus}");

    stage.sim.harm("vol-05", INACCESSIBLE, "DiskFailure", "the disk does not answer");
    stage.chrome.wait(&format!("{FIRST}.innerText.includes('DiskFailure')"));
    stage.sim.repair("vol-05");
    stage.chrome.wait("document.title.startsWith('12 healthy')");
    assert_eq!(stage.chrome.eval("window.marker"), 7);

    stage.open("volume?driver=disk.example.net&volume=vol-05");
    let spans =
        "Array.from(document.querySelectorAll('svg.timeline rect.span'), span => span.getAttribute('class'))";
    stage.chrome.wait(&format!("{spans}.length === 3"));
    let drawn = stage.chrome.eval(spans);
    assert_eq!(drawn, serde_json::json!(["span g-degraded", "span g-inaccessible", "span g-healthy"]));
    // Drawn where it can be seen, in colours that differ.
    let painted = "new Set(Array.from(document.querySelectorAll('svg.timeline rect.span'), span => getComputedStyle(span).fill)).size";
    assert_eq!(stage.chrome.eval(painted), 3);
    let seen = "Array.from(document.querySelectorAll('svg.timeline rect.span')).every(span => span.getBoundingClientRect().width >= 2)";
    assert_eq!(stage.chrome.eval(seen), true);
    let words = stage.chrome.text("document.querySelector('svg.timeline desc').textContent");
    assert!(words.contains("Degraded OutOfCapacity from") && words.contains("Healthy from"), "{words}");
    inspect::assert_accessible(&mut stage.chrome, "a volume");
    inspect::pictures(&mut stage.chrome, "volume");

    // It lives here too.
    stage.sim.harm("vol-05", DEGRADED, "DiskDegrading", "3 reallocated sectors");
    stage.chrome.wait(&format!("{spans}.length === 4"));
    stage.assert_clean();
}

#[test]
fn a_driver_that_goes_away_is_said_and_comes_back() {
    let mut stage = Stage::new(["vol-1".to_owned()]);
    stage.open("");
    stage.chrome.wait("document.title.startsWith('1 healthy')");
    stage.sim.stop();
    stage.chrome.wait("document.querySelector('.alert')?.innerText.includes('Not seeing')");
    stage.chrome.wait("document.title.startsWith('1 unknown')");
    stage.sim.restart().expect("the driver listens again");
    stage.chrome.wait("document.querySelector('.alert') === null && document.title.startsWith('1 healthy')");
    stage.assert_clean();
}
