//! Requests are written as protobuf, answers are taken as bytes: what they mean is read later, with better errors.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::{Buf as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

#[derive(Debug)]
pub(super) struct RawCodec<R>(PhantomData<fn(R)>);

impl<R> Default for RawCodec<R> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R: Message + 'static> Codec for RawCodec<R> {
    type Encode = R;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Taker;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Taker {
        Taker
    }
}

impl<R: Message + 'static> Encoder for RawCodec<R> {
    type Item = R;
    type Error = Status;

    fn encode(&mut self, request: R, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        request.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Hands the message over without copying it.
#[derive(Debug)]
pub(super) struct Taker;

impl Decoder for Taker {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
