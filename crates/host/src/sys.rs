//! The one place where the kernel is called without a safe wrapper.

/// Closes every descriptor but standard input, output and error. Failure is ignored: a kernel older than 5.9 has
/// no such call, and our own descriptors are all closed on exec anyway.
pub(crate) fn close_inherited() {
    // SAFETY: called first thing in a freshly started helper, before anything in this process could own a
    // descriptor above standard error.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}
