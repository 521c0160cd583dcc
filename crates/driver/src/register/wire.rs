//! As much of gRPC over HTTP/2 as a server of small unary calls needs that does not read the headers of requests.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame that a client may send to a server that has not allowed more.
const LARGEST_FRAME: usize = 16_384;
/// The messages of the registration are far smaller. It is also less than the window that a client has from the start, so
/// that none has to be given back.
const LARGEST_MESSAGE: usize = 8_192;
/// Of one connection, as the kubelet needs two. Together they stay within that window.
const MOST_CALLS: usize = 7;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// Of DATA and HEADERS: nothing follows on the stream.
const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// `:status: 200` and `content-type: application/grpc`, the first by its index, the second with an indexed name.
const BEGIN: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`, and 3 for a message that makes no sense, as literals.
const OK: &[u8] = b"\x00\x0bgrpc-status\x010";
const INVALID: &[u8] = b"\x00\x0bgrpc-status\x013";

/// Serves one connection until the client ends it.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != PREFACE {
        return Err(io::Error::other("it does not speak HTTP/2"));
    }
    send(&mut stream, SETTINGS, 0, 0, &[]).await?;
    let mut calls = 0;
    let mut bodies = BTreeMap::<u32, Vec<u8>>::new();
    loop {
        let mut header = [0; 9];
        match stream.read_exact(&mut header).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        };
        let [high, middle, low, kind, flags, id @ ..] = header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let id = u32::from_be_bytes(id) & 0x7fff_ffff;
        if length > LARGEST_FRAME {
            return Err(io::Error::other("a frame is too large"));
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => send(&mut stream, SETTINGS, ACK, 0, &[]).await?,
            PING if flags & ACK == 0 => send(&mut stream, PING, ACK, 0, &payload).await?,
            GOAWAY => return Ok(()),
            RST_STREAM => {
                bodies.remove(&id);
            }
            HEADERS => {
                calls += 1;
                if calls > MOST_CALLS {
                    return Err(io::Error::other("there are too many calls"));
                }
                bodies.insert(id, Vec::new());
            }
            DATA => {
                let Some(body) = bodies.get_mut(&id) else { continue };
                body.extend_from_slice(unpadded(flags, &payload)?);
                if body.len() > LARGEST_MESSAGE {
                    return Err(io::Error::other("a message is too large"));
                }
            }
            // Priorities, windows, and what later versions may add: none of it matters for messages this small.
            _ => {}
        }
        if matches!(kind, DATA | HEADERS)
            && flags & END_STREAM != 0
            && let Some(body) = bodies.remove(&id)
        {
            reply(&mut stream, id, message(&body).and_then(&answer)).await?;
        }
    }
}

/// The content of a DATA frame.
fn unpadded(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let content = payload.split_first().and_then(|(padding, rest)| {
        let length = rest.len().checked_sub(usize::from(*padding))?;
        rest.get(..length)
    });
    content.ok_or_else(|| io::Error::other("a frame has more padding than content"))
}

/// The one message of a call: a byte that says that it is not compressed, its length, itself.
fn message(body: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = body.split_first_chunk::<5>()?;
    let [compressed, length @ ..] = *prefix;
    let whole = u32::from_be_bytes(length) as usize == message.len();
    (compressed == 0 && whole).then_some(message)
}

async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, id: u32, answer: Option<Vec<u8>>) -> io::Result<()> {
    send(stream, HEADERS, END_HEADERS, id, BEGIN).await?;
    let Some(message) = answer else {
        return send(stream, HEADERS, END_HEADERS | END_STREAM, id, INVALID).await;
    };
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    let body = [&[0][..], &length.to_be_bytes(), &message].concat();
    send(stream, DATA, 0, id, &body).await?;
    send(stream, HEADERS, END_HEADERS | END_STREAM, id, OK).await
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    kind: u8,
    flags: u8,
    id: u32,
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?.to_be_bytes();
    let header = [&length[1..], &[kind, flags], &id.to_be_bytes()].concat();
    stream.write_all(&[&header, payload].concat()).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_message_is_one() {
        assert_eq!(message(&[0, 0, 0, 0, 0]), Some(&[][..]));
        assert_eq!(message(&[0, 0, 0, 0, 2, 7, 8]), Some(&[7, 8][..]));
        for odd in [&[][..], &[0, 0, 0, 0], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 2, 7], &[0, 0, 0, 0, 0, 7]] {
            assert_eq!(message(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn padding_is_no_content() {
        assert_eq!(unpadded(0, &[1, 2]).unwrap(), [1, 2]);
        assert_eq!(unpadded(PADDED, &[2, 1, 0, 0]).unwrap(), [1]);
        assert!(unpadded(PADDED, &[3, 1, 0]).is_err());
        assert!(unpadded(PADDED, &[]).is_err());
    }

    #[tokio::test]
    async fn what_is_no_http2_or_far_too_large_ends_the_connection() {
        let ends = |sent: Vec<u8>| async move {
            let (mut client, server) = tokio::io::duplex(64 << 10);
            client.write_all(&sent).await.unwrap();
            drop(client);
            serve(server, |_| Some(Vec::new())).await
        };
        assert!(ends(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()).await.is_err());
        assert!(ends([PREFACE, &[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]].concat()).await.is_err());
        let call = |id: u8| [0, 0, 0, HEADERS, END_HEADERS, 0, 0, 0, id];
        let calls: Vec<u8> = (0..8).flat_map(|number| call(2 * number + 1)).collect();
        assert!(ends([PREFACE, &calls].concat()).await.is_err());
        let (whole, large) = (vec![0; LARGEST_MESSAGE], [0, 0x20, 0, DATA, 0, 0, 0, 0, 1]);
        assert!(ends([PREFACE, &call(1), &large, &whole, &large, &whole].concat()).await.is_err());
    }
}
