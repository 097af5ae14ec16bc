//! The files of the page, with the HTTP properties of each.

use std::io::Write as _;

use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The place of the version in `index.html`.
const VERSION_MARK: &str = "VERSION";

/// Name, media type and content of each file except the page itself.
const FILES: &[(&str, &str, &[u8])] = &[
    ("style.css", CSS, include_bytes!("page/style.css")),
    ("uplot.css", CSS, include_bytes!("page/uplot.css")),
    ("uplot.js", SCRIPT, include_bytes!("page/uplot.js")),
    ("uplot.LICENSE", "text/plain; charset=utf-8", include_bytes!("page/uplot.LICENSE")),
    ("icon.svg", "image/svg+xml", include_bytes!("page/icon.svg")),
    ("main.js", SCRIPT, include_bytes!("page/main.js")),
    ("api.js", SCRIPT, include_bytes!("page/api.js")),
    ("format.js", SCRIPT, include_bytes!("page/format.js")),
    ("state.js", SCRIPT, include_bytes!("page/state.js")),
    ("lanes.js", SCRIPT, include_bytes!("page/lanes.js")),
    ("chart.js", SCRIPT, include_bytes!("page/chart.js")),
    ("maps.js", SCRIPT, include_bytes!("page/maps.js")),
    ("panels.js", SCRIPT, include_bytes!("page/panels.js")),
    ("actions.js", SCRIPT, include_bytes!("page/actions.js")),
];
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PAGE: &str = include_str!("page/index.html");

/// A file of the page.
#[derive(Debug)]
pub(super) struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: Bytes,
    compressed: Bytes,
    etag: String,
}

impl Asset {
    fn new(name: &'static str, kind: &'static str, bytes: Bytes) -> Asset {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes).expect("writing to memory does not fail");
        let compressed = encoder.finish().expect("writing to memory does not fail").into();
        let etag = format!("\"{:08x}-{:x}\"", crc32c::crc32c(&bytes), bytes.len());
        Asset { name, kind, bytes, compressed, etag }
    }

    /// Returns its media type.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns its content.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns its content as a gzip file.
    pub(super) fn compressed(&self) -> Bytes {
        self.compressed.clone()
    }

    /// Returns its entity tag, with the quotes.
    pub(super) fn etag(&self) -> &str {
        &self.etag
    }
}

/// All files of the page.
#[derive(Debug)]
pub(super) struct Assets {
    version: String,
    index: Asset,
    files: Vec<Asset>,
}

impl Assets {
    /// Compresses the files that are part of the program.
    pub(super) fn embedded() -> Assets {
        let files: Vec<Asset> = FILES
            .iter()
            .map(|(name, kind, bytes)| Asset::new(name, kind, Bytes::from_static(bytes)))
            .collect();
        let checksum = FILES.iter().fold(0, |sum, (_, _, bytes)| crc32c::crc32c_append(sum, bytes));
        let version = format!("{checksum:08x}");
        let page = PAGE.replace(VERSION_MARK, &version);
        let index = Asset::new("index.html", "text/html; charset=utf-8", page.into());
        Assets { version, index, files }
    }

    /// Returns the page itself.
    pub(super) fn index(&self) -> &Asset {
        &self.index
    }

    /// Returns the part of the path that changes when any file does.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the file of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Asset> {
        self.files.iter().find(|asset| asset.name == name)
    }

    /// Returns the page and all files.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Asset> {
        std::iter::once(&self.index).chain(&self.files)
    }
}
