//! Reads the parts of an answer that we need straight from its bytes.
//!
//! The generated types would do for honest drivers. They fail a whole page for one bad byte, and they turn a 64 MiB
//! page of empty entries into gigabytes of objects. Here a bad entry spoils only itself, nothing is allocated, and
//! fields that are not needed cost a skip. What is read here is held against the generated types in the tests.

use prost::bytes::Bytes;
use thiserror::Error;

/// Why bytes are not the message they should be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    #[error("it ends in the middle of a field")]
    CutShort,
    #[error("it holds a number of more than 64 bits")]
    LongNumber,
    #[error("it holds a field with the number zero")]
    FieldZero,
    #[error("it holds a field of a kind that protobuf does not have, or has given up")]
    WireType,
    #[error("it holds a known field in an unknown form")]
    WrongForm,
    #[error("its {0} is not valid UTF-8")]
    NotUtf8(&'static str),
    #[error("it is not valid protobuf")]
    NotProtobuf,
}

/// One field as it lies in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], Malformed> {
        let Self::Bytes(bytes) = self else { return Err(Malformed::WrongForm) };
        Ok(bytes)
    }

    #[allow(clippy::cast_possible_wrap, reason = "negative numbers travel as their two's complement")]
    pub(crate) fn i64(self) -> Result<i64, Malformed> {
        let Self::Number(number) = self else { return Err(Malformed::WrongForm) };
        Ok(number as i64)
    }

    /// Numbers of enums keep their lower half, as every protobuf implementation does.
    #[allow(clippy::cast_possible_truncation, reason = "see above")]
    pub(crate) fn i32(self) -> Result<i32, Malformed> {
        self.i64().map(|number| number as i32)
    }

    pub(crate) fn bool(self) -> Result<bool, Malformed> {
        self.i64().map(|number| number != 0)
    }
}

/// The fields of one message, in the order in which they lie. Ends after the first fault.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

pub(crate) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Fields<'a> {
    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for index in 0..10 {
            let (byte, rest) = self.rest.split_first().ok_or(Malformed::CutShort)?;
            self.rest = rest;
            // The tenth byte has room for one bit only.
            if index == 9 && *byte > 1 {
                return Err(Malformed::LongNumber);
            }
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::LongNumber)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed::CutShort)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::CutShort)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = self.number()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed::WireType)?;
        if number == 0 {
            return Err(Malformed::FieldZero);
        }
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed::WireType),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// One page of either list: entries in field 1, the token of the next page in field 2.
#[derive(Debug)]
pub(crate) struct Page {
    body: Bytes,
    pub(crate) entries: usize,
    pub(crate) next_token: String,
}

impl Page {
    pub(crate) fn read(body: Bytes) -> Result<Self, Malformed> {
        let mut entries = 0;
        let mut token: &[u8] = &[];
        for field in fields(&body) {
            match field? {
                (1, value) => {
                    value.bytes()?;
                    entries += 1;
                }
                (2, value) => token = value.bytes()?,
                _ => {}
            }
        }
        let next_token = std::str::from_utf8(token).map_err(|_| Malformed::NotUtf8("next_token"))?.to_owned();
        Ok(Self { body, entries, next_token })
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.body.len()
    }

    /// The bytes of each entry; what is in them is not judged yet.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        fields(&self.body).filter_map(|field| match field {
            Ok((1, Value::Bytes(entry))) => Some(entry),
            _ => None,
        })
    }
}

/// An entry of ListVolumes, or a whole answer of ControllerGetVolume: their fields are the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Volume<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) capacity_bytes: i64,
    pub(crate) condition: Option<Condition<'a>>,
}

impl<'a> Volume<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut volume = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => volume.read_volume(value.bytes()?)?,
                (2, value) => {
                    for field in fields(value.bytes()?) {
                        if let (2, value) = field? {
                            Condition::merge(&mut volume.condition, value.bytes()?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(volume)
    }

    fn read_volume(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        for field in fields(message) {
            match field? {
                (1, value) => self.capacity_bytes = value.i64()?,
                (2, value) => self.id = value.bytes()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The old dialect's VolumeCondition, and the healer's answer: their fields are the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition<'a> {
    pub(crate) abnormal: bool,
    pub(crate) message: &'a [u8],
}

impl<'a> Condition<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut condition = None;
        Self::merge(&mut condition, message)?;
        Ok(condition.unwrap_or_default())
    }

    /// A message that comes in two pieces is one message.
    pub(crate) fn merge(into: &mut Option<Self>, message: &'a [u8]) -> Result<(), Malformed> {
        let condition = into.get_or_insert_default();
        for field in fields(message) {
            match field? {
                (1, value) => condition.abnormal = value.bool()?,
                (2, value) => condition.message = value.bytes()?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// One (status, reason, message) of the new dialect, about a volume or about a backend.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report<'a> {
    pub(crate) status: i32,
    pub(crate) reason: &'a [u8],
    pub(crate) message: &'a [u8],
    /// Field 4, which only backends have.
    pub(crate) capability: Option<&'a [u8]>,
}

impl<'a> Report<'a> {
    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut report = Self::default();
        for field in fields(message) {
            match field? {
                (1, value) => report.status = value.i32()?,
                (2, value) => report.reason = value.bytes()?,
                (3, value) => report.message = value.bytes()?,
                (4, value) => report.capability = Some(value.bytes()?),
                _ => {}
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests;
