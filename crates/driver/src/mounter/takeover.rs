//! Going on with a session that another process began.
//!
//! The kernel knows the session by its open `/dev/fuse`, not by the process behind it. A process with a copy of that
//! descriptor can serve the mounts, if it answers to the same node numbers and handles: ours are the inode numbers of
//! the files, and a handle that is not known is opened again. Requests that the predecessor had read and not answered
//! are asked for again, which kernels can do since 6.9; on older ones, those few wait until the volume is unmounted.
//! A request that was carried out and not answered is carried out twice: a second `mkdir` then says that the directory
//! exists, and a second `unlink` that the file does not. Writes are at fixed places, so twice is the same as once.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};

use super::passthrough::Passthrough;
use crate::error::{Error, Result};
use crate::sys;

const OPCODE_INIT: u32 = 26;
const NOTIFY_RESEND: i32 = 7;
/// The version of the FUSE protocol that the library is given; nothing depends on it after the greeting.
const PROTOCOL: (u32, u32) = (7, 31);
const GREETING: Duration = Duration::from_secs(10);

/// A session on a descriptor whose greeting took place long ago. The library insists on one, so it is given one over
/// a socket, whose descriptor is then made to be the session's.
pub(super) fn take_over(
    filesystem: Passthrough,
    device: &OwnedFd,
    config: Config,
) -> Result<Session<Passthrough>> {
    let failed = |what: &'static str| Error::io(format!("{what} the session of the mounter before"));
    let (kernel, library) = UnixDatagram::pair().map_err(failed("prepare to take over"))?;
    kernel.set_read_timeout(Some(GREETING)).map_err(failed("prepare to take over"))?;
    kernel.send(&greeting()).map_err(failed("prepare to take over"))?;
    let session = Session::from_fd(filesystem, library.into(), SessionACL::All, config)
        .map_err(failed("greet on behalf of"))?;
    let mut answer = [0; 256];
    let length = kernel.recv(&mut answer).map_err(failed("greet on behalf of"))?;
    // Length, error, and the number of the request; no error is zero.
    if length < 16 || answer[4..8] != [0; 4] {
        return Err(failed("greet on behalf of")(io::Error::other("the library refused the greeting")));
    }
    sys::replace_descriptor(&session, device).map_err(failed("take over"))?;
    Ok(session)
}

/// Asks the kernel for what was read and never answered.
pub(super) fn ask_again(device: &OwnedFd) {
    let mut notice = Vec::with_capacity(16);
    notice.extend(16_u32.to_ne_bytes());
    notice.extend(NOTIFY_RESEND.to_ne_bytes());
    notice.extend(0_u64.to_ne_bytes());
    let written = device.try_clone().map(File::from).and_then(|mut device| device.write_all(&notice));
    if let Err(error) = written {
        tracing::warn!(%error, "the kernel does not repeat requests; a process that waits for one waits until unmounting");
    }
}

/// What the kernel sends first: a header of 40 bytes, then its version and what it could do.
fn greeting() -> Vec<u8> {
    const LENGTH: u32 = 40 + 64;
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(OPCODE_INIT.to_ne_bytes());
    bytes.extend(1_u64.to_ne_bytes());
    // Node, user, group and process say nothing here.
    bytes.extend([0; 24]);
    for word in [PROTOCOL.0, PROTOCOL.1, 128 << 10, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.resize(LENGTH as usize, 0);
    bytes
}
