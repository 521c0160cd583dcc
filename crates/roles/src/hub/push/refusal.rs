//! Why a report is refused: what the sender is answered, and how it is counted.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use volmedic_hub::push::{MAX_BODY, Wrong};
use volmedic_hub::{ClaimKey, PushError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    NoToken,
    BadToken(String),
    NotAllowed(String),
    /// Seconds until it may.
    TooFast(u64),
    NotJson,
    TooLong,
    TooSlow,
    BrokeOff,
    Invalid(Wrong),
    UnknownClaim(String),
    NotLeading,
    /// The API server could not be asked, or did not store it.
    ApiServer(String),
    /// All in all it took too long.
    Late,
}

impl Refusal {
    pub(super) fn not_stored(claim: &ClaimKey, error: PushError) -> Self {
        match error {
            PushError::NoClaim => Self::UnknownClaim(format!("there is no {claim}")),
            PushError::Later(why) => Self::ApiServer(format!("the report on {claim} was not stored: {why}")),
        }
    }

    /// How it is counted.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::BadToken(_) => "bad_token",
            Self::NotAllowed(_) => "not_allowed",
            Self::TooFast(_) => "too_fast",
            Self::NotJson => "not_json",
            Self::TooLong => "too_long",
            Self::TooSlow => "too_slow",
            Self::Invalid(Wrong { contradicts_itself: true, .. }) => "contradictory",
            Self::BrokeOff | Self::Invalid(_) => "invalid",
            Self::UnknownClaim(_) => "unknown_claim",
            Self::NotLeading => "not_leading",
            Self::ApiServer(_) => "api_server",
            Self::Late => "late",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::BadToken(_) => StatusCode::UNAUTHORIZED,
            Self::NotAllowed(_) => StatusCode::FORBIDDEN,
            Self::TooFast(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Invalid(Wrong { contradicts_itself: true, .. }) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BrokeOff | Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::UnknownClaim(_) => StatusCode::NOT_FOUND,
            Self::NotLeading | Self::ApiServer(_) | Self::Late => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::NoToken => "send a service-account token as `Authorization: Bearer ...`".to_owned(),
            Self::BadToken(why) | Self::NotAllowed(why) | Self::UnknownClaim(why) | Self::ApiServer(why) => {
                why.clone()
            }
            Self::TooFast(seconds) => format!("this account reports too fast; try again in {seconds} s"),
            Self::NotJson => "a report is application/json".to_owned(),
            Self::TooLong => format!("a report has at most {MAX_BODY} bytes"),
            Self::TooSlow => "the report came in too slowly; send it again without pauses".to_owned(),
            Self::BrokeOff => "body: it broke off".to_owned(),
            Self::Invalid(wrong) => wrong.to_string(),
            Self::NotLeading => "another replica of the hub leads; try again".to_owned(),
            Self::Late => "it took too long; try again".to_owned(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut answer = problem(status, &self.detail());
        let headers = answer.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Self::TooFast(seconds) = self {
            headers.insert(header::RETRY_AFTER, seconds.into());
        } else if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

/// Why something was refused, as RFC 9457 has it.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = json!({"title": title, "status": status.as_u16(), "detail": detail}).to_string();
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
}
