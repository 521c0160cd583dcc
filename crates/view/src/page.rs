//! The page: what is believed, in a browser. Read-only, plain HTML that works without its script.
//!
//! [`router`] gives routes that any role can serve beside its own: `/` (volumes), `/volume`, `/nodes`, `/source`,
//! `/changes` (live, as server-sent events), `/api/volumes`, `/api/volume` and `/assets/…`. Nothing of it comes from
//! elsewhere or goes elsewhere, which the headers of every answer make the browser see to; all text is escaped.

mod assets;
mod chart;
mod desk;
mod guard;
mod html;
mod link;
mod live;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query as Params, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use maud::Markup;

use crate::render::Document;
use crate::{Query, Source};
use desk::Desk;
pub use guard::Guard;

/// Styles and script come from us alone, and nothing else is loaded, framed or sent anywhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The page of a source. Needs a tokio runtime.
pub fn router<S: Source>(source: Arc<S>, guard: Guard) -> Router {
    let desk = Arc::new(Desk::new(source));
    Router::new()
        .route("/", get(volumes))
        .route("/volume", get(volume))
        .route("/nodes", get(nodes))
        .route("/source", get(about))
        .route("/api/volumes", get(api_volumes))
        .route("/api/volume", get(api_volume))
        .layer(middleware::from_fn_with_state(desk.clone(), stand_by))
        .route("/changes", get(live::changes))
        .with_state(desk)
        .merge(assets::router())
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::check))
        .layer(middleware::from_fn(harden))
}

/// A source with nothing to show says so, and where there is something: an empty list would mean a cluster without volumes.
async fn stand_by(State(desk): State<Arc<Desk>>, request: axum::extract::Request, next: Next) -> Response {
    let Some(why) = desk.source().standing_by() else { return next.run(request).await };
    if request.uri().path().starts_with("/api/") {
        return json(StatusCode::SERVICE_UNAVAILABLE, &serde_json::json!({ "standingBy": why }));
    }
    answer(StatusCode::SERVICE_UNAVAILABLE, html::standing_by(&desk.source().about(), &why))
}

/// What every answer says to the browser.
async fn harden(request: axum::extract::Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

type Pairs = Params<Vec<(String, String)>>;

fn query(pairs: &Pairs) -> Query {
    Query::from_pairs(pairs.0.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

fn value<'a>(pairs: &'a Pairs, wanted: &str) -> &'a str {
    pairs.0.iter().find(|(key, _)| key == wanted).map_or("", |(_, value)| value)
}

fn answer(status: StatusCode, markup: Markup) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (status, kind, markup.into_string()).into_response()
}

async fn volumes(State(desk): State<Arc<Desk>>, pairs: Pairs) -> Response {
    let snapshot = desk.snapshot().await;
    let about = desk.source().about();
    let latest = desk.source().history().latest(html::CHANGES);
    answer(StatusCode::OK, html::volumes(&about, &snapshot, &query(&pairs), &latest))
}

async fn volume(State(desk): State<Arc<Desk>>, pairs: Pairs) -> Response {
    let (driver, volume) = (value(&pairs, "driver"), value(&pairs, "volume"));
    let snapshot = desk.snapshot().await;
    let rows: Vec<_> = snapshot.volume(driver, volume).collect();
    let (story, heals) = desk.past(driver, volume).await;
    let about = desk.source().about();
    // What is gone may still have a past.
    if rows.is_empty() && !story.iter().any(|moment| moment.volume.is_some()) {
        return answer(StatusCode::NOT_FOUND, html::no_such_volume(&about, driver, volume));
    }
    let window = chart::Window::parse(value(&pairs, "window"));
    let now = Timestamp::now();
    let shown =
        html::Volume { driver, handle: volume, rows: &rows, story: &story, heals: &heals, window, now };
    answer(StatusCode::OK, html::volume(&about, &shown))
}

async fn nodes(State(desk): State<Arc<Desk>>, pairs: Pairs) -> Response {
    let snapshot = desk.snapshot().await;
    let page = value(&pairs, "page").parse().unwrap_or(1);
    answer(StatusCode::OK, html::nodes(&desk.source().about(), &snapshot, &desk.source().nodes(), page))
}

async fn about(State(desk): State<Arc<Desk>>) -> Response {
    answer(StatusCode::OK, html::about(&desk.source().about()))
}

async fn api_volumes(State(desk): State<Arc<Desk>>, pairs: Pairs) -> Response {
    #[derive(serde::Serialize)]
    struct Paged<'a> {
        matched: usize,
        page: usize,
        pages: usize,
        #[serde(flatten)]
        document: Document<'a>,
    }
    let snapshot = desk.snapshot().await;
    let crate::Page { rows, matched, page, pages } = snapshot.page(&query(&pairs));
    json(StatusCode::OK, &Paged { matched, page, pages, document: Document::new(None, &snapshot, rows) })
}

async fn api_volume(State(desk): State<Arc<Desk>>, pairs: Pairs) -> Response {
    #[derive(serde::Serialize)]
    struct Answer<'a> {
        volumes: Vec<&'a crate::Row>,
        history: Vec<&'a crate::Moment>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        heals: Vec<crate::Heal>,
    }
    let (driver, volume) = (value(&pairs, "driver"), value(&pairs, "volume"));
    let snapshot = desk.snapshot().await;
    let (story, heals) = desk.past(driver, volume).await;
    let answer = Answer {
        volumes: snapshot.volume(driver, volume).collect(),
        history: story.iter().map(|m| &**m).collect(),
        heals,
    };
    let status = if answer.volumes.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    json(status, &answer)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match crate::render::json(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            let why = format!("the answer cannot be written as JSON: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
        }
    }
}
