//! Why a call failed and what the caller owes: one table, from gRPC code to duty.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;

use crate::method::Method;
use crate::text;

/// Longer ids than any real one are cut where a person reads them.
const MAX_ID: usize = 256;

/// What went wrong. The first part is what a driver may say, the second what we find ourselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Cancelled,
    Unknown,
    InvalidArgument,
    /// Said by the driver, or found by us: both mean that no answer came in time.
    Deadline,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,

    /// No connection could be made.
    Unreachable,
    /// The connection broke while, or before, the call was under way.
    Lost,
    /// The driver answers, but says that it is not ready.
    NotReady,
    /// The answer is larger than we take.
    TooLarge,
    /// The answer is not what the specification says an answer is.
    Unreadable,
    /// The answer says nothing about what was asked.
    NoAnswer,
    /// The answer is about another volume.
    WrongVolume,
    /// The socket now belongs to a driver of another name.
    WrongDriver,
    /// Too many calls were under way; this one was never sent.
    Crowded,
}

/// What the caller may and must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    NeverRetry,
    BackOff,
    /// Something about the same volume is under way: wait for it, then back off.
    WaitThenBackOff,
    /// Make sure that the volume exists, then back off.
    VerifyThenBackOff,
    FixRequest,
    RefreshSecrets,
    GrantPermission,
    AskForLess,
    ReadTheDriversLog,
    /// The connection is being made again without the caller's doing.
    WaitForReconnect,
    CheckTheSocket,
    ReportToTheDriversAuthor,
}

struct Row {
    what: &'static str,
    duty: Duty,
    /// The status name as Go's gRPC prints it, which is what the other sidecars put into their metric.
    code: &'static str,
}

impl Kind {
    pub const ALL: [Self; 25] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::Deadline,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
        Self::Unreachable,
        Self::Lost,
        Self::NotReady,
        Self::TooLarge,
        Self::Unreadable,
        Self::NoAnswer,
        Self::WrongVolume,
        Self::WrongDriver,
        Self::Crowded,
    ];

    pub const fn from_code(code: Code) -> Self {
        match code {
            // An error that says OK contradicts itself.
            Code::Ok => Self::Unreadable,
            Code::Cancelled => Self::Cancelled,
            Code::Unknown => Self::Unknown,
            Code::InvalidArgument => Self::InvalidArgument,
            Code::DeadlineExceeded => Self::Deadline,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists => Self::AlreadyExists,
            Code::PermissionDenied => Self::PermissionDenied,
            Code::ResourceExhausted => Self::ResourceExhausted,
            Code::FailedPrecondition => Self::FailedPrecondition,
            Code::Aborted => Self::Aborted,
            Code::OutOfRange => Self::OutOfRange,
            Code::Unimplemented => Self::Unimplemented,
            Code::Internal => Self::Internal,
            Code::Unavailable => Self::Unavailable,
            Code::DataLoss => Self::DataLoss,
            Code::Unauthenticated => Self::Unauthenticated,
        }
    }

    pub const fn duty(self) -> Duty {
        self.row().duty
    }

    /// The gRPC status under which the call is counted.
    pub const fn code_name(self) -> &'static str {
        self.row().code
    }

    const fn row(self) -> Row {
        use Duty as D;
        let (code, duty, what) = match self {
            Self::Cancelled => ("Canceled", D::BackOff, "the driver cancelled the call"),
            Self::Unknown => ("Unknown", D::ReadTheDriversLog, "the driver failed without saying how"),
            Self::InvalidArgument => ("InvalidArgument", D::FixRequest, "the driver found the request wrong"),
            Self::Deadline => ("DeadlineExceeded", D::BackOff, "no answer came in time"),
            Self::NotFound => ("NotFound", D::VerifyThenBackOff, "the driver does not know the volume"),
            Self::AlreadyExists => {
                ("AlreadyExists", D::FixRequest, "the driver says that it already exists, in another form")
            }
            Self::PermissionDenied => {
                ("PermissionDenied", D::GrantPermission, "the driver, or its storage, does not permit it")
            }
            Self::ResourceExhausted => {
                ("ResourceExhausted", D::AskForLess, "the driver has run out of something")
            }
            Self::FailedPrecondition => {
                ("FailedPrecondition", D::BackOff, "the driver is not in a state to answer")
            }
            Self::Aborted => {
                ("Aborted", D::WaitThenBackOff, "the driver is busy with another operation on the same thing")
            }
            Self::OutOfRange => ("OutOfRange", D::FixRequest, "the driver found a value out of range"),
            Self::Unimplemented => ("Unimplemented", D::NeverRetry, "the driver does not implement it"),
            Self::Internal => ("Internal", D::ReadTheDriversLog, "something broke inside the driver"),
            Self::Unavailable => ("Unavailable", D::BackOff, "the driver, or its storage, is not available"),
            Self::DataLoss => ("DataLoss", D::ReadTheDriversLog, "the driver reports lost or damaged data"),
            Self::Unauthenticated => {
                ("Unauthenticated", D::RefreshSecrets, "the driver does not accept the secrets")
            }
            Self::Unreachable => ("Unavailable", D::CheckTheSocket, "the driver cannot be reached"),
            Self::Lost => ("Unavailable", D::WaitForReconnect, "the connection to the driver broke"),
            Self::NotReady => ("FailedPrecondition", D::BackOff, "the driver says that it is not ready"),
            Self::TooLarge => ("ResourceExhausted", D::AskForLess, "the driver's answer is too large"),
            Self::Unreadable => {
                ("Internal", D::ReportToTheDriversAuthor, "the driver's answer cannot be understood")
            }
            Self::NoAnswer => {
                ("OK", D::ReportToTheDriversAuthor, "the driver's answer says nothing about what was asked")
            }
            Self::WrongVolume => {
                ("OK", D::ReportToTheDriversAuthor, "the driver answered about another volume")
            }
            Self::WrongDriver => ("OK", D::CheckTheSocket, "another driver has taken over the socket"),
            Self::Crowded => (
                "Unavailable",
                D::BackOff,
                "too many calls to the driver were under way, this one was not sent",
            ),
        };
        Row { what, duty, code }
    }
}

