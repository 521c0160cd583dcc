//! Listing, filtering, searching, paging; with and without the script.

use serde_json::json;

use crate::inspect;
use crate::stage::{DATA_LOSS, DEGRADED, INACCESSIBLE, Stage};

const ROWS: &str = "Array.from(document.querySelectorAll('table.volumes tbody tr'))";

fn names(stage: &mut Stage) -> Vec<String> {
    let shown = stage.chrome.eval(&format!("{ROWS}.map(row => row.querySelector('th').innerText.trim())"));
    serde_json::from_value(shown).expect("a list of names")
}

#[test]
fn lists_filters_searches_and_pages() {
    let mut stage = Stage::new((0..120).map(|number| format!("vol-{number:03}")));
    stage.sim.harm("vol-077", INACCESSIBLE, "DiskFailure", "the disk does not answer");
    stage.sim.harm("vol-033", DATA_LOSS, "FilesystemCorruption", "3 of 3 checks agree");
    stage.sim.harm("vol-099", DEGRADED, "OutOfCapacity", "99 % used");
    stage.open("");
    stage.chrome.wait("document.title.startsWith('1 data loss, 1 inaccessible, 1 degraded, 117 healthy')");

    assert_eq!(names(&mut stage)[..4], ["vol-033", "vol-077", "vol-099", "vol-000"], "worst first");
    assert_eq!(names(&mut stage).len(), 50);
    let parts = [
        "DataLoss",
        "FilesystemCorruption",
        "3 of 3 checks agree",
        "controller",
        "repair the file system offline",
    ];
    stage.chrome.wait_text(&format!("{ROWS}[0].innerText"), &parts);
    inspect::assert_accessible(&mut stage.chrome, "the list");
    inspect::pictures(&mut stage.chrome, "list");

    // To the last page and back to what is unhealthy.
    stage.chrome.eval("document.querySelector('.pager a:last-child').click()");
    stage.chrome.wait("document.querySelector('.pager span')?.innerText === 'Page 3 of 3'");
    stage.chrome.wait("document.readyState === 'complete'");
    assert_eq!(names(&mut stage).len(), 20);
    stage.chrome.eval("document.querySelector('.tile.g-degraded').click()");
    stage.chrome.wait(&format!("location.search.includes('Degraded') && {ROWS}.length === 1"));
    assert_eq!(names(&mut stage), ["vol-099"]);
    stage.chrome.wait("document.querySelector('.tile.g-degraded').getAttribute('aria-current') === 'true'");

    // A search by words of the message, through the form.
    stage.open("");
    stage.chrome.eval("document.getElementById('search').focus()");
    stage.chrome.write("DISK answer");
    stage.chrome.press("Enter");
    stage.chrome.wait(&format!("location.search.includes('q=') && {ROWS}.length === 1"));
    assert_eq!(names(&mut stage), ["vol-077"]);
    stage.open("?q=nothing-of-this-name");
    assert!(stage.chrome.text("document.querySelector('.empty').innerText").contains("No volume matches"));

    for path in ["nodes", "source"] {
        stage.open(path);
        inspect::assert_accessible(&mut stage.chrome, path);
    }
    assert!(
        stage
            .chrome
            .text("document.querySelector('.calls').innerText")
            .contains("ControllerListVolumeHealth")
    );
    stage.assert_clean();
}

#[test]
fn all_is_there_without_the_script() {
    let mut stage = Stage::new((0..3).map(|number| format!("vol-{number}")));
    stage.sim.harm("vol-1", DEGRADED, "OutOfCapacity", "99 % used");
    stage.open("");
    stage.chrome.wait("document.title.startsWith('1 degraded')");
    stage.chrome.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    let url = format!("{}?health=NotWell", stage.url);
    stage.chrome.call("Page.navigate", json!({ "url": url }));
    stage.chrome.wait("location.search === '?health=NotWell' && document.readyState === 'complete'");
    assert_eq!(names(&mut stage), ["vol-1"]);
    assert_eq!(stage.chrome.text("document.getElementById('state').textContent"), "as of loading");
    stage.assert_clean();
}

/// A browser keeps pages for the way back and has six connections for one place; each page must give its own up.
#[test]
fn one_page_after_another_and_back_again() {
    let mut stage = Stage::new((0..3).map(|number| format!("vol-{number}")));
    for round in 0..12 {
        stage.open(&format!("?q=vol-{}", round % 3));
    }
    stage.open("volume?driver=disk.example.net&volume=vol-1");
    stage.open("source");
    stage.chrome.eval("history.back()");
    stage.chrome.wait("document.querySelector('h1')?.innerText === 'vol-1'");
    stage.chrome.wait("document.getElementById('state').textContent === 'live'");
    stage.sim.harm("vol-1", DEGRADED, "OutOfCapacity", "99 % used");
    stage.chrome.wait("document.querySelector('.headline').innerText.includes('OutOfCapacity')");
    stage.assert_clean();
}
