//! Where reports are taken.

use anyhow::{Context, bail};
use tokio::net::TcpListener;

use super::Endpoint;
use volmedic_listen::{Limits, Listener, Tls};

const LIMITS: Limits = Limits::new("push", 256, 64);

pub(super) async fn open(endpoint: &Endpoint) -> anyhow::Result<Listener> {
    let address = endpoint.address;
    if endpoint.tls.is_none() && !address.ip().is_loopback() {
        bail!(
            "will not take tokens over plain HTTP on {address}; give --push-tls-cert and --push-tls-key, or listen \
             on 127.0.0.1"
        );
    }
    let tls = match &endpoint.tls {
        Some((cert, key)) => Some(Tls::load(cert, key)?),
        None => None,
    };
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot take reports on {address}; choose another --push-endpoint or free the port")
    })?;
    let listener = Listener::new(listener, tls, LIMITS);
    tracing::info!("taking reports on {}://{}/v1/reports", listener.scheme(), listener.address()?);
    Ok(listener)
}
