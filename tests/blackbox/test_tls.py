"""TLS: encrypted connections, client certificates, and rejected clients."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from hemi_harness import (
    Client,
    NbdError,
    Sandbox,
    Volume,
    hemi_fails,
    run,
    run_fails,
    tls,
    wait_until,
)
from hemi_harness.hemi import MIB, assert_identical, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import free_port

SIZE = 16 * MIB


def served(
    sandbox: Sandbox,
    certificates: tls.Certificates,
    *,
    client_ca: bool,
    required: bool = True,
    more: Sequence[str] = (),
) -> tuple[Volume, int]:
    volume = Volume.on_files(sandbox, SIZE, start=False)
    port = free_port()
    table = [
        f'cert = "{certificates.server_certificate}"',
        f'key = "{certificates.server_key}"',
        f"required = {str(required).lower()}",
    ]
    if client_ca:
        table.append(f'client_ca = "{certificates.authority}"')
    table += more
    config = sandbox.path("config.toml")
    legs = ", ".join(f'"{leg}"' for leg in volume.legs)
    config.write_text(
        f'legs = [{legs}]\ncontrol = "{volume.control}"\n'
        f'[[exports]]\nnbd = "unix:{volume.socket}"\n'
        f'[[exports]]\nnbd = "tcp:localhost:{port}"\ntls = {{ {", ".join(table)} }}\n'
    )
    volume.serve_with(config)
    volume.start()
    return volume, port


def secure(port: int, directory: Path) -> str:
    return f"nbds://localhost:{port}/?tls-certificates={directory}"


def test_data_travels_over_tls(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    volume, port = served(sandbox, certificates, client_ca=False)
    uri = secure(port, certificates.anonymous)
    assert "TLS" in run("nbdinfo", uri)
    with Client(uri) as client, volume.client() as plain:
        assert client.handle.get_tls_negotiated()
        client.write(4096, b"secret" + bytes(4090))
        assert plain.read(4096, 4096) == b"secret" + bytes(4090)
    source = sandbox.path("source.img")
    source.write_bytes(bytes(range(256)) * (SIZE // 256))
    run("nbdcopy", source, uri)
    back = sandbox.path("back.img")
    run("nbdcopy", uri, back)
    run("cmp", source, back)
    run(
        "qemu-img",
        "compare",
        "--object",
        f"tls-creds-x509,id=tls,endpoint=client,dir={certificates.anonymous}",
        "--image-opts",
        f"driver=raw,file.driver=nbd,file.host=localhost,file.port={port},file.tls-creds=tls",
        f"driver=raw,file.driver=file,file.filename={source}",
    )


def test_a_client_without_tls_is_turned_away_where_it_is_required(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    _, port = served(sandbox, certificates, client_ca=False)
    _, printed = run_fails("nbdinfo", f"nbd://localhost:{port}")
    assert "tls" in printed.lower(), printed


def test_a_client_without_tls_is_served_where_it_is_not(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    _, port = served(sandbox, certificates, client_ca=False, required=False)
    assert int(run("nbdinfo", "--size", f"nbd://localhost:{port}")) == SIZE
    assert int(run("nbdinfo", "--size", secure(port, certificates.anonymous))) == SIZE


def test_only_the_authoritys_clients_are_served(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    volume, port = served(sandbox, certificates, client_ca=True)
    assert int(run("nbdinfo", "--size", secure(port, certificates.client))) == SIZE
    for stranger in (certificates.anonymous, certificates.stranger):
        with pytest.raises(NbdError), Client(secure(port, stranger)) as client:
            client.read(0, 512)
    volume.process.check_running()
    assert int(run("nbdinfo", "--size", secure(port, certificates.client))) == SIZE


def test_each_client_may_do_what_its_certificate_is_listed_for(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    writer = '{ name = "client.example", access = "write" }'
    reader = '{ name = "reader.example", access = "read" }'
    volume, port = served(
        sandbox, certificates, client_ca=True, more=[f"clients = [{writer}, {reader}]"]
    )
    with Client(secure(port, certificates.client)) as client:
        client.write(0, b"w" * 512)
    with Client(secure(port, certificates.reader)) as client:
        assert client.handle.is_read_only()
        assert client.read(0, 512) == b"w" * 512
        with pytest.raises(NbdError, match="EPERM"):
            client.write(0, b"x" * 512)
    volume.stop()

    volume, port = served(
        sandbox,
        certificates,
        client_ca=True,
        more=['clients = [{ name = "client.example", access = "write" }]'],
    )
    with pytest.raises(NbdError), Client(secure(port, certificates.reader)) as client:
        client.read(0, 512)
    # The client is answered first, and the line is logged then.
    wait_until("the complaint", lambda: "does not belong to a client" in volume.process.output())
    with Client(secure(port, certificates.client)) as client:
        client.write(0, b"w" * 512)


@pytest.mark.parametrize("by", ["signal", "request"])
def test_a_revoked_certificate_is_refused_after_a_reload(sandbox: Sandbox, by: str) -> None:
    certificates = tls.make(sandbox)
    crl = sandbox.path("crl.pem")
    crl.write_bytes(tls.revoked(sandbox, certificates).read_bytes())
    volume, port = served(sandbox, certificates, client_ca=True, more=[f'client_crl = "{crl}"'])
    with Client(secure(port, certificates.client)) as client:
        client.write(0, b"w" * 512)

    crl.write_text("no list\n")
    if by == "signal":
        volume.signal(signal.SIGHUP)
        wait_until("the refusal", lambda: "were not read again" in volume.process.output())
    else:
        code, body = volume.curl("/v1/reload", "-X", "POST")
        assert code >= 400
        assert str(crl) in json.loads(body)["what"]
    with Client(secure(port, certificates.client)) as client:
        client.write(0, b"w" * 512)

    crl.write_bytes(tls.revoked(sandbox, certificates, certificates.client).read_bytes())
    if by == "signal":
        volume.signal(signal.SIGHUP)
        wait_until("the reload", lambda: "certificates read again" in volume.process.output())
    else:
        assert volume.curl("/v1/reload", "-X", "POST")[0] == 200
    with pytest.raises(NbdError), Client(secure(port, certificates.client)) as client:
        client.read(0, 512)
    with Client(secure(port, certificates.reader)) as client:
        client.write(0, b"w" * 512)


def test_certificates_that_nothing_asks_for_are_a_contradiction(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    with pytest.raises(AssertionError, match="client_ca"):
        served(sandbox, certificates, client_ca=True, required=False)
    with pytest.raises(AssertionError, match="client_ca"):
        served(sandbox, certificates, client_ca=False, more=['client_crl = "x.pem"'])


def test_broken_certificates_are_named_before_serving(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    for spoil in (certificates.server_key, certificates.server_certificate):
        good = spoil.read_bytes()
        spoil.write_text("not a certificate\n")
        with pytest.raises(AssertionError) as error:
            served(sandbox, certificates, client_ca=False)
        assert spoil.name in str(error.value)
        spoil.write_bytes(good)


def test_a_leg_is_reached_through_tls(sandbox: Sandbox) -> None:
    """Creates, fills, kills, reconnects and closes a volume, with a certificate on both sides."""
    certificates = tls.make(sandbox)
    backing = sandbox.file("remote.img", leg_bytes(SIZE))
    server = tls.serve(sandbox, certificates, backing)
    local = sandbox.file("local.img", leg_bytes(SIZE))

    def remote(directory: Path) -> str:
        return f"nbds+unix:///?socket={server.socket}&tls-certificates={directory}"

    create = ("create", "--size", str(SIZE), "--leg", str(local), "--leg")
    hemi_fails(*create, f"nbd+unix:///?socket={server.socket}", says=["requires TLS", "nbds"])
    hemi_fails(*create, remote(certificates.stranger), says=["nbds+unix"])
    volume = Volume(sandbox, [local, remote(certificates.client)])
    volume.create(SIZE)
    volume.start()
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(1000, at={300: server.kill, 600: server.start})
    journal.verify()
    volume.kill()
    journal.disconnect()
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical([local, backing], SIZE)
