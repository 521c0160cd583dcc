//! A page behind a token, over HTTPS.

use serde_json::json;

use crate::stage::{DEGRADED, Stage};

const TOKEN: &str = "a-token-that-nobody-guesses";

#[test]
fn only_who_has_the_token_reads_and_nobody_else_on_the_way() {
    let room = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let argument = |flag: &str, name: &str, text: &str| {
        let path = room.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        format!("--{flag}={}", path.display())
    };
    let arguments = [
        argument("page-token-file", "token", TOKEN),
        argument("page-tls-cert", "cert.pem", &made.cert.pem()),
        argument("page-tls-key", "key.pem", &made.signing_key.serialize_pem()),
    ];
    let mut stage = Stage::with((0..3).map(|number| format!("vol-{number}")), &arguments);
    assert!(stage.url.starts_with("https://127.0.0.1:"), "{}", stage.url);

    // Headless, the browser asks nobody for a password and shows an error of its own instead of our answer. That error page
    // and the line about it come in no order, and after a second refusal the page is as it was.
    let refused = |stage: &mut Stage, times: usize| {
        let url = stage.url.clone();
        stage.chrome.call("Page.navigate", json!({ "url": url }));
        let refusals = stage.chrome.wait_problems("status of 401", times);
        assert_eq!(refusals, times, "{:?}", stage.chrome.problems());
        stage.chrome.wait("document.readyState === 'complete' && location.protocol === 'chrome-error:'");
    };
    refused(&mut stage, 1);
    let wrong = json!({ "headers": { "Authorization": "Bearer a-token-that-nobody-guessed" } });
    stage.chrome.call("Network.setExtraHTTPHeaders", wrong);
    refused(&mut stage, 2);

    let right = json!({ "headers": { "Authorization": format!("Bearer {TOKEN}") } });
    stage.chrome.call("Network.setExtraHTTPHeaders", right);
    stage.open("");
    stage.chrome.wait("document.title.startsWith('3 healthy')");
    stage.chrome.wait("document.getElementById('state').textContent === 'live'");
    stage.sim.harm("vol-1", DEGRADED, "OutOfCapacity", "99 % used");
    stage.chrome.wait("document.title.startsWith('1 degraded')");
}
