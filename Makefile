# The one entry to hemi's tree. `make help` lists the targets.
#
# `make demo` and `make test` work on a fresh clone: they say and install what is missing
# (scripts/setup.sh), build, and run.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
# Absolute, because tests and benchmarks run hemi from other directories.
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
PYTHON := $(CURDIR)/.venv/bin/python
export PYTHONPATH := $(CURDIR)/tests/blackbox:$(CURDIR)/tests/hostile:$(CURDIR)
export PYTHONDONTWRITEBYTECODE := 1

# Extra arguments: make test PYTEST_ARGS="-k tls -x", make bench BENCH_ARGS="--quick".
PYTEST_ARGS ?=
# Black-box tests at a time: they mostly wait.
PYTEST_JOBS ?= 4
BENCH_ARGS ?=
DEMO_ARGS ?=
LAB_DEMO_ARGS ?=
DASHBOARD_ARGS ?=
BOOK_ARGS ?=
PLANTED_ARGS ?=

# The parts of `test` run one after another, the cheap ones first.
.NOTPARALLEL:

.PHONY: help setup setup-test setup-bench build release test test-unit test-blackbox test-long demo bench lint fmt doc clean \
	test-beside test-torture torture torture-exhaustive torture-build torture-known torture-daily torture-report planted nightly bare-root-test crash-ext4 kill-test orderly-ends-test user-mode-kernel kernel-test mounting-transcripts power-cut-test forged sanitize fuzz \
	reproduce validate bench-sim lab-demo dashboard-demo lab-sweep-check picture book install install-strip uninstall deb container

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what a bare Debian 12 lacks to build, install and demonstrate hemi; quick when all is there
	@scripts/setup.sh build

setup-test: ## also what `make test` needs, with the Python environment in .venv
	@scripts/setup.sh test

setup-bench: ## also what benchmarks and longer tests need: peers, databases, a browser; their services stay off
	@scripts/setup.sh bench

# `cargo build` would compile half of the crates once more than the tests need: with other features of
# what they depend on.
build: ## build hemi and its tests (debug, with the engine's assertions)
	$(CARGO) test --locked --workspace --no-run

release: ## build hemi as it is meant to run
	$(CARGO) build --locked --release -p hemi-cli

# Where things go, as in GNU's conventions; scripts/install.sh has the rest. They may come from the environment, too.
PREFIX ?= /usr/local
prefix ?= $(PREFIX)
# What is installed and packed; `make deb BINARY=target/debug/hemi` builds nothing.
BINARY ?= $(TARGET_DIR)/release/hemi
# The date of what is made, in seconds since 1970: the commit's, or in an archive the changelog's.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || stat --format=%Y CHANGELOG.md))
INSTALL_VARIABLES = DESTDIR prefix exec_prefix bindir datarootdir mandir docdir systemdsystemunitdir udevrulesdir \
	tmpfilesdir bashcompletiondir zshcompletiondir fishcompletiondir
INSTALL_WITH = $(foreach v,$(INSTALL_VARIABLES),$(if $($(v)),$(v)="$($(v))")) BINARY="$(abspath $(BINARY))" \
	SOURCE_DATE_EPOCH=$(EPOCH)

# It builds nothing: after `make release`, `sudo make install` leaves the tree to its owner.
install: ## install the program, man pages, completions, units and documents; PREFIX=/usr/local DESTDIR=
	@$(INSTALL_WITH) scripts/install.sh install

install-strip: ## as install, with the program's symbols left out
	@$(INSTALL_WITH) STRIP=1 scripts/install.sh install

uninstall: ## remove what `make install` installed
	@$(INSTALL_WITH) scripts/install.sh uninstall

$(TARGET_DIR)/release/hemi:
	@$(MAKE) release

deb: $(BINARY) ## build the Debian package into target/deb; BINARY=PATH packs another program
	@BINARY="$(abspath $(BINARY))" SOURCE_DATE_EPOCH=$(EPOCH) scripts/deb.sh "$(TARGET_DIR)/deb"

container: $(BINARY) ## build a container image, an OCI archive in target/container; BINARY=PATH packs another program
	@SOURCE_DATE_EPOCH=$(EPOCH) python3 scripts/oci_image.py "$(abspath $(BINARY))" "$(TARGET_DIR)/container/hemi.oci.tar"

