//! The program, and what it said: made comparable, and compared with what is kept.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

/// The program, in an environment that does not depend on who runs the test.
pub(crate) fn volmedic() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volmedic"));
    for name in ["KUBECONFIG", "NO_COLOR", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Times become TIME and ages AGE, the server's release RELEASE and its port PORT; gaps between columns are three blanks.
pub(crate) fn redact(told: &str) -> String {
    told.lines()
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
pub(crate) fn assert_transcript(folder: &str, name: &str, told: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder).join("transcripts").join(name);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, told).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(told, expected, "it is not what it was; if that is meant, renew {}", file.display());
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

/// A small HTTP server that gives one answer to each path. It ends with the test program.
pub(crate) fn serve(answer: impl Fn(&str) -> (&'static str, String) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 8192];
            let read = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = answer(path);
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n");
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    address
}
