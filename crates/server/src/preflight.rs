//! Checks that this machine has what a configuration needs, for `hemi config check` and for a start.
//!
//! They change nothing and take no lock, so a volume may be served by the configuration meanwhile.

use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use hemi_engine::recovery::newest_of;
use rustix::fs::{Access, access};

use crate::config::Config;
use crate::config::device::DeviceKind;
use crate::config::exports::Listen;
use crate::config::scan::ScanConfig;
use crate::control::access::check_token_file;
use crate::control::named::{Answerer, ask};
use crate::control::socket::{VolumeSocket, no_run_directory, run_directories};
use crate::descriptors;
use crate::device;
use crate::scan::apart::Scanner;
use crate::scan::legs_of;
use hemi_io::config::legs::{LegConfig, LegSpec, LegTls};
use hemi_io::leg::{OpenLeg, Purpose};
use hemi_io::probe::other_spec;

/// Returns what keeps a start with this configuration from opening its legs, each as `key: reason`: TLS files
/// that are missing, unreadable or of different pairs, a token that others can read, no driver for the block
/// device, more clients than there are descriptors, and directories that cannot hold the sockets. A start that
/// takes over from another program has the sockets and credentials of that one.
pub fn at_start(config: &Config, takes_over: bool) -> Vec<String> {
    let mut found = Vec::new();
    if !takes_over {
        credentials(config, &mut found);
        sockets(config, &mut found);
    }
    if let Err(reason) = descriptors::check(config) {
        found.push(format!("exports: {reason}"));
    }
    if config.device != DeviceKind::None
        && let Err(error) = device::check(config.device)
    {
        found.push(format!("device: {error}. {}", error.way_out()));
    }
    found
}

/// Returns the obstacles to serving the configuration here: those of a start ([`at_start`]), and legs that are
/// missing or not accessible to this user.
pub fn check(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for (index, leg) in config.legs.iter().enumerate() {
        found.extend(leg_paths(leg).map(|reason| format!("legs[{index}].path: {reason}")));
    }
    found.extend(at_start(config, false));
    found
}

fn credentials(config: &Config, found: &mut Vec<String>) {
    for (index, leg) in config.legs.iter().enumerate() {
        if let Some(uri) = leg.path.tls()
            && let Err(reason) = hemi_io::tls::connecting(&LegTls::merged(uri, leg.tls.as_ref()))
        {
            found.push(format!("legs[{index}].tls: {reason}"));
        }
    }
    for (index, export) in config.exports.iter().enumerate() {
        if let Some(tls) = &export.tls
            && let Err(reason) = hemi_io::tls::serving(tls)
        {
            found.push(format!("exports[{index}].tls: {reason}"));
        }
    }
    if let (Some(path), Some(_)) = (&config.http_token_file, &config.http)
        && let Err(reason) = check_token_file(path)
    {
        found.push(format!("http_token_file: {reason}"));
    }
}

fn sockets(config: &Config, found: &mut Vec<String>) {
    for (index, export) in config.exports.iter().enumerate() {
        if let Listen::Unix(path) = &export.nbd
            && let Err(reason) = can_hold(path)
        {
            found.push(format!("exports[{index}].nbd: {reason}"));
        }
    }
    for (index, guest) in config.vhost.iter().enumerate() {
        if let Err(reason) = can_hold(&guest.socket) {
            found.push(format!("vhost[{index}].socket: {reason}"));
        }
    }
    if let Some(path) = &config.control
        && let Err(reason) = can_hold(path)
    {
        found.push(format!("control: {reason}"));
    }
    if config.control.is_none() || config.exports.is_empty() {
        let any = run_directories().iter().any(|directory| may_create_in(directory).is_ok());
        if !any {
            found.push(format!(
                "control: {}; set `control` and the exports, or run as another user",
                no_run_directory()
            ));
        }
    }
}

/// Like [`check`], and also opens every leg, reads its superblock, and tries the ports. A port in use is no
/// problem while the volume is served, because hemi itself uses it then.
pub fn probe(config: &Config) -> Vec<String> {
    let mut found = check(config);
    let mut names = Vec::new();
    for (index, leg) in config.legs.iter().enumerate() {
        // Missing files have been reported.
        if leg_paths(leg).next().is_some() {
            continue;
        }
        match superblock_name(leg) {
            Ok(name) => names.push(name),
            Err(reason) => found.push(format!("legs[{index}].path: {reason}")),
        }
    }
    if let Some(scan) = &config.scan {
        found.extend(scan_for(scan).into_iter().map(|reason| format!("scan: {reason}")));
    }
    if let (Some(wanted), Some(other)) = (&config.volume, names.first())
        && !other.is_empty()
        && wanted != other
    {
        found.push(format!("volume: the legs belong to volume {other:?}, not to {wanted:?}"));
    }
    let name = config.volume.clone().or(names.into_iter().next()).unwrap_or_default();
    let is_served = is_served(config, &name);
    let mut try_port = |key: String, host: &str, port: u16| {
        if let Err(error) = TcpListener::bind((host, port))
            && !(is_served && error.kind() == io::ErrorKind::AddrInUse)
        {
            found.push(format!("{key}: cannot listen on port {port} of {host}: {error}"));
        }
    };
    for (index, export) in config.exports.iter().enumerate() {
        if let Listen::Tcp { host, port } = &export.nbd {
            try_port(format!("exports[{index}].nbd"), host, *port);
        }
    }
    if let Some(http) = &config.http {
        try_port("http".into(), &http.host, http.port);
    }
    found
}

