//! From what a driver said, or failed to say, to what was seen.

use volmedic_csi::{Broken, CallError, Kind, ListedVolume, VolumeHealth};
use volmedic_health::{Sight, Why, WhyKind};
use volmedic_monitor::Seen;

/// What one question came to.
pub(crate) enum Answer {
    Came(Seen),
    /// No answer came in time. Whether the volume or the driver is the cause must be found out.
    Late(Why),
}

/// What a question about one volume came to.
pub(crate) fn answer<T>(result: Result<T, CallError>, sight: impl FnOnce(T) -> Sight) -> Answer {
    let error = match result {
        Ok(answer) => return Answer::Came(Seen::Volume(sight(answer))),
        Err(error) => error,
    };
    Answer::Came(match error.kind() {
        Kind::Deadline => return Answer::Late(why(&error)),
        Kind::NotFound => Seen::Volume(Sight::missing(&error.to_string())),
        Kind::ResourceExhausted | Kind::Crowded => Seen::Overloaded(why(&error)),
        Kind::Unreachable | Kind::Lost | Kind::NotReady | Kind::WrongDriver => Seen::DriverGone(why(&error)),
        Kind::Cancelled
        | Kind::Unknown
        | Kind::InvalidArgument
        | Kind::AlreadyExists
        | Kind::PermissionDenied
        | Kind::FailedPrecondition
        | Kind::Aborted
        | Kind::OutOfRange
        | Kind::Unimplemented
        | Kind::Internal
        | Kind::Unavailable
        | Kind::DataLoss
        | Kind::Unauthenticated
        | Kind::TooLarge
        | Kind::Unreadable
        | Kind::NoAnswer
        | Kind::WrongVolume => Seen::Volume(Sight::NotSeen(why(&error))),
    })
}

/// Why a call taught us nothing.
pub fn why(error: &CallError) -> Why {
    let kind = match error.kind() {
        Kind::Unreachable | Kind::Lost | Kind::NotReady | Kind::WrongDriver => WhyKind::Unreachable,
        Kind::Deadline | Kind::Crowded => WhyKind::TimedOut,
        Kind::NoAnswer => WhyKind::NoAnswer,
        Kind::TooLarge | Kind::Unreadable | Kind::WrongVolume => WhyKind::Malformed,
        Kind::Cancelled
        | Kind::Unknown
        | Kind::InvalidArgument
        | Kind::NotFound
        | Kind::AlreadyExists
        | Kind::PermissionDenied
        | Kind::ResourceExhausted
        | Kind::FailedPrecondition
        | Kind::Aborted
        | Kind::OutOfRange
        | Kind::Unimplemented
        | Kind::Internal
        | Kind::Unavailable
        | Kind::DataLoss
        | Kind::Unauthenticated => WhyKind::Failed,
    };
    Why::new(kind, &error.to_string())
}

/// Why a list is not whole.
pub fn broken(broken: &Broken) -> Why {
    match broken {
        Broken::Call(error) => why(error),
        Broken::Unreadable(_) | Broken::TokenLoop { .. } | Broken::Nameless { .. } => {
            Why::new(WhyKind::Malformed, &broken.to_string())
        }
        Broken::RepeatedPages { .. }
        | Broken::EmptyPages { .. }
        | Broken::TooManyPages { .. }
        | Broken::TooManyEntries { .. }
        | Broken::PassDeadline { .. }
        | Broken::TokenTooLong { .. }
        | Broken::MaybeTruncated(_) => Why::new(WhyKind::Incomplete, &broken.to_string()),
    }
}

/// The newer dialect.
pub(crate) fn of_health(health: &VolumeHealth) -> Sight {
    let entries = health.conditions.iter();
    Sight::from_volume_health(entries.map(|c| (c.status, c.reason.as_str(), c.message.as_str())))
}

/// The older dialect.
pub(crate) fn of_volume(volume: &ListedVolume) -> Sight {
    let condition = volume.condition.as_ref();
    Sight::from_volume_condition(condition.map(|condition| (condition.abnormal, condition.message.as_str())))
}
