//! Walks a list page by page and hands over each entry as it comes. However the driver behaves, the walk ends, holds
//! at most two pages, of which one is small, and reports at the end whether the list was complete.

mod end;
mod listing;
mod memory;
mod size;
mod visit;

use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use self::end::{Broken, Counts, PassEnd};
use self::listing::{Health, Listing, Volumes};
use self::memory::Memory;
use self::size::Size;
pub use self::visit::Visit;
use crate::answer::{Cleaner, ListedVolume, VolumeHealth};
use crate::backoff::Backoff;
use crate::error::{CallError, Kind};
use crate::link::About;
use crate::oddity::{Oddities, Oddity};
use crate::secrets::Secrets;
use crate::session::Session;
use crate::wire::Page;

/// A page of many entries is handed over in pieces of this many, and others run in between.
const BREATH: usize = 1000;
/// Deadlines are waited out in full, so a page gets only a few of them before the pass gives up.
const MAX_SLOW: u32 = 3;
/// Pages in a row that bring nothing new, before the driver is taken to go in circles.
const MAX_STALE: u32 = 3;
/// Empty pages in a row. A driver that filters may have some; one without end has not.
const MAX_EMPTY: u32 = 100;
/// The specification has 128 bytes; tokens of cloud interfaces are longer.
const MAX_TOKEN: usize = 64 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A list this short may lose half of its volumes between two passes.
const SMALL: u64 = 10;

/// The largest page, in bytes, beside which another one is kept in memory. Two of the largest would exceed the memory that
/// a controller has in the chart.
const SMALL_PAGE: usize = 4 << 20;

/// The bounds of one pass.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Entries asked for in the first page; adapted from there.
    pub first_size: u32,
    pub largest_size: u32,
    pub page_deadline: Duration,
    pub pass_deadline: Duration,
    pub max_pages: u64,
    pub max_entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_size: 500,
            largest_size: 4000,
            page_deadline: Duration::from_secs(15),
            pass_deadline: Duration::from_mins(30),
            max_pages: 1_000_000,
            max_entries: 1_000_000,
        }
    }
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    pub entry: T,
    /// The volume came before in this pass. Neither entry is newer: believe the worse one.
    pub again: bool,
}

/// Walks one list of one driver, again and again, and remembers what page size suits it.
#[derive(Debug)]
pub struct Pager {
    limits: Limits,
    size: Size,
    generation: u64,
    /// How many volumes the last complete pass found.
    last: Option<u64>,
}

impl Pager {
    pub fn new(limits: Limits) -> Self {
        let size = Size::new(&limits);
        Self { limits, size, generation: 0, last: None }
    }

    /// All volumes, in the old dialect with their conditions. `visit` gets each as it comes, whether or not the pass
    /// becomes complete.
    pub async fn list_volumes(&mut self, session: &Session, visit: impl Visit<ListedVolume>) -> PassEnd {
        self.pass(session, &Volumes, visit).await
    }

    /// The health of all volumes, in the new dialect. Absent volumes have nothing adverse.
    pub async fn list_health(
        &mut self,
        session: &Session,
        secrets: &Secrets,
        visit: impl Visit<VolumeHealth>,
    ) -> PassEnd {
        self.pass(session, &Health { secrets }, visit).await
    }

    async fn pass<L: Listing>(
        &mut self,
        session: &Session,
        listing: &L,
        mut visit: impl Visit<L::Entry>,
    ) -> PassEnd {
        if self.generation != session.generation() {
            // A restarted driver may be another version of itself.
            self.generation = session.generation();
            self.size = Size::new(&self.limits);
        }
        let started = Instant::now();
        let mut ask = Ask {
            session,
            listing,
            limits: &self.limits,
            size: &mut self.size,
            oddities: Oddities::default(),
            retries: 0,
            started,
        };
        let mut take = Take {
            listing,
            limits: &self.limits,
            memory: Memory::default(),
            cleaner: Cleaner::new(listing.secrets()),
            counts: Counts::default(),
            nameless: 0,
        };
        let walked = walk(&mut ask, &mut take, &mut visit).await;
        // Whichever way it ended, nothing that was handed over stays behind.
        visit.breathe().await;
        let Ask { oddities: mut found, retries, .. } = ask;
        let Take { cleaner: Cleaner { oddities, .. }, mut counts, nameless, memory, .. } = take;
        found.add(&oddities);
        let mut oddities = found;
        counts.retries = retries;
        let broken = match walked {
            Err(broken) => Some(broken),
            Ok(()) if nameless > 0 => Some(Broken::Nameless { count: nameless }),
            Ok(()) => None,
        };
        let volumes = memory.volumes();
        let mut shrunk_from = None;
        if broken.is_none() {
            self.size.passed();
            shrunk_from = self.last.replace(volumes).filter(|last| *last >= SMALL && volumes < last / 2);
            if shrunk_from.is_some() {
                oddities.note(Oddity::ShrunkList);
            }
        }
        counts.volumes = volumes;
        counts.oddities = oddities;
        session.link().metrics.odd(session.driver(), &counts.oddities);
        let driver = session.name().clone();
        PassEnd { driver, method: L::METHOD, broken, shrunk_from, counts, took: started.elapsed() }
    }
}

