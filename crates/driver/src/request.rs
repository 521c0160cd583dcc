//! What requests say, checked and turned into our own words. Nothing here touches the system.

use std::collections::HashMap;

use volmedic_proto::csi::volume_capability::access_mode::Mode;
use volmedic_proto::csi::volume_capability::{AccessType, MountVolume};
use volmedic_proto::csi::{CapacityRange, VolumeCapability};

use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::mount::check_options;
use crate::record::{Access, Kind};
use crate::state_dir::is_id;

/// The general limits of CSI on a string and on a map.
const STRING_LIMIT: usize = 128;
const MAP_LIMIT: usize = 4096;
/// The size of a volume when the request names none.
const DEFAULT_BYTES: u64 = 1 << 30;
/// Sizes are multiples of this.
const STEP: u64 = 4096;
/// What a volume without a file system needs at least.
const RAW_MINIMUM: u64 = 1 << 20;
/// The most entries in one answer, whatever was asked for: receivers commonly stop at 4 MiB.
const PAGE_LIMIT: usize = 5_000;

pub(crate) fn required<'a>(field: &'static str, text: &'a str) -> Result<&'a str> {
    if text.is_empty() { Err(Error::Missing { field }) } else { Ok(text) }
}

/// A name for a volume or snapshot to be made.
pub(crate) fn name(field: &'static str, text: &str) -> Result<()> {
    required(field, text)?;
    if text.len() > STRING_LIMIT {
        return Err(Error::invalid(field, format_args!("it is longer than {STRING_LIMIT} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(field, "it contains a control character"));
    }
    Ok(())
}

/// One capability, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    pub(crate) access: Access,
    pub(crate) filesystem: Option<Filesystem>,
    pub(crate) mode: i32,
}

impl Capability {
    pub(crate) fn block(&self) -> bool {
        self.access == Access::Block
    }

    pub(crate) fn reads_only(&self) -> bool {
        self.mode == Mode::SingleNodeReaderOnly as i32
    }

    pub(crate) fn one_writer(&self) -> bool {
        is_one_writer(self.mode)
    }
}

pub(crate) fn is_one_writer(mode: i32) -> bool {
    mode == Mode::SingleNodeSingleWriter as i32
}

pub(crate) fn capability(capability: Option<&VolumeCapability>) -> Result<Capability> {
    const FIELD: &str = "volume_capability";
    let capability = capability.ok_or(Error::Missing { field: FIELD })?;
    let mode = capability
        .access_mode
        .as_ref()
        .ok_or(Error::Missing { field: "volume_capability.access_mode" })?
        .mode;
    match Mode::try_from(mode) {
        Ok(
            Mode::SingleNodeWriter
            | Mode::SingleNodeReaderOnly
            | Mode::SingleNodeSingleWriter
            | Mode::SingleNodeMultiWriter,
        ) => {}
        Ok(Mode::Unknown) | Err(_) => {
            return Err(Error::invalid(
                FIELD,
                format_args!("access mode {mode} is not one that CSI defines"),
            ));
        }
        Ok(Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => {
            return Err(Error::invalid(
                FIELD,
                "volumes of this driver live on one node; ask for a single-node mode",
            ));
        }
    }
    match &capability.access_type {
        Some(AccessType::Block(_)) => Ok(Capability { access: Access::Block, filesystem: None, mode }),
        Some(AccessType::Mount(MountVolume { fs_type, mount_flags, volume_mount_group: _ })) => {
            check_options(mount_flags)?;
            let access = Access::Mount { options: mount_flags.clone() };
            Ok(Capability { access, filesystem: filesystem(FIELD, fs_type)?, mode })
        }
        None => Err(Error::Missing { field: "volume_capability.access_type" }),
    }
}

fn filesystem(field: &'static str, text: &str) -> Result<Option<Filesystem>> {
    // A passthrough volume has no choice of file system; its provisioner may still say `fuse`.
    if text.is_empty() || text == "fuse" {
        return Ok(None);
    }
    Filesystem::parse(text)
        .map(Some)
        .ok_or_else(|| Error::invalid(field, format_args!("file system {text:?} is not ext4, xfs or btrfs")))
}

/// What a volume to be made shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) kind: Kind,
    pub(crate) filesystem: Filesystem,
    /// Every capability is raw block, so no file system has to fit.
    pub(crate) raw: bool,
}

impl Wish {
    pub(crate) fn minimum_bytes(&self) -> u64 {
        if self.raw || self.kind == Kind::Fuse { RAW_MINIMUM } else { self.filesystem.minimum_bytes() }
    }
}

pub(crate) fn wish(parameters: &HashMap<String, String>, capabilities: &[VolumeCapability]) -> Result<Wish> {
    const FIELD: &str = "parameters";
    if parameters.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > MAP_LIMIT {
        return Err(Error::invalid(FIELD, format_args!("they are larger than {MAP_LIMIT} bytes")));
    }
    let mut kind = Kind::Loop;
    let mut chosen = None;
    for (key, value) in parameters {
        match key.as_str() {
            "kind" => {
                kind = match value.as_str() {
                    "loop" => Kind::Loop,
                    "fuse" => Kind::Fuse,
                    other => {
                        return Err(Error::invalid(
                            FIELD,
                            format_args!("kind {other:?} is not loop or fuse"),
                        ));
                    }
                }
            }
            "fsType" | "csi.storage.k8s.io/fstype" => chosen = filesystem(FIELD, value)?,
            // What provisioners add about the claim; of no use here.
            key if key.starts_with("csi.storage.k8s.io/") => {}
            other => {
                let shown: String = other.chars().take(64).collect();
                return Err(Error::invalid(
                    FIELD,
                    format_args!("{shown:?} is not known; kind and fsType are"),
                ));
            }
        }
    }
    if capabilities.is_empty() {
        return Err(Error::Missing { field: "volume_capabilities" });
    }
    let mut raw = true;
    for one in capabilities {
        let one = capability(Some(one))?;
        if kind == Kind::Fuse && one.block() {
            return Err(Error::invalid(
                "volume_capabilities",
                "a volume of kind fuse cannot be a block device",
            ));
        }
        raw &= one.block();
        match (chosen, one.filesystem) {
            (Some(before), Some(now)) if before != now => {
                let (before, now) = (before.name(), now.name());
                return Err(Error::invalid(
                    "volume_capabilities",
                    format_args!("both {before} and {now} are asked for"),
                ));
            }
            (_, Some(now)) => chosen = Some(now),
            _ => {}
        }
    }
    Ok(Wish { kind, filesystem: chosen.unwrap_or(Filesystem::Ext4), raw })
}

/// The bounds of a size: `(required, limit)`, where nothing said is `None`.
pub(crate) fn bounds(range: &CapacityRange) -> Result<(Option<u64>, Option<u64>)> {
    const FIELD: &str = "capacity_range";
    let read = |value: i64| match u64::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(Error::invalid(FIELD, format_args!("{value} is negative"))),
    };
    match (read(range.required_bytes)?, read(range.limit_bytes)?) {
        (None, None) => Err(Error::invalid(FIELD, "neither required_bytes nor limit_bytes is set")),
        (Some(required), Some(limit)) if required > limit => Err(Error::invalid(
            FIELD,
            format_args!("required_bytes {required} is more than limit_bytes {limit}"),
        )),
        bounds => Ok(bounds),
    }
}

/// The size to make, between what is possible and what is asked for.
pub(crate) fn size(range: Option<&CapacityRange>, minimum: u64, maximum: u64) -> Result<u64> {
    let out = |why: String| Err(Error::OutOfRange { what: "capacity_range", why });
    let (required, limit) = range.map_or(Ok((None, None)), bounds)?;
    if let Some(required) = required.filter(|&required| required > maximum) {
        return out(format!("{required} bytes are asked for, and a volume can have {maximum} at most"));
    }
    let wanted = required.unwrap_or(DEFAULT_BYTES.min(limit.unwrap_or(u64::MAX) / STEP * STEP));
    let bytes = wanted.max(minimum).next_multiple_of(STEP);
    match limit {
        Some(limit) if bytes > limit => {
            out(format!("at most {limit} bytes are asked for, and {bytes} is the smallest possible size"))
        }
        _ if bytes > maximum => {
            out(format!("{bytes} bytes are needed, and a volume can have {maximum} at most"))
        }
        _ => Ok(bytes),
    }
}

/// How many entries to return, and after which id to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) max: usize,
    pub(crate) after: Option<String>,
}

