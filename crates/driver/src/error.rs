//! Everything a call can fail with, and the one table that turns it into a gRPC code.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use tonic::{Code, Status};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each display is a whole sentence: what failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{field} is missing; set it and call again")]
    Missing { field: &'static str },
    #[error("{field} is not valid: {why}")]
    Invalid { field: &'static str, why: String },
    #[error("volume {0} does not exist; check the id")]
    NoVolume(String),
    #[error("snapshot {0} does not exist; check the id")]
    NoSnapshot(String),
    #[error("node {asked} is not known here; this driver serves node {here} only")]
    NoNode { asked: String, here: String },
    #[error(
        "volume {volume} is neither staged nor published at {path}; ask at a path it was staged or published at"
    )]
    NotAtPath { volume: String, path: String },
    #[error("another operation on {0} is still running; wait for it, then call again")]
    Busy(String),
    #[error("starting_token is not one that this driver gave; start again with an empty token")]
    BadToken,
    #[error("{what} already exists and differs: {why}")]
    Conflict { what: String, why: String },
    #[error("{what} is out of range: {why}")]
    OutOfRange { what: &'static str, why: String },
    #[error("there is not enough storage: {0}")]
    Exhausted(String),
    #[error("volume {volume} is not ready for this call: {why}")]
    Precondition { volume: String, why: String },
    #[error("{what} took longer than {}; it goes on in the background, call again for the outcome", Seconds(*after))]
    Deadline { what: &'static str, after: Duration },
    #[error(
        "{what} took longer than {}: the volume hangs; clear the fault that holds it or heal it, then clear this one",
        Seconds(*after)
    )]
    Hung { what: String, after: Duration },
    #[error("{together} operations are running already; call again later")]
    Overloaded { together: usize },
    #[error("{what} is not offered: {why}")]
    NotOffered { what: &'static str, why: &'static str },
    #[error("the secrets of the request are not valid: {why}")]
    Refused { why: &'static str },
    #[error("the state of volume {volume} could not be seen: {why}; ask again later")]
    Unseen { volume: String, why: String },
    #[error("{tool} failed on {on}: {why}")]
    Tool { tool: &'static str, on: String, why: String },
    #[error("could not {what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the record {} cannot be read: {source}; restore it from a backup or move its directory away", path.display())]
    Record { path: PathBuf, source: serde_json::Error },
    #[error("internal error (bug) of the driver: {0}; its log has more")]
    Bug(String),
}

impl Error {
    pub(crate) fn invalid(field: &'static str, why: impl fmt::Display) -> Self {
        Self::Invalid { field, why: why.to_string() }
    }

    pub(crate) fn no_state_dir(path: &Path, error: &io::Error) -> Self {
        let why =
            format!("{} cannot be created: {error}; choose a directory where you may write", path.display());
        Self::invalid("state-dir", why)
    }

    pub(crate) fn precondition(volume: &str, why: impl fmt::Display) -> Self {
        Self::Precondition { volume: volume.to_owned(), why: why.to_string() }
    }

    /// For `map_err`: names what was tried.
    pub(crate) fn io<E: Into<io::Error>>(what: impl fmt::Display) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { what: what.to_string(), source: source.into() }
    }

    pub fn code(&self) -> Code {
        match self {
            Self::Missing { .. } | Self::Invalid { .. } => Code::InvalidArgument,
            Self::NoVolume(_) | Self::NoSnapshot(_) | Self::NoNode { .. } | Self::NotAtPath { .. } => {
                Code::NotFound
            }
            Self::Busy(_) | Self::BadToken => Code::Aborted,
            Self::Conflict { .. } => Code::AlreadyExists,
            Self::OutOfRange { .. } => Code::OutOfRange,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Precondition { .. } => Code::FailedPrecondition,
            Self::Deadline { .. } | Self::Hung { .. } => Code::DeadlineExceeded,
            Self::Overloaded { .. } | Self::Unseen { .. } => Code::Unavailable,
            Self::NotOffered { .. } => Code::Unimplemented,
            Self::Refused { .. } => Code::Unauthenticated,
            Self::Io { source, .. } if is_full(source) => Code::ResourceExhausted,
            Self::Tool { .. } | Self::Io { .. } | Self::Record { .. } | Self::Bug(_) => Code::Internal,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs())
    }
}
