//! `hemi dashboard`: opens a served volume's dashboard, or makes it reachable first.
//!
//! A volume without an HTTP listener is reached through a proxy that this command runs, on a
//! loopback port and through the control socket. Anyone who may open that socket may do anything
//! with the volume, and any user of the machine can reach a loopback port. So the proxy creates a
//! token when it starts, and requires it for everything but the page itself. The printed address
//! has the token behind its `#`, where it reaches neither a server nor a log. Other users can see
//! the arguments of programs, so the browser that this command starts is given a file that only its
//! owner may read, which leads it to the address.
//!
//! With the token a page may do what the dashboard has buttons for. Requests that end the service, run
//! another program or change the machine's devices are not passed on: they are for the hemi commands.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use http_body_util::{Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::AbortHandle;

use hemi_server::control::access::{AccessAnswer, Right, random_token, same_token};
use hemi_server::control::is_for_pages;
use hemi_server::control::named::{VOLUME_HEADER, header_value};

use crate::client::{Client, Which};
use crate::failure::{Failure, Kind};

/// The most connections of the proxy at a time. A page has two or three.
const CONNECTIONS_MAX: usize = 64;
/// The longest wait for the header of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest request that the proxy passes on, as for the control API.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Open the dashboard of a served volume in the browser.
///
/// Opens the address of the volume's HTTP listener (`http` in its configuration, --http of hemi serve).
/// Without such a listener, the command serves the dashboard itself, on a free port of 127.0.0.1 and
/// through the control socket, until Ctrl-C. The address then has a token, and whoever has that may do
/// what the hemi commands can.
///
/// The address is only printed if there is no graphical session or xdg-open is missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  hemi dashboard
  hemi dashboard --volume db --print
  hemi dashboard --proxy --port 9000")]
pub(crate) struct DashboardArgs {
    /// Print the address, and open nothing.
    #[arg(long)]
    print: bool,

    /// Go through the control socket, though the volume has an HTTP listener: for changes without its token.
    #[arg(long)]
    proxy: bool,

    /// Port of 127.0.0.1 for the proxy [default: a free one].
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &DashboardArgs) -> Result<()> {
    let client = Client::new(&arguments.which)?;
    client.block_on(async {
        let access: AccessAnswer = client.get("/v1/access").await?;
        let listener = access.address.as_deref().filter(|_| !arguments.proxy);
        let Some(address) = listener.and_then(|address| address.parse().ok()) else {
            return serve(arguments, &client).await;
        };
        let address = format!("http://{}/", reachable(address));
        say(&address)?;
        if !arguments.print && has_session() {
            open(address.as_ref());
        }
        Ok(())
    })
}

/// Returns an address of this machine for a listener on all of them.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush().map_err(Into::into)
}

/// Returns true if there is a graphical session.
fn has_session() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Starts the browser with an address or a file. The address has been printed, so a failure does not
/// matter. Other users see the argument.
fn open(what: &OsStr) {
    let started = std::process::Command::new("xdg-open")
        .arg(what)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        eprintln!("xdg-open: {error}; open the address yourself");
    }
}

/// A file that leads the browser to the proxy with the token. Only its owner may read it.
struct Doorway(PathBuf);

impl Doorway {
    fn make(port: u16, token: &str) -> io::Result<Doorway> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let directory = runtime.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
        // The name cannot be guessed, so nobody else can have put something there.
        let path = directory.join(format!("hemi-dashboard-{}.html", &random_token()?[..16]));
        let address = format!("http://127.0.0.1:{port}/#token={token}");
        let page = format!(
            "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer>\
             <title>hemi</title><meta http-equiv=refresh content=\"0;url={address}\">\
             <a href=\"{address}\">The dashboard</a>\n"
        );
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let doorway = Doorway(path);
        file.write_all(page.as_bytes())?;
        Ok(doorway)
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        // Its token is worth nothing without the proxy.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves the dashboard through the control socket until it is interrupted.
async fn serve(arguments: &DashboardArgs, client: &Client) -> Result<()> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let listener = TcpListener::bind(at).await.map_err(|error| {
        let what = format!("cannot listen on {at}: {error}");
        Failure::error(Kind::Failed, what, "Name another port with --port, or leave it out.")
    })?;
    let port = listener.local_addr().context("the proxy's port")?.port();
    let proxy = Arc::new(Proxy {
        socket: client.socket().to_owned(),
        volume: client.volume().map(header_value),
        token: random_token().context("no random bytes")?,
    });
    say(&format!("http://127.0.0.1:{port}/#token={}", proxy.token))?;
    eprintln!("serving the dashboard until Ctrl-C; whoever has this address may change the volume");
    // It stays for as long as the address is valid.
    let _doorway = match has_session() && !arguments.print {
        true => Doorway::make(port, &proxy.token).inspect(|made| open(made.0.as_ref())).ok(),
        false => None,
    };
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("cannot catch TERM")?;
    tokio::select! {
        () = accept(listener, proxy) => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot catch Ctrl-C"),
        _ = term.recv() => Ok(()),
    }
}

/// Answers connections. When there are too many, the oldest that has not shown the token gives its place, so that
/// strangers keep no page out.
async fn accept(listener: TcpListener, proxy: Arc<Proxy>) {
    let mut open: Vec<(Arc<AtomicBool>, AbortHandle)> = Vec::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Descriptors have run out, or the client has gone.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        open.retain(|(_, task)| !task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            let stranger = open.iter().position(|(granted, _)| !granted.load(Ordering::Relaxed));
            open.remove(stranger.unwrap_or(0)).1.abort();
        }
        let granted = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(attend(stream, Arc::clone(&proxy), Arc::clone(&granted)));
        open.push((granted, task.abort_handle()));
    }
}

