//! Names and messages that try to be code, to turn the text around, or to break the layout.

use crate::stage::{DEGRADED, Stage};

#[test]
fn hostile_names_are_shown_and_harmless() {
    let names = [
        "<script>window.hacked = 1</script>".to_owned(),
        "\"><img src=x onerror=\"window.hacked = 1\">".to_owned(),
        "javascript:window.hacked=1".to_owned(),
        "' onmouseover='window.hacked=1".to_owned(),
        "</title></table><h1>gone</h1>".to_owned(),
        "txt.\u{202e}gnp".to_owned(),
        "שלום-volume".to_owned(),
        "x".repeat(253),
    ];
    let mut stage = Stage::new(names.iter().cloned());
    for name in &names {
        stage.sim.harm(name, DEGRADED, "<b>Odd</b>", &format!("{name} & more"));
    }
    stage.open("");
    stage.chrome.wait("document.title.startsWith('8 degraded')");
    stage.chrome.screenshot("hostile");
    let rows = "Array.from(document.querySelectorAll('table.volumes tbody tr'))";
    let shown = stage.chrome.eval(&format!("{rows}.map(row => row.querySelector('th').textContent)"));
    let shown: Vec<String> = serde_json::from_value(shown).expect("a list of names");
    for name in &names {
        let expected = name.replace('\u{202e}', "\\u{202e}");
        assert!(shown.contains(&expected), "{expected} is not shown as it is: {shown:?}");
    }
    assert_eq!(stage.chrome.eval("document.querySelectorAll('h1').length"), 1);
    for (width, height) in [(1400, 900), (390, 800)] {
        stage.chrome.emulate(width, height, "light");
        stage.chrome.wait("document.documentElement.scrollWidth <= window.innerWidth");
    }

    // The page of each opens, by its link, and shows its name.
    let links = stage.chrome.eval(&format!("{rows}.map(row => row.querySelector('th a').href)"));
    let links: Vec<String> = serde_json::from_value(links).expect("a list of links");
    assert_eq!(links.len(), names.len());
    for (link, name) in links.iter().zip(&shown) {
        assert!(link.starts_with(&stage.url), "{link} leads elsewhere");
        stage.chrome.open(link);
        assert_eq!(stage.chrome.text("document.querySelector('h1').textContent"), *name);
        stage.chrome.wait("document.documentElement.scrollWidth <= window.innerWidth");
    }
    let ours = "Array.from(document.scripts).every(script => script.src.endsWith('/assets/page.js'))";
    assert_eq!(stage.chrome.eval(ours), true);
    assert_eq!(stage.chrome.eval("window.hacked === undefined"), true);
    stage.assert_clean();
}
