//! Removes what would make the gRPC library panic: status details that are not base64. CSI forbids details anyway.

use std::task::{Context, Poll};

use http_body_util::BodyExt as _;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::transport::{Channel, Error};

const DETAILS: &str = "grpc-status-details-bin";

#[derive(Clone, Debug)]
pub(super) struct Tidy {
    channel: Channel,
}

impl Tidy {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel }
    }
}

impl Service<Request<Body>> for Tidy {
    type Response = Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Response<Body>, Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.channel.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            answer.headers_mut().remove(DETAILS);
            Ok(answer.map(|body| {
                Body::new(body.map_frame(|mut frame| {
                    if let Some(trailers) = frame.trailers_mut() {
                        trailers.remove(DETAILS);
                    }
                    frame
                }))
            }))
        })
    }
}
