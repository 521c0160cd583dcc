//! A cluster that only a proxy leads to: its name is known nowhere else.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use crate::reported::{redact, text, volmedic};
use crate::stage::whole;

const NAME: &str = "api.cluster.invalid";

/// How a proxy learns where to go; it says what was asked, or that it answers nothing more.
type Greet = fn(&mut TcpStream) -> Option<String>;

/// A proxy that leads to the API server whatever the name is. It ends with the test program.
fn proxy(greet: Greet) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = whole().plane.url().trim_start_matches("https://").to_owned();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let (server, sender) = (server.clone(), sender.clone());
            thread::spawn(move || {
                let Some(asked) = greet(&mut client) else { return };
                // The test may have read enough.
                let _ = sender.send(asked);
                let server = TcpStream::connect(server).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || carry(back.0, back.1));
                carry(client, server);
            });
        }
    });
    (address, receiver)
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    // Either side may end it.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// HTTP: the line with CONNECT and what the caller says of itself.
fn connect(client: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut asked = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if line.starts_with("CONNECT ") || line.to_ascii_lowercase().starts_with("proxy-authorization") {
            asked.push_str(&line);
        }
    }
    assert!(reader.buffer().is_empty(), "nothing may follow before the answer");
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    Some(asked)
}

fn refuse(client: &mut TcpStream) -> Option<String> {
    let mut request = [0; 1024];
    let _ = client.read(&mut request);
    let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    None
}

/// Holds the connection and says nothing.
fn ignore(client: &mut TcpStream) -> Option<String> {
    let _ = client.read_to_end(&mut Vec::new());
    None
}

/// SOCKS 5 without a password; the name as the caller sent it.
fn socks(client: &mut TcpStream) -> Option<String> {
    let mut head = [0; 2];
    client.read_exact(&mut head).ok()?;
    let mut methods = vec![0; head[1].into()];
    client.read_exact(&mut methods).ok()?;
    client.write_all(&[5, 0]).ok()?;
    let mut request = [0; 5];
    client.read_exact(&mut request).ok()?;
    assert_eq!(request[..4], [5, 1, 0, 3], "a connection to a name");
    let mut rest = vec![0; usize::from(request[4]) + 2];
    client.read_exact(&mut rest).ok()?;
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).ok()?;
    Some(String::from_utf8_lossy(&rest[..rest.len() - 2]).into_owned())
}

fn config(room: &tempfile::TempDir, proxy: Option<&str>) -> PathBuf {
    let mut config = whole().config();
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = format!("https://{NAME}:6443").into();
    cluster["tls-server-name"] = "127.0.0.1".into();
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = proxy.into();
    }
    let path = room.path().join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
fn through_the_proxy_that_the_kubeconfig_names() {
    let room = tempfile::tempdir().unwrap();
    for (scheme, greet, expected) in [
        ("http", connect as Greet, "CONNECT api.cluster.invalid:6443 HTTP/1.1"),
        ("socks5", socks as Greet, NAME),
        ("socks5h", socks as Greet, NAME),
    ] {
        let (address, asked) = proxy(greet);
        let path = config(&room, Some(&format!("{scheme}://{address}")));
        // As kubectl has it: this is for proxies of the environment only.
        let output =
            volmedic().env("NO_PROXY", "*").args(["status", "-n", "calm", "--kubeconfig"]).arg(path).output();
        let output = output.unwrap();
        let shown = text(&output.stdout);
        assert!(
            shown.contains("nothing is wrong with 2 claims"),
            "{scheme}: {shown}{}",
            text(&output.stderr)
        );
        assert!(asked.recv().unwrap().contains(expected), "{scheme}");
    }
}

#[test]
fn through_the_proxy_of_the_environment_unless_it_is_excepted() {
    let room = tempfile::tempdir().unwrap();
    let path = config(&room, None);
    let (address, asked) = proxy(connect);
    let run = |no_proxy: &str| {
        let mut command = volmedic();
        command.env("HTTPS_PROXY", format!("http://me:p%40ss@{address}")).env("NO_PROXY", no_proxy);
        command.args(["status", "-n", "calm", "--kubeconfig"]).arg(&path).output().unwrap()
    };
    let output = run("other.invalid,127.0.0.1");
    assert!(text(&output.stdout).contains("nothing is wrong with 2 claims"), "{}", text(&output.stderr));
    // The name and the password of the proxy's address, decoded.
    assert!(asked.recv().unwrap().contains("Basic bWU6cEBzcw=="));
    let output = run(".cluster.invalid");
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("cannot be reached") && !errors.contains("proxy"), "{errors}");
}

#[test]
fn a_proxy_that_does_not_lead_there_is_named_without_its_password() {
    let room = tempfile::tempdir().unwrap();
    for (greet, timeout) in [(refuse as Greet, "30s"), (ignore as Greet, "2s")] {
        let (address, _asked) = proxy(greet);
        let path = config(&room, Some(&format!("http://me:secret@{address}")));
        let mut command = volmedic();
        command.args(["status", "--request-timeout", timeout, "--kubeconfig"]).arg(path);
        let output = command.output().unwrap();
        let errors = redact(&text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(
            errors.contains("(through the proxy http://127.0.0.1:") && !errors.contains("secret"),
            "{errors}"
        );
    }
    let path = config(&room, Some("ftp://me:secret@127.0.0.1"));
    let output = volmedic().args(["status", "--kubeconfig"]).arg(path).output().unwrap();
    let errors = text(&output.stderr);
    assert!(errors.contains("its scheme is \"ftp\"") && !errors.contains("secret"), "{errors}");
}