/// Goes from page to page. The next page is asked for while the entries of the last are handed over, so that neither
/// the driver nor we wait for the other. A large page is handed over and dropped first.
async fn walk<L: Listing>(
    ask: &mut Ask<'_, L>,
    take: &mut Take<'_, L>,
    visit: &mut impl Visit<L::Entry>,
) -> Result<(), Broken> {
    let mut token = String::new();
    let mut restarted = false;
    let mut previous = None;
    let (mut stale, mut empty) = (0, 0);
    let mut answer = ask.fetch(&token).await;
    loop {
        let fetched = match answer {
            // The driver no longer knows its own token: the specification says to begin again.
            Err(Broken::Call(error)) if error.kind() == Kind::Aborted && !token.is_empty() && !restarted => {
                ask.oddities.note(Oddity::TokenRefused);
                take.counts.restarts += 1;
                take.memory = Memory::default();
                restarted = true;
                token.clear();
                answer = ask.fetch(&token).await;
                continue;
            }
            other => other?,
        };
        let Fetched { page, asked, doubt } = fetched;
        take.counts.pages += 1;
        let last = page.next_token.is_empty();
        take.note_shape(&page, asked, previous, last);
        previous = Some((page.entries, asked));
        empty = if page.entries == 0 { empty + 1 } else { 0 };

        // What its entries say is believed, whatever else is wrong with the page.
        let end = match doubt {
            Some(error) => Some(Err(Broken::MaybeTruncated(error))),
            None if last => Some(Ok(())),
            None if empty >= MAX_EMPTY => Some(Err(Broken::EmptyPages { count: empty })),
            None => take.check_token(&page.next_token).err().map(Err),
        };
        if let Some(end) = end {
            take.hand_over(&page, visit).await?;
            return end;
        }
        token.clone_from(&page.next_token);
        let entries = page.entries;
        let (next, fresh) = if page.size() > SMALL_PAGE {
            let fresh = take.hand_over(&page, visit).await?;
            drop(page);
            (ask.fetch(&token).await, fresh)
        } else {
            let (next, fresh) = tokio::join!(biased; ask.fetch(&token), take.hand_over(&page, visit));
            (next, fresh?)
        };
        if fresh {
            stale = 0;
        } else if entries > 0 {
            take.cleaner.oddities.note(Oddity::RepeatedPage);
            stale += 1;
        }
        if stale >= MAX_STALE {
            return Err(Broken::RepeatedPages { count: stale });
        }
        answer = next;
    }
}

/// The half of a pass that gets pages.
struct Ask<'a, L> {
    session: &'a Session,
    listing: &'a L,
    limits: &'a Limits,
    size: &'a mut Size,
    oddities: Oddities,
    retries: u64,
    started: Instant,
}

/// The half of a pass that goes through them.
struct Take<'a, L> {
    listing: &'a L,
    limits: &'a Limits,
    memory: Memory,
    cleaner: Cleaner<'a>,
    counts: Counts,
    nameless: u64,
}

/// A page, and what is uncertain about it.
struct Fetched {
    page: Page,
    /// How many entries were asked for; zero for all.
    asked: u32,
    /// It seems to be the last page, but the call that would confirm it failed.
    doubt: Option<CallError>,
}

