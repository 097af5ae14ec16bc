"""Costs: the worked example of docs/lab/tco.md to the cent, drive counts, refusals."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from fakes import FakeDriver
from hemi_lab.costs import page
from hemi_lab.costs.costs import Cost, cost
from hemi_lab.costs.plan import load_plan
from hemi_lab.costs.power import SCALE, power
from hemi_lab.errors import UsageError
from hemi_lab.targets.drives import scale_most
from test_runner import SWEEP, carry_out

DOCUMENT = Path(__file__).parents[2] / "docs/lab/tco.md"

hemi = pytest.mark.skipif(
    shutil.which(os.environ.get("HEMI", "hemi")) is None, reason="needs hemi (make build)"
)

HEAD = """
title = "Costs"
[demand]
capacity = "10 TB"
[electricity]
price = 0.5
"""
OPTION = """
[[options]]
name = "one"
price = 100
capacity = "1 TB"
idle_watts = 1
active_watts = 4
"""


def costs(text: str, tmp_path: Path) -> list[Cost]:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    plan = load_plan(path)
    return [
        cost(plan, option, power(option, tmp_path, plan.demand.iops > 0)) for option in plan.options
    ]


def test_the_documents_example_by_hand(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    example = re.findall(r"```toml\n(.*?)```", text, re.S)[0]
    disks, flash = costs(example, tmp_path)
    assert (disks.for_capacity, disks.for_iops, disks.drives) == (14, 88, 88)
    assert (flash.for_capacity, flash.for_iops, flash.drives) == (5, 5, 5)
    assert (disks.decided_by, flash.decided_by) == ("IOPS", "capacity")
    assert disks.purchase == 15_840
    assert disks.kilowatt_hours == pytest.approx(15_803.04)
    assert disks.energy == pytest.approx(4_740.912)
    assert disks.totals[3] == pytest.approx(30_062.736)
    assert disks.totals[5] == pytest.approx(39_544.56)
    assert flash.purchase == 1_500
    assert flash.kilowatt_hours == pytest.approx(443.475)
    assert flash.energy == pytest.approx(133.0425)
    assert flash.wear is not None
    assert flash.wear.written == pytest.approx(1.6e12)
    assert flash.wear.years == pytest.approx(729.1667 / 365)
    assert [flash.wear.replacements(years) for years in (3, 5)] == [1, 2]
    assert flash.totals[3] == pytest.approx(1_899.1275 + 1_500)
    assert flash.totals[5] == pytest.approx(2_165.2125 + 3_000)
    assert disks.wear is not None
    assert disks.wear.years is None
    # The document has the same numbers.
    for said in ("15,803.04", "4,740.91", "30,062.74", "39,544.56", "443.475", "2,165.21"):
        assert said in text, said
    for said in ("729.17", "3,399.13", "5,165.21"):
        assert said in text, said


def test_defaults_are_eight_and_sixteen_hours_and_half_for_cooling(tmp_path: Path) -> None:
    (found,) = costs(HEAD + OPTION, tmp_path)
    # 10 drives x (4 W x 8 h + 1 W x 16 h) = 480 Wh a day, x 1.5 x 365 = 262.8 kWh.
    assert found.drives == 10
    assert found.kilowatt_hours == pytest.approx(262.8)
    assert found.energy == pytest.approx(131.4)
    assert set(found.totals) == {3, 5}
    assert found.totals[5] == pytest.approx(1000 + 5 * 131.4)


@pytest.mark.parametrize(
    ("redundancy", "drives"),
    [
        ("", 10),
        ('redundancy = { kind = "mirror", copies = 2 }', 20),
        ('redundancy = { kind = "mirror", copies = 3 }', 30),
        # 10 data drives in groups of 4: 3 groups of 5.
        ('redundancy = { kind = "parity", data = 4 }', 15),
        ('redundancy = { kind = "parity", data = 10, parity = 2 }', 12),
        # Only 80 % is used: 12.5, so 13 drives.
        ("usable_percent = 80", 13),
    ],
)
def test_drives_for_a_capacity(redundancy: str, drives: int, tmp_path: Path) -> None:
    (found,) = costs(HEAD + OPTION + redundancy, tmp_path)
    assert found.drives == drives
    assert found.usable_bytes >= 10e12 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("redundancy", "requests", "drives"),
    [
        ("", 10_000, 100),
        # Half are writes, each twice: 15,000 requests to drives of 100.
        ('redundancy = { kind = "mirror", copies = 2 }', 15_000, 150),
        # 5,000 + 5,000 x 4 = 25,000: 250 drives in groups of 5.
        ('redundancy = { kind = "parity", data = 4 }', 25_000, 250),
        # 5,000 + 5,000 x 6 = 35,000: 350, up to 360 in groups of 12.
        ('redundancy = { kind = "parity", data = 10, parity = 2 }', 35_000, 360),
    ],
)
def test_drives_for_a_demand_of_iops(
    redundancy: str, requests: int, drives: int, tmp_path: Path
) -> None:
    demand = 'capacity = "10 TB"\niops = 10000\nread_percent = 50'
    text = HEAD.replace('capacity = "10 TB"', demand) + OPTION + "iops = 100\n" + redundancy
    (found,) = costs(text, tmp_path)
    assert found.drives == drives
    assert found.decided_by == "IOPS"
    assert found.usable_iops == pytest.approx(drives * 100 / (requests / 10_000))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("price = 100", "price = -1"), r"options\[0\].price"),
        (("idle_watts = 1", ""), "idle_watts is missing"),
        (("price = 0.5", "price = 0.5\n[hours]\nload = 20\nidle = 8"), "a day has 24"),
        (('capacity = "10 TB"', 'capacity = "ten"'), "is not a size"),
        (('capacity = "10 TB"', 'capacity = "10 TB"\niops = 5'), "iops is missing"),
        (("price = 100", "price = 100\ncolour = 1"), "no such key"),
    ],
)
def test_what_makes_no_sense_is_said(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    text = (HEAD + OPTION).replace(*change)
    assert text != HEAD + OPTION
    with pytest.raises(UsageError, match=said):
        costs(text, tmp_path)


def test_a_real_run_has_no_energy(tmp_path: Path) -> None:
    run = carry_out(SWEEP, FakeDriver(), tmp_path / "runs").folder
    given = f'run = {{ folder = "{run}", test = "reads", label = "1T/1Q" }}'
    text = HEAD + OPTION.replace("active_watts = 4", given)
    with pytest.raises(UsageError, match="has no energy"):
        costs(text, tmp_path)


@hemi
def test_energy_of_a_preset_is_its_models(tmp_path: Path) -> None:
    """Uses the X25-E preset: 0.06 W idle, between 2.4 and 2.6 W busy."""
    preset = (
        'preset = { name = "x25e-32gb", seconds = 0.5, scale = 64, precondition = "none", '
        'load = { read_percent = 70, sizes = "4 KiB", queue_depth = 32 } }'
    )
    option = OPTION.replace("idle_watts = 1\n", "").replace("active_watts = 4", preset)
    (found,) = costs(HEAD + option, tmp_path)
    assert found.power.simulated
    assert found.power.idle_watts == pytest.approx(0.06, abs=0.01)
    assert 0.06 < found.power.active_watts < 2.7
    assert found.power.iops is not None
    assert found.power.iops > 1000


def test_the_page_says_which_is_least(tmp_path: Path) -> None:
    two = OPTION.replace('"one"', '"<i>two</i>"').replace("price = 100", "price = 900")
    path = tmp_path / "plan.toml"
    path.write_text(HEAD + OPTION + two)
    plan = load_plan(path)
    known = [cost(plan, option, power(option, tmp_path, False)) for option in plan.options]
    table = page.costs_table(plan, known)
    assert "◂" in table.rows[0][-1]
    assert "◂" not in table.rows[1][-1]
    page.write(plan, known, path.read_text(), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<i>two</i>" not in text
    assert text.index("Purchase, replacements and energy") < text.index("<h2>Costs")


WEAR = 'capacity = "10 TB"\nwritten_per_day = "10 TB"'


def worn(option: str, tmp_path: Path, demand: str = WEAR) -> Cost:
    (found,) = costs(HEAD.replace('capacity = "10 TB"', demand) + OPTION + option, tmp_path)
    return found


@pytest.mark.parametrize(
    ("option", "years", "replaced"),
    [
        # 10 drives of 1 TB a day: 3,650 TB last ten years.
        ('rated_writes = "3650 TB"', 10.0, (0, 0)),
        # Exactly the five years: the sixth would need new ones.
        ('rated_writes = "1825 TB"', 5.0, (0, 0)),
        ('rated_writes = "1095 TB"', 3.0, (0, 1)),
        ('rated_writes = "365 TB"', 1.0, (2, 4)),
        ('rated_writes = "3650 TB"\nwrite_amplification = 4', 2.5, (1, 1)),
        # A rating for a load of the same amplification.
        (
            'rated_writes = "3650 TB"\nwrite_amplification = 4\nrated_amplification = 4',
            10.0,
            (0, 0),
        ),
        ('rated_writes = "3650 TB"\nservice_years = 2', 2.0, (1, 2)),
        # 20 drives, and every byte on two of them.
        ('rated_writes = "3650 TB"\nredundancy = { kind = "mirror", copies = 2 }', 10.0, (0, 0)),
        # 15 drives, and one byte of parity for each: 20 TB a day over 15.
        ('rated_writes = "3650 TB"\nredundancy = { kind = "parity", data = 4 }', 7.5, (0, 0)),
    ],
)
def test_drives_wear_out(
    option: str, years: float, replaced: tuple[int, int], tmp_path: Path
) -> None:
    found = worn(option, tmp_path)
    assert found.wear is not None
    assert found.wear.years == pytest.approx(years)
    assert (found.wear.replacements(3), found.wear.replacements(5)) == replaced
    for span, times in zip((3, 5), replaced, strict=True):
        assert found.totals[span] == pytest.approx(
            found.purchase * (1 + times) + span * found.energy
        )


def test_what_is_written_follows_from_the_requests(tmp_path: Path) -> None:
    demand = 'capacity = "10 TB"\niops = 1000\nread_percent = 75\nwrite_size = "8 KiB"'
    found = worn('rated_writes = "3650 TB"\niops = 1000', tmp_path, demand)
    assert found.wear is not None
    # 250 writes a second for eight hours.
    assert found.wear.written == pytest.approx(250 * 8192 * 8 * 3600 / 10)
    with pytest.raises(UsageError, match="give one"):
        worn("", tmp_path, f'{demand}\nwritten_per_day = "1 TB"')
    with pytest.raises(UsageError, match="without iops"):
        worn("", tmp_path, 'capacity = "10 TB"\nwrite_size = "8 KiB"')


def test_an_amplification_that_is_not_known_is_said(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(HEAD.replace('capacity = "10 TB"', WEAR) + OPTION + 'rated_writes = "365 TB"\n')
    plan = load_plan(path)
    known = [cost(plan, one, power(one, tmp_path, False)) for one in plan.options]
    table = page.wear_table(plan, known)
    assert table is not None
    assert "one: not known: taken as 1" in table.note
    assert table.rows[0][1:] == [
        "1 TB",
        "1",
        "365 TB",
        "1.0 years",
        "2 × 1,000.00 EUR",
        "4 × 1,000.00 EUR",
    ]
    assert page.wear_table(plan, costs(HEAD + OPTION, tmp_path)) is None


@hemi
def test_a_presets_amplification_is_measured(tmp_path: Path) -> None:
    preset = (
        'preset = { name = "x25e-32gb", seconds = 2, scale = 16, '
        'load = { read_percent = 0, sizes = "4 KiB", queue_depth = 32 } }\nrated_writes = "1 PB"'
    ).replace("1 PB", "1000 TB")
    option = OPTION.replace("active_watts = 4", preset)
    (found,) = costs(HEAD.replace('capacity = "10 TB"', WEAR) + option, tmp_path)
    assert found.wear is not None
    assert found.wear.amplification > 1.5
    assert "x25e-32gb" in found.wear.source


@hemi
def test_the_scale_of_a_preset_keeps_to_its_bound(tmp_path: Path) -> None:
    most = scale_most("sata-dramless")
    assert most is not None
    assert scale_most("hdd-20tb") is None
    assert scale_most("no-such-drive") is None

    def warnings(scale: str) -> tuple[str, ...]:
        preset = (
            f'preset = {{ name = "sata-dramless", seconds = 0.2, precondition = "none", {scale}'
            'load = { read_percent = 100, sizes = "4 KiB" } }'
        )
        (found,) = costs(HEAD + OPTION.replace("active_watts = 4", preset), tmp_path)
        return found.power.warnings

    assert most < SCALE, "or take another preset"
    assert warnings("") == warnings(f"scale = {most}, ") == ()
    (said,) = warnings(f"scale = {most + 1}, ")
    assert said.endswith(f"take a scale of at most {most}")


@hemi
def test_a_presets_file_is_beside_its_plan(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('title = "Mine"\nbase = "x25e-32gb"\n')
    preset = (
        'preset = { name = "mine.toml", seconds = 0.2, precondition = "none", '
        'load = { read_percent = 100, sizes = "4 KiB" } }'
    )
    (found,) = costs(HEAD + OPTION.replace("active_watts = 4", preset), tmp_path)
    assert found.power.simulated
    assert found.power.warnings == ()
