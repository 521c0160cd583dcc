//! One line of mountinfo, taken apart without copying.
//!
//! ```text
//! 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue
//! id parent dev root target options  optional...   -  type source super options
//! ```

use std::ops::Range;

use crate::DeviceNumber;

/// Where in the text the parts of a line are. The text stays where it is; escaped parts are decoded in place,
/// since decoding only ever shortens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) id: u32,
    pub(super) parent: u32,
    pub(super) device: DeviceNumber,
    pub(super) root: Span,
    pub(super) target: Span,
    pub(super) options: Span,
    pub(super) optional: Span,
    pub(super) fs_type: Span,
    pub(super) source: Span,
    pub(super) super_options: Span,
}

/// A piece of the text. 32 bits are enough: a longer text is refused when it is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(super) fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start as usize..self.end as usize]
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { start: narrow(range.start), end: narrow(range.end) }
    }
}

/// Reads the line at `line` of `text`, or gives `None` when it is not a mountinfo line.
///
/// Fields are divided by exactly one space: a source may be empty, and then two spaces stand side by side.
pub(super) fn parse(text: &mut [u8], line: Range<usize>) -> Option<Record> {
    let mut fields = Fields { at: line.start, end: line.end };
    let id = number(&text[fields.next(text)?])?;
    let parent = number(&text[fields.next(text)?])?;
    let device = std::str::from_utf8(&text[fields.next(text)?]).ok()?.parse().ok()?;
    let root = fields.next(text)?;
    let target = fields.next(text)?;
    let options = fields.next(text)?;

    // Any number of optional fields, ended by a lone dash.
    let optional_start = fields.at;
    let optional_end = loop {
        let field = fields.next(text)?;
        if text[field.clone()] == *b"-" {
            break field.start.saturating_sub(1).max(optional_start);
        }
    };
    let fs_type = fields.next(text)?;
    let source = fields.next(text)?;
    // The last field takes the rest: not every file system escapes the spaces in its own options.
    let super_options = fields.rest()?;
    if !text[root.clone()].starts_with(b"/") && !is_namespace_file(&text[root.clone()]) {
        return None;
    }
    if !text[target.clone()].starts_with(b"/") || fs_type.is_empty() {
        return None;
    }
    Some(Record {
        id,
        parent,
        device,
        root: decode(text, root),
        target: decode(text, target),
        options: decode(text, options),
        optional: (optional_start..optional_end).into(),
        fs_type: decode(text, fs_type),
        source: decode(text, source),
        super_options: decode(text, super_options),
    })
}

/// The root of a bind-mounted namespace is not a path: `net:[4026532008]`.
fn is_namespace_file(root: &[u8]) -> bool {
    root.ends_with(b"]") && root.contains(&b'[')
}

struct Fields {
    at: usize,
    end: usize,
}

impl Fields {
    fn next(&mut self, text: &[u8]) -> Option<Range<usize>> {
        let start = self.at;
        if start > self.end {
            return None;
        }
        let length = text[start..self.end].iter().position(|byte| *byte == b' ');
        let end = length.map_or(self.end, |length| start + length);
        self.at = end + 1;
        Some(start..end)
    }

    fn rest(&self) -> Option<Range<usize>> {
        (self.at <= self.end).then_some(self.at..self.end)
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Turns `\040` and its like into the bytes they stand for. What is not quite an escape stays as it is.
fn decode(text: &mut [u8], field: Range<usize>) -> Span {
    let Some(first) = text[field.clone()].iter().position(|byte| *byte == b'\\') else { return field.into() };
    let mut write = field.start + first;
    let mut read = write;
    while read < field.end {
        let byte = match octal(&text[read..field.end]) {
            Some(byte) => {
                read += 4;
                byte
            }
            None => {
                read += 1;
                text[read - 1]
            }
        };
        text[write] = byte;
        write += 1;
    }
    (field.start..write).into()
}

fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', ..] = text else { return None };
    Some((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0'))
}
