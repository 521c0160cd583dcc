//! `volmedic status`: how the volumes of all claims are, worst first, with the reason where it is unknown.

mod live;
mod markdown;
mod screen;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::bail;
use jiff::Timestamp;
use volmedic_view::render::Document;
use volmedic_view::{About, Grade, Query, Row, Snapshot, Wanted};

use crate::look::{self, Picture, Progress, Reach, ReachArgs, Rows, Scope, Unread};
use crate::output::{self, Format, Formats, Output};
use screen::{Shown, compose};
use volmedic_runtime::terminal::{is_screen, paint, say};

/// Rows that a table has unless more are asked for; the rest is counted.
const ROWS: usize = 100;

/// The command line is wrong, as everywhere.
const WRONG: u8 = 2;
/// A wanted claim is unhealthy; none is, but the health of one is unknown.
const ADVERSE: u8 = 3;
const UNKNOWN: u8 = 4;

/// Show how the volumes of all claims are, worst first.
///
/// Reads VolumeHealth where it is installed, else what claims, pods, nodes and events say. A claim whose health nobody
/// knows is shown with why and with what would change that. Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic status
  volmedic status -n shop --health notwell
  volmedic status --driver ebs.csi.aws.com --node worker-7 -o wide
  volmedic status postgres -o json
  volmedic status -o jsonpath='{range .volumes[?(@.health==\"Inaccessible\")]}{.claim}{\"\\n\"}{end}'
  volmedic status -n shop --as system:serviceaccount:shop:viewer
  volmedic status --watch
  kubectl volmedic status          # with the program installed as kubectl-volmedic

Exit codes: 0 when it was shown, whatever was found; 1 when the cluster cannot be read; 2 when the command line is wrong.
With --exit-code also: 3 when a wanted claim is unhealthy, 4 when none is, but the health of some is unknown.")]
pub struct Args {
    /// Only claims in which each of these words occurs, in any column.
    #[arg(value_name = "WORD")]
    search: Vec<String>,
    /// How it is shown.
    #[arg(long, short, value_parser = FORMATS, default_value = "table", value_name = "FORMAT")]
    output: Output,
    /// Maximum number of claims, the worst first; 0 for all. Default: 100 in a table, all in other formats.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Go on: on a terminal the table is drawn again, elsewhere each change is a line.
    #[arg(long, short, conflicts_with_all = ["exit_code", "selector"])]
    watch: bool,
    /// Say by the exit code whether all is healthy.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    reach: ReachArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Which claims")]
struct FilterArgs {
    /// In this namespace. Default: all; the context's own where you may not list all.
    #[arg(long, short, conflicts_with = "all_namespaces", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// In all namespaces, and fail where you may not list all.
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// With these labels, as kubectl takes them.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// Of this driver.
    #[arg(long, value_name = "NAME")]
    driver: Option<String>,
    /// Used on this node.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Of this health: dataloss, inaccessible, degraded, unrecognized, unknown, healthy, or notwell for all but healthy.
    #[arg(long, value_delimiter = ',', value_parser = wanted, value_name = "HEALTH")]
    health: Vec<Wanted>,
    /// With this reason.
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
}

const FORMATS: Formats = Formats(&[
    ("table", Format::Plain),
    ("wide", Format::Wide),
    ("json", Format::Json),
    ("yaml", Format::Yaml),
    ("name", Format::Name),
    ("markdown", Format::Markdown),
]);

impl Args {
    /// What goes wrong is its answer; only where each change is a line, one more is not in the way.
    pub fn usual_level(&self) -> Option<tracing::Level> {
        (self.watch && !is_screen()).then_some(tracing::Level::WARN)
    }
}

fn wanted(text: &str) -> Result<Wanted, String> {
    Wanted::parse(text).ok_or_else(|| {
        "it must be dataloss, inaccessible, degraded, unrecognized, unknown, healthy or notwell".to_owned()
    })
}

/// Which rows are wanted.
#[derive(Debug)]
struct Filter {
    query: Query,
    health: Vec<Wanted>,
    reason: Option<String>,
}

impl Filter {
    fn new(args: &FilterArgs, search: &[String]) -> Self {
        let query = Query {
            driver: args.driver.clone().unwrap_or_default(),
            node: args.node.clone().unwrap_or_default(),
            search: search.join(" "),
            ..Query::default()
        };
        Self { query, health: args.health.clone(), reason: args.reason.clone() }
    }

    fn is_open(&self) -> bool {
        self.query.is_open() && self.health.is_empty() && self.reason.is_none()
    }

