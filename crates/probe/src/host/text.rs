//! Words for messages. Names and paths come from strangers: each is made one harmless line and kept short, so that none
//! pushes the rest of the sentence out.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use volmedic_health::sanitize_message;

use super::expected::Target;

/// Long enough for a kubelet path with its pod's UID and a PV's name.
const LONGEST_PATH: usize = 240;
/// A namespace and a pod's name have at most 63 and 253 bytes; the beginnings tell them apart.
const LONGEST_LABEL: usize = 120;

pub(super) fn path(path: &Path) -> String {
    short(&path.to_string_lossy(), LONGEST_PATH)
}

pub(super) fn name(text: impl Display) -> String {
    short(&text.to_string(), LONGEST_LABEL)
}

/// The place and whose it is.
pub(super) fn target(target: &Target) -> String {
    format!("{} of pod {}", path(&target.path), name(&target.pod))
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.0} s", duration.as_secs_f64())
}

/// A long text keeps its beginning and its end: in a path both tell something.
fn short(text: &str, most: usize) -> String {
    // Cut first: a path of a megabyte need not be cleaned whole.
    let clean = if text.len() <= most {
        sanitize_message(text).into_owned()
    } else {
        let head = &text[..text.floor_char_boundary(most / 2)];
        let tail = &text[text.ceil_char_boundary(text.len() - most / 2)..];
        format!("{}…{}", sanitize_message(head), sanitize_message(tail))
    };
    if clean.is_empty() { "(no name)".to_owned() } else { clean }
}

/// `EIO (Input/output error)`, or only the system's words for a number we have no name for.
pub(super) fn errno(number: i32) -> String {
    let words = std::io::Error::from_raw_os_error(number).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    match errno_name(number) {
        Some(name) => format!("{name} ({words})"),
        None => format!("error {number} ({words})"),
    }
}

fn errno_name(number: i32) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        };
    }
    names! {
        EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY ENODEV ENOTDIR EISDIR EINVAL
        ENFILE EMFILE ENOTTY EFBIG ENOSPC EROFS ENAMETOOLONG ENOSYS ELOOP ENODATA EBADMSG EOVERFLOW EUCLEAN EOPNOTSUPP
        ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED
        EHOSTDOWN EHOSTUNREACH ESTALE EREMOTEIO EDQUOT ENOMEDIUM EKEYEXPIRED EKEYREVOKED EKEYREJECTED ENOLINK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_short_harmless_lines() {
        assert_eq!(name("shop/web-0"), "shop/web-0");
        assert_eq!(name("a\nb\u{1b}[2J\u{202e}c"), "a b [2J c");
        assert_eq!(name(""), "(no name)");
        let long = path(Path::new(&format!("/start/{}/end", "ü\n".repeat(3000))));
        assert!(long.starts_with("/start/") && long.ends_with("/end") && long.contains('…'), "{long}");
        assert!(long.len() <= LONGEST_PATH + '…'.len_utf8() && !long.contains('\n'), "{}", long.len());
    }

    #[test]
    fn paths_that_are_no_text_are_shown_as_far_as_they_are() {
        use std::os::unix::ffi::OsStrExt;
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/a\xff\xfe/b"));
        assert!(path(odd).starts_with("/a") && path(odd).ends_with("/b"));
    }

    #[test]
    fn error_numbers_have_names() {
        assert_eq!(errno(libc::ENOTCONN), "ENOTCONN (Transport endpoint is not connected)");
        assert!(errno(4095).starts_with("error 4095 ("), "{}", errno(4095));
    }
}
