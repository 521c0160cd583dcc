//! The program, and what it said: made comparable, and compared with what is kept.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;
use volmedic_testkit::{Feature, server_has};

/// The program, in an environment that does not depend on who runs the test.
pub(crate) fn volmedic() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volmedic"));
    for name in [
        "KUBECONFIG",
        "NO_COLOR",
        "KUBERNETES_SERVICE_HOST",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Times become TIME and ages AGE, the server's release RELEASE and its port PORT; gaps between columns are three blanks.
pub(crate) fn redact(reported: &str) -> String {
    reported
        .lines()
        .flat_map(|line| {
            [
                redact_line(line),
                "
"
                .to_owned(),
            ]
        })
        .collect()
}

fn redact_line(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let units = ["s", "min", "h", "d"];
    for word in line.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_time = bare.len() >= 20 && bare.ends_with('Z') && bare.as_bytes()[10] == b'T';
        let unit = word.trim_end_matches([',', ':', ';']);
        let number = |word: &String| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if is_time {
            words.push(word.replace(bare, "TIME"));
        } else if units.contains(&unit) && words.last().is_some_and(number) {
            words.pop();
            words.push(word.replacen(unit, "AGE", 1));
        } else if bare.starts_with("v1.") {
            words.push(word.replace(bare, "RELEASE"));
        } else {
            words.push(word.to_owned());
        }
    }
    let line = words.join(" ");
    let indent = line.len() - line.trim_start().len();
    let mut clean = line[..indent].to_owned();
    let mut blanks = 0;
    for letter in line[indent..].chars() {
        if letter == ' ' {
            blanks += 1;
            continue;
        }
        clean.push_str(if blanks > 2 { "   " } else { &"  "[..blanks] });
        blanks = 0;
        clean.push(letter);
    }
    match clean.split_once("127.0.0.1:") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}127.0.0.1:PORT{rest}")
        }
        None => clean,
    }
}

/// Compares with what is kept. To renew it after a change that was meant: `UPDATE_TRANSCRIPTS=1 cargo test`.
///
/// Where releases of Kubernetes without health in claims are answered otherwise, a second folder has what they get.
pub(crate) fn assert_transcript(folder: &str, name: &str, reported: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder).join("transcripts");
    let (usual, older) = (folder.join(name), folder.join("without-claim-health").join(name));
    let renew = std::env::var_os("UPDATE_TRANSCRIPTS").is_some();
    let kept = |file: &Path| fs::read_to_string(file).unwrap_or_default();
    let differs = older.exists() || (renew && kept(&usual) != reported);
    let file = if differs && !server_has(Feature::ClaimHealth) { older } else { usual };
    if renew {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, reported).unwrap();
    }
    assert_eq!(reported, kept(&file), "it is not what it was; if that is meant, renew {}", file.display());
}

/// A kubeconfig whose server is this.
pub(crate) fn config_for(room: &Path, server: &str) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    });
    let path = room.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// A small HTTP server that gives one answer to each path, each connection on a thread of its own. It ends with the test
/// program.
pub(crate) fn serve(answer: impl Fn(&str) -> (&'static str, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || serve_one(&stream, &*answer));
        }
    });
    address
}

/// Reads a whole request before it answers: to close a connection with unread bytes resets it, and the answer is lost.
fn serve_one(stream: &TcpStream, answer: &dyn Fn(&str) -> (&'static str, String)) {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head).is_ok_and(|read| read > 0) {
            continue;
        }
        return;
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    if reader.read_exact(&mut vec![0; length.unwrap_or_default()]).is_err() {
        return;
    }
    let (status, body) = answer(head.split(' ').nth(1).unwrap_or_default());
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
    let _ = write!(&mut &*stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
}
