//! One run: connect, judge every rule, clean up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tonic::Code;
use volmedic_proto::csi as wire;
use volmedic_proto::csi::{controller_service_capability, node_service_capability};

use crate::bench::Bench;
use crate::offers::Service;
use crate::report::{Judged, Not, Outcome, Report, Verdict};
use crate::rules::{How, RULES, Rule};
use crate::text::{line, said};
use crate::{Harm, Options};

/// For all of the cleaning up together.
const CLEANING: Duration = Duration::from_mins(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the driver cannot be reached at {}: {why}; check the address, and that the driver runs", socket.display())]
    Connect { socket: PathBuf, why: String },
    #[error("{call} failed with {why}; without it the driver cannot be judged")]
    Introduction { call: &'static str, why: String },
    #[error("{rule:?} is not a rule; leave --only out to see all rules")]
    NoRule { rule: String },
}

/// Judges a driver. When `stop` ends first, what was made is taken away and the report says how far it came.
pub async fn run(
    options: Options,
    harm: Option<Arc<dyn Harm>>,
    stop: impl Future<Output = ()>,
) -> Result<Report, Error> {
    if let Some(rule) = options.only.iter().find(|only| !RULES.iter().any(|rule| rule.name == **only)) {
        return Err(Error::NoRule { rule: rule.clone() });
    }
    let mut bench = Bench::open(options, harm, &nonce()).await?;
    let (driver, version) = bench.introduce().await?;
    let mut outcomes = Vec::new();
    let stopped = {
        let judging = async {
            for rule in chosen(&bench.options.only) {
                let judged = match rule.how {
                    How::Said(judge) => judge(&bench.offers),
                    How::Asked(ask) => ask(&mut bench).await,
                    How::Tallied(of, what) => of(&bench.seen).judge(what),
                };
                if bench.options.only.is_empty() || bench.options.only.iter().any(|only| only == rule.name) {
                    outcomes.push(outcome(rule, judged));
                }
            }
        };
        tokio::select! {
            () = judging => false,
            () = stop => true,
        }
    };
    let leftovers = match tokio::time::timeout(CLEANING, bench.clean()).await {
        Ok(left) => left,
        Err(_) => vec![format!(
            "everything named volmedic-conformance-{}: cleaning up took longer than {} s",
            bench.volumes.nonce,
            CLEANING.as_secs()
        )],
    };
    Ok(Report { driver, version, outcomes, leftovers, stopped })
}

/// The rules to run. What is judged of every answer needs all of the others to ask.
fn chosen(only: &[String]) -> Vec<&'static Rule> {
    let tallied = |rule: &Rule| matches!(rule.how, How::Tallied(..));
    let named = |rule: &&Rule| only.iter().any(|only| only == rule.name);
    let all = only.is_empty() || RULES.iter().filter(named).any(tallied);
    RULES.iter().filter(|rule| all || named(rule)).collect()
}

fn outcome(rule: &Rule, judged: Judged) -> Outcome {
    let (verdict, evidence) = match judged {
        Ok(evidence) => (Verdict::Pass, evidence),
        Err(Not::Kept(evidence)) => (Verdict::Fail, evidence),
        Err(Not::Applicable(why)) => (Verdict::NotApplicable, why),
    };
    Outcome { rule: rule.name, demands: rule.demands, verdict, evidence }
}

/// Distinguishes the volumes of this run from those of others.
fn nonce() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:012x}{:08x}", now.as_nanos() & 0xffff_ffff_ffff, std::process::id())
}

impl Bench {
    /// Who the driver is and what it offers.
    async fn introduce(&mut self) -> Result<(String, String), Error> {
        let failed = |call| move |status: tonic::Status| Error::Introduction { call, why: said(&status) };
        let mut identity = self.identity();
        let call = "GetPluginInfo";
        let info = self.ask(call, identity.get_plugin_info(wire::GetPluginInfoRequest {})).await;
        let info = info.map_err(failed(call))?;
        self.seen.string(call, "name", &info.name);
        self.seen.string(call, "vendor_version", &info.vendor_version);

        let call = "ControllerGetCapabilities";
        let mut controller = self.controller();
        let request = wire::ControllerGetCapabilitiesRequest {};
        match self.ask(call, controller.controller_get_capabilities(request)).await {
            Ok(answer) => {
                use controller_service_capability::Type::Rpc;
                let number = |said: wire::ControllerServiceCapability| said.r#type.map(|Rpc(rpc)| rpc.r#type);
                let said = answer.capabilities.into_iter().map(number).collect();
                self.offers.controller = Some(Service::new(said));
            }
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => return Err(failed(call)(status)),
        }

        let call = "NodeGetCapabilities";
        let mut node = self.node();
        match self.ask(call, node.node_get_capabilities(wire::NodeGetCapabilitiesRequest {})).await {
            Ok(answer) => {
                use node_service_capability::Type::Rpc;
                let number = |said: wire::NodeServiceCapability| said.r#type.map(|Rpc(rpc)| rpc.r#type);
                let said = answer.capabilities.into_iter().map(number).collect();
                self.offers.node = Some(Service::new(said));
            }
            Err(status) if status.code() == Code::Unimplemented => {}
            Err(status) => return Err(failed(call)(status)),
        }
        Ok((line(&info.name), line(&info.vendor_version)))
    }
}
