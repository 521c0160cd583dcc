//! What a process gets from outside at any time, clocks and random numbers, under our control.
//!
//! The product reads the wall clock with `Timestamp::now()`, every `HashMap` takes its keys from the kernel, and the pauses
//! between attempts are drawn by a generator that starts from the monotonic clock. All of that reaches libc through two
//! functions. A program that defines functions of these names is called instead of libc; that is how a simulation makes
//! everything follow from its seed without a change of the product. Outside of a simulation both ask the kernel.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// 2026-01-01T00:00:00Z, when every history begins.
pub(crate) const BEGINNING: i64 = 1_767_225_600;

/// For how long the machine had been up, in seconds.
const UPTIME: i64 = 1_000;

/// Zero while no simulation runs in this process.
static RANDOM: AtomicU64 = AtomicU64::new(0);
static BEGAN: OnceLock<Instant> = OnceLock::new();
/// How wrong the wall clock is, in milliseconds.
static WRONG_BY: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Once per process, before anything takes a random number.
pub(crate) fn seed(seed: u64) {
    RANDOM.store(seed | 1, Ordering::SeqCst);
}

/// Once per process, inside the runtime whose clock is paused.
pub(crate) fn begin() {
    let _ = BEGAN.set(Instant::now());
}

/// The wall clock jumps.
pub(crate) fn step(milliseconds: i64) {
    WRONG_BY.fetch_add(milliseconds, Ordering::SeqCst);
}

/// Nanoseconds since 1970, or since a while before the history began; `None` where no simulation runs.
fn read(clock: libc::clockid_t) -> Option<i128> {
    if RANDOM.load(Ordering::SeqCst) == 0 {
        return None;
    }
    let beginning = match clock {
        libc::CLOCK_REALTIME => BEGINNING * 1000 + WRONG_BY.load(Ordering::SeqCst),
        libc::CLOCK_MONOTONIC => UPTIME * 1000,
        _ => return None,
    };
    let passed = match BEGAN.get() {
        // Outside of the runtime tokio asks for the time itself.
        Some(began) if !READING.replace(true) => {
            let passed = Instant::now().saturating_duration_since(*began);
            READING.set(false);
            passed
        }
        _ => Duration::ZERO,
    };
    Some(i128::from(beginning) * 1_000_000 + i128::try_from(passed.as_nanos()).ok()?)
}

/// Takes the place of libc's.
///
/// # Safety
///
/// `time` must point to a `timespec` that may be written, as libc demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    if let Some(now) = read(clock) {
        let tv_sec = i64::try_from(now.div_euclid(1_000_000_000)).unwrap_or(BEGINNING);
        let tv_nsec = i64::try_from(now.rem_euclid(1_000_000_000)).unwrap_or(0);
        // SAFETY: The caller promises that it may be written.
        unsafe { time.write(libc::timespec { tv_sec, tv_nsec }) };
        return 0;
    }
    // SAFETY: The same arguments, passed on to the kernel.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    libc::c_int::try_from(answer).unwrap_or(-1)
}

/// Takes the place of libc's.
///
/// # Safety
///
/// `buffer` must point to `length` bytes that may be written, as libc demands.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    if RANDOM.load(Ordering::SeqCst) == 0 {
        // SAFETY: The same arguments, passed on to the kernel.
        let answer = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(answer).unwrap_or(-1);
    }
    for place in 0..length {
        let number = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c16, Ordering::SeqCst);
        let mixed = (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let byte = u8::try_from(mixed >> 56).unwrap_or(0);
        // SAFETY: The caller promises that `length` bytes may be written.
        unsafe { buffer.cast::<u8>().add(place).write(byte) };
    }
    libc::ssize_t::try_from(length).unwrap_or(-1)
}
