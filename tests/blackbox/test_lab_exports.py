"""hemi-lab on NBD exports of other servers and of hemi: its messages before anything is written."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from hemi_harness import Nbdkit, Sandbox, tls
from hemi_harness.hemi import HEMI, MIB, Volume
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


def served(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> tuple[Volume, str]:
    """Serves a volume at its default place in a run directory. Returns it and its name."""
    name = f"lab-{uuid.uuid4().hex[:12]}"
    folder = sandbox.path("run/hemi")
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder.parent))
    monkeypatch.setenv("HEMI", str(HEMI))
    volume = Volume.on_files(sandbox, 16 * MIB, start=False, create=["--name", name])
    volume.control, volume.socket = folder / f"{name}.sock", folder / f"{name}.nbd"
    volume.start()
    return volume, name


def test_a_volume_is_found_by_its_name_and_the_lab_is_no_client_of_it(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, name = served(sandbox, monkeypatch)
    with volume.client() as client:
        client.write(0, b"diary   " * 512)
    target = parse(f"hemi:{name}")
    # A dry run asks for the hazards twice, and reads the export in between.
    for _ in range(5):
        hazards = target.hazards()
        assert (hazards.in_use, hazards.holds) == ([], ["data at 0 bytes"])
    given = f"hemi:{name},nbd={volume.uri}"
    for wiped in (name, f"hemi:{name}"):
        assert safety.check(target, [wiped]) == ["data at 0 bytes"]
    assert safety.check(parse(given), [given]) == ["data at 0 bytes"]
    with pytest.raises(RefusedError, match="is not empty"):
        safety.check(parse(given), ["hemi:other"])
    # A client that stays is told of, in words.
    with volume.client(), pytest.raises(RefusedError, match="1 client is connected to it"):
        safety.check(target, [name])


def test_an_export_elsewhere_has_to_be_named(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, name = served(sandbox, monkeypatch)
    volume.socket.rename(sandbox.path("elsewhere"))
    with pytest.raises(UsageError, match="its export is not beside its control socket") as caught:
        parse(f"hemi:{name}").hazards()
    assert f"hemi:{name},nbd=nbd+unix" in caught.value.way_out


def test_an_export_too_small_is_refused(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, sandbox.file("small.img", 64 << 10))
    with pytest.raises(UsageError, match="64 KiB is too small"):
        parse(server.uri).describe()
