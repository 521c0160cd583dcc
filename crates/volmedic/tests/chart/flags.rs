//! Every argument that the chart gives is one that the program takes.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::chart;
use crate::rendered::sets;
use crate::server::taken;

/// The flags that a role has.
fn known(role: &str) -> BTreeSet<String> {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_volmedic"), role, "--help"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{role} --help: {}", String::from_utf8_lossy(&output.stderr));
    let help = String::from_utf8(output.stdout).unwrap();
    let is_flag = |word: &&str| word.starts_with("--");
    let name = |word: &str| word.trim_end_matches(',').split(['=', '[']).next().unwrap().to_owned();
    help.lines().flat_map(|line| line.split_whitespace().filter(is_flag).map(name)).collect()
}

/// Parses, but stops before it does anything: the last argument asks for the version of the program.
fn parses(arguments: &[String]) -> Result<(), String> {
    let (role, flags) = arguments.split_first().expect("the role comes first");
    let known = known(role);
    let unknown = flags.iter().find(|flag| !known.contains(flag.split('=').next().unwrap()));
    if let Some(flag) = unknown {
        return Err(format!("{role} has no {flag}"));
    }
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_volmedic")]).args(arguments).arg("--version");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn every_flag_is_known_to_its_role() {
    let mut seen = BTreeSet::new();
    for (name, values) in sets() {
        for object in taken(&values) {
            for arguments in arguments(&object) {
                parses(&arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
                seen.insert(arguments[0].clone());
            }
        }
        // In the patches, which the API server does not look into.
        let patches = chart().render("x", &values).unwrap();
        let sidecars = patches.split("- controller\n").skip(1);
        for sidecar in sidecars {
            let lines = sidecar.lines().map(str::trim).take_while(|line| line.starts_with("- --"));
            let flags = lines.map(|line| line.trim_start_matches("- ").to_owned());
            let arguments: Vec<String> = [vec!["controller".to_owned()], flags.collect()].concat();
            parses(&arguments).unwrap_or_else(|error| panic!("{name}: {error}"));
            seen.insert(arguments[0].clone());
        }
    }
    assert_eq!(seen, BTreeSet::from(["agent", "controller", "doctor", "hub"].map(str::to_owned)));
    let wrong = ["hub", "--no-such-flag=1"].map(str::to_owned);
    assert_eq!(parses(&wrong), Err("hub has no --no-such-flag=1".to_owned()));
}

fn arguments(object: &Value) -> Vec<Vec<String>> {
    let spec = if object["kind"] == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
    let containers = spec["containers"].as_array().into_iter().flatten();
    let words = |container: &Value| -> Vec<String> {
        container["args"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    containers.map(words).collect()
}
