//! The terminal: whether there is one, what it can show, and how to draw on it.

use std::io::{self, IsTerminal, Write};

use volmedic_view::render::Paint;

/// Sentences are not broken into shorter lines than this.
const NARROWEST: usize = 40;

/// Whether standard output is a screen that can be drawn on.
pub fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Colours are for terminals, and for those who did not ask for none.
pub fn paint() -> Paint {
    let colour = is_screen() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    Paint { colour, width: size().map(|(width, _)| width) }
}

/// Columns and lines of the terminal, if it is one.
pub fn size() -> Option<(usize, usize)> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    Some(size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into())))
}

/// Columns for sentences: those of the terminal, or what `COLUMNS` says where output goes elsewhere, or 80.
pub fn columns() -> usize {
    let set = || std::env::var("COLUMNS").ok()?.parse().ok();
    size().map(|(columns, _)| columns).or_else(set).unwrap_or(80).max(NARROWEST)
}

/// A screen of its own on the terminal; what was there before comes back when this is dropped.
#[derive(Debug)]
pub struct Screen;

impl Screen {
    pub fn open() -> io::Result<Self> {
        say("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(Self)
    }

    /// Over what was there, line by line, so that nothing flickers.
    #[allow(clippy::unused_self, reason = "only who has the screen may draw on it")]
    pub fn draw(&self, text: &str) -> io::Result<()> {
        let mut out = String::from("\x1b[H");
        for line in text.lines() {
            out.push_str(line);
            out.push_str("\x1b[K\r\n");
        }
        // The last line break would scroll a full screen.
        out.truncate(out.trim_end_matches("\r\n").len());
        out.push_str("\x1b[J");
        say(&out)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = say("\x1b[?25h\x1b[?1049l");
    }
}

/// Writes all of it and flushes. A closed pipe is reported as such: its reader has read enough.
pub fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
