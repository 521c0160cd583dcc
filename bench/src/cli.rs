//! `volmedic status` as a person runs it, beside kubectl on the same server.

mod page;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::ground::Ground;
use crate::machine::Machine;
use crate::{fill, say};
use run::{Figure, Subject};

/// Each command is run so often, in turn; the median counts.
const RUNS: usize = 3;
/// Number of unhealthy claims.
const UNHEALTHY: usize = 1000;
const WRITERS: usize = 32;
/// No command takes longer.
const LIMIT: Duration = Duration::from_mins(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many claims there are, one figure after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000, 100_000], value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=500_000))]
    claims: Vec<usize>,
    /// The program to measure
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The folder with the definitions of our resources
    #[arg(long, value_name = "FOLDER", default_value = "deploy/chart/files/crds")]
    definitions: PathBuf,
    /// Write the page with the figures here
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Everything that goes on the page.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) machine: Machine,
    /// Number of claims, and what each command took with it.
    pub(crate) rows: Vec<(usize, Vec<Figure>)>,
}

pub(crate) fn run(mut args: Args) -> Result<()> {
    args.claims.sort_unstable();
    args.claims.dedup();
    if !args.program.is_file() {
        bail!(
            "there is no program {}; build it with `cargo build --release --package=volmedic`",
            args.program.display()
        );
    }
    let mut outcome = Outcome { machine: Machine::this(), rows: Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure_all(&args, &mut outcome))?;
    say::result(&page::table(&outcome));
    if let Some(path) = &args.page {
        std::fs::write(path, page::page(&outcome))
            .with_context(|| format!("cannot write {}", path.display()))?;
        say::line(&format!("wrote {}", path.display()));
    }
    Ok(())
}

async fn measure_all(args: &Args, outcome: &mut Outcome) -> Result<()> {
    let mut ground = Ground::lay().await?;
    let applied = ground.kubectl().arg("apply").arg("-f").arg(&args.definitions).output();
    let applied = applied.context("kubectl does not start")?;
    if !applied.status.success() {
        bail!("the resources cannot be installed: {}", String::from_utf8_lossy(&applied.stderr));
    }
    let mut unhealthy = 0;
    for &claims in &args.claims {
        ground.fill(claims).await?;
        let wanted = UNHEALTHY.min(claims / 10);
        hurt(&ground, unhealthy..wanted.max(unhealthy)).await?;
        unhealthy = unhealthy.max(wanted);
        let subjects = subjects(args, &ground).await?;
        let mut figures = Vec::new();
        for _ in 0..RUNS {
            // In turn, so that whatever else the machine does is shared by all.
            for subject in &subjects {
                figures.push(run::once(subject, ground.folder(), LIMIT).await?);
            }
        }
        let figures = run::medians(&subjects, &figures);
        for figure in &figures {
            say::line(&format!("  {claims} claims: {figure}"));
        }
        outcome.rows.push((claims, figures));
    }
    Ok(())
}

async fn subjects(args: &Args, ground: &Ground) -> Result<Vec<Subject>> {
    let config = format!("--kubeconfig={}", ground.kubeconfig().await?.display());
    let kubectl = ground.kubectl();
    let kubectl = PathBuf::from(kubectl.get_program());
    let ours = |name: &'static str, more: &[&str]| Subject {
        name,
        program: args.program.clone(),
        arguments: ["status", &config].iter().chain(more).map(ToString::to_string).collect(),
    };
    let theirs = |name: &'static str, more: &[&str]| Subject {
        name,
        program: kubectl.clone(),
        arguments: ["kubectl", &config, "get"].iter().chain(more).map(ToString::to_string).collect(),
    };
    Ok(vec![
        ours("volmedic status", &[]),
        ours("volmedic status -o json", &["-o", "json"]),
        theirs("kubectl get pvc -A", &["pvc", "-A"]),
        theirs("kubectl get pvc,pv -A", &["pvc,pv", "-A"]),
        theirs("kubectl get pvc -A -o json", &["pvc", "-A", "-o", "json"]),
    ])
}

/// Stores a VolumeHealth for each of the claims with these numbers, as the hub would.
async fn hurt(ground: &Ground, numbers: std::ops::Range<usize>) -> Result<()> {
    let kind = GroupVersionKind::gvk("volmedic.dev", "v1alpha1", "VolumeHealth");
    let kind = ApiResource::from_gvk_with_plural(&kind, "volumehealths");
    let claims = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"),
        "persistentvolumeclaims",
    );
    let one = async |number: usize| -> Result<()> {
        let namespace = &ground.namespaces()[number % ground.namespaces().len()];
        let name = fill::claim(number);
        let api = Api::<DynamicObject>::namespaced_with(ground.client.clone(), namespace, &claims);
        let uid = api.get(&name).await.context("cannot read a claim")?.metadata.uid;
        let owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "uid": uid});
        let object = json!({
            "apiVersion": "volmedic.dev/v1alpha1", "kind": "VolumeHealth",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"persistentVolumeClaimName": name},
        });
        let object: DynamicObject = serde_json::from_value(object).context("this is no VolumeHealth")?;
        let api = Api::<DynamicObject>::namespaced_with(ground.client.clone(), namespace, &kind);
        api.create(&PostParams::default(), &object).await.context("cannot make a VolumeHealth")?;
        let since = "2026-08-21T10:00:00Z";
        let condition = json!({"type": "HealthFailure", "status": "True", "errorCode": "Inaccessible", "reason": "DiskFailure",
            "message": "the disk does not answer", "lastTransitionTime": since});
        let vantage = json!({"name": "controller", "kind": "Controller", "health": "HealthFailure", "since": since,
            "healthConditions": [condition]});
        let headline = json!({"health": "HealthFailure", "status": "Inaccessible", "reason": "DiskFailure", "since": since});
        let status = Patch::Merge(json!({"status": {"headline": headline, "vantages": [vantage]}}));
        api.patch_status(&name, &PatchParams::default(), &status).await.context("cannot set a status")?;
        Ok(())
    };
    stream::iter(numbers).map(one).buffer_unordered(WRITERS).try_collect::<Vec<()>>().await?;
    Ok(())
}