impl<L: Listing> Take<'_, L> {
    /// Whether there can be another page after this one.
    fn check_token(&mut self, token: &str) -> Result<(), Broken> {
        if token.len() > MAX_TOKEN {
            return Err(Broken::TokenTooLong { length: token.len() });
        }
        if !self.memory.new_token(token) {
            self.cleaner.oddities.note(Oddity::TokenLoop);
            return Err(Broken::TokenLoop { page: self.counts.pages });
        }
        if self.counts.pages >= self.limits.max_pages {
            return Err(Broken::TooManyPages { max: self.limits.max_pages });
        }
        Ok(())
    }

    fn note_shape(&mut self, page: &Page, asked: u32, previous: Option<(usize, u32)>, last: bool) {
        let oddities = &mut self.cleaner.oddities;
        if asked > 0 && page.entries > asked as usize {
            oddities.note(Oddity::OversizedPage);
        }
        if last {
            return;
        }
        if page.entries == 0 {
            oddities.note(Oddity::EmptyPage);
        } else if previous.is_some_and(|(entries, was_asked)| page.entries < entries && asked >= was_asked) {
            oddities.note(Oddity::ShrinkingPage);
        }
    }

    /// Gives the entries of one page to the visitor. True if any of them is new in this pass.
    async fn hand_over(&mut self, page: &Page, visit: &mut impl Visit<L::Entry>) -> Result<bool, Broken> {
        let mut fresh = false;
        // The task that writes to the driver gets to send the request for the next page first.
        tokio::task::yield_now().await;
        for (index, bytes) in page.entries().enumerate() {
            if self.counts.entries >= self.limits.max_entries {
                return Err(Broken::TooManyEntries { max: self.limits.max_entries });
            }
            self.counts.entries += 1;
            match self.listing.clean(&mut self.cleaner, bytes) {
                Err(_) => self.nameless += 1,
                Ok(entry) => {
                    let again = !self.memory.new_volume(L::id(&entry));
                    if again {
                        self.cleaner.oddities.note(Oddity::DuplicateId);
                    }
                    fresh |= !again;
                    visit.entry(Listed { entry, again });
                }
            }
            if index % BREATH == BREATH - 1 {
                visit.breathe().await;
                tokio::task::yield_now().await;
            }
        }
        visit.breathe().await;
        Ok(fresh)
    }
}

impl<L: Listing> Ask<'_, L> {
    /// One page, asked for in smaller and smaller pieces while it is too much for the driver or for us.
    async fn fetch(&mut self, token: &str) -> Result<Fetched, Broken> {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut slow = 0;
        // Ends: each round returns or halves the size.
        loop {
            let asked = self.size.ask();
            let sent = Instant::now();
            let error = match self.call(asked, token).await? {
                Ok(page) => {
                    self.size.answered(page.entries, asked, sent.elapsed());
                    return self.verify(page, asked, token).await;
                }
                Err(error) => error,
            };
            let smaller = match error.kind() {
                Kind::Deadline => {
                    slow += 1;
                    slow <= MAX_SLOW && self.size.halve()
                }
                Kind::TooLarge => {
                    self.oddities.note(Oddity::TooLargePage);
                    self.size.halve()
                }
                Kind::Unreadable => {
                    self.oddities.note(Oddity::UnreadablePage);
                    self.size.halve()
                }
                Kind::ResourceExhausted => self.size.halve(),
                Kind::InvalidArgument if token.is_empty() && self.size.lift() => {
                    self.oddities.note(Oddity::MaxEntriesRefused);
                    true
                }
                _ => false,
            };
            if !smaller {
                let unreadable = error.kind() == Kind::Unreadable;
                return Err(if unreadable { Broken::Unreadable(error) } else { Broken::Call(error) });
            }
            self.retries += 1;
            sleep(backoff.failed()).await;
        }
    }

    /// A last page that is exactly full may be a list that the driver cut without saying so. Believing it would
    /// make volumes vanish, so the rest is asked for without a limit.
    async fn verify(&mut self, page: Page, asked: u32, token: &str) -> Result<Fetched, Broken> {
        if asked == 0 || !page.next_token.is_empty() || page.entries != asked as usize {
            return Ok(Fetched { page, asked, doubt: None });
        }
        let entries = page.entries;
        // A large page is not kept beside what may be as large. If it is needed after all, it is asked for again.
        let kept = (page.size() <= SMALL_PAGE).then_some(page);
        match (self.call(0, token).await?, kept) {
            (Ok(whole), _) if whole.entries > entries => {
                self.oddities.note(Oddity::TruncatedList);
                self.size.lift();
                Ok(Fetched { page: whole, asked: 0, doubt: None })
            }
            (Ok(_), Some(page)) | (Ok(page), None) => Ok(Fetched { page, asked, doubt: None }),
            (Err(error), Some(page)) => Ok(Fetched { page, asked, doubt: Some(error) }),
            (Err(error), None) => match self.call(asked, token).await? {
                Ok(page) => Ok(Fetched { page, asked, doubt: Some(error) }),
                Err(_) => Err(Broken::MaybeTruncated(error)),
            },
        }
    }

    async fn call(&self, asked: u32, token: &str) -> Result<Result<Page, CallError>, Broken> {
        let left = self.limits.pass_deadline.saturating_sub(self.started.elapsed());
        if left.is_zero() {
            return Err(Broken::PassDeadline { deadline: self.limits.pass_deadline });
        }
        let deadline = self.limits.page_deadline.min(left);
        let about = About { volume: None, secrets: self.listing.secrets(), deadline };
        let request = self.listing.request(i32::try_from(asked).unwrap_or(i32::MAX), token.to_owned());
        Ok(self.session.link().call(request, about, Page::read).await)
    }
}
