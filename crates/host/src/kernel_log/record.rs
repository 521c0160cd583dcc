//! One record of `/dev/kmsg`.
//!
//! ```text
//! 6,339,5140900,-,caller=T1;sd 2:0:0:0: [sda] Attached SCSI disk
//!  SUBSYSTEM=scsi
//!  DEVICE=+scsi:2:0:0:0
//! ```
//! Facility and level in one number, sequence, microseconds, flags, perhaps more; then the text, in which bytes that
//! cannot be printed are written `\x0a`; then a dictionary, one line each, begun with a space.

use std::time::Duration;

/// Longer texts are cut. The kernel's own limit is near.
const LONGEST_TEXT: usize = 1024;

/// One thing that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Every record has the number after the last one's.
    pub sequence: u64,
    /// When, by the kernel's clock.
    pub since_boot: Duration,
    /// 0 (emergency) to 7 (debug), as in syslog.
    pub level: u8,
    /// Whether the kernel itself said it. A program cannot pretend to be the kernel.
    pub from_kernel: bool,
    /// One line of printable text.
    pub text: String,
    /// Which device it is about, where the kernel added that: `b8:0`, `+scsi:2:0:0:0`.
    pub device: Option<String>,
}

impl Record {
    /// Takes any bytes; `None` when they are no record.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let split = bytes.iter().position(|byte| *byte == b';')?;
        let header = std::str::from_utf8(&bytes[..split]).ok()?;
        let mut fields = header.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let micros = fields.next()?.parse().ok()?;
        let mut lines = bytes[split + 1..].split(|byte| *byte == b'\n');
        let text = printable(lines.next().unwrap_or_default());
        let device = lines.find_map(|line| line.strip_prefix(b" DEVICE=")).map(printable);
        Some(Self {
            sequence,
            since_boot: Duration::from_micros(micros),
            level: u8::try_from(priority & 7).unwrap_or(7),
            from_kernel: priority >> 3 == 0,
            text,
            device: device.filter(|device| !device.is_empty()),
        })
    }
}

/// Undoes the kernel's escapes and leaves one line that can be printed.
fn printable(raw: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(raw.len().min(LONGEST_TEXT));
    let mut at = 0;
    while at < raw.len() && bytes.len() < LONGEST_TEXT {
        let (byte, length) = escaped(&raw[at..]).map_or((raw[at], 1), |byte| (byte, 4));
        bytes.push(byte);
        at += length;
    }
    let text = String::from_utf8_lossy(&bytes);
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.trim().to_owned()
}

fn escaped(raw: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = raw else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(*high)? << 4 | digit(*low)?)
}
