//! The controller as a process, against a real API server and a simulated driver on a real socket.

mod health;
mod stage;
