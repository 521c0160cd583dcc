//! Short names that tell one cluster from another.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ring::digest::{SHA256, digest};

/// SHA-256 in hexadecimal.
pub fn hex_digest(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Eight letters that stand for a cluster's folder, in the names of what has to lie outside of it.
pub(crate) fn short_id(home: &Path) -> String {
    let mut id = hex_digest(home.as_os_str().as_bytes());
    id.truncate(8);
    id
}
