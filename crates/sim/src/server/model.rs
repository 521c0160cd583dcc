//! The model alone, without faults and without a history, so that it can be compared with a real API server.

use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;

use super::{Connection, Server, Setup};
use crate::dice::Dice;
use crate::log::Log;

/// Keeps what was written to it until it is dropped.
#[derive(Debug)]
pub struct Model(Server);

impl Model {
    /// Keeps the health of claims and VolumeHealths. Must be called inside a tokio runtime.
    pub fn new(seed: u64) -> Self {
        let event_ttl = Duration::from_hours(1);
        let setup = Setup { health_of_claims: None, has_volume_healths: true, event_ttl };
        Self(Server::new(Log::new(), setup, Dice::new(seed)))
    }

    pub fn client(&self) -> Client {
        // Nobody kills this process.
        let (deaths, _) = mpsc::unbounded_channel();
        Connection::new(&self.0, "replica-0", deaths).client()
    }

    /// Versions and pages from before now are forgotten.
    pub fn compact(&self) {
        self.0.compact();
    }

    /// Writes an object as it is; answers its new version.
    pub fn rewrite(&self, resource: &str, namespace: &str, name: &str) -> Option<String> {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.0.rewrite(key)
    }

    /// Refuses everything, as an API server does that does not know the rights of accounts yet.
    pub fn forbid(&self, on: bool) {
        self.0.trouble(|trouble| trouble.forbids = on);
    }
}
