//! The heal command: a person asks the healer in the hub to have one claim's volume healed.

mod approve;
mod ask;
mod report;
mod show;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;

use crate::look::ReachArgs;
use crate::output::{self, Format, Formats, Output};
use volmedic_heal::wish::{PlaceReply, Reply, Word};
use volmedic_runtime::flags::positive;

/// A guard stands in the way.
const REFUSED: u8 = 3;

/// Ask the healer to have the volume of a claim healed now, or what would stand in the way.
///
/// A person stands above the pause after a try, the give-up and the consent, and above nothing else. Anyone who may change
/// the claim may ask. The hub must run with --heal. With --approve nothing is asked: it records consent to one remedy, for
/// claims whose mode is approve. With --report nothing is asked either: it lists what would have been done where healing only
/// observes or waits for consent. See docs/healing.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  volmedic heal data -n shop --dry-run
  volmedic heal data -n shop
  volmedic heal data -n shop --approve --remedy RecreatePods
  volmedic heal --report -A --since 168h -o markdown

Exit codes: 0 when the driver says that the volume is healthy wherever it is used (with --dry-run: when nothing stands in \
the way, with --approve: when the consent was written, with --report: when it could be made), 1 when it is not or could not be \
asked, 2 when the command line is wrong, 3 when a guard stands in the way.")]
pub struct Args {
    /// The claim. With --report it may be left out: then all claims of the namespace.
    #[arg(value_name = "CLAIM", required_unless_present = "report")]
    claim: Option<String>,
    /// Its namespace. Default: that of the context.
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Say what would stand in the way, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Consent to a remedy for the current problem of the claim. Has an effect where the remedy's mode is approve.
    #[arg(long, requires = "remedy", conflicts_with = "dry_run")]
    approve: bool,
    /// Remedy that the consent is for. Consent to one remedy is no consent to the other.
    #[arg(long, value_enum, ignore_case = true, requires = "approve", value_name = "REMEDY")]
    remedy: Option<Consent>,
    /// List what would have been done where the mode is observe or consent was missing, when, and how long the problem lasted
    /// without it. It is read from the VolumeHealths, which keep the last time for each remedy and node.
    #[arg(long, conflicts_with_all = ["dry_run", "approve"])]
    report: bool,
    /// Start of the report, as an age.
    #[arg(long, default_value = "168h", value_parser = positive, requires = "report", value_name = "DURATION")]
    since: Duration,
    /// Report on the claims of all namespaces.
    #[arg(long, short = 'A', requires = "report", conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How the answer is shown.
    #[arg(long, short, value_parser = FORMATS, default_value = "table", value_name = "FORMAT")]
    output: Output,
    /// Wait for so long for the answer. Past that it goes on without anybody waiting for it.
    #[arg(long, default_value = "5m", value_parser = positive, value_name = "DURATION")]
    timeout: Duration,
    #[command(flatten)]
    reach: ReachArgs,
}

/// Remedies for which a person can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Consent {
    #[value(name = "NodeHealer")]
    NodeHealer,
    #[value(name = "RecreatePods")]
    RecreatePods,
}

/// What came of it: an answer of the healer, or a consent that was written.
enum Done {
    Asked(Reply),
    Approved(approve::Approved),
    Reported(report::Shadow),
}

const FORMATS: Formats = Formats(&[
    ("table", Format::Plain),
    ("json", Format::Json),
    ("yaml", Format::Yaml),
    ("name", Format::Name),
    ("markdown", Format::Markdown),
]);

pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async {
        let reach = args.reach.reach().await?;
        let namespace = args.namespace.clone().unwrap_or_else(|| reach.namespace.clone());
        let (client, deadline) = (reach.client, reach.deadline);
        if args.report {
            let namespace = (!args.all_namespaces).then_some(namespace);
            let scope =
                report::Scope { client, namespace, claim: args.claim.clone(), since: args.since, deadline };
            return scope.report(Timestamp::now()).await.map(Done::Reported);
        }
        let claim = args.claim.clone().unwrap_or_default();
        let errand = ask::Errand { client, namespace, claim, deadline, patience: args.timeout };
        match args.remedy.filter(|_| args.approve) {
            Some(remedy) => errand.approve(remedy).await.map(Done::Approved),
            None => errand.ask(args.dry_run).await.map(Done::Asked),
        }
    });
    runtime.shutdown_background();
    let asked = asked?;
    let claim = args.claim.as_deref().unwrap_or_default();
    let (document, code) = match &asked {
        Done::Asked(reply) => (args.output.document(reply)?, code(reply)),
        Done::Approved(approved) => (args.output.document(approved)?, 0),
        Done::Reported(shadow) => (args.output.document(shadow)?, 0),
    };
    let text = match (document, &asked) {
        (Some(document), _) => document,
        (None, Done::Reported(shadow)) if args.output == Output::Name => shadow.names(),
        (None, Done::Reported(shadow)) if args.output == Output::Markdown => shadow.markdown(),
        (None, Done::Reported(shadow)) => shadow.table(),
        (None, _) if args.output == Output::Name => output::name(claim),
        (None, Done::Asked(reply)) if args.output == Output::Markdown => show::markdown(claim, reply),
        (None, Done::Asked(reply)) => show::table(claim, reply),
        (None, Done::Approved(approved)) => approve::text(approved),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(code))
}

/// The worst of all places counts; what went wrong is worse than what was not done.
fn code(reply: &Reply) -> u8 {
    let of = |reported: &PlaceReply| match reported.outcome {
        Word::Well | Word::WouldBeHealed => 0,
        Word::Refused => REFUSED,
        Word::StillUnhealthy | Word::Failed | Word::UnderWay => 1,
    };
    let codes: Vec<u8> = reply.places.iter().map(of).collect();
    if codes.contains(&1) { 1 } else { codes.into_iter().max().unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_place_makes_the_exit_code() {
        let check = |words: &[Word], expected: u8| {
            let reported = |outcome: &Word| PlaceReply {
                node: "n".into(),
                driver: "d".into(),
                volume_handle: "v".into(),
                outcome: *outcome,
                why: Vec::new(),
            };
            let reply = Reply { places: words.iter().map(reported).collect(), omitted: 0 };
            assert_eq!(code(&reply), expected, "{words:?}");
        };
        check(&[Word::Well], 0);
        check(&[Word::WouldBeHealed], 0);
        check(&[Word::Well, Word::Refused], 3);
        check(&[Word::Refused, Word::StillUnhealthy], 1);
        check(&[Word::Failed], 1);
        check(&[Word::UnderWay], 1);
        check(&[], 1);
    }
}
