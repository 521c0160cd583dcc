//! Rows as text: a table for people, JSON and YAML for machines.

mod data;
mod drawing;
mod explain;
mod jsonpath;
mod markdown;
mod table;

pub use data::{Document, json, yaml};
pub use drawing::drawing;
pub use explain::explain;
pub use jsonpath::{JsonPath, JsonPathError};
pub use markdown::{Inline, Markdown};
pub use table::{Paint, Table};
