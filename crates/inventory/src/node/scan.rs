//! Reads the directories of some pods. It runs beside everything else, since a disk may be slow.

use std::io;

use super::kubelet::{Found, Layout, Reader};
use crate::trouble::Trouble;

/// By the pod's uid in the API: what is there, or why that cannot be said.
pub(super) type Scan = Result<Vec<(Box<str>, io::Result<Vec<Found>>)>, Trouble>;

/// Each pod comes with the uid that the kubelet works with.
pub(super) fn scan(layout: &Layout, pods: Vec<(Box<str>, Box<str>)>) -> Scan {
    let reader = Reader::open(layout).map_err(|why| Trouble::Directory {
        path: layout.root().display().to_string(),
        why: why.to_string(),
    })?;
    Ok(pods.into_iter().map(|(uid, kubelet_uid)| (uid, reader.pod(&kubelet_uid))).collect())
}
