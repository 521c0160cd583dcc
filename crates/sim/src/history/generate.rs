//! From a seed to a history.

use std::time::Duration;

use super::{Conditions, Dialect, GONE, History, Memory, Step, Volume, What, When};
use crate::dice::Dice;

/// No two statuses of one reason among them: the product reports such a change as one story, not as an end and a beginning.
const WRONG: &[&str] = &[
    "Degraded/SlowIO",
    "Inaccessible/NetworkError",
    "DataLoss/DiskFailure",
    "Degraded/MirrorLegLost",
    "Inaccessible/ConfigError",
];
/// More changes than this within an hour are reported as flapping, which is another promise.
const MOST_CHANGES: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

impl History {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let dialect = *dice.pick(&[Dialect::Get, Dialect::ListHealth, Dialect::ListVolumes]);
        let memory = *dice.pick(&[Memory::Claims, Memory::Claims, Memory::Healths, Memory::Events]);
        let election = dice.percent(40);
        let replicas = if election { 2 } else { 1 };
        let interval = *dice.pick(&[20, 60, 120]);
        let count = 1 + dice.below(4);
        let volumes = (0..count)
            .map(|number| Volume {
                handle: format!("vol-{number}"),
                // Of a volume with several claims, events alone are not trusted, so nothing remembers it.
                claims: if memory != Memory::Events && dice.percent(20) { 2 } else { 1 },
            })
            .collect();
        let event_ttl = match memory {
            Memory::Events => 48 * 60 * MINUTE,
            // An administrator may have set any; an hour is the default.
            Memory::Claims | Memory::Healths => {
                *dice.pick(&[5 * MINUTE, 60 * MINUTE, 60 * MINUTE, 60 * MINUTE])
            }
        };
        let span = dice.between(20 * MINUTE, 70 * MINUTE);
        let mut history = Self {
            seed,
            dialect,
            memory,
            replicas,
            election,
            interval: Duration::from_secs(interval),
            event_ttl,
            volumes,
            steps: Vec::new(),
            length: Duration::ZERO,
        };
        for volume in 0..count {
            history.truth(&mut dice, volume, span);
        }
        let changes: Vec<Duration> = history.steps.iter().map(|step| step.at).collect();
        for _ in 0..dice.below(9) {
            let what = history.fault(&mut dice);
            let at = if changes.is_empty() || dice.percent(50) {
                dice.between(Duration::ZERO, span)
            } else {
                // From just before a change until it has been seen twice, as some changes have to be.
                let change = *dice.pick(&changes);
                dice.between(change.saturating_sub(5 * SECOND), change + 2 * history.interval + 10 * SECOND)
            };
            history.add(at, what);
        }
        if dice.percent(25) {
            // There and back again, as an NTP client does after a machine came up with a wrong clock.
            let by = if dice.percent(60) {
                7_200_000
            } else {
                -(i64::try_from(dice.below(5_000_000)).unwrap_or(0))
            };
            let at = dice.between(Duration::ZERO, span / 2);
            history.add(at, What::ClockSteps { by });
            let back = dice.between(at + SECOND, span);
            history.add(back, What::ClockSteps { by: -by });
        }
        history.steps.sort_by_key(|step| step.at);
        for (number, step) in history.steps.iter_mut().enumerate() {
            step.number = number;
        }
        history.length =
            history.steps.iter().map(|step| step.at + step.what.lasts()).max().unwrap_or_default();
        history
    }

    fn add(&mut self, at: Duration, what: What) {
        self.steps.push(Step { number: 0, at, what });
    }

    fn truth(&mut self, dice: &mut Dice, volume: usize, span: Duration) {
        let mut at = dice.between(Duration::ZERO, span / 4);
        let mut before: Conditions = Vec::new();
        for _ in 0..dice.below(MOST_CHANGES + 1) {
            let conditions = loop {
                let next = self.conditions(dice);
                if next != before {
                    break next;
                }
            };
            before.clone_from(&conditions);
            self.add(at, What::Truth { volume, conditions });
            at += if dice.percent(30) {
                dice.between(SECOND, 2 * MINUTE)
            } else {
                dice.between(3 * MINUTE, 25 * MINUTE)
            };
            if at > span {
                break;
            }
        }
    }

    fn conditions(&self, dice: &mut Dice) -> Conditions {
        match dice.below(10) {
            0..4 => Vec::new(),
            // A list of the unhealthy volumes does not say that one is gone.
            4 if self.dialect != Dialect::ListHealth => vec![GONE],
            5 => {
                let mut two = vec![*dice.pick(WRONG), *dice.pick(WRONG)];
                two.sort_unstable();
                two.dedup();
                two
            }
            _ => vec![*dice.pick(WRONG)],
        }
    }

    fn fault(&self, dice: &mut Dice) -> What {
        let replica = dice.below(self.replicas);
        let volume = dice.below(self.volumes.len());
        let lasts = dice.between(SECOND, 5 * MINUTE);
        let share = *dice.pick(&[20, 50, 90]);
        let down = if dice.percent(70) {
            dice.between(SECOND, 20 * SECOND)
        } else {
            dice.between(SECOND, 10 * MINUTE)
        };
        let n = 1 + u32::try_from(dice.below(12)).unwrap_or(0);
        // What is reported of one change is one to three requests.
        let report = 1 + u32::try_from(dice.below(4)).unwrap_or(0);
        match dice.below(22) {
            0..2 => What::Kill { replica, when: When::Now, down },
            2 => What::Kill { replica, when: When::Before(n), down },
            3 => What::Kill { replica, when: When::BeforeReport(report), down },
            4 | 5 => What::Kill { replica, when: When::After(n), down },
            6 | 20 | 21 => What::Kill { replica, when: When::AfterReport(report), down },
            7 => What::Stop { replica, down },
            8 => What::ApiDown { hangs: dice.percent(50), lasts },
            9 => {
                let code = *dice.pick(&[429, 429, 500, 503]);
                let after = dice.percent(50).then(|| 1 + u32::try_from(dice.below(5)).unwrap_or(0));
                What::ApiBusy { code, retry_after: after.filter(|_| code == 429), share, lasts }
            }
            10 | 11 => What::AnswersLost { share, hangs: dice.percent(50), lasts },
            12 => What::ApiSlow { up_to: dice.between(SECOND, 12 * SECOND), lasts },
            13 => What::ApiForbids { lasts: dice.between(SECOND, 12 * SECOND) },
            14 => dice.pick(&[What::Compacted, What::WatchesCut]).clone(),
            15 => What::WatchesSilent { lasts },
            16 => What::DriverDown { lasts },
            17 => What::DriverFails { share, lasts },
            18 => What::DriverHangs { volume, lasts },
            _ => What::ListsBreak { lasts },
        }
    }
}

impl What {
    /// How long it goes on by itself. What a killed replica is waited for is counted by when it really died.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Self::ApiDown { lasts, .. }
            | Self::ApiBusy { lasts, .. }
            | Self::AnswersLost { lasts, .. }
            | Self::ApiSlow { lasts, .. }
            | Self::ApiForbids { lasts }
            | Self::WatchesSilent { lasts }
            | Self::DriverDown { lasts }
            | Self::DriverFails { lasts, .. }
            | Self::DriverHangs { lasts, .. }
            | Self::ListsBreak { lasts } => *lasts,
            Self::Kill { down, .. } | Self::Stop { down, .. } => *down,
            Self::Truth { .. } | Self::Compacted | Self::WatchesCut | Self::ClockSteps { .. } => {
                Duration::ZERO
            }
        }
    }
}
