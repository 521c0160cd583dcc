//! Owns a control plane or a cluster until its standard input closes: for trying things by hand, and for tests that
//! kill an owner and see what it leaves.

use std::io::{self, Read, Write};

use anyhow::{Result, bail};
use volmedic_testkit::cluster::{self, Options};
use volmedic_testkit::{Cluster, ControlPlane, Part};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["control-plane"] => own(&ControlPlane::options().start()?),
        ["cluster"] => own(Cluster::start()?.plane()),
        // Starts a cluster that stays.
        ["up", name] => cluster::up(&name.parse()?, Options::default()).map(drop),
        _ => bail!("say what to own: control-plane, cluster, or up <name>"),
    }
}

/// Prints what runs, one word and one value a line, and waits.
fn own(plane: &ControlPlane) -> Result<()> {
    let mut out = io::stdout();
    writeln!(out, "kubeconfig {}", plane.kubeconfig().display())?;
    for part in Part::ALL {
        if let Some(pid) = plane.pid(part) {
            writeln!(out, "{part} {pid}")?;
        }
    }
    writeln!(out, "ready")?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
