//! What a failed request to the API server means for what was to be reported.

use std::error::Error as _;
use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use kube::Error;
use kube::core::Status;

/// No request waits longer for its answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It is not there, or not any more, or its namespace is going away.
    Gone,
    /// There is one of that name already.
    Exists,
    /// It is not what we took it for: another version, or another object of the same name.
    Conflict,
    /// Another writer owns these fields.
    Owned(String),
    /// We may not.
    Forbidden(String),
    /// The server will never take this.
    Refused(String),
    /// The server does not know one of its fields.
    UnknownField(String),
    /// The server answered that it cannot right now.
    Busy { after: Option<Duration>, why: String },
    /// There was no answer.
    Away(String),
}

/// Waits for an answer, but not for ever.
pub(crate) async fn call<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(CALL_LIMIT, request).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Away(format!("no answer within {} s", CALL_LIMIT.as_secs()))),
    }
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Api(status) => Self::of_status(status),
            // The answer came and could not be read; asking again gives the same.
            Error::SerdeError(_) | Error::FromUtf8(_) | Error::BuildRequest(_) | Error::HttpError(_) => {
                Self::Refused(chain(error))
            }
            _ => Self::Away(chain(error)),
        }
    }

    fn of_status(status: &Status) -> Self {
        let why = || format!("{} ({})", status.message, status.code);
        let causes = || status.details.iter().flat_map(|details| &details.causes);
        let after = || {
            let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
            (seconds > 0).then(|| Duration::from_secs(seconds.into()))
        };
        match status.code {
            404 | 410 => Self::Gone,
            409 if status.reason == "AlreadyExists" => Self::Exists,
            409 if causes().any(|cause| cause.reason == "FieldManagerConflict") => {
                Self::Owned(status.message.clone())
            }
            409 => Self::Conflict,
            // Another object of the same name: who names a uid may not change it.
            422 if causes().any(|cause| cause.field == "metadata.uid") => Self::Conflict,
            403 if causes().any(|cause| cause.reason == "NamespaceTerminating") => Self::Gone,
            403 => Self::Forbidden(why()),
            // How an apply of a field is answered by releases of Kubernetes that do not have it.
            500 if status.message.contains("field not declared in schema") => Self::UnknownField(why()),
            // A token that just ran out is renewed soon.
            401 | 408 | 429 | 500.. => Self::Busy { after: after(), why: why() },
            _ => Self::Refused(why()),
        }
    }
}

/// The error with its causes, each named once.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: serde_json::Value, expected: &str) {
        let status: Status = serde_json::from_value(answer).unwrap();
        let shown = format!("{:?}", Failure::of(&Error::Api(status.boxed())));
        assert!(shown.starts_with(expected), "{shown} is not {expected}");
    }

    #[test]
    fn what_the_server_answers_and_what_it_means() {
        use serde_json::json;
        check(json!({"code": 404, "reason": "NotFound"}), "Gone");
        check(json!({"code": 409, "reason": "AlreadyExists"}), "Exists");
        check(json!({"code": 409, "reason": "Conflict", "message": "UID"}), "Conflict");
        let owned = json!({"causes": [{"reason": "FieldManagerConflict", "message": "", "field": ".x"}]});
        check(json!({"code": 409, "reason": "Conflict", "details": owned}), "Owned");
        let ending = json!({"causes": [{"reason": "NamespaceTerminating", "message": "", "field": ""}]});
        check(json!({"code": 403, "reason": "Forbidden", "details": ending}), "Gone");
        check(json!({"code": 403, "reason": "Forbidden"}), "Forbidden");
        check(json!({"code": 422, "reason": "Invalid"}), "Refused");
        let uid =
            json!({"causes": [{"reason": "FieldValueInvalid", "message": "", "field": "metadata.uid"}]});
        check(json!({"code": 422, "reason": "Invalid", "details": uid}), "Conflict");
        check(json!({"code": 400, "reason": "BadRequest"}), "Refused");
        check(json!({"code": 429, "details": {"retryAfterSeconds": 3}}), "Busy { after: Some(3s)");
        check(json!({"code": 503}), "Busy { after: None");
        let old = "failed to create typed patch object (/; /v1, Kind=PersistentVolumeClaim): .status.healthStatus: field not declared in schema";
        check(json!({"code": 500, "message": old}), "UnknownField");
        check(json!({"code": 500, "message": "etcdserver: request timed out"}), "Busy { after: None");
        check(json!({"code": 401}), "Busy");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_has_an_end() {
        let never = std::future::pending::<Result<(), Error>>();
        assert_eq!(call(never).await, Err(Failure::Away("no answer within 10 s".to_owned())));
    }
}
