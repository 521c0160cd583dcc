//! How the C library's allocator is to behave.

/// Large blocks go back to the system as soon as they are freed.
///
/// Left to itself, glibc learns from the first pages of a long list that blocks of a megabyte come and go, and from then
/// on keeps them in its heap, where small blocks that stay settle between them. With 100,000 volumes that costs six MiB
/// for as long as the process lives. Nor does it pay to have a heap for each thread where one thread does the work.
#[cfg(target_env = "gnu")]
pub(crate) fn tune() {
    const LARGE: libc::c_int = 128 << 10;
    for (parameter, value) in
        [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE), (libc::M_ARENA_MAX, 1)]
    {
        // SAFETY: takes two numbers and is called before there is a second thread. To be refused does no harm.
        unsafe { libc::mallopt(parameter, value) };
    }
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn tune() {}