# Tests are compiled by clippy, which lints what it compiles: `cargo clippy` would go through half of
# the tree once more.
test: export RUSTC_WORKSPACE_WRAPPER := clippy-driver
# What makes the next build incremental takes a tenth of a cold one. It is kept where there is some.
test: export CARGO_INCREMENTAL := $(if $(wildcard $(TARGET_DIR)/debug/incremental/*),1,0)
test: export CLIPPY_ARGS := -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
test: setup-test lint build test-beside ## everything CI runs: lint, unit, property and black-box tests, 20,000 known seeds (some 21 minutes cold)
	@if [ -e "$(TARGET_DIR)/torture-daily.found" ]; then cat "$(TARGET_DIR)/torture-daily.found"; fi

# The black-box tests and some unit tests mostly wait. The torture is built, and runs, in what they leave of the
# processors, and of both when they have ended.
test-beside:
	@MAKE="$(MAKE)" scripts/beside.sh "$(TARGET_DIR)/beside" test-blackbox test-unit test-torture

test-torture:
	@nice $(MAKE) torture-report
	nice "$(TARGET_DIR)/release/hemi-torture" $(TORTURE_KNOWN) --jobs 2

test-unit:
	$(CARGO) test --locked --workspace --quiet

test-blackbox:
	HEMI="$(TARGET_DIR)/debug/hemi" $(PYTHON) -m pytest -m "not long" -n $(PYTEST_JOBS) --dist worksteal $(PYTEST_ARGS)

test-long: setup-bench release ## the black-box tests CI leaves out: longer loads, more rounds, larger volumes
	HEMI="$(TARGET_DIR)/release/hemi" HEMI_TEST_ROUNDS=long $(PYTHON) -m pytest $(PYTEST_ARGS)

SEEDS ?= 20000
# The first seed with everything the torture can do; those below are older, and stay what they are.
FROM ?= 41000000000000
JOBS ?= 2
TORTURE_ARGS ?=

torture: ## the engine in virtual time, every fault, every small order; SEEDS=20000 FROM=41000000000000 JOBS=2; takes up where it was stopped
	$(CARGO) build --locked --release -p hemi-torture
	"$(TARGET_DIR)/release/hemi-torture" --exhaustive 2 --jobs $(JOBS)
	"$(TARGET_DIR)/release/hemi-torture" --seeds $(FROM)..$$(($(FROM) + $(SEEDS))) --jobs $(JOBS) --doublecheck \
		--state "$(TARGET_DIR)/torture-$(FROM).state" $(TORTURE_ARGS)
	"$(TARGET_DIR)/release/hemi-torture" --guided --seeds $(FROM)..$$(($(FROM) + $(SEEDS) / 4)) --jobs $(JOBS)

# D: how many events at most come out of turn in one run. Each more takes some eighty times as long.
D ?= 3

torture-exhaustive: torture-build ## every order of a small thing, with a crash after each step; D=3 events out of turn (hours)
	"$(TARGET_DIR)/release/hemi-torture" --exhaustive $(D) --jobs $(JOBS)

# The last of them have everything the torture can do.
TORTURE_KNOWN = --seeds 0..7000,9000000000000..9000000005000,10000000004000..10000000012000 --require-marks

torture-build:
	env -u RUSTC_WORKSPACE_WRAPPER $(CARGO) build --locked --release -p hemi-torture --bin hemi-torture

torture-known: torture-build ## the seeds that are known to pass, with every rare path taken at least once (2 to 4 minutes)
	"$(TARGET_DIR)/release/hemi-torture" $(TORTURE_KNOWN) --jobs 2

# New seeds every day: 100,000 to a day, by its number since 1970, beyond the threshold from which seeds
# have everything the torture can do (docs/torture.md). DAY=20779 repeats that day's.
DAY ?= $(shell echo $$(( $$(date -u +%s) / 86400 )))
DAILY_SECONDS ?= 30

TORTURE_DAILY = scripts/torture_daily.sh "$(TARGET_DIR)" $(DAY) $(DAILY_SECONDS)

torture-daily: torture-build ## seeds nobody has run before, for half a minute; DAY=n repeats day n's
	@$(TORTURE_DAILY)

# As part of `test`: a find is told, and is no verdict on the change under test.
torture-report: torture-build
	@$(TORTURE_DAILY) || [ $$? = 1 ]

planted: ## plant each known mistake in the engine and show that the torture, or a scripted test, catches it
	scripts/planted.sh
	$(CARGO) build --locked --release -p hemi-torture --features planted --bin hemi-planted
	"$(TARGET_DIR)/release/hemi-planted" --jobs $(JOBS) --scripted crates/engine/tests/planted.txt $(PLANTED_ARGS)

# 136,000 seeds are 3 × 10^8 requests. The state file holds for one build: stopped, it goes on where it was.
nightly: SEEDS = 136000
nightly: setup-bench torture-build ## the long checks, one after the other: SEEDS=136000 new seeds, kills, power cuts, planted mistakes (hours)
	"$(TARGET_DIR)/release/hemi-torture" --seeds $(FROM)..$$(($(FROM) + $(SEEDS))) --jobs $(JOBS) --doublecheck \
		--state "$(TARGET_DIR)/nightly-$(FROM).state" $(TORTURE_ARGS)
	$(MAKE) kill-test N=300
	$(MAKE) power-cut-test
	$(MAKE) planted
	$(MAKE) bare-root-test

bare-root-test: setup-bench ## on a bare Debian 12: `make demo`, then the commands of README.md and of every page
	scripts/bare_root.sh bash -c 'make demo DEMO_ARGS="--seconds 5" && make setup-test && \
		HEMI=$$PWD/target/release/hemi .venv/bin/python -m pytest -q tests/blackbox/test_shown_commands.py'

crash-ext4: setup-test release ## ext4 on a volume survives kill -9 under load with one leg frozen
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/crash/ext4_kill9.py

# N: rounds. KILL_TEST_ARGS="--seed 7 --kind nbd": again, or one kind of legs.
N ?= 300
KILL_TEST_ARGS ?=
kill-test: setup-test release ## kill -9 under a verifying load, N=300 times; nothing acknowledged may be lost
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/crash/kill_test.py --rounds $(N) $(KILL_TEST_ARGS)

# N: rounds, of which 100 take some 20 minutes.
ORDERLY_ENDS_ARGS ?=
orderly-ends-test: N := $(if $(filter file,$(origin N)),100,$(N))
orderly-ends-test: setup-test release ## stops under a verifying load while the legs' servers stop too, N=100 times; nothing acknowledged may be lost
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/crash/orderly_ends.py --rounds $(N) $(ORDERLY_ENDS_ARGS)

HOSTILE_ARGS ?=
hostile: setup-test release ## a client's small writes beside hostile clients, every attack (10 minutes); HOSTILE_ARGS="--seconds 3 zeroes"
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/hostile/suite.py $(HOSTILE_ARGS)

FORGED_ARGS ?=
forged: setup-test release ## 10,000 volumes with forged metadata through inspect, serve, promote and settle (some 20 minutes); FORGED_ARGS="--images 500"
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/hostile/forged.py --jobs $(JOBS) $(FORGED_ARGS)

SANITIZE_ARGS ?=
sanitize: ## the tests of the crates with `unsafe` under AddressSanitizer (needs a nightly toolchain); SANITIZE_ARGS="arena"
	scripts/sanitize.sh $(SANITIZE_ARGS)

# With ublk, NBD, md and dm. Also for `make bench BENCH_ARGS="md devices database"`.
KERNEL := $(TARGET_DIR)/kernel
user-mode-kernel: ## build the user-mode kernel of kernel-test, power-cut-test and some benchmarks, once (7 minutes)
	@tests/kernel/build.sh "$(KERNEL)"

POWER_CUT_ARGS ?=
power-cut-test: setup-bench release user-mode-kernel ## power cuts of logged drives, at every flush and 1,000 other moments (user-mode Linux)
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/crash/power_cut.py $(POWER_CUT_ARGS)

# KERNEL_TEST_ARGS="--rounds 100 -- test_restarts.py": more kills in a row, some of the tests.
KERNEL_TEST_ARGS ?=
kernel-test: setup-bench release user-mode-kernel ## block devices in a user-mode kernel: kills, stops, file systems, boots
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/kernel/run.py --kernel "$(KERNEL)/linux" $(KERNEL_TEST_ARGS)
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) -m pytest tests/kernel/test_boot.py

# TRANSCRIPTS_ARGS="--fresh": ids, sizes and times anew, too.
TRANSCRIPTS_ARGS ?=
mounting-transcripts: setup-bench release user-mode-kernel ## the output that docs/mounting.md and the pages of hemi attach and detach-device show, from the user-mode kernel
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) tests/kernel/transcripts.py --kernel "$(KERNEL)/linux" $(TRANSCRIPTS_ARGS)

# FUZZ_SECONDS: for each target. FUZZ_TARGETS="page lost": only these (fuzz/run.sh tells more).
FUZZ_TARGETS ?=
fuzz: ## fuzz every byte parser, ten minutes a target (FUZZ_SECONDS=600)
	@fuzz/run.sh $(FUZZ_TARGETS)

demo: setup release ## the demonstration: freezes and slow legs, hemi beside a plain mirror (about 2 minutes)
	"$(TARGET_DIR)/release/hemi" demo $(DEMO_ARGS)

lab-demo: setup-bench release ## the storage lab: a file, a simulated ioDrive Duo, freezes on hemi and on a plain mirror (under 15 minutes)
	HEMI="$(TARGET_DIR)/release/hemi" scripts/lab_demo.sh $(LAB_DEMO_ARGS)

dashboard-demo: setup-bench release ## the dashboard's pictures: a volume through a freeze, a failure, a rebuild and a scrub (4 minutes); DASHBOARD_ARGS="--hold"
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) scripts/dashboard_demo.py $(DASHBOARD_ARGS)

bench: setup-bench release ## paired benchmarks against peers; BENCH_ARGS="--quick", "--help" for the parts
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) -m bench $(BENCH_ARGS)

reproduce: ## published measurements on the models, into docs/reproductions (hemi sim reproduce)
	$(CARGO) build --locked --release -p hemi-cli
	"$(TARGET_DIR)/release/hemi" sim reproduce

# VALIDATE: only the parts whose names have one of these words (garbage, disks, queueing).
VALIDATE ?=
validate: ## the models against theory and against measured drives (about 3 minutes)
	$(CARGO) build --locked --release -p hemi-simulate --bin hemi-validate
	"$(TARGET_DIR)/release/hemi-validate" $(VALIDATE)

bench-sim: ## how many requests a second the simulation makes, on one core
	$(CARGO) build --locked --release -p hemi-simulate --bin hemi-bench-sim
	"$(TARGET_DIR)/release/hemi-bench-sim"

lab-sweep-check: setup-test release ## 200 simulations and a trace's analysis on local processes and on Ray: identical tables (3 minutes)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable 'lab[ray]'
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) -m pytest -m long lab/tests/test_sweep.py lab/tests/test_trace_analysis.py $(PYTEST_ARGS)

lint: setup-test ## formatting, Python lint and types, the crates' licences and sources, clippy
	@scripts/lint.sh

fmt: ## format the Rust and Python sources
	$(CARGO) fmt --all
	@if [ -x .venv/bin/ruff ]; then .venv/bin/ruff format tests bench lab scripts && .venv/bin/ruff check --fix --quiet tests bench lab scripts; fi

doc: ## build the API documentation
	$(CARGO) doc --locked --workspace --no-deps

# An mdbook on the PATH, or the pinned one, fetched once. Links are checked by the tests (tests/scripts/test_book.py).
MDBOOK ?= $(or $(shell command -v mdbook),$(TARGET_DIR)/tools/bin/mdbook)

$(TARGET_DIR)/tools/bin/mdbook: requirements-book.txt
	python3 -m venv "$(TARGET_DIR)/tools"
	"$(TARGET_DIR)/tools/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements-book.txt
	@touch "$@"

book: $(filter $(TARGET_DIR)/%,$(MDBOOK)) ## the book of all pages, with a search, in target/book; BOOK_ARGS="serve" shows it while you write
	@scripts/book.sh "$(MDBOOK)" $(BOOK_ARGS)

clean: ## remove build output and the Python environment
	$(CARGO) clean
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache

PICTURE_ARGS ?=
picture: setup-test release ## the README's picture: a drive freezes under hemi and under a plain mirror (4 minutes)
	HEMI="$(TARGET_DIR)/release/hemi" $(PYTHON) -m bench.picture $(PICTURE_ARGS)
