//! The wire: `csi.v1` in both health dialects, the csi-addons identity service, the healer service, the kubelet's plugin
//! registration, and our own relay service.
//!
//! Everything here is generated from the files in `proto/` at build time. Two things are added: the descriptor set,
//! and a `Debug` that hides every field marked as secret, derived from that mark.

use std::fmt;

pub use generated::csi::v1 as csi;
pub use generated::pluginregistration as registration;
pub use generated::volmedic::relay::v1 as relay;
pub use generated::{healer, identity};

/// All files and what they import, encoded as a `google.protobuf.FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/volmedic.fds"));

/// Stands where a secret would be printed. Says nothing about it, not even how many entries it has.
struct Redacted;

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

// Generated code is not ours to polish; the packages nest as the generator's paths between them expect.
#[allow(clippy::all, clippy::pedantic, missing_debug_implementations, unreachable_pub, unused_qualifications)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/redacted.rs"));

    pub mod csi {
        pub mod v1 {
            tonic::include_proto!("csi.v1");
        }
    }
    pub mod healer {
        tonic::include_proto!("healer");
    }
    pub mod identity {
        tonic::include_proto!("identity");
    }
    pub mod pluginregistration {
        tonic::include_proto!("pluginregistration");
    }
    pub mod volmedic {
        pub mod relay {
            pub mod v1 {
                tonic::include_proto!("volmedic.relay.v1");
            }
        }
    }
}
