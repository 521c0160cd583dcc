//! What is believed, for people: one read model, shown as a table, as JSON or YAML, and as a page.
//!
//! A role fills it by being a [`Source`]: it answers with [`Row`]s, in any order, and keeps a [`History`]. From the
//! rows a [`Snapshot`] is made, sorted and counted once, from which any [`Query`] is answered quickly; [`render`] turns
//! rows into text, and [`page`] serves all of it over HTTP, read-only.
//!
//! Text of drivers and clusters is data here: it passes [`text::plain`] on its way to a terminal and is escaped on its
//! way to a browser.

pub mod grade;
pub mod history;
pub mod page;
pub mod query;
pub mod render;
pub mod row;
pub mod snapshot;
pub mod source;
pub mod text;
pub mod timeline;

pub use grade::{Counts, Grade};
pub use history::{History, Moment};
pub use query::{Query, Sort, Wanted};
pub use row::{Row, Sighting};
pub use snapshot::{Page, Snapshot};
pub use source::{About, AgentState, Call, Heal, NodeState, Source};
pub use timeline::{Lane, Span};
