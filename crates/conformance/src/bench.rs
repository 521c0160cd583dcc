//! The driver under test, what is known of it, and every answer it gave.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use volmedic_proto::csi::controller_client::ControllerClient;
use volmedic_proto::csi::identity_client::IdentityClient;
use volmedic_proto::csi::node_client::NodeClient;

use crate::offers::Offers;
use crate::run::Error;
use crate::seen::Seen;
use crate::volume::Volumes;
use crate::{Harm, Options};

/// The largest answer that is read; a list of a hundred thousand volumes fits.
const LARGEST_ANSWER: usize = 64 << 20;
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) offers: Offers,
    pub(crate) seen: Seen,
    pub(crate) volumes: Volumes,
    pub(crate) harm: Option<Arc<dyn Harm>>,
    /// The injury that may be done now, and to which volume.
    pub(crate) hurt: Option<(String, String)>,
    /// Sent as a secret: a caller that repeats it gives secrets away.
    marker: String,
    controller: Channel,
    node: Channel,
}

impl Bench {
    pub(crate) async fn open(
        options: Options,
        harm: Option<Arc<dyn Harm>>,
        nonce: &str,
    ) -> Result<Self, Error> {
        let controller = connect(&options.socket).await?;
        let node = match &options.node_socket {
            Some(socket) => connect(socket).await?,
            None => controller.clone(),
        };
        Ok(Self {
            offers: Offers::default(),
            seen: Seen::default(),
            volumes: Volumes::new(nonce),
            marker: format!("volmedic-secret-{nonce}"),
            options,
            harm,
            hurt: None,
            controller,
            node,
        })
    }

    pub(crate) fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.controller.clone())
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.controller.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.node.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(crate) fn secrets(&self) -> HashMap<String, String> {
        let mut secrets = self.options.secrets.clone();
        secrets.insert("volmedic-conformance".to_owned(), self.marker.clone());
        secrets
    }

    /// Waits for an answer as long as one may take, and judges of it what is judged of every answer.
    pub(crate) async fn ask<A: fmt::Debug>(
        &mut self,
        call: &str,
        answer: impl Future<Output = Result<Response<A>, Status>>,
    ) -> Result<A, Status> {
        let patience = self.options.deadline;
        let Ok(answer) = tokio::time::timeout(patience, answer).await else {
            let late = format!("{call}: no answer within {} s", patience.as_secs_f32());
            self.seen.deadlines.note(Some(late));
            return Err(Status::deadline_exceeded("no answer in time"));
        };
        self.seen.deadlines.note(None);
        let reported = match &answer {
            Ok(answer) => format!("{:?}", answer.get_ref()),
            Err(status) => {
                self.seen.failed(call, status);
                format!("{} {:?}", status.message(), String::from_utf8_lossy(status.details()))
            }
        };
        let reported_secret = std::iter::once(&self.marker)
            .chain(self.options.secrets.values())
            // What is too short would be found anywhere.
            .any(|secret| secret.len() >= 6 && reported.contains(secret.as_str()));
        self.seen.secrets.note(reported_secret.then(|| format!("{call}: a secret of the request came back")));
        answer.map(Response::into_inner)
    }
}

async fn connect(socket: &Path) -> Result<Channel, Error> {
    let failed = |why: String| Error::Connect { socket: socket.to_owned(), why };
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))
        .map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(CONNECT, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => {
            let mut why: &dyn std::error::Error = &error;
            while let Some(cause) = why.source() {
                why = cause;
            }
            Err(failed(why.to_string()))
        }
        Err(_) => Err(failed(format!("it does not answer within {} s", CONNECT.as_secs()))),
    }
}
