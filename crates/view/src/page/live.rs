//! Changes as they come, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;

use super::desk::Desk;

/// So that a connection whose other end is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// After this a browser connects again by itself; a connection that is not read does not stay for ever.
const AT_MOST: Duration = Duration::from_hours(1);

/// Each change as an event named `change` with its moment as JSON; `missed` where some were lost on the way.
pub(super) async fn changes(State(desk): State<Arc<Desk>>) -> Response {
    let Ok(place) = desk.listeners.clone().try_acquire_owned() else {
        let why = "Too many browsers listen already; this page is not live. Reload it to see what changed.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")], why).into_response();
    };
    let news = desk.source().history().listen();
    let end = tokio::time::Instant::now() + AT_MOST;
    let events = stream::unfold((news, place), move |(mut news, place)| async move {
        let received = tokio::time::timeout_at(end, news.recv()).await.ok()?;
        let event = match received {
            Ok(moment) => Event::default().event("change").data(serde_json::to_string(&*moment).ok()?),
            Err(RecvError::Lagged(count)) => Event::default().event("missed").data(count.to_string()),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok::<_, Infallible>(event), (news, place)))
    });
    // The first event shows that it works, before anything changes. Browsers pass over events without data.
    let hello = stream::once(async { Ok::<_, Infallible>(Event::default().event("hello").data("live")) });
    let events = futures_util::StreamExt::chain(hello, events);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
