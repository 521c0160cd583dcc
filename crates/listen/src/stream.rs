//! A connection that ends when its place is taken away.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::places::Place;

/// A connection with its place.
#[derive(Debug)]
pub struct Guarded {
    stream: TcpStream,
    place: Place,
    /// The peer accepts nothing of what is sent to it.
    blocked: bool,
}

impl Guarded {
    pub(crate) fn new(stream: TcpStream, place: Place) -> Self {
        Self { stream, place, blocked: false }
    }

    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        self.place.ended().io.register(cx.waker());
        if self.place.is_over() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "dropped to protect the listener"));
        }
        Ok(())
    }

    fn wrote<T>(&mut self, wrote: Poll<T>) -> Poll<T> {
        if wrote.is_pending() != self.blocked {
            self.blocked = wrote.is_pending();
            self.place.blocked(self.blocked.then(Instant::now));
        }
        wrote
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
