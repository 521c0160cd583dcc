//! `volmedic explain`: one claim in full, with who says what, how it came to this, and what to do.

mod gather;
mod markdown;
mod text;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use jiff::Timestamp;
use volmedic_view::render;
use volmedic_view::timeline;

use volmedic_hub::ClaimKey;

use crate::look::{self, Progress, ReachArgs, Scope, Unread};
use crate::output::{self, Format, Formats, Output};
use volmedic_roles::watch;
use volmedic_runtime::terminal::{paint, say};

/// Show all that is known of one claim's volume: who sees what, since when, how it came to this, and what to do.
///
/// Reads the claim, its volume, its pods and nodes, VolumeHealth, what agents saw as evidence, and events. With --history
/// it reads the file that `volmedic watch --history` keeps instead, and no cluster is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic explain data-postgres-0 -n shop
  volmedic explain shop/data-postgres-0 -o json
  volmedic explain shop/data-postgres-0 -o markdown > post-mortem.md
  volmedic explain --history /var/tmp/volumes.history vol-17

Exit codes: 0 when it was shown, whatever was found; 1 when there is no such claim or the cluster cannot be read; 2 when the
command line is wrong.")]
pub struct Args {
    /// The claim, as its name or as namespace/name; with --history the volume, as its driver names it.
    #[arg(value_name = "CLAIM")]
    claim: String,
    /// The claim's namespace. Default: the context's own.
    #[arg(long, short, conflicts_with = "history", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Explain a volume from this history of `volmedic watch`.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// How it is shown.
    #[arg(long, short, value_parser = FORMATS, default_value = "text", conflicts_with = "history", value_name = "FORMAT")]
    output: Output,
    #[command(flatten)]
    reach: ReachArgs,
}

const FORMATS: Formats = Formats(&[
    ("text", Format::Plain),
    ("json", Format::Json),
    ("yaml", Format::Yaml),
    ("name", Format::Name),
    ("markdown", Format::Markdown),
]);

pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let outcome = match &args.history {
        Some(file) => from_history(&args.claim, file),
        None => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let outcome = runtime.block_on(explain(args));
            runtime.shutdown_background();
            outcome
        }
    };
    match outcome {
        Err(error) if !look::is_closed(&error) => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn from_history(volume: &str, file: &std::path::Path) -> anyhow::Result<()> {
    let (now, paint) = (Timestamp::now(), paint());
    for (driver, story) in watch::past(volume, file)? {
        say(&render::explain(&driver, volume, &[], &story, now, paint))?;
        let drawn = render::drawing(&timeline::lanes(&story, now), now, paint);
        say(&format!("\nDrawn\n{drawn}"))?;
    }
    Ok(())
}

async fn explain(args: Args) -> anyhow::Result<()> {
    let (namespace, name) = whose(&args)?;
    let reach = args.reach.reach().await?;
    let namespace = namespace.unwrap_or_else(|| reach.namespace.clone());
    let scope = Scope { namespace: Some(namespace.clone()), labels: None, claim: Some(name.clone()) };
    let progress = Progress::start();
    let picture = Box::pin(look::read(&reach, &scope, &progress)).await;
    let key = ClaimKey::new(&namespace, &name);
    match (picture.world.has_claim(&key), picture.unread.get("persistentvolumeclaims")) {
        (true, _) => {}
        (false, None) => bail!(
            "there is no claim {name} in namespace {namespace} ({}); `volmedic status -n {namespace}` shows those there \
             are, and -n names another namespace",
            reach.place
        ),
        (false, Some(Unread::Forbidden)) => bail!(
            "you may not list claims in namespace {namespace} ({}); use another --context, or ask for `list` on \
             persistentvolumeclaims",
            reach.place
        ),
        (false, Some(why)) => bail!("the claim {namespace}/{name} cannot be read ({}): {why}", reach.place),
    }
    let explained = gather::gather(&reach, &picture, &key, Timestamp::now()).await?;
    drop(progress);
    let text = match args.output.document(&explained)? {
        Some(document) => document,
        None if args.output == Output::Name => output::name(&explained.claim.claim),
        None if args.output == Output::Markdown => markdown::compose(&explained),
        None => text::compose(&explained, paint()),
    };
    Ok(say(&text)?)
}

/// As in `data`, `shop/data`, `pvc/data`.
fn whose(args: &Args) -> anyhow::Result<(Option<String>, String)> {
    match args.claim.split_once('/') {
        None => Ok((args.namespace.clone(), args.claim.clone())),
        Some(("pvc" | "persistentvolumeclaim" | "persistentvolumeclaims", name)) => {
            Ok((args.namespace.clone(), name.to_owned()))
        }
        Some((namespace, name)) => match &args.namespace {
            Some(other) if other != namespace => {
                bail!("the claim {namespace}/{name} is not in namespace {other}; give one of the two")
            }
            _ => Ok((Some(namespace.to_owned()), name.to_owned())),
        },
    }
}
