//! What the driver says it can do. Numbers are kept as they came.

use std::collections::BTreeSet;

use volmedic_proto::csi::controller_service_capability::rpc::Type as Controller;
use volmedic_proto::csi::node_service_capability::rpc::Type as Node;

use crate::report::{Not, not_applicable};

/// What one service offers.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// The numbers as they came; `None` where the answer named no call at all.
    pub(crate) said: Vec<Option<i32>>,
    can: BTreeSet<i32>,
}

impl Service {
    pub(crate) fn new(said: Vec<Option<i32>>) -> Self {
        Self { can: said.iter().flatten().copied().collect(), said }
    }
}

/// `None` for a service that is not served on the socket.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    pub(crate) controller: Option<Service>,
    pub(crate) node: Option<Service>,
}

impl Offers {
    pub(crate) fn controller(&self, what: Controller) -> bool {
        self.controller.as_ref().is_some_and(|service| service.can.contains(&(what as i32)))
    }

    pub(crate) fn node(&self, what: Node) -> bool {
        self.node.as_ref().is_some_and(|service| service.can.contains(&(what as i32)))
    }

    pub(crate) fn need_controller(&self, what: Controller) -> Result<(), Not> {
        if self.controller.is_none() {
            return not_applicable("the controller service is not served here");
        }
        if self.controller(what) {
            return Ok(());
        }
        not_applicable(format!("the controller does not offer {}", what.as_str_name()))
    }

    pub(crate) fn need_node(&self, what: Node) -> Result<(), Not> {
        if self.node.is_none() {
            return not_applicable("the node service is not served here");
        }
        if self.node(what) {
            return Ok(());
        }
        not_applicable(format!("the node does not offer {}", what.as_str_name()))
    }

    /// NodeGetVolumeStats must be served with either of two capabilities.
    pub(crate) fn need_stats(&self) -> Result<(), Not> {
        if self.node(Node::VolumeCondition) { Ok(()) } else { self.need_node(Node::GetVolumeStats) }
    }
}
