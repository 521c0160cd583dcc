//! What a Lease says about who leads.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// The part of a Lease's spec that elections are made of. Absent fields read as empty, as client-go reads them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Empty when there is no leader.
    pub holder: String,
    /// For how long after its last renewal the holder must be respected.
    pub seconds: i32,
    pub acquired: Option<Timestamp>,
    pub renewed: Option<Timestamp>,
    /// How often the holder changed.
    pub transitions: i32,
}

impl Record {
    pub(crate) fn of(spec: Option<&LeaseSpec>) -> Self {
        let Some(spec) = spec else { return Self::default() };
        Self {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }

    /// Leaves the fields of other features alone.
    pub(crate) fn write_to(&self, spec: &mut LeaseSpec) {
        let Self { holder, seconds, acquired, renewed, transitions } = self;
        spec.holder_identity = Some(holder.clone());
        spec.lease_duration_seconds = Some(*seconds);
        spec.acquire_time = acquired.map(MicroTime);
        spec.renew_time = renewed.map(MicroTime);
        spec.lease_transitions = Some(*transitions);
    }
}
