//! Puts the wish on the claim, waits for the answer, and takes the wish away again.

use std::time::Duration;

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::look::innermost;
use volmedic_api::Readable;
use volmedic_heal::wish::{ANSWER, LABEL, Reply, Wish};
use volmedic_runtime::signals::Signals;

/// A healer that is there takes a wish sooner.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);
/// Others may write the claim at the same time.
const TRIES: usize = 5;
const LOOK_EVERY: Duration = Duration::from_millis(300);

pub(super) struct Errand {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) claim: String,
    /// Of one request.
    pub(super) deadline: Duration,
    pub(super) patience: Duration,
}

impl Errand {
    /// Others may write into a claim, and into an event, what no date type holds.
    pub(super) fn claims(&self) -> Api<Readable<PersistentVolumeClaim>> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The claim, if it has a volume.
    pub(super) async fn bound_claim(&self) -> anyhow::Result<PersistentVolumeClaim> {
        let claims = self.claims();
        let Self { namespace, claim, .. } = self;
        let what = format!("the claim {namespace}/{claim}");
        let found = self.call(&format!("{what} cannot be read"), claims.get_opt(claim)).await?;
        let Some(Readable(found)) = found else {
            bail!("{what} does not exist; give its namespace with -n, `volmedic status -A` shows all claims");
        };
        if found.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default().is_empty() {
            let phase =
                found.status.and_then(|status| status.phase).unwrap_or_else(|| "not bound".to_owned());
            bail!("{what} is bound to no PersistentVolume ({phase}), so there is nothing to heal");
        }
        Ok(found)
    }

    pub(super) async fn ask(&self, dry_run: bool) -> anyhow::Result<Reply> {
        let found = self.bound_claim().await?;
        let claims = self.claims();
        let Self { namespace, claim, .. } = self;
        let what = format!("the claim {namespace}/{claim}");
        let wish = Wish::new(Timestamp::now(), dry_run)?;
        let put = Patch::Merge(json!({
            // This very claim, and no other of the same name.
            "metadata": {"uid": found.uid(), "labels": {LABEL: wish.to_string()}},
        }));
        let why = format!("{what} cannot be marked with the wish; a user who may change the claim may ask");
        self.call(&why, claims.patch(claim, &PatchParams::default(), &put)).await?;
        let mut signals = Signals::new()?;
        let answer = tokio::select! {
            answer = self.wait(&wish) => answer,
            () = signals.next() => Err(anyhow!("interrupted; what was taken up already goes on")),
        };
        // If it stays, because this fails, the healer passes over it after a while.
        let _ = timeout(self.deadline, self.take_away(&claims, &wish)).await;
        answer
    }

    /// Only our own wish: somebody else may have asked since.
    async fn take_away(
        &self,
        claims: &Api<Readable<PersistentVolumeClaim>>,
        wish: &Wish,
    ) -> kube::Result<()> {
        for _ in 0..TRIES {
            let Some(Readable(found)) = claims.get_opt(&self.claim).await? else { return Ok(()) };
            if found.labels().get(LABEL) != Some(&wish.to_string()) {
                return Ok(());
            }
            let version = found.resource_version();
            let patch =
                Patch::Merge(json!({"metadata": {"resourceVersion": version, "labels": {LABEL: null}}}));
            match claims.patch(&self.claim, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                done => return done.map(drop),
            }
        }
        Ok(())
    }

    async fn wait(&self, wish: &Wish) -> anyhow::Result<Reply> {
        let events = Api::<Readable<Event>>::namespaced(self.client.clone(), &self.namespace);
        let name = wish.event(&self.claim);
        let began = Instant::now();
        loop {
            let found = self.call("the answer cannot be read", events.get_opt(&name)).await?;
            let answer = found.as_ref().and_then(|Readable(event)| event.annotations().get(ANSWER));
            if let Some(answer) = answer {
                return serde_json::from_str(answer).map_err(|error| {
                    anyhow!(
                        "the healer's answer makes no sense ({error}); are hub and `volmedic` of one release?"
                    )
                });
            }
            if found.is_none() && began.elapsed() >= TAKEN_WITHIN.min(self.patience) {
                bail!(
                    "nobody took up the wish within {} s: no hub runs with --heal and leads, or its clock and this \
                     machine's are more than five minutes apart; `volmedic doctor` shows which hub leads",
                    began.elapsed().as_secs()
                );
            }
            if began.elapsed() >= self.patience {
                bail!(
                    "no answer within {} s; it goes on, `kubectl describe pvc {} -n {}` will show how it ends",
                    self.patience.as_secs(),
                    self.claim,
                    self.namespace
                );
            }
            sleep(LOOK_EVERY).await;
        }
    }

    pub(super) async fn call<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> anyhow::Result<T> {
        match timeout(self.deadline, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(anyhow!("{what}: {} ({})", status.message, status.code)),
            Ok(Err(error)) => Err(anyhow!("{what}: {}", innermost(&error))),
            Err(_) => {
                Err(anyhow!("{what}: the API server did not answer within {} s", self.deadline.as_secs()))
            }
        }
    }
}
