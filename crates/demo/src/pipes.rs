//! The pipes: one for each vantage.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use volmedic_health::Vantage;
use volmedic_monitor::{Pipe, Probe, Settings, Way};

use super::driver::NAME;
use super::eyes::All;
use super::source::{Outlet, Source};
use volmedic_runtime::signals::clock;

/// Time between two checks of each volume from each vantage.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
const WORKERS: usize = 12;

/// Checks all volumes from one vantage, until the end.
pub(super) fn watch<P: Probe>(
    tasks: &mut JoinSet<()>,
    source: &Arc<Source>,
    vantage: Vantage,
    probe: Arc<P>,
) {
    let settings = Settings { list_every: INTERVAL, look_every: INTERVAL, workers: WORKERS };
    let all = Arc::new(All::new(&source.volumes));
    let pace = settings.pace(&Way::Nothing);
    let pipe = Pipe::new(
        NAME.into(),
        vantage,
        all.clone(),
        Outlet(source.clone()),
        source.board.clone(),
        pace,
        clock(),
    );
    tasks.spawn(async move {
        let (_observer, observations) = mpsc::channel(1);
        volmedic_monitor::run(pipe, all, probe, settings, observations, clock, std::future::pending()).await;
    });
}
