"""Certificates for tests, made by certtool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .nbdkit import Nbdkit
from .sandbox import Sandbox, run


@dataclass(frozen=True)
class Certificates:
    """An authority, a server certificate for localhost, and clients' directories for libnbd and
    qemu."""

    authority: Path
    authority_key: Path
    server_certificate: Path
    server_key: Path
    # Directories with a certificate of the authority for client.example, with one for
    # reader.example, without a certificate, and with one of another authority.
    client: Path
    reader: Path
    anonymous: Path
    stranger: Path


def _template(box: Sandbox, *lines: str) -> Path:
    path = box.path("template")
    path.write_text("\n".join((*lines, "expiration_days = 30")) + "\n")
    return path


def _authority(box: Sandbox, name: str) -> tuple[Path, Path]:
    key, certificate = box.path(f"{name}-key.pem"), box.path(f"{name}.pem")
    run("certtool", "--generate-privkey", "--outfile", key)
    template = _template(box, f"cn = {name}", "ca", "cert_signing_key")
    run(
        "certtool", "--generate-self-signed", "--load-privkey", key,
        "--template", template, "--outfile", certificate,
    )  # fmt: skip
    return key, certificate


def _signed(
    box: Sandbox, name: str, authority: tuple[Path, Path], *lines: str
) -> tuple[Path, Path]:
    key, certificate = box.path(f"{name}-key.pem"), box.path(f"{name}.pem")
    run("certtool", "--generate-privkey", "--outfile", key)
    run(
        "certtool", "--generate-certificate", "--load-privkey", key,
        "--load-ca-privkey", authority[0], "--load-ca-certificate", authority[1],
        "--template", _template(box, f"cn = {name}", *lines), "--outfile", certificate,
    )  # fmt: skip
    return key, certificate


def _named(
    box: Sandbox, name: str, authority: tuple[Path, Path], usage: tuple[str, ...]
) -> tuple[Path, Path]:
    return _signed(box, name, authority, f"dns_name = {name}.example", *usage)


def revoked(box: Sandbox, certificates: Certificates, *clients: Path) -> Path:
    """Returns the authority's list of revoked certificates, with those of some clients."""
    path = box.path("revoked.pem")
    template = _template(box, "crl_next_update = 30", "crl_number = 1")
    given = [a for client in clients for a in ("--load-certificate", client / "client-cert.pem")]
    run(
        "certtool", "--generate-crl", "--load-ca-privkey", certificates.authority_key,
        "--load-ca-certificate", certificates.authority, *given,
        "--template", template, "--outfile", path,
    )  # fmt: skip
    return path


def _directory(box: Sandbox, authority: Path, client: tuple[Path, Path] | None) -> Path:
    path = box.path("pki")
    path.mkdir()
    (path / "ca-cert.pem").write_bytes(authority.read_bytes())
    if client:
        (path / "client-key.pem").write_bytes(client[0].read_bytes())
        (path / "client-cert.pem").write_bytes(client[1].read_bytes())
    return path


def make(box: Sandbox) -> Certificates:
    ours, other = _authority(box, "authority"), _authority(box, "other")
    server = _signed(
        box, "server", ours,
        "dns_name = localhost", "ip_address = 127.0.0.1",
        "tls_www_server", "signing_key", "encryption_key",
    )  # fmt: skip
    usage = ("tls_www_client", "signing_key", "encryption_key")
    return Certificates(
        authority=ours[1],
        authority_key=ours[0],
        server_certificate=server[1],
        server_key=server[0],
        client=_directory(box, ours[1], _named(box, "client", ours, usage)),
        reader=_directory(box, ours[1], _named(box, "reader", ours, usage)),
        anonymous=_directory(box, ours[1], None),
        stranger=_directory(box, ours[1], _signed(box, "stranger", other, *usage)),
    )


def serve(box: Sandbox, certificates: Certificates, backing: Path) -> Nbdkit:
    """Serves a file with nbdkit to clients with a certificate of the authority only."""
    pki = box.path("server-pki")
    pki.mkdir()
    for name, source in (
        ("ca-cert.pem", certificates.authority),
        ("server-cert.pem", certificates.server_certificate),
        ("server-key.pem", certificates.server_key),
    ):
        (pki / name).write_bytes(source.read_bytes())
    options = ("--tls=require", f"--tls-certificates={pki}", "--tls-verify-peer")
    return Nbdkit(box, backing, options=options)
