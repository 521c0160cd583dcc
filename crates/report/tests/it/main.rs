//! Reports against a real API server.

mod events;
mod kit;
mod outage;
mod recall;
mod status;
