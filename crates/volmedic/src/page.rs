//! Serving the page, alike in every role that has one.

mod few;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use volmedic_view::Source;
use volmedic_view::page::Guard;

use crate::flags::listen;
use few::Few;

/// Connections at once. Whoever comes later waits.
const CONNECTIONS: usize = 256;
/// A shorter token could be guessed.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "The page")]
pub(crate) struct PageArgs {
    /// Serve the page here, as 127.0.0.1:8090. Port 0 takes any that is free.
    #[arg(long = "page", value_parser = listen, value_name = "ADDRESS")]
    address: Option<SocketAddr>,
    /// Whoever reads the page must have the token in this file. Needed where the address is not a loopback address.
    #[arg(long, requires = "address", value_name = "FILE")]
    page_token_file: Option<PathBuf>,
}

/// The page, ready to be served.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    guard: Guard,
    /// Where to point a browser.
    pub(crate) url: String,
}

impl PageArgs {
    /// Listens now, so that a busy port is an error at the start. Nothing if no page is wanted.
    pub(crate) async fn open(&self) -> anyhow::Result<Option<Door>> {
        let Some(address) = self.address else { return Ok(None) };
        let guard = match &self.page_token_file {
            Some(file) => Guard::token(&token(file)?),
            None if address.ip().is_loopback() => Guard::Loopback,
            None => bail!(
                "--page {address} can be reached from elsewhere, so whoever reads it must have a token: give one with \
                 --page-token-file, or serve on 127.0.0.1 and reach it over `kubectl port-forward` or `ssh -L`"
            ),
        };
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot serve the page on {address}; choose another --page or free the port")
        })?;
        let url = format!("http://{}/", listener.local_addr()?);
        Ok(Some(Door { listener, guard, url }))
    }
}

impl Door {
    /// Serves until dropped.
    pub(crate) async fn serve<S: Source>(self, source: Arc<S>) {
        let router = volmedic_view::page::router(source, self.guard);
        let listener = Few::new(self.listener, CONNECTIONS);
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the page is no longer served");
        }
    }
}

fn token(file: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read the page's token from {}", file.display());
    let token = std::fs::read_to_string(file).with_context(what)?.trim().to_owned();
    if !TOKEN_BYTES.contains(&token.len()) {
        bail!(
            "the token in {} has {} bytes, but {} to {} are needed; make one with `openssl rand -hex 32`",
            file.display(),
            token.len(),
            TOKEN_BYTES.start(),
            TOKEN_BYTES.end()
        );
    }
    Ok(token)
}