    fn keep(&self, rows: &mut Vec<Row>) {
        let passes = self.query.filter();
        rows.retain(|row| {
            let health = self.health.is_empty() || self.health.iter().any(|wanted| wanted.takes(row.grade()));
            let reason = self.reason.as_ref().is_none_or(|word| row.reason().eq_ignore_ascii_case(word));
            health && reason && passes(row)
        });
    }
}

/// What there is to show, at one moment.
struct Status {
    about: About,
    snapshot: Snapshot,
    /// Claims that were checked, wanted or not.
    claims: usize,
}

impl Status {
    fn new(picture: &Picture, reach: &Reach, scope: &Scope, filter: &Filter, now: Timestamp) -> Self {
        let mut maker = Rows::new(picture, now);
        let mut rows = maker.all();
        let claims = rows.len();
        filter.keep(&mut rows);
        let about = about(picture, &maker.who, reach, scope);
        Self { about, snapshot: Snapshot::new(now, rows), claims }
    }
}

pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    if args.watch && !matches!(args.output, Output::Plain | Output::Wide) {
        // There is no caller left that could use an error.
        let _ = writeln!(
            io::stderr(),
            "error: --watch shows a table or lines and has no other format; leave -o out, or ask again and again without --watch"
        );
        return Ok(ExitCode::from(WRONG));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(status(args));
    runtime.shutdown_background();
    match outcome {
        Ok(code) => Ok(code),
        Err(error) if look::is_closed(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

async fn status(args: Args) -> anyhow::Result<ExitCode> {
    let reach = args.reach.reach().await?;
    let filter = Filter::new(&args.filter, &args.search);
    let mut scope =
        Scope { namespace: args.filter.namespace.clone(), labels: args.filter.selector.clone(), claim: None };
    if args.watch {
        return live::watch(&reach, scope, &filter, &args).await;
    }
    let progress = Progress::start();
    let mut picture = Box::pin(look::read(&reach, &scope, &progress)).await;
    if narrower(&picture.unread, &args.filter) {
        scope.namespace = Some(reach.namespace.clone());
        picture = Box::pin(look::read(&reach, &scope, &progress)).await;
    }
    drop(progress);
    must_have_claims(&picture.unread, &reach, &scope)?;
    let now = Timestamp::now();
    let status = Status::new(&picture, &reach, &scope, &filter, now);
    drop(picture);
    show(&status, &filter, &args, now)?;
    Ok(code(&status.snapshot, args.exit_code))
}

/// Who may not list the claims of all namespaces may still list those of one.
fn narrower(unread: &BTreeMap<&str, Unread>, args: &FilterArgs) -> bool {
    let forbidden = unread.get("persistentvolumeclaims") == Some(&Unread::Forbidden);
    forbidden && args.namespace.is_none() && !args.all_namespaces
}

/// Without claims there is nothing to show at all.
fn must_have_claims(unread: &BTreeMap<&str, Unread>, reach: &Reach, scope: &Scope) -> anyhow::Result<()> {
    let place = match &scope.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in all namespaces".to_owned(),
    };
    match unread.get("persistentvolumeclaims") {
        None => Ok(()),
        Some(Unread::Forbidden) => bail!(
            "you may not list claims {place} ({}); name a namespace with -n, use another --context, or ask for `list` on \
             persistentvolumeclaims (see `kubectl auth can-i list pvc`)",
            reach.place
        ),
        Some(why) => bail!("the claims {place} cannot be read ({}): {why}", reach.place),
    }
}

/// Who looks, and what could not be read.
fn about(picture: &Picture, who: &look::Who, reach: &Reach, scope: &Scope) -> About {
    let mut facts = Vec::new();
    if let Some(version) = &reach.version {
        facts.push(("server", version.text.clone()));
    }
    facts.push((
        "lookingAt",
        scope.namespace.clone().map_or("all namespaces".to_owned(), |name| format!("namespace {name}")),
    ));
    let looking = if picture.has("leases") { who.sentence() } else { "not known".to_owned() };
    facts.push(("looking", looking));
    let mut limits: Vec<String> = picture.unread.iter().filter_map(|(kind, why)| limit(kind, why)).collect();
    limits.extend(look::forbidden(picture));
    if picture.malformed > 0 {
        limits.push(format!("{} objects made no sense and are left out", picture.malformed));
    }
    if let Some(look::Life::Silent(since)) = who.hub {
        let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
        limits.push(format!("the hub is not responding{since}, so VolumeHealths may be old: check its pods"));
    }
    About { title: reach.place.clone(), facts, limits, ..About::default() }
}

/// What it means that a kind could not be read. What we may not read is said in one sentence elsewhere.
fn limit(kind: &str, why: &Unread) -> Option<String> {
    match why {
        Unread::Missing if kind == "volumehealths" => Some(
            "VolumeHealth is not installed: what claims, pods, nodes and events say is all there is; `volmedic doctor` \
             says what to install"
                .to_owned(),
        ),
        Unread::Missing | Unread::Forbidden => None,
        Unread::Failed(why) => Some(format!("{kind} could not be read, so what they say is not shown: {why}")),
    }
}

fn show(status: &Status, filter: &Filter, args: &Args, now: Timestamp) -> anyhow::Result<()> {
    let rows = status.snapshot.rows();
    let limit = |usual: usize| match args.limit.unwrap_or(usual) {
        0 => rows.len(),
        some => some.min(rows.len()),
    };
    let document = || Document::new(Some(&status.about), &status.snapshot, rows[..limit(0)].iter().collect());
    match args.output {
        Output::Json => {
            let mut out = BufWriter::new(io::stdout().lock());
            serde_json::to_writer_pretty(&mut out, &document()).map_err(io::Error::from)?;
            writeln!(out)?;
            out.flush()?;
        }
        Output::Yaml | Output::JsonPath(_) => {
            if let Some(text) = args.output.document(&document())? {
                say(&text)?;
            }
        }
        Output::Name => {
            say(&rows[..limit(0)].iter().map(|row| output::name(&row.claim)).collect::<String>())?;
        }
        Output::Markdown => say(&markdown::compose(&rows[..limit(ROWS)], rows.len(), now))?,
        Output::Plain | Output::Wide => {
            let shown = Shown {
                about: &status.about,
                snapshot: &status.snapshot,
                claims: status.claims,
                filtered: !filter.is_open(),
                rows: limit(ROWS),
                wide: args.output == Output::Wide,
                trouble: None,
                now,
            };
            say(&compose(&shown, paint()))?;
        }
    }
    Ok(())
}

fn code(snapshot: &Snapshot, asked: bool) -> ExitCode {
    match snapshot.counts().worst() {
        Some(grade) if asked && grade.is_adverse() => ExitCode::from(ADVERSE),
        Some(Grade::Unknown) if asked => ExitCode::from(UNKNOWN),
        _ => ExitCode::SUCCESS,
    }
}
