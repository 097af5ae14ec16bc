//! The dashboard: one page that shows a served volume, and the files it is made of.
//!
//! All files are part of the program, and the page loads nothing from elsewhere. They are plain ES modules: a
//! browser runs the files in `page/` as they are, without a build step. The figures come from the control API
//! (`docs/control-api.md`), live through server-sent events.
//!
//! Files are compressed once, on the first request for any of them. Committed archives could differ from
//! their sources unnoticed, and compressing each answer would cost the control thread time. Modules and
//! styles lie under a path with a checksum of all of them, so that browsers may keep them forever.

use std::sync::OnceLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

mod assets;

use assets::{Asset, Assets};

/// The content security policy: the page loads only its own files and the API, and nobody may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every file of the page.
const HEADERS: [(header::HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Returns the routes of the page and its files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(index)).route("/assets/{version}/{name}", get(asset))
}

fn assets() -> &'static Assets {
    static ASSETS: OnceLock<Assets> = OnceLock::new();
    ASSETS.get_or_init(Assets::embedded)
}

async fn index(headers: HeaderMap) -> Response {
    // The page names the version of all other files, so a browser revalidates it every time.
    answer(assets().index(), &headers, "no-cache")
}

async fn asset(Path((version, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let assets = assets();
    match assets.named(&name).filter(|_| version == assets.version()) {
        Some(asset) => answer(asset, &headers, "public, max-age=31536000, immutable"),
        None => (StatusCode::NOT_FOUND, HEADERS, "There is no such file: load the page again.\n")
            .into_response(),
    }
}

/// Answers with the file, or says that the browser's copy is current.
fn answer(asset: &'static Asset, headers: &HeaderMap, keep: &'static str) -> Response {
    let common = [
        (header::CACHE_CONTROL, keep),
        (header::ETAG, asset.etag()),
        (header::VARY, "accept-encoding"),
    ];
    let asked = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if asked(header::IF_NONE_MATCH).is_some_and(|known| known.contains(asset.etag())) {
        return (StatusCode::NOT_MODIFIED, HEADERS, common).into_response();
    }
    let kind = [(header::CONTENT_TYPE, asset.kind())];
    match asked(header::ACCEPT_ENCODING).is_some_and(accepts_gzip) {
        true => {
            let encoding = [(header::CONTENT_ENCODING, "gzip")];
            (HEADERS, common, kind, encoding, asset.compressed()).into_response()
        }
        false => (HEADERS, common, kind, asset.bytes()).into_response(),
    }
}

/// Returns true if a list of encodings includes gzip with a weight other than 0.
fn accepts_gzip(list: &str) -> bool {
    list.split(',').any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bound on the page and all files it loads, as compressed bytes.
    const WIRE_BYTES_MAX: usize = 100_000;

    #[test]
    fn the_page_is_small() {
        let assets = assets();
        let loaded = assets.all().filter(|asset| !asset.kind().starts_with("text/plain"));
        let bytes: usize = loaded.map(|asset| asset.compressed().len()).sum();
        assert!(bytes <= WIRE_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn the_page_names_files_that_are_there() {
        let assets = assets();
        let bytes = assets.index().bytes();
        let text = std::str::from_utf8(&bytes).expect("a page is text");
        let prefix = format!("assets/{}/", assets.version());
        let mut named = 0;
        for rest in text.split(prefix.as_str()).skip(1) {
            let name = rest.split('"').next().unwrap_or_default();
            assert!(assets.named(name).is_some(), "{name}");
            named += 1;
        }
        assert!(named >= 3, "scripts and styles: {text}");
        assert!(!text.contains("://"), "nothing comes from elsewhere");
    }

    /// Modules import only names that exist.
    #[test]
    fn modules_import_what_is_there() {
        let assets = assets();
        for asset in assets.all().filter(|asset| asset.kind().starts_with("text/javascript")) {
            let bytes = asset.bytes();
            let text = std::str::from_utf8(&bytes).expect("a module is text");
            for rest in text.split(" from \"./").skip(1) {
                let name = rest.split('"').next().unwrap_or_default();
                assert!(assets.named(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn encodings_are_told_apart() {
        for (list, gzip) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.8", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("x-gzip-not", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(list), gzip, "{list}");
        }
    }
}
