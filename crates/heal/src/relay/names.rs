//! What a relay's CSIAddonsNode is called: as the sidecar of csi-addons would call it.

use ring::digest::{SHA256, digest};

const LONGEST: usize = 253;
/// How much of an overlong name stays before its fingerprint.
const HEAD: usize = 234;

/// `<node id>-<namespace>-<owner kind>-<owner name>`, and where that is too long its beginning with a fingerprint.
pub fn object_name(node_id: &str, namespace: &str, owner_kind: &str, owner_name: &str) -> String {
    let kind = owner_kind.to_lowercase();
    let name = format!("{node_id}-{namespace}-{kind}-{owner_name}");
    if name.len() <= LONGEST {
        return name;
    }
    let hash = sha256_hex(format!("{node_id}{namespace}{kind}{owner_name}").as_bytes());
    let head = &name[..name.floor_char_boundary(HEAD)];
    format!("{head}-{}", &hash[..16])
}

pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    digest(&SHA256, bytes).as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_csi_addons_names_them() {
        assert_eq!(
            object_name("worker-7", "stor", "DaemonSet", "blk-node"),
            "worker-7-stor-daemonset-blk-node"
        );
        let long = object_name(&"n".repeat(200), "stor", "DaemonSet", &"o".repeat(100));
        assert_eq!(long.len(), 251);
        assert!(long.starts_with(&"n".repeat(200)) && long[..234].ends_with('o'), "{long}");
        let other = object_name(&"n".repeat(200), "stor", "DaemonSet", &("o".repeat(99) + "p"));
        assert_ne!(long, other);
    }

    #[test]
    fn a_hash_as_kubelet_writes_it() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
