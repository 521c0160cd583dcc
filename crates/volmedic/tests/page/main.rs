//! The page in a real browser: Chromium, headless, on the page of `volmedic watch` beside a simulated driver.

mod browse;
mod chrome;
mod hostile;
mod keyboard;
mod live;
mod stage;
