//! Where a driver listens: a unix socket, given as a path or as a `unix:` URL.

use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// `sun_path` holds 108 bytes, one of them the closing zero.
const MAX_PATH: usize = 107;

/// The path of a driver's socket. Parsing touches no file; [`Address::check`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    path: PathBuf,
}

impl Address {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is there a socket at the path right now? A symbolic link to one is fine.
    pub fn check(&self) -> Result<(), AddressError> {
        let path = || self.path.display().to_string();
        match std::fs::metadata(&self.path) {
            Ok(found) if found.file_type().is_socket() => Ok(()),
            Ok(found) => Err(AddressError::NotASocket { path: path(), found: kind(found.file_type()) }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(AddressError::Missing { path: path() })
            }
            Err(error) => Err(AddressError::Unreadable { path: path(), error }),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(given: &str) -> Result<Self, AddressError> {
        let given = given.trim();
        let path = match scheme(given) {
            None => given,
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((other, _)) => {
                return Err(AddressError::Scheme { given: given.into(), scheme: other.into() });
            }
        };
        if path.is_empty() {
            return Err(AddressError::Empty { given: given.into() });
        }
        if path.starts_with('@') || path.contains('\0') {
            return Err(AddressError::Abstract { given: given.escape_debug().to_string() });
        }
        if path.len() > MAX_PATH {
            return Err(AddressError::TooLong { path: path.into(), length: path.len() });
        }
        Ok(Self { path: path.into() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The part before the first colon, in lower case, if it reads as a scheme or as a host name with a port.
/// A colon after the first slash belongs to the path.
fn scheme(given: &str) -> Option<(&'static str, &str)> {
    let (before, after) = given.split_once(':')?;
    if before.contains('/') {
        return None;
    }
    let known = ["unix", "unix-abstract", "tcp", "http", "https", "dns", "ipv4", "ipv6", "vsock"];
    let lower = before.to_ascii_lowercase();
    if let Some(known) = known.into_iter().find(|known| *known == lower) {
        return Some((known, after));
    }
    if after.starts_with("//") {
        return Some(("an unknown kind", after));
    }
    let is_port = !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit());
    is_port.then_some(("host:port", after))
}

fn kind(found: std::fs::FileType) -> &'static str {
    if found.is_dir() {
        "a directory"
    } else if found.is_file() {
        "a regular file"
    } else {
        "something that is neither file, directory nor socket"
    }
}

/// Why an address is refused, and what to give instead.
#[derive(Debug, Error)]
pub enum AddressError {
    #[error(
        "the driver address \"{given}\" is empty; give the path of the driver's socket, such as /csi/csi.sock"
    )]
    Empty { given: String },
    #[error(
        "the driver address \"{given}\" is of kind {scheme}; CSI drivers are reached over a unix socket only, \
         give a path such as /csi/csi.sock or unix:///csi/csi.sock"
    )]
    Scheme { given: String, scheme: String },
    #[error(
        "the driver address \"{given}\" names an abstract socket; CSI wants a socket in the file system, \
         give its path, such as /csi/csi.sock"
    )]
    Abstract { given: String },
    #[error(
        "the socket path {path} is {length} bytes long, but the system takes at most {MAX_PATH}; \
         mount the socket's directory at a shorter path"
    )]
    TooLong { path: String, length: usize },
    #[error(
        "there is no socket at {path}; the driver has not created it yet, or the path is wrong, \
         or its directory is not mounted here"
    )]
    Missing { path: String },
    #[error("{path} is {found}, not a socket; give the path of the socket that the driver listens on")]
    NotASocket { path: String, found: &'static str },
    #[error("the socket at {path} cannot be examined: {error}; check the permissions of its directory")]
    Unreadable { path: String, error: std::io::Error },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: &str) {
        let got = match given.parse::<Address>() {
            Ok(address) => address.to_string(),
            Err(error) => format!("refused: {error}"),
        };
        assert!(got.contains(expected), "{given:?} gave {got:?}, expected {expected:?}");
        assert_eq!(got.starts_with("refused"), expected.starts_with("refused"), "{given:?} gave {got:?}");
    }

    #[test]
    fn what_is_taken() {
        check("/csi/csi.sock", "/csi/csi.sock");
        check("  /csi/csi.sock\n", "/csi/csi.sock");
        check("unix:///csi/csi.sock", "/csi/csi.sock");
        check("unix:/csi/csi.sock", "/csi/csi.sock");
        check("UNIX:///csi/csi.sock", "/csi/csi.sock");
        check("unix://tmp/csi.sock", "tmp/csi.sock");
        check("unix:csi.sock", "csi.sock");
        check("csi.sock", "csi.sock");
        check("/odd:1/csi.sock", "/odd:1/csi.sock");
        check(&format!("/{}", "a".repeat(106)), "/aaa");
    }

    #[test]
    fn what_is_refused() {
        check("", "refused: the driver address \"\" is empty");
        check("unix://", "refused: the driver address \"unix://\" is empty");
        check(
            "tcp://127.0.0.1:10000",
            "refused: the driver address \"tcp://127.0.0.1:10000\" is of kind tcp",
        );
        check("https://driver/", "refused: the driver address \"https://driver/\" is of kind https");
        check("ftp://driver/", "refused: the driver address \"ftp://driver/\" is of kind an unknown kind");
        check("localhost:50051", "refused: the driver address \"localhost:50051\" is of kind host:port");
        check("@csi", "refused: the driver address \"@csi\" names an abstract socket");
        check(
            "unix-abstract:csi",
            "refused: the driver address \"unix-abstract:csi\" is of kind unix-abstract",
        );
        check("unix:\0csi", "refused: the driver address \"unix:\\0csi\" names an abstract socket");
        check(&format!("/{}", "a".repeat(107)), "refused: the socket path /aaa");
        check(&format!("/{}", "a".repeat(107)), "refused: ");
    }

    #[test]
    fn what_lies_at_the_path() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name).to_str().unwrap().parse::<Address>().unwrap();
        let says =
            |name: &str| at(name).check().map_or_else(|error| error.to_string(), |()| "a socket".into());

        assert!(says("none.sock").contains("there is no socket at"));
        assert!(says("none.sock").contains("has not created it yet"));
        std::fs::write(room.path().join("file.sock"), "").unwrap();
        assert!(says("file.sock").contains("file.sock is a regular file, not a socket"));
        std::fs::create_dir(room.path().join("dir.sock")).unwrap();
        assert!(says("dir.sock").contains("dir.sock is a directory, not a socket"));
        let _listener = std::os::unix::net::UnixListener::bind(room.path().join("real.sock")).unwrap();
        assert_eq!(says("real.sock"), "a socket");
        std::os::unix::fs::symlink(room.path().join("real.sock"), room.path().join("link.sock")).unwrap();
        assert_eq!(says("link.sock"), "a socket");
    }
}
