//! The report command: sends a hub what a detector of one's own sees of a volume.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http;
use kube::client::Body;
use serde_json::Value;
use volmedic_hub::push::{Report, ReportedClaim, ReportedCondition, ReportedVolume};

use volmedic_runtime::flags::positive;

/// No report takes longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Tell the hub what a detector of your own sees of a volume.
///
/// What one source says replaces what it said before, and is no longer believed after the time given with --ttl unless
/// it is sent again. Without --condition it says that all is healthy.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  volmedic report --hub=https://volmedic-hub.volmedic.svc:8443 --ca-file=/etc/hub/ca.crt \\
    --namespace=shop --claim=data --source=smart-scan --ttl=15m \\
    --condition='Degraded/DiskDegrading=9 sectors were reallocated'

Exit codes: 0 when the hub stored it, 1 when it did not, 2 when the command line is wrong.")]
pub struct Args {
    /// Where the hub takes reports: its scheme, name and port.
    #[arg(long, value_name = "https://HOST:PORT")]
    hub: http::Uri,
    /// Who signed the hub's certificate.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A service-account token for the audience volmedic-hub.
    #[arg(long, default_value = "/var/run/secrets/volmedic/token", value_name = "FILE")]
    token_file: PathBuf,
    /// The claim's namespace.
    #[arg(long, requires = "claim", value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The claim.
    #[arg(long, requires = "namespace", conflicts_with = "volume_handle", value_name = "NAME")]
    claim: Option<String>,
    /// The volume's driver.
    #[arg(long, requires = "volume_handle", value_name = "NAME")]
    driver: Option<String>,
    /// The volume, as its driver names it.
    #[arg(long, requires = "driver", required_unless_present = "claim", value_name = "HANDLE")]
    volume_handle: Option<String>,
    /// Who reports.
    #[arg(long, value_name = "NAME")]
    source: String,
    /// How long it is believed.
    #[arg(long, default_value = "10m", value_parser = positive, value_name = "DURATION")]
    ttl: Duration,
    /// What is wrong: Degraded, Inaccessible or DataLoss, the reason in one word, and a message. May be given several
    /// times.
    #[arg(long, value_parser = condition, value_name = "STATUS/REASON=MESSAGE")]
    condition: Vec<ReportedCondition>,
}

fn condition(text: &str) -> Result<ReportedCondition, String> {
    let (what, message) = text.split_once('=').unwrap_or((text, ""));
    let Some((status, reason)) = what.split_once('/') else {
        return Err("write it as in Degraded/DiskDegrading='9 sectors were reallocated'".to_owned());
    };
    Ok(ReportedCondition {
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

pub fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(async {
        let sent = tokio::time::timeout(LIMIT, send(args)).await;
        sent.unwrap_or_else(|_| Err(anyhow::anyhow!("the hub did not answer within {} s", LIMIT.as_secs())))
    });
    runtime.shutdown_background();
    let answer = sent?;
    let (claims, expires) = (&answer["claims"], answer["expires"].as_str().unwrap_or("its end"));
    writeln!(std::io::stdout(), "stored for {claims} claim(s) until {expires}")?;
    Ok(())
}

async fn send(args: Args) -> anyhow::Result<Value> {
    let report = Report {
        claim: args.namespace.zip(args.claim).map(|(namespace, name)| ReportedClaim { namespace, name }),
        volume: args
            .driver
            .zip(args.volume_handle)
            .map(|(driver, volume_handle)| ReportedVolume { driver, volume_handle }),
        source: args.source,
        conditions: args.condition,
        ttl_seconds: args.ttl.as_secs(),
    };
    let body = serde_json::to_vec(&report)?;
    // Better refused here, where the person is.
    Report::read(&body).map_err(|wrong| anyhow::anyhow!("the report would be refused: {wrong}"))?;
    let token = std::fs::read_to_string(&args.token_file).with_context(|| {
        format!("cannot read the token {}; give one with --token-file", args.token_file.display())
    })?;
    if args.hub.scheme_str() == Some("http") && !is_local(&args.hub) {
        bail!("will not send a token over plain HTTP to {}; use https", args.hub);
    }
    let mut config = kube::Config::new(args.hub.clone());
    config.default_retry = false;
    config.auth_info.token = Some(token.trim().to_owned().into());
    if let Some(path) = &args.ca_file {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        config.root_cert =
            Some(certificates(&text).with_context(|| format!("{} is no certificate", path.display()))?);
    }
    let client = kube::Client::try_from(config).context("cannot talk to the hub")?;
    let request = http::Request::post("/v1/reports")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))?;
    let answer =
        client.send(request).await.with_context(|| format!("the hub {} cannot be reached", args.hub))?;
    let status = answer.status();
    let body = answer.into_body().collect_bytes().await.context("the hub's answer broke off")?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let detail = answer["detail"].as_str().unwrap_or("it did not say why");
        bail!("the hub refused the report ({status}): {detail}");
    }
    Ok(answer)
}

fn is_local(uri: &http::Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    let all = CertificateDer::pem_slice_iter(pem).map(|cert| cert.map(|cert| cert.to_vec()));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    if all.is_empty() {
        bail!("it holds none");
    }
    Ok(all)
}
