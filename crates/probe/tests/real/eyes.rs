//! The host's eyes on a volume, as the agent would use them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volmedic_driver::fault::Kind;
use volmedic_health::Sight;
use volmedic_host::helper::{Helpers, Limits};
use volmedic_probe::host::{Expected, Host, Looked, Mode, Settings, Target};

use super::roles::NAME;
use super::stage::{PATIENCE, Volume};

/// Patient: what takes long on a busy machine is not taken for a hang.
pub(crate) fn host() -> Host {
    host_within(Duration::from_secs(30))
}

/// One that takes for hung what does not answer within this time.
pub(crate) fn host_within(deadline: Duration) -> Host {
    let settings = Settings {
        deadline,
        // A test looks more often than once in this time, and each look shall see what the test did.
        table_age: Duration::ZERO,
        ..Settings::default()
    };
    Host::new(Arc::new(Helpers::new(Limits::default())), settings)
}

pub(crate) fn expected(volume: &Volume<'_>, read_only: bool) -> Expected {
    let target = |(at, path): (usize, &std::path::PathBuf)| Target {
        path: path.clone(),
        read_only,
        pod: format!("shop/web-{at}").into(),
        parts: Vec::new(),
    };
    Expected {
        driver: NAME.into(),
        handle: volume.id.as_str().into(),
        mode: if volume.kind == Kind::Block { Mode::Block } else { Mode::Filesystem },
        staging: Some(volume.staging.clone()),
        targets: volume.targets.iter().enumerate().map(target).collect(),
    }
}

/// Looks, and again where that is asked for.
pub(crate) fn look(host: &Host, expected: &Expected) -> Looked {
    let mut looked = host.look(expected);
    for _ in 0..5 {
        let Some(pause) = looked.again else { break };
        std::thread::sleep(pause);
        looked = host.look(expected);
    }
    looked
}

/// `Status/Reason` of all that is wrong, worst first.
pub(crate) fn shown(sight: &Sight) -> String {
    match sight {
        Sight::Healthy => "-".to_owned(),
        Sight::Adverse(set) => set.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Sight::NotSeen(why) => format!("not seen: {why}"),
        other => format!("{other:?}"),
    }
}

pub(crate) fn messages(sight: &Sight) -> String {
    match sight {
        Sight::Adverse(set) => set.iter().map(|c| c.message.to_string()).collect::<Vec<_>>().join("\n"),
        other => shown(other),
    }
}

/// Looks until it sees what it should.
pub(crate) fn settle(host: &Host, expected: &Expected, what: &str, wanted: impl Fn(&str) -> bool) -> Looked {
    let end = Instant::now() + PATIENCE;
    loop {
        let looked = look(host, expected);
        if wanted(&shown(&looked.sight)) {
            return looked;
        }
        let seen = shown(&looked.sight);
        assert!(Instant::now() < end, "{what}: {seen}\n{}", messages(&looked.sight));
        std::thread::sleep(Duration::from_millis(50));
    }
}
