//! What the task runner and its tools share: cargo's view of the workspace, child processes with a deadline, output.

pub mod child;
pub mod say;
pub mod workspace;

/// The tasks of the second program, xtask-tools, and what each is for.
#[rustfmt::skip]
pub const TOOLS: [(&str, &str); 12] = [
    ("bench", "Measure a role as a process, against its budget"),
    ("chart", "Write the manifests that are generated from the Helm chart"),
    ("cluster", "Run a real one-node Kubernetes on this machine"),
    ("codegen", "Write every generated file, or check them with --check"),
    ("deny", "Check advisories, licences, sources and banned crates with cargo-deny"),
    ("dependencies", "Check licences, sources and banned crates against deny.toml, offline"),
    ("dist", "Build what is shipped: static program, image, chart, bill of materials, checksums"),
    ("fuzz", "Feed mutated input to the parsers that read what others wrote"),
    ("gallery", "Inject every fault into real volumes and show what the agent reports"),
    ("simulate", "Run histories of faults from seeds, and compare what is reported with the truth"),
    ("tidy", "Check the architecture and the house rules"),
    ("world", "Run drivers of other projects on a real cluster and show what is reported of faults"),
];