const TOKEN: &str = "after-";

/// A token is the last id seen, so it stays good whatever is made or deleted meanwhile.
pub(crate) fn token(last: &str) -> String {
    format!("{TOKEN}{last}")
}

pub(crate) fn page(prefix: &str, max_entries: i32, starting_token: &str) -> Result<Page> {
    let max = match usize::try_from(max_entries) {
        Ok(0) => PAGE_LIMIT,
        Ok(max) => max.min(PAGE_LIMIT),
        Err(_) => return Err(Error::invalid("max_entries", format_args!("{max_entries} is negative"))),
    };
    let after = match starting_token {
        "" => None,
        token => {
            let id = token.strip_prefix(TOKEN).filter(|id| is_id(prefix, id)).ok_or(Error::BadToken)?;
            Some(id.to_owned())
        }
    };
    Ok(Page { max, after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(required_bytes: i64, limit_bytes: i64) -> CapacityRange {
        CapacityRange { required_bytes, limit_bytes }
    }

    #[test]
    fn sizes() {
        let check = |required, limit, expected: &str| {
            let result = size(Some(&range(required, limit)), 8 << 20, 1 << 40);
            let result = result.map_or_else(|error| format!("{:?}", error.code()), |bytes| bytes.to_string());
            assert_eq!(result, expected, "{required} {limit}");
        };
        check(1 << 30, 0, "1073741824");
        check((1 << 30) + 1, 0, "1073745920");
        check(1, 0, "8388608");
        check(0, 1 << 50, "1073741824");
        check(0, 10 << 20, "10485760");
        check(0, 1 << 20, "OutOfRange");
        check(i64::MAX, 0, "OutOfRange");
        check((1 << 40) + 1, 0, "OutOfRange");
        check((1 << 30) + 1, (1 << 30) + 2, "OutOfRange");
        check(0, 0, "InvalidArgument");
        check(-1, 0, "InvalidArgument");
        check(0, i64::MIN, "InvalidArgument");
        check(2 << 30, 1 << 30, "InvalidArgument");
        assert_eq!(size(None, 300 << 20, 1 << 40).unwrap(), 1 << 30);
        assert_eq!(size(None, 2 << 30, 1 << 40).unwrap(), 2 << 30);
    }

    #[test]
    fn tokens_come_back_and_others_are_aborted() {
        let id = format!("vol-{}", "ab".repeat(16));
        assert_eq!(page("vol-", 0, &token(&id)).unwrap(), Page { max: PAGE_LIMIT, after: Some(id) });
        for bad in ["invalid-token", "1", "after-", "after-vol-../x", "after-snap-00"] {
            assert!(matches!(page("vol-", 7, bad), Err(Error::BadToken)), "{bad}");
        }
        assert!(matches!(page("vol-", -1, ""), Err(Error::Invalid { .. })));
    }
}
