//! Connections of the control API and the HTTP listener: limits, and the choice of the one to
//! close.
//!
//! A listener serves at most [`CONNECTIONS_MAX`] connections at a time, so that clients cannot take
//! the descriptors that exports and legs need. A further connection replaces the one whose last
//! answer is the oldest. A connection that sends no whole request header within [`HEADER_TIMEOUT`]
//! is closed.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::wait;

/// Maximum number of connections of one listener.
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// Longest wait for the whole header of a connection's first or next request.
pub(crate) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer per connection in bytes: for a header, and for parts of a body or an answer.
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// Serves `routes` until `stopped`, then finishes the answers in progress.
pub(super) async fn serve<L: Listener>(
    mut listener: L,
    routes: Router,
    stopped: watch::Receiver<bool>,
) where
    L::Io: HasPeer,
{
    let mut tasks = JoinSet::new();
    let mut open: Vec<(Arc<Activity>, AbortHandle)> = Vec::new();
    loop {
        let stream = tokio::select! {
            (stream, _) = listener.accept() => stream,
            () = wait(stopped.clone()) => break,
        };
        while tasks.try_join_next().is_some() {}
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            let quietest = (0..open.len()).min_by_key(|index| open[*index].0.rank());
            open.swap_remove(quietest.unwrap_or(0)).1.abort();
        }
        let activity = Arc::new(Activity::new());
        let stream = Watched { stream, activity: Arc::clone(&activity) };
        let task = tasks.spawn(attend(stream, routes.clone(), stopped.clone()));
        open.push((activity, task));
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Serves one connection.
async fn attend<S: AsyncRead + AsyncWrite + HasPeer + Unpin>(
    stream: Watched<S>,
    routes: Router,
    stopped: watch::Receiver<bool>,
) {
    let activity = Arc::clone(&stream.activity);
    let routes = TowerToHyperService::new(routes);
    let peer = stream.stream.peer();
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let answering = activity.answering();
        let answer = routes.call(request);
        async move {
            let _answering = answering;
            answer.await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = wait(stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the control thread ended early");
    }
}

/// The user at the other end of a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer(pub(super) u32);

/// A stream whose peer may be known.
pub(super) trait HasPeer {
    /// Returns the user at the other end, if the kernel knows.
    fn peer(&self) -> Option<Peer>;
}

impl HasPeer for tokio::net::UnixStream {
    fn peer(&self) -> Option<Peer> {
        self.peer_cred().ok().map(|who| Peer(who.uid()))
    }
}

impl HasPeer for tokio::net::TcpStream {
    fn peer(&self) -> Option<Peer> {
        None
    }
}

/// The time at which a connection last sent something, and whether it owes an answer now.
#[derive(Debug)]
struct Activity {
    accepted: Instant,
    /// Milliseconds from `accepted` to the last byte written.
    written: AtomicU64,
    /// Requests that have been read but not answered.
    answering: AtomicU32,
}

impl Activity {
    fn new() -> Activity {
        Activity {
            accepted: Instant::now(),
            written: AtomicU64::new(0),
            answering: AtomicU32::new(0),
        }
    }

    /// Returns the connection's rank for closing: the smallest is closed first, and connections
    /// that wait for an answer come last.
    fn rank(&self) -> (bool, Instant) {
        let written = Duration::from_millis(self.written.load(Ordering::Relaxed));
        (self.answering.load(Ordering::Relaxed) > 0, self.accepted + written)
    }

    fn wrote(&self) {
        self.written.store(self.accepted.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn answering(self: &Arc<Activity>) -> Answering {
        self.answering.fetch_add(1, Ordering::Relaxed);
        Answering(Arc::clone(self))
    }
}

/// A request that is being answered.
struct Answering(Arc<Activity>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that records the time of each write.
struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.activity.wrote();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Starts a server on a port of its own. It ends when the sender is dropped.
    async fn served() -> (std::net::SocketAddr, watch::Sender<bool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let routes = Router::new().route("/", get(|| async { "here" }));
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(serve(listener, routes, stopped));
        (address, stop)
    }

    async fn send(stream: &TcpStream, bytes: &[u8]) {
        stream.writable().await.expect("it is connected");
        assert_eq!(stream.try_write(bytes).ok(), Some(bytes.len()));
    }

    /// Returns the next bytes received; empty once the server has closed the connection.
    async fn receive(stream: &TcpStream) -> String {
        let mut into = [0; 4096];
        loop {
            stream.readable().await.expect("it is connected");
            match stream.try_read(&mut into) {
                Ok(count) => return String::from_utf8_lossy(&into[..count]).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return String::new(),
            }
        }
    }

    #[tokio::test]
    async fn the_next_client_takes_the_place_of_the_quietest() {
        let (address, _stop) = served().await;
        let connect = || async { TcpStream::connect(address).await.expect("it listens") };
        let answered = connect().await;
        let mut half = Vec::new();
        for _ in 1..CONNECTIONS_MAX {
            let stream = connect().await;
            send(&stream, b"GET / HTTP/1.1\r\n").await;
            half.push(stream);
        }
        // Of the connections that were never answered, the first one is the oldest.
        tokio::time::sleep(Duration::from_millis(5)).await;
        send(&answered, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(receive(&answered).await.ends_with("here"));

        let late = connect().await;
        send(&late, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(receive(&late).await.ends_with("here"));
        assert_eq!(receive(&half[0]).await, "", "the oldest half request is closed");
        send(&half[1], b"Host: x\r\n\r\n").await;
        assert!(receive(&half[1]).await.ends_with("here"), "the others go on");
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_header_is_not_waited_for() {
        let (address, _stop) = served().await;
        let stream = TcpStream::connect(address).await.expect("it listens");
        send(&stream, b"GET / HTTP/1.1\r\n").await;
        // The paused clock jumps to the timeout as soon as nothing else is left to do.
        assert!(!receive(&stream).await.contains("here"));
        assert_eq!(receive(&stream).await, "");
    }
}
