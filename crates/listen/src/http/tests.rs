use std::time::Duration;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_mins(1);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";

struct Server {
    address: SocketAddr,
    _serves: JoinSet<()>,
}

async fn server(limits: Limits, router: Router) -> Server {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = Listener::new(socket, None, limits);
    let address = listener.address().unwrap();
    let mut serves = JoinSet::new();
    serves.spawn(listener.serve(router));
    Server { address, _serves: serves }
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Connects from another address of this machine.
async fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// All that comes until the connection ends, be it in good order or not.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the connection ends");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_client_from_another_address_is_served_while_one_holds_all_it_can_get() {
    let server = server(Limits::new("test", 8, 6), hello()).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut stream = connect_from([127, 0, 0, 1], server.address).await;
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nX: ").await;
        held.push(stream);
    }
    let mut honest = connect_from([127, 0, 0, 2], server.address).await;
    honest.write_all(REQUEST).await.unwrap();
    assert!(rest(&mut honest).await.ends_with("hello"));
    assert_eq!(rest(&mut held[0]).await, "", "the oldest one was dropped");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_dropped_and_a_long_one_is_refused() {
    let limits = Limits { waiting: Duration::from_millis(300), ..Limits::new("test", 8, 8) };
    let server = server(limits, hello()).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert_eq!(rest(&mut slow).await, "");
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(rest(&mut idle).await, "");
    let mut long = TcpStream::connect(server.address).await.unwrap();
    let _ = long.write_all(&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 400_000]].concat()).await;
    let answer = rest(&mut long).await;
    assert!(!answer.contains("hello"), "{answer}");
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_is_dropped() {
    let limits = Limits { blocked: Duration::from_millis(300), ..Limits::new("test", 8, 8) };
    let router = Router::new().route("/", get(|| async { vec![b'x'; 64 << 20] }));
    let server = server(limits, router).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    // It reads only when the server has given up: by then a part of the answer is missing.
    let mut text = Vec::new();
    let mut first = [0];
    stream.read_exact(&mut first).await.unwrap();
    timeout(PATIENCE, async {
        while !crate::metrics::dropped("test", crate::metrics::Why::NotReading) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the peer is dropped");
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the connection ends");
    assert!(text.len() < 64 << 20, "{} bytes", text.len());
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_dropped() {
    let limits = Limits { serving: Some(Duration::from_millis(300)), ..Limits::new("test", 8, 8) };
    let router = Router::new().route("/", get(|| async { std::future::pending::<String>().await }));
    let server = server(limits, router).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_request_that_panics_ends_its_own_connection_only() {
    let router = hello().route("/panics", get(|| async { boom() }));
    let server = server(Limits::new("test", 8, 8), router).await;
    let mut open = TcpStream::connect(server.address).await.unwrap();
    // More than there are places: each that panicked gives its own back.
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /panics HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
        assert_eq!(rest(&mut stream).await, "");
    }
    open.write_all(REQUEST).await.unwrap();
    assert!(rest(&mut open).await.ends_with("hello"));
}

fn boom() -> &'static str {
    panic!("on purpose")
}