/// Answers the requests of one connection. Notes when one has the token.
async fn attend(stream: TcpStream, proxy: Arc<Proxy>, granted: Arc<AtomicBool>) {
    let answer = service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        if proxy.is_granted(&request) {
            granted.store(true, Ordering::Relaxed);
        }
        async move { Ok::<_, Infallible>(proxy.answer(request).await) }
    });
    // The browser reports errors of a connection.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}

/// An answer: the volume's own, or a text of the proxy.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// A proxy that passes requests on to a control socket.
#[derive(Debug)]
struct Proxy {
    socket: PathBuf,
    /// The volume that the page is of, if its name is known.
    volume: Option<HeaderValue>,
    token: String,
}

impl Proxy {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !is_loopback(request.headers().get(header::HOST)) {
            return refusal(StatusCode::FORBIDDEN, "forbidden", "the request is for another host");
        }
        if !is_own_page(request.headers()) {
            return refusal(StatusCode::FORBIDDEN, "forbidden", "a page of another site asks");
        }
        let path = request.uri().path();
        let is_page =
            request.method() == Method::GET && (path == "/" || path.starts_with("/assets/"));
        let is_granted = self.is_granted(&request);
        match (request.method(), path) {
            (&Method::GET, "/v1/access") => return self.access(is_granted).await,
            _ if is_page => {}
            _ if is_granted && is_for_pages(path) => {}
            _ if is_granted => {
                let what = "the proxy passes on no such request; use the hemi commands";
                return refusal(StatusCode::FORBIDDEN, "forbidden", what);
            }
            _ => {
                let what =
                    "the request lacks the token; use the address that hemi dashboard prints";
                return refusal(StatusCode::UNAUTHORIZED, "unauthorized", what);
            }
        }
        match self.pass_on(request).await {
            Ok(answer) => answer.map(Either::Left),
            Err(error) => {
                let what = format!("the volume is not served any more: {error:#}");
                refusal(StatusCode::BAD_GATEWAY, "closing", &what)
            }
        }
    }

    fn is_granted(&self, request: &Request<Incoming>) -> bool {
        let sent = request.headers().get(header::AUTHORIZATION);
        sent.is_some_and(|sent| same_token(sent.as_bytes(), &self.token))
    }

    /// Tells the page what a request may do: everything with the token, nothing without it.
    async fn access(&self, is_granted: bool) -> Answer {
        let known = Client::at(self.socket.clone()).get::<AccessAnswer>("/v1/access").await;
        match known {
            Ok(known) => json(&AccessAnswer {
                read: Right::Token,
                change: Right::Token,
                granted: is_granted,
                address: None,
                ..known
            }),
            Err(error) => {
                let what = format!("the volume is not served any more: {error:#}");
                refusal(StatusCode::BAD_GATEWAY, "closing", &what)
            }
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Incoming>> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let (mut parts, body) = request.into_parts();
        for own in [header::CONNECTION, header::AUTHORIZATION, header::COOKIE, header::ORIGIN] {
            parts.headers.remove(own);
        }
        parts.headers.insert(header::HOST, HeaderValue::from_static("hemi"));
        if let Some(volume) = &self.volume {
            parts.headers.insert(VOLUME_HEADER, volume.clone());
        }
        let body = Limited::new(body, BODY_BYTES_MAX);
        Ok(sender.send_request(Request::from_parts(parts, body)).await?)
    }
}

/// Returns true if the browser addresses this machine by name. A page elsewhere whose name was made
/// to resolve to this machine has that name in its requests.
fn is_loopback(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")
}

/// Returns true if no page, or a page of this proxy, sends a request. A browser names the page's origin.
fn is_own_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let own = headers.get(header::HOST).map(|host| [b"http://", host.as_bytes()].concat());
    own.is_some_and(|own| own.eq_ignore_ascii_case(origin.as_bytes()))
}

fn json(value: &impl serde::Serialize) -> Answer {
    own(StatusCode::OK, serde_json::to_vec(value).unwrap_or_default())
}

fn refusal(code: StatusCode, error: &str, what: &str) -> Answer {
    let body = serde_json::json!({ "error": error, "what": what, "way_out": "" });
    own(code, body.to_string().into_bytes())
}

fn own(code: StatusCode, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Either::Right(Full::new(body.into())));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        let is = |host: &'static str| is_loopback(Some(&HeaderValue::from_static(host)));
        assert!(is("127.0.0.1:4000") && is("localhost:4000") && is("LOCALHOST"));
        assert!(!is("127.0.0.1.evil.example:4000") && !is("evil.example") && !is(""));
        assert!(!is_loopback(None));
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let is = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:4000"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            is_own_page(&headers)
        };
        assert!(is(None) && is(Some("http://127.0.0.1:4000")));
        for other in
            ["http://127.0.0.1:4001", "https://127.0.0.1:4000", "http://evil.example", "null"]
        {
            assert!(!is(Some(other)), "{other}");
        }
    }

    #[test]
    fn the_page_that_leads_the_browser_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let made = Doorway::make(4000, "abc").expect("the temporary directory can be written");
        let path = made.0.clone();
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let page = std::fs::read_to_string(&path).expect("it can be read");
        assert!(page.contains("content=\"0;url=http://127.0.0.1:4000/#token=abc\""), "{page}");
        drop(made);
        assert!(!path.exists(), "it goes with the proxy");
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_by_loopback() {
        let reach = |address: &str| reachable(address.parse().expect("an address")).to_string();
        assert_eq!(reach("0.0.0.0:9188"), "127.0.0.1:9188");
        assert_eq!(reach("[::]:9188"), "[::1]:9188");
        assert_eq!(reach("10.0.0.7:9188"), "10.0.0.7:9188");
    }
}
