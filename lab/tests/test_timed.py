"""Open loops: their workloads for hemi, the synthetic trace, a user's own trace."""

from __future__ import annotations

import csv
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hemi_lab.drivers.load import spec
from hemi_lab.drivers.load.driver import LoadDriver
from hemi_lab.drivers.workloads import workload
from hemi_lab.errors import UsageError
from hemi_lab.plans.load import load as plan
from hemi_lab.plans.model import FreezeTest, ReplayTest
from hemi_lab.plans.trace import with_trace
from hemi_lab.steps import Step
from hemi_lab.targets.parse import parse
from hemi_lab.targets.setup import SetupTarget
from hemi_lab.timed import CheckpointLoad, OpenLoad, ReferenceLoad, ReplayLoad, Timed
from hemi_lab.traces import MailLike, mail_like
from hemi_lab.workload import Load
from pydantic import ValidationError


def said(load: Load | Timed, seconds: float | None = 2.0) -> dict[str, Any]:
    return workload(Step("t", "measure", "x", load, seconds), 1 << 30)


def test_an_open_loop() -> None:
    given = said(OpenLoad(rate=500, read_percent=70, size=8192))["open"]
    assert (given["rate"], given["duration"]) == (500, "2000000 us")
    assert given["access"]["mix"] == {"read_percent": 70}


def test_bursts_are_over_the_load() -> None:
    over = Load(read_percent=100, sizes=8192, threads=2, queue_depth=4)
    given = said(CheckpointLoad(over=over, every=30.0))["bursts"]
    assert (given["pages"], given["page"], given["every"]) == (10_000, "8192 B", "30000000 us")
    # Both end, or the step never would.
    assert given["over"]["closed"]["duration"] == given["duration"]
    assert given["over"]["closed"]["threads"] == 2
    assert "outstanding" not in given
    # Their reference is the same loop, by the same engine.
    calm = said(ReferenceLoad(over=over))["closed"]
    assert calm == given["over"]["closed"]


def test_a_replay(tmp_path: Path) -> None:
    given = said(ReplayLoad(trace=str(tmp_path / "t"), format="msr", queue_depth=8), None)["replay"]
    assert (given["queue_depth"], given["format"]) == (8, "msr")
    assert "duration" not in given
    assert "volume" not in given


@pytest.mark.skipif("HEMI" not in os.environ, reason="HEMI names no hemi binary")
def test_what_a_replayed_recording_lacks_is_noted(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with target.open("wb") as file:
        file.truncate(16 << 20)
    whole = Path(__file__).parents[2] / "fuzz/corpus/capture/whole"
    driver = LoadDriver(str(target), 16 << 20, direct=False)
    load = ReplayLoad(trace=str(whole), queue_depth=8, lateness=10.0)
    notes = driver.run(Step("t", "measure", "again", load)).notes
    driver.close()
    assert any(note.startswith(f"{whole} lacks 7 requests: the recorder") for note in notes), notes


def test_the_spec_is_toml() -> None:
    asked = {"open": {"rate": 2.5, "mix": [1, {"a": 'qu"ote\\ é'}], "on": True}}
    read = tomllib.loads(spec.text('a "title"', 7, asked))
    assert read == {"title": 'a "title"', "seed": 7, "workload": asked}


def test_the_synthetic_stream_is_what_it_says(tmp_path: Path) -> None:
    capacity = 1 << 30
    made = mail_like(tmp_path / "a", MailLike(rate=2000), 10.0, capacity, 3)
    with (tmp_path / "a").open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == made.requests
    # Means of some 20,000, within six standard deviations of the requested ones.
    assert made.read_percent == pytest.approx(95, abs=1)
    times = [int(row[4]) for row in rows]
    assert times == sorted(times)
    assert times[-1] < 10_000_000
    for _, kind, offset, length, _ in rows:
        assert kind in "RW"
        assert int(offset) % 512 == 0
        assert int(offset) >= 0
        assert int(offset) + int(length) <= capacity
    mail_like(tmp_path / "b", MailLike(rate=2000), 10.0, capacity, 3)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_bursts_than_requests_are_refused() -> None:
    with pytest.raises(ValidationError, match="at most 1"):
        MailLike(bursts=20, bursting=0.5)


def test_a_persons_own_trace(tmp_path: Path) -> None:
    mail, _ = plan("mail")
    trace = tmp_path / "own.trace"
    trace.write_text("")
    changed = with_trace(mail, str(trace), "hemi", None).tests[0]
    assert isinstance(changed, ReplayTest)
    assert (changed.trace, changed.format) == (str(trace), "hemi")
    with pytest.raises(UsageError, match="no such format"):
        with_trace(mail, str(trace), "tape", None)
    with pytest.raises(UsageError, match="no such file"):
        with_trace(mail, str(tmp_path / "none"), None, None)
    quick, _ = plan("quick")
    with pytest.raises(UsageError, match="no test of quick"):
        with_trace(quick, str(trace), None, None)


def test_a_freeze_has_one_load() -> None:
    common = {"kind": "freeze", "name": "f", "title": "f", "freezes": ["1 s"]}
    with pytest.raises(ValidationError, match="either load"):
        FreezeTest.model_validate(common)


SETUP = 'size = "64 MiB"\n[[legs]]\n[[legs]]\ndelay = "2 ms"\n'


def test_a_set_up_and_its_plain_mirror(tmp_path: Path) -> None:
    file = tmp_path / "pair.toml"
    file.write_text(SETUP)
    first, plain = parse(f"setup:{file}"), parse(f"setup:{file},policy=all,size=32MiB")
    assert isinstance(first, SetupTarget)
    assert first.describe().policy == "first"
    described = plain.describe()
    assert (described.policy, described.bytes) == ("all", 32 << 20)
    assert described.legs == ["leg 0 (file)", "leg 1 (file, 2 ms later)"]
    # They are not the same experiment.
    assert first.path != plain.path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pair.toml"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("legs = []", "legs"),
        (SETUP.replace("64 MiB", "5000 B"), "size"),
        (SETUP.replace("2 ms", "2 parsecs"), "delay"),
        ("x" + SETUP, "xsize"),
        ("=", "TOML"),
    ],
)
def test_a_set_up_that_is_none(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "pair.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        parse(f"setup:{file}")
    assert says in error.value.what + error.value.way_out
    assert "pair.toml" in error.value.what
