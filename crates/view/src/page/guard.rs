//! Who may read the page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{Digest, SHA256, digest};

/// Who may read the page.
#[derive(Debug)]
pub enum Guard {
    /// For a page on a loopback address: every user of this machine. A name that a foreign website points at this
    /// machine is refused, or that website could read the page through the browser of a user here.
    Loopback,
    /// Every caller with the token: as `Authorization: Bearer`, or as the password that a browser asks for.
    Token(Token),
}

/// Only its digest is kept, so that it cannot be printed, and the time of a comparison reveals nothing.
#[derive(Debug)]
pub struct Token(Digest);

impl Guard {
    pub fn token(token: &str) -> Self {
        Self::Token(Token(digest(&SHA256, token.as_bytes())))
    }

    /// The answer to a caller without access.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        match self {
            // Only HTTP/1.0 has no host, and no browser speaks that.
            Self::Loopback if text(header::HOST).is_none_or(is_loopback) => None,
            Self::Loopback => {
                let why = "This page is served on a loopback address, so it answers to localhost and 127.0.0.1 only.\n";
                Some((StatusCode::MISDIRECTED_REQUEST, why).into_response())
            }
            Self::Token(token) if text(header::AUTHORIZATION).is_some_and(|sent| token.is_in(sent)) => None,
            Self::Token(_) => {
                let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"volmedic\", charset=\"UTF-8\"")];
                let why =
                    "This page needs its token: as a bearer token, or as the password with any user name.\n";
                Some((StatusCode::UNAUTHORIZED, ask, why).into_response())
            }
        }
    }
}

impl Token {
    fn is_in(&self, authorization: &str) -> bool {
        let Some((scheme, rest)) = authorization.split_once(' ') else { return false };
        let same = |sent: &[u8]| digest(&SHA256, sent).as_ref() == self.0.as_ref();
        if scheme.eq_ignore_ascii_case("bearer") {
            return same(rest.trim().as_bytes());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return false;
        }
        let Ok(decoded) = BASE64_STANDARD.decode(rest.trim()) else { return false };
        let password = decoded.iter().position(|byte| *byte == b':').map(|colon| &decoded[colon + 1..]);
        password.is_some_and(same)
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.refusal(request.headers()) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1", "[2001:db8::1]:80", "", ":80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn the_token_comes_as_bearer_or_as_a_password() {
        let Guard::Token(token) = Guard::token("s3cret:x") else { panic!("no token") };
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for good in ["Bearer s3cret:x", "bearer  s3cret:x", &basic("anybody:s3cret:x"), &basic(":s3cret:x")] {
            assert!(token.is_in(good), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer s3cret", "s3cret:x", &basic("s3cret:x"), "Basic !!", "Digest s3cret:x"]
        {
            assert!(!token.is_in(bad), "{bad}");
        }
        assert!(!format!("{token:?}").contains("s3cret"));
    }
}
