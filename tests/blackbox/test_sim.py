"""`hemi sim`: experiments from files, the same every time, and refusals with reasons."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from hemi_harness import HEMI, Sandbox, hemi, hemi_fails
from hemi_harness.hemi import check_message
from hemi_harness.sandbox import PATIENCE

SPEC = """\
title = "two network volumes"
[system]
legs = ["gp3", "gp3-16k"]
volume = "1 GiB"
[workload.open]
rate = 1000
duration = "2 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 50, flush_every = 8 } }
[sweep]
"system.policy" = ["all", "first"]
"""

FAULTS = """
[[system.faults]]
leg = 1
at = "500 ms"
freeze = "1 s"

[[system.faults]]
leg = 1
stall = [{ reads = 0.5, writes = 1, by = "50 ms..200 ms", for = "1 s" }]
seed = 3
"""

FLASH = """\
title = "flash that was used before"
[system]
legs = ["x25e-32gb", "x25e-32gb"]
scale = 32
precondition = "steady"
volume = "64 MiB"
[workload.closed]
threads = 1
queue_depth = 8
duration = "1 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 30 } }
[sweep]
"system.policy" = ["single", "first"]
"""

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "crates" / "simulate" / "examples"
FAULTS_PAGE = ROOT / "docs" / "fault-examples.md"

REPRODUCTION = """\
title = "a network volume at its limit"
source = "its provisioned rate"
fitted = []
introduction = "As fast as it goes."
[run.limit.system]
policy = "single"
legs = ["gp3"]
[run.limit.workload.closed]
threads = 1
queue_depth = 64
duration = "20 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 100 } }
[run.limit.sweep]
"workload.closed.queue_depth" = [1, 64]
[[compare]]
figure = "reads a second, queue depth 64"
run = "limit"
where = { "workload.closed.queue_depth" = 64 }
measure = "reads.iops"
published = 3000
[[compare]]
figure = "reads a second, queue depth 1"
run = "limit"
where = { "workload.closed.queue_depth" = 1 }
measure = "reads.iops"
published = 3000
[[order]]
what = "deeper is faster"
measure = "reads.iops"
least_first = [
  { run = "limit", where = { "workload.closed.queue_depth" = 1 } },
  { run = "limit", where = { "workload.closed.queue_depth" = 64 } },
]
[[picture]]
name = "depth"
title = "Reads a second"
run = "limit"
x = "workload.closed.queue_depth"
y = "reads.iops"
"""


# A disk described for DiskSim, on a bus that its parameter file describes.
DISKSIM = Path(__file__).parents[2] / "crates/drives/src/disksim/drive/tests"

READS = """\
title = "a described disk"
[system]
policy = "single"
legs = ["disk.toml"]
[workload.closed]
threads = 1
queue_depth = 1
requests = 200
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 100 } }
"""


@pytest.fixture
def spec(sandbox: Sandbox) -> Path:
    path = sandbox.path("spec.toml")
    path.write_text(SPEC)
    return path


def test_the_same_seed_gives_the_same_bytes(spec: Path) -> None:
    first = hemi("sim", "run", spec, "--json", "--seed", 5)
    assert hemi("sim", "run", spec, "--json", "--seed", 5, "--jobs", 1) == first
    assert hemi("sim", "run", spec, "--json", "--seed", 6) != first
    whole = json.loads(first)
    assert [case["choices"] for case in whole] == [
        [["system.policy", "all"]],
        [["system.policy", "first"]],
    ]
    # A single case equals that case of the whole run.
    assert json.loads(hemi("sim", "run", spec, "--json", "--seed", 5, "--case", 1)) == whole[1:]
    # The plain mirror waits for the slower volume, hemi for the faster.
    assert whole[1]["writes"]["p50"] < whole[0]["writes"]["p50"]


def test_faults_of_a_leg(spec: Path) -> None:
    spec.write_text(SPEC + FAULTS)
    first = hemi("sim", "run", spec, "--json")
    assert hemi("sim", "run", spec, "--json") == first, "in virtual time, and from one seed"
    plain, hemis = json.loads(first)
    # The plain mirror waits until the leg answers again, hemi does not.
    assert plain["writes"]["max"] > 0.9
    assert hemis["writes"]["p50"] < 0.01
    spec.write_text(SPEC + FAULTS.replace("leg = 1", "leg = 7"))
    hemi_fails("sim", "run", spec, says=[spec, "leg = 7: the legs are 0 to 1"])


def test_failures_are_counted_and_shown(spec: Path) -> None:
    dies = '[[system.faults]]\nleg = 0\nat = "1 s"\ndies = true\n'
    spec.write_text(SPEC.replace('["all", "first"]', '["single", "first"]') + dies)
    single, hemis = json.loads(hemi("sim", "run", spec, "--json"))
    assert sum(single["failed"].values()) > 900, "a second of 1000 requests"
    assert single["all"]["count"] + sum(single["failed"].values()) == single["requests"]
    assert sum(hemis["failed"].values()) == 0
    assert hemis["legs"][0]["health"]["state"] == "out"
    printed = hemi("sim", "run", spec)
    assert re.search(r"single +clients +[1-9]", printed), printed
    assert re.search(r"first +clients +0 +0 +0 +0", printed), printed
    spec.write_text(SPEC + dies.replace("dies = true", 'worn = "90 %"').replace('at = "1 s"\n', ""))
    hemi_fails("sim", "run", spec, says=["fault 1: leg 0: worn:", "rated_cycles"])


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_examples_of_faults_are_as_their_page_shows_them(example: str) -> None:
    page = FAULTS_PAGE.read_text()
    shown = re.search(
        rf"```console\n\$ hemi sim run crates/simulate/examples/{example}\n(.*?)```", page, re.S
    )
    assert shown, f"{FAULTS_PAGE} does not show {example}"
    printed = hemi("sim", "run", EXAMPLES / example)
    lines = [line.rstrip() for line in printed.splitlines()]
    assert lines == [line.rstrip() for line in shown[1].splitlines()]


def test_tables_and_people(sandbox: Sandbox, spec: Path) -> None:
    out = sandbox.path("tables")
    printed = hemi("sim", "run", spec, "--parquet", out)
    assert "two network volumes" in printed and "gp3-16k" in printed and "p99.9" in printed
    for name in ("cases", "intervals", "latencies"):
        content = (out / f"{name}.parquet").read_bytes()
        assert content[:4] == content[-4:] == b"PAR1"


def test_presets_tell_where_their_values_come_from() -> None:
    listed = hemi("sim", "presets")
    assert "gp3-16k" in listed and "cheetah-15k5-300gb" in listed
    marked = [line.strip() for line in listed.splitlines() if "not validated" in line]
    assert any(line.startswith("cheetah-8-raid0-b ") for line in marked)
    assert not any(line.startswith("gp3 ") for line in marked)
    presets = {each["name"]: each for each in json.loads(hemi("sim", "presets", "--json"))}
    assert presets["cheetah-8-raid0-b"]["reads"] == {
        "figures": 0,
        "fitted": 0,
        "worst": None,
        "off": None,
        "within": None,
    }
    of_gp3 = presets["gp3"]["writes"]
    assert of_gp3["figures"] == 1 and of_gp3["within"] and abs(of_gp3["off"]) < 0.15
    shown = hemi("sim", "presets", "gp3")
    assert "cloudonaut" in shown and "3000 IOPS" in shown and "estimate" in shown


def test_any_scheduler_can_spread_the_cases(sandbox: Sandbox, spec: Path) -> None:
    swept = SPEC.replace("rate = 1000", "rate = 1000.0") + '"workload.open.rate" = [500, 1000.5]\n'
    spec.write_text(swept)
    listed = json.loads(hemi("sim", "run", spec, "--list", "--json"))
    assert [case["case"] for case in listed] == [0, 1, 2, 3]
    assert {case["seed"] for case in listed} == {1}
    assert listed[2]["values"] == {"system.policy": "first", "workload.open.rate": 500}
    assert json.loads(hemi("sim", "run", spec, "--list", "--json", "--seed", 9))[0]["seed"] == 9
    table = hemi("sim", "run", spec, "--list")
    assert "workload.open.rate" in table and "1000.5" in table
    # Each single case, in any order, equals that of the whole run byte for byte.
    whole = sandbox.path("whole.json")
    assert hemi("sim", "run", spec, "--json", whole) == ""
    parts: list[str] = []
    for case in reversed(listed):
        out = sandbox.path(f"case-{case['case']}.json")
        hemi("sim", "run", spec, "--case", case["case"], "--json", out)
        parts.insert(0, out.read_text().removeprefix("[\n").removesuffix("\n]\n"))
    assert "[\n" + ",\n".join(parts) + "\n]\n" == whole.read_text()
    assert hemi("sim", "run", spec, "--json") == whole.read_text()
    assert [path.name for path in sandbox.dir.glob(".unfinished-*")] == []
    one = json.loads(hemi("sim", "run", spec, "--list", "--case", 3, "--json"))
    assert one == [listed[3]]


def test_one_case_is_refused_by_name(sandbox: Sandbox, spec: Path) -> None:
    hemi_fails("sim", "run", spec, "--case", 2, says=["--case 2", "2 cases", "0 to 1", "--list"])
    nowhere = sandbox.path("none") / "out.json"
    hemi_fails("sim", "run", spec, "--case", 0, "--json", nowhere, says=["cannot write", "none"])


def snapshots(*argv: object) -> tuple[str, str]:
    """Returns the output of a run with snapshots, and its messages about them."""
    result = subprocess.run(
        [str(part) for part in (HEMI, "sim", *argv)], capture_output=True, text=True, check=True
    )
    return result.stdout, result.stderr


def test_snapshots_change_nothing_but_the_time(sandbox: Sandbox, spec: Path) -> None:
    spec.write_text(FLASH)
    folder = sandbox.path("snapshots")
    run = ("run", spec, "--json", "--snapshots", folder)
    right = hemi("sim", "run", spec, "--json")
    made, said = snapshots(*run)
    assert made == right and said.count("kept") == 2 and "x25e-32gb" in said
    files = sorted(folder.iterdir())
    assert len(files) == 2 and all(file.suffix == ".flash" for file in files)
    reused, said = snapshots(*run)
    assert reused == right and said.count("reused") == 2 and "warning" not in said
    # Another seed gives another drive.
    assert snapshots(*run, "--seed", 9)[1].count("kept") == 2
    # Damaged snapshots are reported and rebuilt.
    content = files[0].read_bytes()
    files[0].write_bytes(content[: len(content) // 2])
    files[1].write_bytes(content)
    again, said = snapshots(*run)
    assert again == right and said.count("warning") == 2
    assert "damaged or truncated" in said and "other parameters" in said
    assert files[0].read_bytes() == content
    # A single case uses the snapshots of the whole sweep.
    one, said = snapshots(*run, "--case", 0)
    assert said.count("reused") == 2 and json.loads(one) == json.loads(right)[:1]
    in_the_way = sandbox.path("file")
    in_the_way.write_text("")
    hemi_fails("sim", "run", spec, "--snapshots", in_the_way, says=["--snapshots", "file"])


def test_commands_at_once_share_their_snapshots(sandbox: Sandbox, spec: Path) -> None:
    spec.write_text(FLASH)
    folder = sandbox.path("snapshots")
    right = hemi("sim", "run", spec, "--json")
    command = [str(HEMI), "sim", "run", str(spec), "--json", "--snapshots", str(folder)]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    assert [one.communicate()[0] for one in running] == [right] * 4
    assert len(list(folder.iterdir())) == 2
    assert snapshots("run", spec, "--json", "--snapshots", folder)[1].count("reused") == 2


def test_cards_of_several_presets_are_one_table() -> None:
    table = hemi("sim", "presets", "--cards", "gp3", "hdd-20tb", "cheetah-8-raid0-b")
    assert "gp3 " in table and "hdd-20tb" in table and "fitted" in table
    assert "1 of 3 presets have no figures" in table
    rows = json.loads(hemi("sim", "presets", "--cards", "gp3", "--json"))
    assert {row["preset"] for row in rows} == {"gp3"}
    assert all(abs(row["model"] / row["published"] - 1 - row["off"]) < 1e-9 for row in rows)
    page = hemi("sim", "presets", "--cards", "gp3", "cheetah-8-raid0-b", "--markdown")
    assert "## gp3\n" in page and "## cheetah-8-raid0-b\n" in page and "| --- |" in page


def test_flash_divided_too_far_is_warned_of_in_every_place(sandbox: Sandbox) -> None:
    path = sandbox.path("flash.toml")
    wrong = FLASH.replace("x25e-32gb", "qlc").replace("scale = 32", "scale = 64")
    path.write_text(wrong.replace("64 MiB", "1 GiB").replace('"steady"', '"none"'))
    done = subprocess.run(
        [str(HEMI), "sim", "run", str(path)], capture_output=True, text=True, check=True
    )
    said = "warning: qlc: with its flash divided by 512, "
    # Two cases, of one leg and of two: it is said once.
    assert done.stderr.count(said) == 1 and done.stdout.count(said) == 1
    assert "take a system.scale of at most" in done.stderr
    warnings = [case["warnings"] for case in json.loads(hemi("sim", "run", path, "--json"))]
    assert [len(each) for each in warnings] == [1, 1]
    path.write_text(FLASH)
    assert all(not case["warnings"] for case in json.loads(hemi("sim", "run", path, "--json")))


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("volume =", "volum =", ["spec.toml", "line 4", "volum"]),
        ('"1 GiB"', '"1 gigabyte"', ["spec.toml", "line 4", "1 gigabyte", "GiB"]),
        ('"gp3-16k"', '"gp33"', ["spec.toml", "gp33", "did you mean `gp3`?"]),
        ('"first"]', '"frist"]', ["spec.toml", "frist", "first"]),
        ('"1 GiB"', '"9 TiB"', ["make the volume smaller"]),
        ("read_percent = 50", "read_percent = 150", ["read_percent", "150", "0 to 100"]),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    spec: Path, right: str, wrong: str, says: list[str]
) -> None:
    spec.write_text(SPEC.replace(right, wrong))
    hemi_fails("sim", "run", spec, says=says)


def test_a_reproduction_says_what_it_missed(sandbox: Sandbox) -> None:
    folder, out = sandbox.path("from"), sandbox.path("out")
    folder.mkdir()
    (folder / "limit.toml").write_text(REPRODUCTION)
    printed = hemi("sim", "reproduce", "limit", "--from", folder, "--out", out)
    assert "1 of 2 figures within bounds, 1 of 1 orderings hold" in printed
    page = (out / "limit.md").read_text()
    assert page.count("**missed**") == 1 and "limit-depth.svg" in page
    assert (out / "limit-depth.svg").read_text().startswith("<svg")
    hemi_fails("sim", "reproduce", "other", "--from", folder, says=["other", "limit"])
    hemi_fails("sim", "reproduce", "--from", out / "none", says=["none", "--from"])


def test_a_session_goes_on_step_by_step(sandbox: Sandbox) -> None:
    system = sandbox.path("system.toml")
    system.write_text('title = "a pair"\n[system]\nlegs = ["gp3", "gp3-16k"]\nvolume = "1 GiB"\n')
    load = {
        "threads": 2,
        "queue_depth": 2,
        "requests": 500,
        "access": {"addresses": "uniform", "sizes": "4 KiB", "mix": {"read_percent": 50}},
    }
    steps = [
        {"name": "first", "workload": {"closed": load}},
        {"name": "rest", "idle": "2 s"},
        {"name": "second", "workload": {"closed": load}},
    ]
    lines = "".join(json.dumps(step) + "\n" for step in steps)
    command = [str(HEMI), "sim", "session", str(system), "--seed", "5"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    opened, first, rest, second = map(json.loads, done.stdout.splitlines())
    assert opened["bytes"] == 1 << 30
    assert [first["name"], rest["name"], second["name"]] == ["first", "rest", "second"]
    assert (first["requests"], rest["requests"], second["requests"]) == (500, 0, 500)
    assert second["start"] == first["time"] + 2

    lines = json.dumps({"name": "x", "workload": {"closed": load | {"requests": None}}}) + "\n"
    refused = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=PATIENCE)
    assert refused.returncode == 2
    check_message(refused.stderr, ["line 1", "x", "no end"])
    hemi_fails("sim", "session", sandbox.path("none.toml"), says=["none.toml"])


def test_a_disk_described_for_disksim_becomes_a_preset(sandbox: Sandbox) -> None:
    description = sandbox.path("disk.parv")
    description.write_text((DISKSIM / "shared_bus.parv").read_text())
    specs = (DISKSIM / "shared_bus.diskspecs").read_text()
    part = sandbox.path("shared_bus.diskspecs")
    part.write_text(specs.replace("Minimum read-ahead (blks) = 0", "Minimum read-ahead (blks) = 8"))
    preset = sandbox.path("disk.toml")
    imported = subprocess.run(
        [HEMI, "sim", "import-disksim", description, "--name", "A disk", "-o", preset],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert imported.stdout == ""
    ignored = "`Minimum read-ahead (blks)` = 8: reading ahead gives way at once"
    assert imported.stderr.startswith("ignored: shared_bus.diskspecs, line ")
    assert imported.stderr.endswith(f"{ignored}\n")
    printed = hemi("sim", "import-disksim", description, "--name", "A disk")
    assert printed == preset.read_text()
    # It is a preset as any other: with a source for each value, and it runs.
    shown = hemi("sim", "presets", preset)
    assert "A disk" in shown and "dm_mech_g1" in shown and "disksim_bus BUS1" in shown
    spec = sandbox.path("reads.toml")
    spec.write_text(READS)
    (case,) = json.loads(hemi("sim", "run", spec, "--json"))
    # Half a turn of 5,400 a minute, a seek of 1 ms, 2.4 ms of overheads and transfer.
    assert 0.006 < case["reads"]["mean"] < 0.012

    part.write_text(specs.replace("Rotation speed (in rpms) = 5400", "Rotation speed = 5400"))
    hemi_fails(
        *("sim", "import-disksim", description),
        says=["shared_bus.diskspecs, line 2", "`Rotation speed (in rpms)`: is missing"],
    )
    part.unlink()
    hemi_fails("sim", "import-disksim", description, says=["shared_bus.diskspecs", "No such file"])
