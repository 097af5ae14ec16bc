//! Access rules of the HTTP listener. Any program of the machine can reach it, unlike the control socket. So
//! the token and the host name of a request decide about its rights.
//!
//! - Without a token nobody can change anything. Everybody on the machine can read figures.
//! - A listener that other machines reach (`http_public`) requires the token for figures, too.
//! - A request for a host name that is not this machine's is refused: it comes from a foreign page whose name
//!   was made to resolve here (DNS rebinding). With `http_public` any name is accepted, because such a page
//!   has no token, and hemi cannot know the names by which it is reached.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use super::routes::{Shared, refuse};
use super::volume::{Refusal, RefusalKind};
use crate::config::Config;
use hemi_io::random;

/// Minimum length of a token in bytes. One that hemi makes has 64.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 512;
/// Mode of a token file that hemi creates.
const TOKEN_MODE: u32 = 0o600;
/// Mode bits that a token file must not have: a group may read it, others may do nothing.
const TOKEN_MODE_FORBIDDEN: u32 = 0o037;

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file could not be read or created.
    #[error("{}: {source} (http_token_file)", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not fit to hold a token.
    #[error("{}: {reason} (http_token_file)", path.display())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The problem with the file, and the way out.
        reason: String,
    },
}

/// The secret that changes require.
#[derive(Clone)]
struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(…)")
    }
}

impl Token {
    /// Reads the token, and creates the file with a random one if it does not exist.
    fn read_or_make(path: &Path) -> Result<Token, TokenError> {
        match Token::read(path) {
            Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(|source| TokenError::File { path: path.to_owned(), source })?;
                tracing::info!(path = %path.display(), "created a token for changes over HTTP");
                Token::read(path)
            }
            read => read,
        }
    }

    fn read(path: &Path) -> Result<Token, TokenError> {
        let fail = |source| TokenError::File { path: path.to_owned(), source };
        let unfit = |reason: String| TokenError::Unfit { path: path.to_owned(), reason };
        // A FIFO must not block the start.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(fail)?;
        let known = file.metadata().map_err(fail)?;
        if !known.is_file() {
            return Err(unfit("it is not a file; name a file for the token".into()));
        }
        let mode = known.mode() & 0o7777;
        if mode & TOKEN_MODE_FORBIDDEN != 0 {
            let why = "others can read or change it";
            let shown = path.display();
            return Err(unfit(format!("{why} (mode {mode:04o}); chmod 600 {shown}")));
        }
        let own = rustix::process::geteuid().as_raw();
        if known.uid() != own && known.uid() != 0 {
            let owner = known.uid();
            return Err(unfit(format!(
                "it belongs to user {owner}; make it root's, or user {own}'s"
            )));
        }
        let mut text = String::new();
        let most = TOKEN_BYTES_MAX as u64 + 2;
        file.take(most).read_to_string(&mut text).map_err(fail)?;
        let token = text.trim_end_matches(['\r', '\n']);
        let is_plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) || !is_plain {
            return Err(unfit(format!(
                "it holds no token, which is one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable ASCII characters \
                 without spaces; remove it, and the next start makes a new one"
            )));
        }
        Ok(Token(token.to_owned()))
    }

    /// Returns true if the request carries the token.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        sent.is_some_and(|sent| same_token(sent, &self.0))
    }
}

/// Returns true if an `Authorization` header carries the token. The time it takes reveals only the token's
/// length.
pub fn same_token(authorization: &[u8], token: &str) -> bool {
    bearer(authorization).is_some_and(|sent| sent.ct_eq(token.as_bytes()).into())
}

