"""Checks the libvirt lines in docs/mounting.md against libvirt's schema."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hemi_harness import Sandbox, run, run_fails
from hemi_harness.pages import blocks

PAGE = Path(__file__).parents[2] / "docs/mounting.md"
#: The smallest machine around them that the schema allows.
DOMAIN = """<domain type='kvm'>
<name>guest</name>
<memory unit='GiB'>4</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
{}
</domain>
"""

pytestmark = pytest.mark.skipif(
    shutil.which("virt-xml-validate") is None or shutil.which("xmllint") is None,
    reason="no virt-xml-validate: apt-get install libvirt-clients libxml2-utils",
)


def test_the_lines_for_libvirt_fit_its_schema(sandbox: Sandbox) -> None:
    shown = blocks(PAGE, "xml")
    assert len(shown) == 1
    file = sandbox.path("guest.xml")
    file.write_text(DOMAIN.format(shown[0]))
    run("virt-xml-validate", file, "domain")
    # The schema would notice a mistake.
    file.write_text(DOMAIN.format(shown[0].replace("vhostuser", "vhost-user")))
    _, said = run_fails("virt-xml-validate", file, "domain")
    assert "fails to validate" in said
