//! Every rule against a driver that breaks it, and all rules against one that breaks none. In process, over a real
//! socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod controller;
mod fake;
mod leftovers;
mod node;
mod table;
