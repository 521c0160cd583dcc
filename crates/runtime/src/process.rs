//! What surrounds the work of every role: its thread, its signals, its metrics and health checks, its page.

use std::io;
use std::sync::Arc;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use volmedic_view::Source;

use crate::http::{self, Health, HttpArgs};
use crate::page::{Late, PageArgs};
use crate::signals::Signals;

/// Runs a command to its end on this thread.
pub fn run<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    run_on(&mut Builder::new_current_thread(), work)
}

/// Runs a command to its end. A thread that hangs in the kernel does not keep the process from ending.
pub fn run_on<T, E: From<io::Error>>(
    builder: &mut Builder,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let runtime = builder.enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// A role that runs until a signal comes.
#[derive(Debug)]
pub struct Process {
    pub signals: Signals,
    pub health: Arc<Health>,
    /// Servers that end with the process.
    pub servers: JoinSet<()>,
}

impl Process {
    pub fn start() -> anyhow::Result<Self> {
        Ok(Self { signals: Signals::new()?, health: Arc::default(), servers: JoinSet::new() })
    }

    /// Serves metrics and health checks, if that is wanted. A port in use is an error now.
    pub async fn serve_http(
        &mut self,
        args: &HttpArgs,
        mut registry: Registry,
        client: &Client,
    ) -> anyhow::Result<()> {
        volmedic_listen::register(&mut registry);
        crate::build_info::register(&mut registry);
        if let Some(address) = args.http_endpoint {
            let served = http::serve(address, args, Arc::new(registry), self.health.clone(), client);
            self.servers.spawn(served.await?);
        }
        Ok(())
    }

    /// Serves the page, if one is wanted. It says that `role` is starting until it has something to show.
    pub async fn serve_page<S: Source>(
        &mut self,
        args: &PageArgs,
        role: &'static str,
        changes: usize,
    ) -> anyhow::Result<Option<Arc<Late<S>>>> {
        let Some(server) = args.open().await? else { return Ok(None) };
        let page = Arc::new(Late::new(role, changes));
        self.servers.spawn(server.serve_and_log(page.clone()));
        Ok(Some(page))
    }
}