/// Returns the problems with the files, devices or socket of a leg.
fn leg_paths(leg: &LegConfig) -> impl Iterator<Item = String> {
    let is_storage =
        |path: &PathBuf| is_there(path, |kind| kind.is_file() || kind.is_block_device());
    let mut reasons: Vec<String> =
        leg.path.paths().iter().filter_map(|path| is_storage(path).err()).collect();
    if let LegSpec::NbdUnix { socket, .. } = &leg.path {
        reasons.extend(is_there(socket, FileTypeExt::is_socket).err());
    }
    reasons.into_iter()
}

fn is_there(path: &Path, is_right: impl Fn(&std::fs::FileType) -> bool) -> Result<(), String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no file or device {shown}; check the path"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
        Ok(found) if !is_right(&found.file_type()) => {
            Err(format!("{shown} is not a file, device or socket that a leg can be"))
        }
        Ok(_) => access(path, Access::READ_OK | Access::WRITE_OK).map_err(|errno| {
            format!("{shown} cannot be read and written: {}", io::Error::from(errno))
        }),
    }
}

/// Returns the reasons why a scan does not find every leg.
fn scan_for(config: &ScanConfig) -> Vec<String> {
    let scan = match Scanner::new(&config.places).scan() {
        Ok(scan) => scan,
        Err(error) => return vec![error.to_string()],
    };
    match legs_of(&scan, &config.volume) {
        Err(error) => vec![error.to_string()],
        Ok(chosen) if chosen.found.is_empty() => vec![scan.nothing_of(&config.volume)],
        Ok(chosen) => {
            // Remote legs are tried when the volume is served.
            let local = chosen.missing.iter().filter(|leg| !leg.config.path.is_remote());
            local.map(|leg| format!("leg {} was not found", leg.config.label())).collect()
        }
    }
}

/// Opens a leg for inspection and returns the name of its volume.
fn superblock_name(leg: &LegConfig) -> Result<String, String> {
    let opened = OpenLeg::configured(leg, Purpose::Inspect).map_err(|error| error.to_string())?;
    let path = &leg.path;
    let head = opened.head().map_err(|error| format!("cannot read {path}: {error}"))?;
    let superblock = newest_of(&head)
        .map_err(|error| other_spec(path).unwrap_or_else(|| format!("{path}: {error}")))?;
    Ok(superblock.name.as_str().to_owned())
}

fn is_served(config: &Config, volume: &str) -> bool {
    match &config.control {
        Some(path) => UnixStream::connect(path).is_ok(),
        None => run_directories().iter().any(|directory| {
            let stream = UnixStream::connect(VolumeSocket::Control.path(directory, volume));
            stream.is_ok_and(|stream| match ask(&stream) {
                Answerer::Volume(name) => name == volume,
                Answerer::Unnamed => true,
                Answerer::Other => false,
            })
        }),
    }
}

/// Checks that a socket could be bound at `path`.
fn can_hold(path: &Path) -> Result<(), String> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let path = path.display();
        return Err(format!(
            "{path} exists and is not a socket; remove it, or name another path (--control, --nbd, --vhost)"
        ));
    }
    match directory_of(path) {
        Some(directory) => may_create_in(directory),
        None => may_create_in(Path::new(".")),
    }
}

/// Checks that a file could be created at `path`, whose directory must exist.
pub(crate) fn may_create_beside(path: &Path) -> Result<(), String> {
    let directory = directory_of(path).unwrap_or(Path::new("."));
    match directory.is_dir() {
        true => may_create_in(directory),
        false => Err(format!("there is no directory {}", directory.display())),
    }
}

/// Returns the directory of a path, unless it is the current one.
fn directory_of(path: &Path) -> Option<&Path> {
    path.parent().filter(|directory| !directory.as_os_str().is_empty())
}

/// Checks that files can be created in `directory`, or that `directory` can be created if it is missing.
fn may_create_in(directory: &Path) -> Result<(), String> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        return Err(format!("{} is no directory", existing.display()));
    }
    access(existing, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
        format!("{} cannot be written: {}", existing.display(), io::Error::from(errno))
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    #[test]
    fn a_key_of_another_certificate_is_reported() {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let path = |name: &str| directory.path().join(name);
        for name in ["a", "b"] {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(["localhost".to_owned()]).expect("a plain name");
            std::fs::write(path(&format!("{name}.pem")), cert.pem()).expect("it can be written");
            let key = signing_key.serialize_pem();
            std::fs::write(path(&format!("{name}.key")), key).expect("it can be written");
        }
        std::fs::write(path("leg"), "").expect("it can be written");
        let with_key = |key: &str| {
            let text = format!(
                "control = {:?}\nlegs = [{{ path = {:?} }}]\n[[exports]]\nnbd = \"tcp:localhost:0\"\n\
                 tls = {{ cert = {:?}, key = {:?} }}\n",
                path("control"),
                path("leg"),
                path("a.pem"),
                path(key)
            );
            Config::parse(&text, Path::new("test.toml"), &[]).expect("it is sound")
        };
        assert_eq!(check(&with_key("a.key")), Vec::<String>::new());
        let refused = with_key("b.key");
        let found = check(&refused);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("exports[0].tls: ") && found[0].contains("b.key"),
            "{found:?}"
        );
        // A start refuses it with the same words, before it opens a leg.
        let options = crate::serve::ServeOptions::default();
        let error = crate::serve::serve(refused, options).expect_err("it has another key");
        assert_eq!(error.to_string(), found[0]);
    }
}
