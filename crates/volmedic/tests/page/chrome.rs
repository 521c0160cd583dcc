//! Chromium, spoken to over a pipe: just enough of its DevTools protocol to load pages, press keys and look.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// For anything that should be quick; a busy machine may take its time.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Events kept at most.
const EVENTS: usize = 100_000;

pub(crate) struct Chrome {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    last: u64,
    events: Vec<Value>,
    _profile: TempDir,
}

impl Chrome {
    /// A browser with a profile of its own and one blank page.
    pub(crate) fn start() -> Self {
        static INSTALLED: OnceLock<()> = OnceLock::new();
        INSTALLED
            .get_or_init(|| volmedic_testkit::packages::ensure(&["chromium"]).expect("Chromium is here"));
        let profile = tempfile::tempdir().expect("a folder for the profile");
        // The browser reads from descriptor 3 and writes to 4; the shell puts our pipes there.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            // What a certificate of our own is good for is not the browser's to judge here.
            .args(["--remote-debugging-pipe", "--lang=en", "--ignore-certificate-errors"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            // A killed browser leaves its temporary folders. In its profile they go with it.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let to = child.stdin.take().expect("a pipe to the browser");
        let out = child.stdout.take().expect("a pipe from the browser");
        let (sender, from) = channel();
        // Ends with the browser.
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut chrome =
            Self { child, to, from, session: None, last: 0, events: Vec::new(), _profile: profile };
        chrome.attach();
        chrome
    }

    fn attach(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let target = loop {
            let targets = self.call("Target.getTargets", json!({}));
            let all = targets["targetInfos"].as_array().expect("a list of targets").clone();
            if let Some(page) = all.iter().find(|target| target["type"] == "page") {
                break page["targetId"].clone();
            }
            assert!(Instant::now() < deadline, "the browser has no page");
            sleep(Duration::from_millis(50));
        };
        let attached = self.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log", "Accessibility"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// One call and its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method });
        message["params"] = params;
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).and_then(|()| self.to.flush()).expect("the browser reads");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            if answer["id"] == self.last {
                return match &answer["error"] {
                    Value::Null => Ok(answer["result"].clone()),
                    error => Err(error.clone()),
                };
            }
            assert!(self.events.len() < EVENTS, "the browser does not stop talking");
            self.events.push(answer);
        }
    }

    /// The value of an expression on the page; null if another page is taking its place.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// As [`Self::eval`]; an error if the expression throws.
    fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = match self.try_call("Runtime.evaluate", params) {
            Err(error) if is_between_pages(&error) => return Ok(Value::Null),
            answer => answer?,
        };
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].clone()),
            thrown => Err(thrown.clone()),
        }
    }

    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        value.as_str().map_or_else(|| panic!("{expression} is no text but {value}"), str::to_owned)
    }

    /// Waits until an expression is true. One that throws is not true yet: a page that is still being read lacks elements.
    pub(crate) fn wait(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let last = self.try_eval(expression);
            if last == Ok(Value::Bool(true)) {
                return;
            }
            if Instant::now() >= deadline {
                let shown = self
                    .try_eval("location.href + ' ' + document.readyState + '\\n' + document.body?.innerText");
                let problems = self.problems();
                panic!(
                    "this did not become true: {expression}\nlast: {last:?}\nproblems: {problems:?}\n{shown:?}"
                );
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the text that an expression comes to has all of these parts.
    pub(crate) fn wait_text(&mut self, expression: &str, parts: &[&str]) {
        self.wait(&format!("{}.every((part) => ({expression}).includes(part))", json!(parts)));
    }

    /// Opens an address and waits until it is there and live.
    pub(crate) fn open(&mut self, url: &str) {
        self.eval("window.before = true");
        self.call("Page.navigate", json!({ "url": url }));
        // A page that somebody was on the way to when this was asked for is not the one that is wanted.
        let there = format!("location.href === new URL({}).href", json!(url));
        self.wait(&format!("!window.before && document.readyState === 'complete' && {there}"));
        self.wait("document.getElementById('state')?.textContent === 'live'");
    }

    /// Presses a key: a character, or a name such as `Enter`.
    pub(crate) fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => Some("\r"),
            key if key.chars().count() == 1 => Some(key),
            _ => None,
        };
        let code = match key {
            "Enter" => 13,
            "Tab" => 9,
            "Escape" => 27,
            _ => 0,
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if let Some(text) = text {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Everything that the page complained about: errors, refused code, exceptions, dialogs.
    pub(crate) fn problems(&mut self) -> Vec<String> {
        // An answer comes after everything that happened before it.
        self.call("Runtime.getIsolateId", json!({}));
        let loud = |event: &&Value| match event["method"].as_str() {
            Some("Log.entryAdded") => {
                matches!(event["params"]["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            Some("Runtime.exceptionThrown" | "Page.javascriptDialogOpening" | "Runtime.consoleAPICalled") => {
                true
            }
            _ => false,
        };
        self.events.iter().filter(loud).map(ToString::to_string).collect()
    }

    /// Waits until this was complained about so often; answers how often it was.
    pub(crate) fn wait_problems(&mut self, text: &str, times: usize) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let problems = self.problems();
            let found = problems.iter().filter(|problem| problem.contains(text)).count();
            if found >= times {
                return found;
            }
            assert!(Instant::now() < deadline, "{found} times {text:?}, not {times}: {problems:?}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Every address that was asked for.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned)).collect()
    }

    /// Controls that a screen reader would have no name for.
    pub(crate) fn nameless_controls(&mut self) -> Vec<String> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().expect("a tree").clone();
        let roles =
            ["link", "button", "searchbox", "textbox", "combobox", "table", "img", "navigation", "region"];
        let nameless = |node: &&Value| {
            node["ignored"] != true
                && node["role"]["value"].as_str().is_some_and(|role| roles.contains(&role))
                && node["name"]["value"].as_str().is_none_or(|name| name.trim().is_empty())
        };
        nodes.iter().filter(nameless).map(|node| node["role"]["value"].to_string()).collect()
    }

    pub(crate) fn emulate(&mut self, width: u32, height: u32, scheme: &str) {
        let phone = width < 700;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
        // What moves would disturb the measuring of colours.
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Keeps a picture below the target folder, for review by eye.
    pub(crate) fn screenshot(&mut self, name: &str) -> PathBuf {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = decode(shot["data"].as_str().expect("a picture"));
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.png"));
        std::fs::write(&file, bytes).expect("the picture can be written");
        file
    }
}

impl Drop for Chrome {
    fn drop(&mut self) {
        // The browser's other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a question came while one page was making way for another, and none was there to answer.
fn is_between_pages(error: &Value) -> bool {
    let gone = ["navigated", "execution context", "context with specified id"];
    error["message"].as_str().is_some_and(|why| gone.iter().any(|gone| why.contains(gone)))
}

/// Base 64, as the browser sends pictures.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0_u32, |bits, byte| bits << 6 | u32::from(value(*byte)));
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend(bits.to_be_bytes()[1..].iter().take(four.len() * 6 / 8));
    }
    bytes
}
