//! What lies between one process and the API server, and ends with the process.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tower::Service;

use super::request::Request;
use super::{Response, Server};
use crate::history::When;

/// A process is to die now, and to stay dead for so long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Death {
    pub(crate) down: Duration,
}

/// One process's connection. Once it is cut, nothing of that process has any effect.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Line>);

#[derive(Debug)]
struct Line {
    server: Server,
    process: String,
    state: Mutex<State>,
    deaths: mpsc::UnboundedSender<Death>,
}

#[derive(Debug, Default)]
struct State {
    cut: bool,
    /// Requests until the process dies, which of them count, and whether the last one is carried out.
    fuse: Option<Fuse>,
}

#[derive(Debug, Clone, Copy)]
struct Fuse {
    left: u32,
    reports_only: bool,
    carried_out: bool,
    death: Death,
}

impl Connection {
    pub(crate) fn new(server: &Server, process: &str, deaths: mpsc::UnboundedSender<Death>) -> Self {
        let (server, process) = (server.clone(), process.to_owned());
        Self(Arc::new(Line { server, process, state: Mutex::default(), deaths }))
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "shop")
    }

    pub(crate) fn cut(&self) {
        self.0.state.lock().cut = true;
    }

    pub(crate) fn kill(&self, when: When, death: Death) {
        let (left, reports_only, carried_out) = match when {
            When::Now => {
                self.cut();
                let _ = self.0.deaths.send(death);
                return;
            }
            When::Before(left) => (left, false, false),
            When::After(left) => (left, false, true),
            When::BeforeReport(left) => (left, true, false),
            When::AfterReport(left) => (left, true, true),
        };
        self.0.state.lock().fuse = Some(Fuse { left, reports_only, carried_out, death });
    }

    /// Nobody dies of what was set off before and did not happen yet.
    pub(crate) fn disarm(&self) {
        self.0.state.lock().fuse = None;
    }

    fn is_cut(&self) -> bool {
        self.0.state.lock().cut
    }

    /// Whether the process dies with this request, and whether that is carried out.
    fn burn(&self, request: &Request) -> Option<Fuse> {
        let mut state = self.0.state.lock();
        let fuse = state.fuse.as_mut().filter(|fuse| !fuse.reports_only || request.is_report())?;
        fuse.left = fuse.left.saturating_sub(1);
        if fuse.left == 0 { state.fuse.take() } else { None }
    }

    async fn exchange(self, request: http::Request<Body>) -> Result<Response, io::Error> {
        let Line { server, process, deaths, .. } = &*self.0;
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        if self.is_cut() {
            return pending::<Never>().await.map(|never| match never {});
        }
        let request = Request::read(&parts, &body);
        let log = &server.0.log;
        *server.0.requests.lock() += 1;
        if request.is_report()
            && let Some(leader) = server.leader().filter(|leader| leader != process)
        {
            log.add(format!("VIOLATION: {process} sends {request} while {leader} leads"));
        }
        let trouble = server.0.trouble.lock().clone();
        let fuse = self.burn(&request);
        if let Some(fuse) = fuse.filter(|fuse| !fuse.carried_out) {
            log.add(format!("{process} dies before it sends {request}"));
            self.cut();
            let _ = deaths.send(fuse.death);
            return pending::<Never>().await.map(|never| match never {});
        }
        if trouble.refuses {
            sleep(Duration::from_millis(1)).await;
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused"));
        }
        let (there, back, lost) = {
            let mut dice = server.0.dice.lock();
            let longest = trouble.slow.unwrap_or(Duration::from_millis(20));
            let millisecond = Duration::from_millis(1);
            let lost = trouble.lost.filter(|(share, _)| dice.percent(*share));
            (dice.between(millisecond, longest), dice.between(millisecond, longest), lost)
        };
        let (sender, answer) = oneshot::channel();
        let this = self.clone();
        // Goes on when the process waits no longer: what was sent arrives.
        tokio::spawn(async move { this.deliver(request, [there, back], lost, fuse, sender).await });
        let answer = match answer.await {
            Ok(answer) => answer,
            Err(_) if trouble.hangs || self.is_cut() || lost.is_some_and(|(_, hangs)| hangs) => {
                return pending::<Never>().await.map(|never| match never {});
            }
            Err(_) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")),
        };
        if self.is_cut() {
            return pending::<Never>().await.map(|never| match never {});
        }
        answer
    }

    /// Carries the request over, out, and the answer back.
    async fn deliver(
        self,
        request: Request,
        [there, back]: [Duration; 2],
        lost: Option<(u32, bool)>,
        fuse: Option<Fuse>,
        sender: oneshot::Sender<Result<Response, io::Error>>,
    ) {
        let Line { server, process, deaths, .. } = &*self.0;
        let log = &server.0.log;
        sleep(there).await;
        if server.0.trouble.lock().hangs {
            // Lost on the way there. The caller finds out by a deadline.
            log.add(format!("{process}: {request} gets lost"));
            sleep(Duration::from_hours(24)).await;
            return;
        }
        // What a killed process had sent may be there already or not.
        if self.is_cut() && server.0.dice.lock().percent(50) {
            return;
        }
        let answer = server.answer(process, &request);
        if !matches!(request.verb, super::Verb::Watch { .. }) && request.resource != "leases" {
            let lost = if lost.is_some() { ", and the answer is lost" } else { "" };
            log.add(format!("{process}: {request}: {}{lost}", answer.status().as_u16()));
        }
        if let Some(fuse) = fuse {
            log.add(format!("{process} dies after {request} was carried out"));
            self.cut();
            let _ = deaths.send(fuse.death);
        }
        sleep(back).await;
        if lost.is_none() {
            let _ = sender.send(Ok(answer));
        }
    }
}

/// What never comes.
type Never = Result<Infallible, io::Error>;

impl Service<http::Request<Body>> for Connection {
    type Response = Response;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}
