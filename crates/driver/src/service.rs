//! The CSI services: requests in, checked and handed to the workers, answers out.

mod addons;
mod controller;
mod health;
mod identity;
mod node;

pub(crate) use addons::AddonsService;

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use volmedic_proto::csi::{Topology, Volume, VolumeContentSource, volume_content_source};

use volmedic_host::helper::{Helpers, Limits};

use crate::assess::Assessor;
use crate::config::Config;
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::fault::hook::Pages;
use crate::health::Checks;
use crate::mounter::{Mounters, Sessions};
use crate::node::Node;
use crate::paths::Roots;
use crate::record::{Kind, Source, VolumeRecord};
use crate::recover::recover;
use crate::state_dir::StateDir;
use crate::store::Store;
use crate::work::{Locks, Workers};

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) config: Arc<Config>,
    workers: Workers,
    store: Arc<Store>,
    controller: Arc<Controller>,
    node: Arc<Node>,
    assessor: Arc<Assessor>,
    pages: Pages,
}

impl Driver {
    pub(crate) fn open(config: Config) -> Result<Self> {
        if config.node_id.is_empty() || config.node_id.len() > 128 {
            return Err(Error::invalid("node_id", "it is empty or longer than 128 bytes"));
        }
        let made = fs::create_dir_all(&config.state_dir).and_then(|()| config.state_dir.canonicalize());
        let root = made.map_err(|error| Error::no_state_dir(&config.state_dir, &error))?;
        let state = StateDir::new(&root);
        let config = Arc::new(config);
        let store = Arc::new(Store::open(&state, config.services)?);
        // A session is only worth holding where a heal can be requested.
        let heals = config.addons.as_ref().filter(|_| config.services.node);
        let sessions = heals.map(|addons| Sessions::start(addons.session_grace)).transpose();
        let sessions = sessions.map_err(Error::io("watch over the sessions of mounters"))?;
        let mounters = Mounters::new(config.program.clone(), state, sessions);
        recover(&store, config.services, &mounters)?;
        let helpers = Helpers::with_program(&config.program, Limits::default());
        let checks = Checks::new(config.checks, helpers).map_err(Error::io("start the checks"))?;
        let assessor = Arc::new(Assessor { store: Arc::clone(&store), checks });
        let locks = Locks::default();
        Ok(Self {
            workers: Workers::new(config.call_deadline),
            controller: Arc::new(Controller {
                config: Arc::clone(&config),
                store: Arc::clone(&store),
                locks: locks.clone(),
            }),
            node: Arc::new(Node {
                store: Arc::clone(&store),
                roots: Roots::new(config.allowed_roots.clone(), root),
                locks,
                mounters,
            }),
            assessor,
            pages: Pages::new(&config.state_dir),
            store,
            config,
        })
    }

    /// Whether no call is at work.
    pub(crate) fn is_idle(&self) -> bool {
        self.workers.are_idle()
    }

    fn topology(&self) -> Topology {
        Topology { segments: HashMap::from([(self.config.topology_key(), self.config.node_id.clone())]) }
    }

    fn volume(&self, record: &VolumeRecord) -> Volume {
        let (kind, filesystem) = match record.kind {
            Kind::Loop => ("loop", record.filesystem.name()),
            Kind::Fuse => ("fuse", "fuse"),
        };
        Volume {
            capacity_bytes: signed(record.bytes),
            volume_id: record.id.clone(),
            volume_context: HashMap::from([
                ("kind".to_owned(), kind.to_owned()),
                ("fsType".to_owned(), filesystem.to_owned()),
            ]),
            content_source: record.source.as_ref().map(content_source),
            accessible_topology: vec![self.topology()],
        }
    }
}

fn content_source(source: &Source) -> VolumeContentSource {
    use volume_content_source::{SnapshotSource, Type, VolumeSource};
    let source = match source.clone() {
        Source::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
        Source::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
    };
    VolumeContentSource { r#type: Some(source) }
}

/// Sizes on the wire are signed; ours never reach that far.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
