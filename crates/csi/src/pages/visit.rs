//! Who gets the entries of a list.

use std::future::{Future, ready};

use super::Listed;

/// Gets each entry as it comes. A closure will do for those who are never behind.
pub trait Visit<T>: Send {
    /// One more entry.
    fn entry(&mut self, listed: Listed<T>);

    /// Called after every page, after every thousand entries of a long one, and at the end. The driver is never more
    /// than one page ahead, and not even that while a large page is handed over: a caller that passes entries on to a
    /// slower task waits here and so holds the driver back.
    fn breathe(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

impl<T, F: FnMut(Listed<T>) + Send> Visit<T> for F {
    fn entry(&mut self, listed: Listed<T>) {
        self(listed);
    }
}
