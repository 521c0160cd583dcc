//! What docs/volumehealth.md shows of kubectl is what kubectl prints.

use std::path::Path;

use volmedic_testkit::objects;

use crate::stage::{Stage, bare, everything, install, kubectl, start_hub, try_kubectl};

const NAMESPACE: &str = "shop";
const NODE: &str = "worker-7";

/// A command of the page and what it says comes of it.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// All that follows a `$ kubectl` in a block of the page.
fn shown() -> Vec<Shown> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/volumehealth.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let blocks = page.split("```").skip(1).step_by(2).filter(|block| block.contains("$ kubectl "));
    let mut all: Vec<Shown> = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => all.push(Shown { command: command.to_owned(), output: Vec::new() }),
            (None, Some(last)) => last.output.push(line.to_owned()),
            (None, None) => {}
        }
    }
    all
}

/// Columns are as wide as the ages in them, which go by; so do blanks at the ends of lines.
fn plain<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let word = |word: &str| {
        let is_age = word.len() > 1
            && word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || matches!(c, 's' | 'm' | 'h' | 'd'))
            && word.ends_with(['s', 'm', 'h', 'd']);
        if is_age { "AGE".to_owned() } else { word.to_owned() }
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    lines.into_iter().map(line).filter(|line| !line.is_empty()).collect()
}

#[tokio::test]
async fn kubectl_prints_what_the_page_shows() {
    let plane = bare();
    install(&plane, &everything());
    let stage = Stage::new(plane.clone(), plane.client().await.expect("a client"), NAMESPACE.to_owned());
    kubectl(&stage.plane, &["create", "namespace", NAMESPACE]);
    kubectl(&stage.plane, &["create", "serviceaccount", "default", "-n", NAMESPACE]);
    objects::node(&stage.client, NODE).await.expect("a node");
    stage.used_claim("data", NODE).await;
    let _hub = start_hub(&stage.kubeconfig().await, &["--leader-election=false"]);
    stage.tell(NODE, &stage.report(&[("data", "Inaccessible", "IOHung")])).await;
    stage.wait_stored("data", &[&format!("host/{NODE} HealthFailure Inaccessible/IOHung")]).await;

    let all = shown();
    for verb in ["get", "explain", "wait"] {
        let begins = format!("kubectl {verb} ");
        assert!(all.iter().any(|shown| shown.command.starts_with(&begins)), "the page shows no {begins}");
    }
    for Shown { command, output } in all {
        if command.starts_with("kubectl wait") {
            stage.tell(NODE, &stage.report(&[])).await;
        }
        let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
        let (worked, printed) = try_kubectl(&stage.plane, &arguments);
        assert!(worked, "{command}: {printed}");
        let expected = plain(output.iter().map(String::as_str));
        assert_eq!(plain(printed.lines()), expected, "$ {command}\n{printed}");
    }
}