impl Duty {
    /// May the same request be sent again without anybody changing anything?
    pub const fn may_retry(self) -> bool {
        match self {
            Self::BackOff
            | Self::WaitThenBackOff
            | Self::VerifyThenBackOff
            | Self::WaitForReconnect
            | Self::AskForLess
            | Self::ReadTheDriversLog
            | Self::CheckTheSocket => true,
            Self::NeverRetry
            | Self::FixRequest
            | Self::RefreshSecrets
            | Self::GrantPermission
            | Self::ReportToTheDriversAuthor => false,
        }
    }

    pub const fn advice(self) -> &'static str {
        match self {
            Self::NeverRetry => "do not ask again until the driver has changed",
            Self::BackOff => "ask again after a growing pause",
            Self::WaitThenBackOff => "wait until that is done, then ask again after a growing pause",
            Self::VerifyThenBackOff => {
                "check that the volume id is right and the volume exists, then ask again after a growing pause"
            }
            Self::FixRequest => "the request must be corrected before it is sent again",
            Self::RefreshSecrets => "correct or renew the secrets, then ask again",
            Self::GrantPermission => "give the driver the permission it lacks, then ask again",
            Self::AskForLess => "ask for fewer entries, or less often",
            Self::ReadTheDriversLog => "read the driver's log",
            Self::WaitForReconnect => "it is connected again as soon as the driver is back",
            Self::CheckTheSocket => "check that the driver runs and that its socket is mounted here",
            Self::ReportToTheDriversAuthor => "this is a fault of the driver, report it to its author",
        }
    }
}

/// A call that did not bring an answer. Prints as one sentence; never contains a secret.
#[derive(Clone)]
pub struct CallError(Box<Inner>);

#[derive(Clone)]
struct Inner {
    driver: Arc<str>,
    method: Option<Method>,
    volume: Option<String>,
    kind: Kind,
    detail: String,
    took: Duration,
}

impl CallError {
    /// `driver` is its name, or where it should be; `detail` is quoted, so it may be anything but a secret.
    pub(crate) fn new(driver: Arc<str>, method: Option<Method>, kind: Kind, detail: &str) -> Self {
        let detail = text::quote(detail.trim());
        Self(Box::new(Inner { driver, method, volume: None, kind, detail, took: Duration::ZERO }))
    }

    pub(crate) fn about(mut self, volume: Option<&str>) -> Self {
        self.0.volume = volume.map(|id| text::quote(&text::shorten(id, MAX_ID)));
        self
    }

