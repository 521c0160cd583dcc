//! How a pass ended: whole or broken, and what was met on the way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::MAX_TOKEN;
use crate::error::CallError;
use crate::method::Method;
use crate::oddity::Oddities;

/// What a pass came to. The entries have gone to the visitor already.
#[derive(Clone, Debug)]
pub struct PassEnd {
    pub driver: Arc<str>,
    pub method: Method,
    /// Why the list is not whole. Absent: it is, and what was not in it was not in it.
    pub broken: Option<Broken>,
    /// The list is whole but has less than half as many volumes as the last whole one, which had this many.
    pub shrunk_from: Option<u64>,
    pub counts: Counts,
    pub took: Duration,
}

impl PassEnd {
    /// Only a complete pass says anything about what was absent from it.
    pub fn complete(&self) -> bool {
        self.broken.is_none()
    }
}

/// What was met in one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pages: u64,
    /// Entries in all pages, odd ones included.
    pub entries: u64,
    /// Different volumes; since the restart, if there was one.
    pub volumes: u64,
    /// Pages asked for again, in smaller pieces.
    pub retries: u64,
    /// Begun again because the driver refused its own token.
    pub restarts: u64,
    pub oddities: Oddities,
}

/// Why a list is not whole. What its pages did say stands.
#[derive(Clone, Debug, Error)]
pub enum Broken {
    #[error("{0}")]
    Call(CallError),
    #[error(
        "{0}; it was asked for in smaller pages down to the one that cannot be read, and the rest of the list is out \
         of reach, because the token for it is inside that page"
    )]
    Unreadable(CallError),
    #[error(
        "the driver's pages go in a circle: page {page} gave a token that an earlier page had given; the driver must \
         give each page a token of its own"
    )]
    TokenLoop { page: u64 },
    #[error(
        "the driver sent {count} pages in a row with nothing but volumes it had listed before; it seems to ignore \
         starting_token"
    )]
    RepeatedPages { count: u32 },
    #[error("the driver sent {count} empty pages in a row, each promising another")]
    EmptyPages { count: u32 },
    #[error("the driver sent {max} pages and promised another; the limit on pages was reached")]
    TooManyPages { max: u64 },
    #[error("the driver listed {max} entries and went on; the limit on entries was reached")]
    TooManyEntries { max: u64 },
    #[error("the list did not end within {deadline:.1?}, although each of its pages came in time")]
    PassDeadline { deadline: Duration },
    #[error("the driver gave a page token of {length} bytes; at most {MAX_TOKEN} are taken")]
    TokenTooLong { length: usize },
    #[error(
        "the last page was exactly as full as asked for, which is how a driver looks that cuts its list without saying \
         so, and asking for the rest without a limit failed: {0}"
    )]
    MaybeTruncated(CallError),
    #[error(
        "the list has {count} × an entry whose volume id is missing or cannot be read, so a volume that seems absent may \
         be one of them; the driver must name each volume"
    )]
    Nameless { count: u64 },
}

impl fmt::Display for PassEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { driver, method, broken, shrunk_from, counts, took } = self;
        let Counts { pages, entries: _, volumes, retries, restarts, oddities } = counts;
        let whole = if broken.is_none() { "complete" } else { "incomplete" };
        write!(
            f,
            "{} of driver {driver} was {whole}: {} in {} in {took:.1?}",
            method.name(),
            many(*volumes, "volume"),
            many(*pages, "page"),
        )?;
        if *retries > 0 {
            write!(f, ", asked {} to send a page in smaller pieces", many(*retries, "time"))?;
        }
        if *restarts > 0 {
            f.write_str(", started again because the driver refused its own token")?;
        }
        if !oddities.is_empty() {
            write!(f, "; odd: {oddities}")?;
        }
        if let Some(before) = shrunk_from {
            write!(f, "; the list before had {before} volumes")?;
        }
        if let Some(broken) = broken {
            write!(f, "; {broken}; what the pages before it said is kept")?;
        }
        Ok(())
    }
}

fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