/// Returns a random token of 64 hexadecimal digits.
///
/// # Errors
///
/// The system's error if it returned no random bytes.
pub fn random_token() -> io::Result<String> {
    Ok(random::bytes::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the credentials after `Bearer`, in any case.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Writes a random token to a new file, which appears whole or not at all.
fn make(path: &Path) -> io::Result<()> {
    let token = random_token()? + "\n";
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    let written =
        write_new(&aside, token.as_bytes()).and_then(|()| match std::fs::hard_link(&aside, path) {
            // Another start was first, so its token is used.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        });
    let _ = std::fs::remove_file(&aside);
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(TOKEN_MODE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Checks that a token file is usable or could be created. Changes nothing.
pub(crate) fn check_token_file(path: &Path) -> Result<(), String> {
    match Token::read(path) {
        Ok(_) => Ok(()),
        Err(TokenError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            crate::preflight::may_create_beside(path)
        }
        Err(TokenError::File { source, .. }) => Err(format!("{}: {source}", path.display())),
        Err(TokenError::Unfit { reason, .. }) => Err(format!("{}: {reason}", path.display())),
    }
}

/// The rules of one HTTP listener.
#[derive(Debug, Default)]
pub(super) struct Access {
    token: Option<Token>,
    /// True if other machines may reach it.
    is_public: bool,
    /// The host in its configuration.
    host: String,
    /// The address it listens on.
    address: Option<SocketAddr>,
    /// True if faults may be injected.
    inject: bool,
}

impl Access {
    /// Reads the token of a listener, and creates one if its file does not exist.
    pub(super) fn new(config: &Config, address: Option<SocketAddr>) -> Result<Access, TokenError> {
        let token = config.http_token_file.as_deref().filter(|_| address.is_some());
        Ok(Access {
            token: token.map(Token::read_or_make).transpose()?,
            is_public: config.http_public,
            host: config.http.as_ref().map(|http| http.host.clone()).unwrap_or_default(),
            address,
            inject: config.allow_inject,
        })
    }

    /// Returns the rights on the control socket as the page is told: everything.
    pub(super) fn of_socket(&self) -> AccessAnswer {
        AccessAnswer {
            read: Right::Open,
            change: Right::Open,
            inject: self.inject,
            granted: true,
            address: self.address.map(|address| address.to_string()),
            why_not: None,
        }
    }

    /// Returns the rights of a request as the page is told.
    pub(super) fn of_request(&self, headers: &HeaderMap) -> AccessAnswer {
        AccessAnswer {
            read: if self.is_public { Right::Token } else { Right::Open },
            change: if self.token.is_some() { Right::Token } else { Right::Off },
            granted: self.knows(headers),
            why_not: self.token.is_none().then(|| NO_TOKEN.1.to_owned()),
            ..self.of_socket()
        }
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_some_and(|token| token.is_in(headers))
    }

    fn may_read(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.has_our_name(headers)?;
        if self.is_public && !self.knows(headers) { Err(unauthorized()) } else { Ok(()) }
    }

    fn may_change(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        self.has_our_name(headers)?;
        match &self.token {
            None => Err(Refusal::new(RefusalKind::Forbidden, NO_TOKEN.0, NO_TOKEN.1)),
            Some(_) if self.knows(headers) => Ok(()),
            Some(_) => Err(unauthorized()),
        }
    }

    /// Checks the host to which the browser believes it is talking.
    fn has_our_name(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let named = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = named.map(host_of).unwrap_or_default();
        let is_ours = self.is_public
            || host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || (!self.host.is_empty() && host.eq_ignore_ascii_case(&self.host));
        if is_ours {
            return Ok(());
        }
        let shown = hemi_text::Plain(host);
        Err(Refusal::new(
            RefusalKind::Forbidden,
            format!("the request is for the host {shown}, which is not a name of this listener"),
            "Call it by its address, by localhost or by the name in `http`. To be reached by other \
             names, set http_public = true and http_token_file.",
        ))
    }
}

/// The refusal of changes if no token is configured, and the way out.
const NO_TOKEN: (&str, &str) = (
    "changes over HTTP are off",
    "Set http_token_file, or use the hemi commands, or hemi dashboard --proxy.",
);

fn unauthorized() -> Refusal {
    Refusal::new(
        RefusalKind::Unauthorized,
        "the request lacks the token, or has another one",
        "Send the header `Authorization: Bearer TOKEN`, with the line in http_token_file.",
    )
}

/// Returns the host of a `Host` header, without its port and brackets.
fn host_of(header: &str) -> &str {
    match header.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => header.rsplit_once(':').map_or(header, |(host, _)| host),
    }
}

/// Passes a request for the page if it names a host of ours.
pub(super) async fn page(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    pass(shared.access.has_our_name(request.headers()), request, next).await
}

/// Passes a request for figures, or refuses it.
pub(super) async fn read(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    pass(shared.access.may_read(request.headers()), request, next).await
}

/// Passes a request for a change, or refuses it.
pub(super) async fn change(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    pass(shared.access.may_change(request.headers()), request, next).await
}

async fn pass(judged: Result<(), Refusal>, request: Request, next: Next) -> Response {
    let mut response = match judged {
        Ok(()) => next.run(request).await,
        Err(refusal) => refuse(refusal),
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"hemi\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let own = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", own);
    response
}

/// The condition for a kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Right {
    /// Everybody may.
    Open,
    /// The token is required.
    Token,
    /// Nobody may.
    #[default]
    Off,
}

/// `GET /v1/access`: the rights of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessAnswer {
    /// The condition for reading figures.
    pub read: Right,
    /// The condition for changes.
    pub change: Right,
    /// True if faults may be injected.
    pub inject: bool,
    /// True if this request had the right token or needs none.
    pub granted: bool,
    /// The address of the HTTP listener; `null` if there is none.
    pub address: Option<String>,
    /// The way to allow changes, if they are off.
    pub why_not: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let path = directory.path().join("token");
        std::fs::write(&path, text).expect("the directory is ours");
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).expect("the file is ours");
        (directory, path)
    }

    fn refused(text: &str, mode: u32) -> String {
        let (_directory, path) = file(text, mode);
        Token::read_or_make(&path).expect_err("it is unfit").to_string()
    }

    #[test]
    fn a_token_file_is_private_and_holds_a_token() {
        let good = "0123456789abcdef\n";
        for mode in [0o400, 0o600, 0o640] {
            let (_directory, path) = file(good, mode);
            let token = Token::read_or_make(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(token.0, "0123456789abcdef");
        }
        for mode in [0o644, 0o660, 0o601] {
            assert!(refused(good, mode).contains("chmod 600"), "{mode:o}");
        }
        for text in [
            "",
            "short\n",
            "two words, of these\n",
            "0123456789abcdef\nmore\n",
            "ünicode-ünicode\n",
        ] {
            assert!(refused(text, 0o600).contains("holds no token"), "{text:?}");
        }
        assert!(refused(&"x".repeat(513), 0o600).contains("holds no token"));
    }

    #[test]
    fn a_token_is_made_where_there_is_none() {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let path = directory.path().join("token");
        assert_eq!(check_token_file(&path), Ok(()));
        assert!(!path.exists(), "a check makes nothing");
        let made = Token::read_or_make(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(made.0.len(), 64);
        assert_eq!(std::fs::metadata(&path).map(|known| known.mode() & 0o777).ok(), Some(0o600));
        let again = Token::read_or_make(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.0, made.0, "the next start uses the same");
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 1);
        let nowhere = directory.path().join("missing/token");
        let error = Token::read_or_make(&nowhere).expect_err("its directory is missing");
        assert!(error.to_string().contains("missing/token"), "{error}");
    }

    fn headers(host: &str, authorization: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().expect("a header"));
        }
        headers
    }

    #[test]
    fn names_of_others_are_refused() {
        let own = Access { host: "nas.example".into(), ..Access::default() };
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:9188",
            "[::1]:9188",
            "10.0.0.7",
            "nas.example:80",
        ] {
            assert_eq!(own.may_read(&headers(host, None)), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9188", "127.0.0.1.evil.example", ""] {
            let refusal = own.may_read(&headers(host, None)).expect_err(host);
            assert_eq!(refusal.kind, RefusalKind::Forbidden, "{host}");
        }
        let refusal = own.may_read(&HeaderMap::new()).expect_err("no host at all");
        assert_eq!(refusal.kind, RefusalKind::Forbidden);
    }

    #[test]
    fn changes_need_the_token_and_public_figures_too() {
        let token = Some(Token("0123456789abcdef".into()));
        let right = headers("localhost", Some("bearer 0123456789abcdef"));
        let none = headers("localhost", None);
        let kinds = |access: &Access, headers: &HeaderMap| {
            let kind = |judged: Result<(), Refusal>| judged.err().map(|refusal| refusal.kind);
            (kind(access.may_read(headers)), kind(access.may_change(headers)))
        };
        let off = Access::default();
        assert_eq!(kinds(&off, &right), (None, Some(RefusalKind::Forbidden)));
        let local = Access { token: token.clone(), ..Access::default() };
        assert_eq!(kinds(&local, &right), (None, None));
        let lacks = Some(RefusalKind::Unauthorized);
        assert_eq!(kinds(&local, &none), (None, lacks));
        for wrong in
            ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer ", "0123456789abcdef"]
        {
            let wrong = headers("localhost", Some(wrong));
            assert_eq!(kinds(&local, &wrong), (None, lacks));
        }
        let public = Access { token, is_public: true, ..Access::default() };
        assert_eq!(kinds(&public, &none), (lacks, lacks));
        assert_eq!(kinds(&public, &right), (None, None));
    }
}
