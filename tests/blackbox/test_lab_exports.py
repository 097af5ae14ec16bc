"""hemi-lab on NBD exports of other servers: its messages before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_harness import Nbdkit, Sandbox, tls
from hemi_harness.hemi import MIB
from hemi_lab.errors import LabError, RefusedError, UsageError
from hemi_lab.targets import safety
from hemi_lab.targets.parse import parse


def test_an_export_behind_tls_is_looked_at_with_the_certificates_its_uri_names(
    sandbox: Sandbox,
) -> None:
    certificates = tls.make(sandbox)
    backing = sandbox.file("export.img", 8 * MIB)
    server = tls.serve(sandbox, certificates, backing)

    def target(directory: Path) -> str:
        return f"nbds+unix:///?socket={server.socket}&tls-certificates={directory}"

    export = parse(target(certificates.client))
    assert export.describe().bytes == 8 * MIB
    assert safety.check(export, []) == []
    with backing.open("r+b") as file:
        file.write(b"diary")
    with pytest.raises(RefusedError, match="data at 0 bytes"):
        safety.check(export, [])
    with pytest.raises(LabError):
        parse(target(certificates.stranger)).describe()
    # fio cannot be given certificates this way. The error says so at once, and where they belong.
    with pytest.raises(UsageError, match="fio takes no tls-certificates") as caught:
        export.open(1)
    assert "/etc/pki/libnbd" in caught.value.way_out


def test_an_export_too_small_is_refused(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, sandbox.file("small.img", 64 << 10))
    with pytest.raises(UsageError, match="64 KiB is too small"):
        parse(server.uri).describe()
