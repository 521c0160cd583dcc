//! What an election is about, and how patient it is.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

/// client-go refuses a renew deadline that leaves no room for one retry with jitter; so do we.
const ROOM: f64 = 1.2;

/// One election. The defaults of the durations are those of the CSI sidecars.
#[derive(Debug, Clone)]
pub struct Config {
    pub namespace: String,
    pub name: String,
    /// Under which name we stand; each replica needs its own.
    pub identity: String,
    /// Put on the Lease when we write it.
    pub labels: BTreeMap<String, String>,
    /// The same, as they are at that moment: a change travels with the next renewal and costs no write of its own.
    pub annotations: watch::Receiver<BTreeMap<String, String>>,
    /// Others must respect us for so long after they last saw us renew.
    pub lease_duration: Duration,
    /// Without a renewal for so long, we stop leading by ourselves.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry_period: Duration,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error(
        "the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?}); give it at least a second more"
    )]
    LeaseTooShort { lease: Duration, renew: Duration },
    #[error(
        "the renew deadline ({renew:?}) must be longer than 1.2 times the retry period ({retry:?}); raise it, or retry more often"
    )]
    RenewTooShort { renew: Duration, retry: Duration },
    #[error("the lease duration ({0:?}) must be between a second and a day; Leases count whole seconds")]
    OutOfRange(Duration),
    #[error("the retry period must be longer than zero")]
    NoPause,
    #[error("the {0} of the leader election is empty; give it one")]
    Empty(&'static str),
    #[error("{0:?} is not a label of the form key:value; give labels as k1:v1,k2:v2")]
    Label(String),
}

impl Config {
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            labels: BTreeMap::new(),
            annotations: watch::channel(BTreeMap::new()).1,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(5),
        }
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        let Self {
            namespace,
            name,
            identity,
            labels: _,
            annotations: _,
            lease_duration,
            renew_deadline,
            retry_period,
        } = self;
        let (lease, renew, retry) = (*lease_duration, *renew_deadline, *retry_period);
        for (what, text) in [("namespace", namespace), ("name", name), ("identity", identity)] {
            if text.is_empty() {
                return Err(ConfigError::Empty(what));
            }
        }
        if retry.is_zero() {
            return Err(ConfigError::NoPause);
        }
        if !(1..=86_400).contains(&lease.as_secs()) {
            return Err(ConfigError::OutOfRange(lease));
        }
        if lease <= renew {
            return Err(ConfigError::LeaseTooShort { lease, renew });
        }
        if renew <= retry.mul_f64(ROOM) {
            return Err(ConfigError::RenewTooShort { renew, retry });
        }
        Ok(())
    }

    /// The lease duration as the record has it.
    pub(crate) fn seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }
}

/// Reads `k1:v1,k2:v2`; nothing at all is no labels.
pub fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once(':') {
            Some((key, value)) if !key.trim().is_empty() && !value.contains(':') => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(ConfigError::Label(pair.to_owned())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound_and_contradictions_are_reported() {
        let good = Config::new("ns", "lease", "me");
        assert_eq!(good.check(), Ok(()));
        let check = |change: fn(&mut Config), words: &str| {
            let mut config = good.clone();
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        check(|c| c.lease_duration = Duration::from_secs(10), "must be longer than the renew deadline (10s)");
        check(|c| c.renew_deadline = Duration::from_secs(6), "longer than 1.2 times the retry period (5s)");
        check(|c| c.retry_period = Duration::ZERO, "longer than zero");
        check(|c| c.lease_duration = Duration::from_millis(900), "whole seconds");
        check(|c| c.identity.clear(), "the identity of the leader election is empty");
    }

    #[test]
    fn labels() {
        let pairs = |text| {
            parse_labels(text).map(|map| map.into_iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>())
        };
        assert_eq!(pairs(""), Ok(vec![]));
        assert_eq!(pairs("team:storage, tier:1"), Ok(vec!["team=storage".to_owned(), "tier=1".to_owned()]));
        assert_eq!(pairs("empty:"), Ok(vec!["empty=".to_owned()]));
        assert_eq!(pairs("team"), Err(ConfigError::Label("team".to_owned())));
        assert_eq!(pairs("a:b:c"), Err(ConfigError::Label("a:b:c".to_owned())));
    }
}