    pub(crate) fn after(mut self, took: Duration) -> Self {
        self.0.took = took;
        self
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    pub fn duty(&self) -> Duty {
        self.0.kind.duty()
    }

    /// The name of the driver, or "at" and its socket while its name is unknown.
    pub fn driver(&self) -> &str {
        &self.0.driver
    }

    pub fn method(&self) -> Option<Method> {
        self.0.method
    }

    pub fn volume(&self) -> Option<&str> {
        self.0.volume.as_deref()
    }

    /// What the driver said, or what we saw: bounded and without control characters. May be empty.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// How long it took to fail.
    pub fn took(&self) -> Duration {
        self.0.took
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { driver, method, volume, kind, detail, took } = &*self.0;
        match method {
            Some(method) => write!(f, "{} ", method.name())?,
            None => f.write_str("connecting ")?,
        }
        if let Some(volume) = volume {
            write!(f, "for volume {volume} ")?;
        }
        let row = kind.row();
        write!(f, "to driver {driver} failed: {}", row.what)?;
        if *kind == Kind::Deadline {
            write!(f, " ({took:.1?})")?;
        }
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        write!(f, "; {}", row.duty.advice())
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, .. } = &*self.0;
        write!(f, "CallError({kind:?}: {self})")
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caller's duties that the specification and the healer proposal lay down, and no others.
    #[test]
    fn duties_by_code() {
        for (number, kind, duty, name) in [
            (1, Kind::Cancelled, Duty::BackOff, "Canceled"),
            (2, Kind::Unknown, Duty::ReadTheDriversLog, "Unknown"),
            (3, Kind::InvalidArgument, Duty::FixRequest, "InvalidArgument"),
            (4, Kind::Deadline, Duty::BackOff, "DeadlineExceeded"),
            (5, Kind::NotFound, Duty::VerifyThenBackOff, "NotFound"),
            (6, Kind::AlreadyExists, Duty::FixRequest, "AlreadyExists"),
            (7, Kind::PermissionDenied, Duty::GrantPermission, "PermissionDenied"),
            (8, Kind::ResourceExhausted, Duty::AskForLess, "ResourceExhausted"),
            (9, Kind::FailedPrecondition, Duty::BackOff, "FailedPrecondition"),
            (10, Kind::Aborted, Duty::WaitThenBackOff, "Aborted"),
            (11, Kind::OutOfRange, Duty::FixRequest, "OutOfRange"),
            (12, Kind::Unimplemented, Duty::NeverRetry, "Unimplemented"),
            (13, Kind::Internal, Duty::ReadTheDriversLog, "Internal"),
            (14, Kind::Unavailable, Duty::BackOff, "Unavailable"),
            (15, Kind::DataLoss, Duty::ReadTheDriversLog, "DataLoss"),
            (16, Kind::Unauthenticated, Duty::RefreshSecrets, "Unauthenticated"),
        ] {
            assert_eq!(Kind::from_code(Code::from_i32(number)), kind);
            assert_eq!(kind.duty(), duty);
            assert_eq!(kind.code_name(), name);
        }
        assert!(!Kind::Unimplemented.duty().may_retry());
        assert!(!Kind::Unauthenticated.duty().may_retry());
        assert!(Kind::Aborted.duty().may_retry());
    }

    #[test]
    fn reads_as_one_sentence() {
        let error =
            CallError::new("x.example".into(), Some(Method::ControllerGetVolume), Kind::NotFound, "no\nsuch")
                .about(Some("vol-1"));
        assert_eq!(
            error.to_string(),
            "ControllerGetVolume for volume vol-1 to driver x.example failed: the driver does not know the \
             volume: no\\nsuch; check that the volume id is right and the volume exists, then ask again after a \
             growing pause"
        );
        let error = CallError::new("at /csi.sock".into(), Some(Method::Probe), Kind::Deadline, "")
            .after(Duration::from_millis(1500));
        assert_eq!(
            error.to_string(),
            "Probe to driver at /csi.sock failed: no answer came in time (1.5s); ask again after a growing pause"
        );
    }

    #[test]
    fn every_kind_has_words_of_its_own() {
        let words: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.row().what).collect();
        assert_eq!(words.len(), Kind::ALL.len());
        let long = "v".repeat(100_000);
        for kind in Kind::ALL {
            let error = CallError::new("d".into(), None, kind, &long).about(Some(&long));
            assert!(error.to_string().len() < 2000, "{kind:?}");
        }
    }
}
