//! Bytes that are no request, and requests that make no sense.

use proptest::collection::vec;
use proptest::prelude::*;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use volmedic_proto::csi::ProbeRequest;
use volmedic_proto::csi::identity_client::IdentityClient;

use crate::ground::{Ground, cases, is_of_csi};

const METHODS: &[&str] = &[
    "Identity/GetPluginInfo",
    "Identity/GetPluginCapabilities",
    "Identity/Probe",
    "Controller/CreateVolume",
    "Controller/DeleteVolume",
    "Controller/ControllerPublishVolume",
    "Controller/ControllerUnpublishVolume",
    "Controller/ValidateVolumeCapabilities",
    "Controller/ListVolumes",
    "Controller/GetCapacity",
    "Controller/ControllerGetCapabilities",
    "Controller/CreateSnapshot",
    "Controller/DeleteSnapshot",
    "Controller/ListSnapshots",
    "Controller/GetSnapshot",
    "Controller/ControllerExpandVolume",
    "Controller/ControllerGetVolume",
    "Controller/ControllerModifyVolume",
    "Controller/ControllerListVolumeHealth",
    "Controller/ControllerGetVolumeHealth",
    "Node/NodeStageVolume",
    "Node/NodeUnstageVolume",
    "Node/NodePublishVolume",
    "Node/NodeUnpublishVolume",
    "Node/NodeGetVolumeStats",
    "Node/NodeExpandVolume",
    "Node/NodeGetCapabilities",
    "Node/NodeGetInfo",
    "Node/NodeGetVolumeHealth",
    "Node/NodeGetStorageHealth",
];

/// Sends bytes as they are and ignores the answer.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = usize;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        ::bytes::BufMut::put_slice(into, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = usize;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<usize>, Status> {
        let length = ::bytes::Buf::remaining(from);
        ::bytes::Buf::advance(from, length);
        Ok(Some(length))
    }
}

impl Ground {
    fn send(&self, method: &str, bytes: Vec<u8>) -> Result<usize, Status> {
        let path = PathAndQuery::try_from(format!("/csi.v1.{method}")).unwrap();
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
            Ok(client.unary(Request::new(bytes), path, Raw).await?.into_inner())
        })
    }
}

/// One field as protobuf has it: any number, any of the kinds, with content that may or may not fit.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        vec(any::<u8>(), 0..40),
        Just(b"../../../etc/passwd".to_vec()),
        Just(b"/proc/self/root/tmp/x".to_vec()),
        Just(vec![b'x'; 5_000]),
    ];
    (1_u8..16, prop_oneof![Just(0_u8), Just(1), Just(2), Just(5)], any::<u64>(), text).prop_map(
        |(number, kind, value, text)| {
            let mut bytes = vec![number << 3 | kind];
            match kind {
                0 => varint(value, &mut bytes),
                1 => bytes.extend(value.to_le_bytes()),
                2 => {
                    varint(text.len() as u64, &mut bytes);
                    bytes.extend(text);
                }
                _ => bytes.extend(&value.to_le_bytes()[..4]),
            }
            bytes
        },
    )
}

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    into.push(u8::try_from(value).unwrap());
}

pub(crate) fn arbitrary_bytes_to_every_method() {
    let ground = Ground::new();
    let garbage = vec(any::<u8>(), 0..300);
    let fields = vec(field(), 0..6).prop_map(|fields| fields.concat());
    let strategy = (0..METHODS.len(), prop_oneof![garbage, fields]);
    let run = cases(3_000).run(&strategy, |(method, bytes)| {
        let method = METHODS[method];
        if let Err(status) = ground.send(method, bytes) {
            // gRPC itself has this word for bytes that are no message at all.
            let no_message = status.code() == Code::Internal && status.message().contains("decode");
            prop_assert!(no_message || is_of_csi(status.code()), "{method}: {status:?}");
        }
        Ok(())
    });
    run.unwrap_or_else(|failure| panic!("{failure}"));
    let mut identity = IdentityClient::new(ground.channel.clone());
    let probe = ground.runtime.block_on(identity.probe(ProbeRequest {})).unwrap();
    assert_eq!(probe.into_inner().ready, Some(true));
    ground.assert_untouched(&[]);
}

/// Every method above is one that exists, so that the bytes do reach it.
pub(crate) fn every_method_is_reached() {
    let ground = Ground::new();
    for method in METHODS {
        let nonsense = vec![0xff; 8];
        let status = ground.send(method, nonsense).unwrap_err();
        assert!(status.message().contains("decode"), "{method}: {status:?}");
    }
}
