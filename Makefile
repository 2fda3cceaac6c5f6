# Every target sets up what it needs in .venv and the user's usual package caches.
PYTHON ?= python3
ROWS ?=
PLACE ?=
SEEDS ?=
KILLS ?= 200
CUTS ?= 300
FILES ?= 20000
COMMITS ?= 200
MINUTES ?= 5
SEED ?=
RUN ?=
ONLY ?=
FROM ?=
COMMIT ?=
UPGRADE ?=

VENV := .venv
BIN := $(VENV)/bin
JAR := asynclock/spark/jars/asynclock-hudi.jar
JAVA_SOURCES := asynclock/spark/java/pom.xml $(shell find asynclock/spark/java/src -name '*.java' 2>/dev/null)

UV := $(VENV)/lock/bin/uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation

# What starts so many JVMs that other tests would time out beside it.
ALONE := tests/places tests/soak

.PHONY: help demo test test-all jar simulate attack mutants soak soak-kill soak-cut linearizable fuzz-data mutants-data guided changes restarts mechanisms proof-numbers bench docs lint lock dist clean

help:
	@echo "make demo [ROWS=n]       splice real flight events into one Hudi table, kill a writer, validate"
	@echo "make demo PLACE=cluster  the same on a Spark cluster of this machine, with everything on an S3 server"
	@echo "make test [ONLY=suite]   the whole test suite, or one folder of tests/"
	@echo "make test-all            the same, then the lock on Python 3.11 to 3.13 where found, and on the oldest SDKs"
	@echo "make simulate [SEEDS=n]  a million fenced updates and hostile records, then histories in virtual time"
	@echo "make attack [SEEDS=n]    a second opinion: histories in a universe that shares no code with the simulator"
	@echo "make mutants [ONLY=part] planted mistakes that simulator (lock) and tests (pipeline) must find"
	@echo "make soak [MINUTES=n]    streams, services, jobs and readers at once, while processes and stores fail"
	@echo "make soak-kill [KILLS=n] kill -9 of processes that contend for file:// locks"
	@echo "make soak-cut [CUTS=n]   cut replies of real S3, GCS and Azure servers"
	@echo "make linearizable [MINUTES=n] histories of killed processes on file:// and S3, judged by Porcupine"
	@echo "make fuzz-data [FILES=n] generated source files through a pipeline: no value changed, no row lost"
	@echo "make mutants-data        mends of the reading taken out one by one, which fuzz-data must find"
	@echo "make restarts [KILLS=n]  a pipeline under kill -9, restores and schema changes, against an oracle"
	@echo "make changes [COMMITS=n] a consumer that polls what changed while three streams write, against the view"
	@echo "make mechanisms [ONLY=n,n] every part of the splicing article, shown on real flights"
	@echo "make guided              histories bred to reach each branch of the protocol"
	@echo "make proof-numbers       run all of these, results to docs/proof.md; ONLY=a,b these; FROM=logs [COMMIT=id] none"
	@echo "make bench [ONLY=name]   benchmarks beside their references"
	@echo "make docs                run what the pages show, and build the site: build/docs/index.html"
	@echo "make lock [UPGRADE=1]    pin what pyproject.toml asks for, with hashes; UPGRADE takes the newest of all"
	@echo "make jar | lint | dist | clean"

demo: $(VENV)/ready $(JAR)
	@$(BIN)/python -m examples.demo $(if $(ROWS),--rows $(ROWS)) $(if $(PLACE),--place $(PLACE))

test: $(VENV)/ready $(JAR) lint
	@$(if $(ONLY),,$(BIN)/python -m tests.laboratory.servers)
	@$(BIN)/python -m pytest $(if $(ONLY),tests/$(ONLY),-n 2 --dist loadscope $(ALONE:%=--ignore %))
	@$(if $(ONLY),,$(BIN)/python -m pytest $(ALONE))

test-all: test $(UV)
	@$(BIN)/python -m tests.laboratory.matrix

simulate: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.bank
	@$(BIN)/python -m tests.laboratory.fuzz
	@$(BIN)/python -m tests.laboratory.simulate $(if $(SEEDS),--seeds $(SEEDS))

attack: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.foreign
	@$(BIN)/python -m tests.laboratory.attack $(if $(SEEDS),--seeds $(SEEDS))

mutants: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.mutants $(if $(ONLY),--only $(ONLY))

soak: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(RUN),--run $(RUN))

soak-kill: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.soak_kill --kills $(KILLS)

soak-cut: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.soak_cut --cuts $(CUTS)

linearizable: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.linearizable --minutes $(MINUTES)

fuzz-data: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.fuzz_data --files $(FILES)

mutants-data: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.fuzz_data.mutants

restarts: KILLS = 40
restarts: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.restarts --kills $(KILLS)

changes: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.consumer --commits $(COMMITS)

mechanisms: $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory.mechanisms $(if $(ONLY),--only $(ONLY))

guided: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.guided

proof-numbers: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory.proof_numbers $(if $(ONLY),--only $(ONLY)) \
	  $(if $(FROM),--from $(FROM)) $(if $(COMMIT),--commit $(COMMIT))

bench: $(VENV)/ready $(JAR)
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

# From scratch (-E): a page that is not read again keeps quiet about its warnings, which are errors.
docs: $(VENV)/ready $(JAR)
	@$(BIN)/python -m pytest -q tests/docs tests/spark/test_tutorial.py
	@$(BIN)/python -m sphinx -b html -E -W --keep-going -q -d build/doctrees docs build/docs
	@echo "docs: $$(find build/docs -name '*.html' -not -path '*/_*' | wc -l) pages in build/docs/index.html, 0 warnings"

lint: $(VENV)/ready
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

dist: $(VENV)/ready $(JAR)
	@ASYNCLOCK_RELEASE=1 $(BIN)/python -m build --wheel --no-isolation --outdir dist

jar: $(JAR)

$(JAR): $(JAVA_SOURCES)
	@command -v java >/dev/null || { echo "Java is missing: install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)"; exit 1; }
	@command -v mvn >/dev/null || { echo "Maven is missing: install it (Debian: apt-get install maven)"; exit 1; }
	@echo "building $(JAR) with Maven (the first time downloads Hudi and Spark, about 150 MB)"
	@mvn --quiet --batch-mode --file asynclock/spark/java/pom.xml package
	@touch $(JAR)

$(UV):
	@$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install --quiet uv==0.13.8

# Without UPGRADE what is pinned stays, and only what pyproject.toml asks for besides is added.
lock: $(UV)
	@$(COMPILE) --group build --output-file requirements-build.lock
	@$(COMPILE) --constraint requirements-build.lock --extra all --extra test --output-file requirements.lock \
	  pyproject.toml

$(VENV)/ready: pyproject.toml requirements-build.lock requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is missing; name it with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "python -m venv failed (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "installing into $(VENV) (the first time downloads about 400 MB, most of it PySpark)"
	@$(INSTALL) --only-binary :all: --requirement requirements-build.lock
	@$(INSTALL) --requirement requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $(VENV)/ready

clean:
	rm -rf $(VENV) .demo build dist asynclock/spark/java/target $(JAR)
