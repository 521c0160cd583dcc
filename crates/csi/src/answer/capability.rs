//! Which volumes a backend report is about.

use crate::wire::{Malformed, fields};

const MAX_FS_TYPE: usize = 128;

/// The part of a VolumeCapability that distinguishes volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capability {
    pub access: Access,
    /// The number from the wire, known or not.
    pub access_mode: i32,
}

/// How a volume is given to its user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The driver did not say, or said it in a way we do not know.
    #[default]
    Unsaid,
    Block,
    Mount {
        /// Empty if any will do.
        fs_type: String,
    },
}

impl Capability {
    pub(crate) fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut capability = Self::default();
        for field in fields(message) {
            match field? {
                (1, _) => capability.access = Access::Block,
                (2, value) => capability.access = mount(value.bytes()?)?,
                (3, value) => {
                    for field in fields(value.bytes()?) {
                        if let (1, value) = field? {
                            capability.access_mode = value.i32()?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(capability)
    }
}

fn mount(message: &[u8]) -> Result<Access, Malformed> {
    let mut fs_type = String::new();
    for field in fields(message) {
        if let (1, value) = field? {
            fs_type = crate::text::read(value.bytes()?, MAX_FS_TYPE).clean;
        }
    }
    Ok(Access::Mount { fs_type })
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use volmedic_proto::csi;
    use volmedic_proto::csi::volume_capability as wire;

    use super::*;

    fn check(access_type: Option<wire::AccessType>, mode: i32, expected: Access) {
        let access_mode = Some(wire::AccessMode { mode });
        let bytes = csi::VolumeCapability { access_type, access_mode }.encode_to_vec();
        assert_eq!(Capability::read(&bytes).unwrap(), Capability { access: expected, access_mode: mode });
    }

    #[test]
    fn as_the_generated_types_write_it() {
        check(None, 99, Access::Unsaid);
        check(Some(wire::AccessType::Block(wire::BlockVolume {})), 1, Access::Block);
        let mount =
            wire::MountVolume { fs_type: "xfs".into(), mount_flags: vec!["ro".into()], ..Default::default() };
        check(Some(wire::AccessType::Mount(mount)), 5, Access::Mount { fs_type: "xfs".into() });
    }
}
