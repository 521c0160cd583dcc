//! What became of an attempt, and what that asks of us: the error table of `NodeHealer`, one row each.

use std::fmt;

use volmedic_csi::{Duty, Kind};

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The driver says that the volume is healthy. Whether it had to repair anything it need not say.
    Well { message: String },
    /// The driver did what it could, and the volume is still unhealthy.
    StillUnhealthy { message: String },
    /// The driver answered with an error.
    Failed { kind: Kind, message: String, secret: Option<Box<str>> },
    /// The driver was not asked: the secret that it did not accept has not changed.
    SecretUnchanged,
    /// The driver was not asked: nobody who could ask it was reached, or it refused us.
    NotReached { why: String },
    /// Nobody knows whether the driver was asked.
    Lost { why: String },
}

impl Outcome {
    /// A label for metrics; a closed list.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Well { .. } => "well",
            Self::StillUnhealthy { .. } => "still_ill",
            Self::Failed { kind, .. } => kind.code_name(),
            Self::SecretUnchanged => "secret_unchanged",
            Self::NotReached { .. } => "not_reached",
            Self::Lost { .. } => "lost",
        }
    }

    pub fn is_healthy(&self) -> bool {
        matches!(self, Self::Well { .. })
    }
}

/// What an outcome asks of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum After {
    /// Leave it alone for the cooldown, then look whether it stayed well.
    CoolDown,
    /// Ask again after a growing pause.
    BackOff,
    /// Something else is at work on the volume: give it one step more of the growing pause.
    WaitThenBackOff,
    /// Make sure first that the volume still exists, then ask again after a growing pause.
    VerifyThenBackOff,
    /// Do not send the same request again; only a changed one.
    FixRequest,
    /// Send it again only with another secret.
    RefreshSecrets,
    /// A person must look into the driver's log first.
    AskPerson,
    /// Never again, for no volume of this driver on this node, until the driver is another one.
    NeverAgain,
}

impl After {
    /// The table.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Well { .. } => Self::CoolDown,
            Outcome::StillUnhealthy { .. } | Outcome::NotReached { .. } => Self::BackOff,
            // It may still be at work.
            Outcome::Lost { .. } => Self::WaitThenBackOff,
            Outcome::SecretUnchanged => Self::RefreshSecrets,
            Outcome::Failed { kind, .. } => Self::of_kind(*kind),
        }
    }

    fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Unknown | Kind::DataLoss => Self::AskPerson,
            // The driver may still be at work on it.
            Kind::Deadline | Kind::Cancelled | Kind::Lost => Self::WaitThenBackOff,
            // Drivers say this of any failed mount; the log is worth reading, but the next try may work.
            Kind::Internal => Self::BackOff,
            _ => Self::of_duty(kind.duty()),
        }
    }

    fn of_duty(duty: Duty) -> Self {
        match duty {
            Duty::NeverRetry => Self::NeverAgain,
            Duty::WaitThenBackOff => Self::WaitThenBackOff,
            Duty::VerifyThenBackOff => Self::VerifyThenBackOff,
            Duty::FixRequest => Self::FixRequest,
            Duty::RefreshSecrets => Self::RefreshSecrets,
            Duty::ReadTheDriversLog => Self::AskPerson,
            Duty::BackOff
            | Duty::GrantPermission
            | Duty::AskForLess
            | Duty::WaitForReconnect
            | Duty::CheckTheSocket
            | Duty::ReportToTheDriversAuthor => Self::BackOff,
        }
    }
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CoolDown => "it is checked again after the cooldown",
            Self::BackOff => "it is tried again after a growing pause",
            Self::WaitThenBackOff => "it is tried again after a growing pause, to let what is under way end",
            Self::VerifyThenBackOff => {
                "it is tried again after a growing pause, if the volume still exists and is bound"
            }
            Self::FixRequest => "it is not tried again until the PersistentVolume has changed",
            Self::RefreshSecrets => "it is tried again when the node-stage secret has changed",
            Self::AskPerson => {
                "it is not tried again by itself; read the driver's log, then run `volmedic heal` for the claim"
            }
            Self::NeverAgain => "it is not tried again before the driver on this node was replaced",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: Kind) -> After {
        After::of(&Outcome::Failed { kind, message: String::new(), secret: None })
    }

    #[test]
    fn each_row_of_the_error_table() {
        for (kind, after) in [
            (Kind::InvalidArgument, After::FixRequest),
            (Kind::NotFound, After::VerifyThenBackOff),
            (Kind::Aborted, After::WaitThenBackOff),
            (Kind::Unimplemented, After::NeverAgain),
            (Kind::Unauthenticated, After::RefreshSecrets),
            (Kind::Unknown, After::AskPerson),
        ] {
            assert_eq!(failed(kind), after, "{kind:?}");
        }
    }

    #[test]
    fn only_one_row_is_for_ever_and_no_error_counts_as_repaired() {
        for kind in Kind::ALL {
            assert_eq!(failed(kind) == After::NeverAgain, kind == Kind::Unimplemented, "{kind:?}");
            assert_ne!(failed(kind), After::CoolDown, "{kind:?}");
        }
    }
}
