//! A claim as a row: the same on the hub's page and in the commands.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use volmedic_health::Health;
use volmedic_hub::{ClaimKey, ShownClaim};
use volmedic_runtime::page::stored;
use volmedic_view::Row;

pub use volmedic_hub::NO_DRIVER;

/// Texts that many rows have in common.
#[derive(Debug, Default)]
pub struct Names(HashMap<Box<str>, Arc<str>>);

impl Names {
    pub fn get(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.0.insert(name.into(), new.clone());
        new
    }
}

pub fn row(key: &ClaimKey, shown: &ShownClaim<'_>, names: &mut Names) -> Row {
    let ShownClaim { volume, volume_name, provisioner, users, status, advice } = shown;
    let (driver, handle) = match volume.map(|volume| (&volume.csi, &volume.name)) {
        Some((Some((driver, handle)), _)) => (driver.clone(), handle.clone()),
        Some((None, name)) => (names.get(NO_DRIVER), name.clone()),
        None => {
            let driver = status.driver.as_deref().map(|driver| names.get(driver));
            let driver = driver.or_else(|| provisioner.cloned()).unwrap_or_else(|| names.get(""));
            (driver, status.volume_handle.as_deref().unwrap_or(volume_name).into())
        }
    };
    let pods: BTreeSet<&str> = users.iter().map(|(_, pod)| &**pod).collect();
    let nodes: BTreeSet<&Arc<str>> = users.iter().map(|(node, _)| node).collect();
    let row = Row {
        namespace: (&*key.namespace).into(),
        claim: (&*key.name).into(),
        nodes: nodes.into_iter().cloned().collect(),
        pods: pods.into_iter().map(Into::into).collect(),
        ..Row::new(driver, handle)
    };
    let row = stored::fill(row, status, |name| names.get(name));
    // Since when nothing probes a volume is not known.
    let since = row.since.filter(|_| !(row.health == Health::Unknown && row.seen_by.is_empty()));
    Row { since, advice: advice.map(|advice| names.get(advice)), ..row }
}
