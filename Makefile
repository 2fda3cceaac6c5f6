# Every target sets up what it needs in .venv and the user's usual package caches.
PYTHON ?= python3
ROWS ?=
PLACE ?=
SEEDS ?=
KILLS ?=
CUTS ?=
BEHAVIOURS ?=
FILES ?=
HISTORIES ?=
COMMITS ?=
MINUTES ?=
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

UV := $(BIN)/uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
# uv takes a third of pip's time. pip goes where its configuration is needed: a proxy, an index of a company.
INSTALL = $(UV) pip install --quiet --no-build-isolation --python $(BIN)/python $(1) || { \
  echo "uv could not install: pip does it, which takes longer"; \
  $(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation $(1); }

# Not $(MAKE) in the recipe: make -n would run it.
AGAIN := $(MAKE)

# What starts so many JVMs that other tests would time out in parallel. The soak, which lasts longest, goes first.
ALONE := tests/soak/test_soak.py tests/soak tests/places

# Programs of the laboratory; those of the pipeline need the jar.
OF_LOCK := foreign guided linearizable model proof-numbers soak-cut soak-kill steered traces
OF_PIPELINE := changes fuzz-data mechanisms merges mutants mutants-data restarts soak

.PHONY: help demo test test-all lint docs bench jar dist clean lock simulate attack $(OF_LOCK) $(OF_PIPELINE)

help:
	@echo "make demo [ROWS=n]      splice real flight events into one Hudi table, kill a writer, validate"
	@echo "                        PLACE=cluster: the same on a Spark cluster and an S3 server of this machine"
	@echo "make test [ONLY=suite]  the whole test suite, or one folder of tests/"
	@echo "make lint               ruff, mypy, import contracts"
	@echo "make docs               build the site (build/docs/index.html), and run what its pages show"
	@echo "make bench [ONLY=name]  benchmarks next to their references"
	@echo "make jar                build the Java part"
	@echo "make dist               build the wheel, the jar included"
	@echo "make clean              remove all that make has built or installed"
	@echo "Soaks, simulators, fuzzers and other proofs: python -m tests.laboratory lists them;"
	@echo "make NAME [OPTION=value] runs one, after an installation if need be. CONTRIBUTING.md has the rest."

demo: $(VENV)/ready $(JAR)
	@$(BIN)/python -m examples.demo $(if $(ROWS),--rows $(ROWS)) $(if $(PLACE),--place $(PLACE))

# Lint runs while the archive of classes is made, without which the tests only take longer. The servers are
# installed behind the first suites, and waited for even if one fails: nothing stays behind. The tests start
# thousands of processes, and each would compile our modules anew if PYTHONDONTWRITEBYTECODE is set; a hash of
# the source, unlike its time, cannot take one mutant for another.
test:
	@$(AGAIN) --no-print-directory --jobs=2 $(VENV)/ready $(JAR)
	@$(BIN)/python -m compileall -q -j 0 --invalidation-mode checked-hash asynclock tests examples
	@$(if $(ONLY),,nice -n 10 $(BIN)/python -m tests.laboratory servers & servers=$$!; \
	  $(BIN)/python -m tests.laboratory class-archive & classes=$$!;) \
	  failed=0; $(AGAIN) --no-print-directory lint || failed=1; $(if $(ONLY),,wait $$classes;) \
	  [ $$failed = 1 ] || $(BIN)/python -m pytest \
	    $(if $(ONLY),tests/$(ONLY),-n 3 --dist loadscope $(ALONE:%=--ignore %)) || failed=1; \
	  $(if $(ONLY),,wait $$servers || failed=1;) exit $$failed
	@$(if $(ONLY),,$(BIN)/python -m pytest -n 2 --dist loadscope $(ALONE))

test-all: test $(UV)
	@$(BIN)/python -m tests.laboratory matrix

# What a program gets of the variables above: SEEDS=9 becomes --seeds 9.
option = $(if $($(1)),--$(2) $($(1)))
attack simulate: OPTIONS = $(call option,SEEDS,seeds)
restarts soak-kill: OPTIONS = $(call option,KILLS,kills)
soak-cut: OPTIONS = $(call option,CUTS,cuts)
steered: OPTIONS = $(call option,BEHAVIOURS,behaviours)
merges traces: OPTIONS = $(call option,HISTORIES,histories)
fuzz-data: OPTIONS = $(call option,FILES,files)
changes: OPTIONS = $(call option,COMMITS,commits)
linearizable: OPTIONS = $(call option,MINUTES,minutes)
soak: OPTIONS = $(call option,MINUTES,minutes) $(call option,SEED,seed) $(call option,RUN,run)
mechanisms mutants: OPTIONS = $(call option,ONLY,only)
proof-numbers: OPTIONS = $(call option,ONLY,only) $(call option,FROM,from) $(call option,COMMIT,commit)

simulate: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory bank
	@$(BIN)/python -m tests.laboratory fuzz
	@$(BIN)/python -m tests.laboratory simulate $(OPTIONS)

attack: $(VENV)/ready
	@$(BIN)/python -m tests.laboratory foreign
	@$(BIN)/python -m tests.laboratory attack $(OPTIONS)

$(OF_LOCK): $(VENV)/ready
	@$(BIN)/python -m tests.laboratory $@ $(OPTIONS)

$(OF_PIPELINE): $(VENV)/ready $(JAR)
	@$(BIN)/python -m tests.laboratory $@ $(OPTIONS)

bench: $(VENV)/ready $(JAR)
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

# From scratch (-E): a page that is not read again keeps quiet about its warnings, which are errors.
docs: $(VENV)/ready $(JAR)
	@$(BIN)/python -m sphinx -b html -E -W --keep-going -q -d build/doctrees docs build/docs
	@ASYNCLOCK_SITE=build/docs $(BIN)/python -m pytest -q tests/docs tests/spark/test_tutorial.py
	@echo "docs: $$(find build/docs -name '*.html' -not -path '*/_*' | wc -l) pages in build/docs/index.html, 0 warnings"

lint: $(VENV)/ready
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

# A wheel without the jar installs, but cannot splice: it is no release.
dist: $(VENV)/ready $(JAR)
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist
	@for wheel in dist/*.whl; do $(BIN)/python -m zipfile --list $$wheel | grep -q '^$(JAR) ' || { \
	  echo "$$wheel has no $(JAR); run: make clean dist"; exit 1; }; done

jar: $(JAR)

$(JAR): $(JAVA_SOURCES)
	@command -v java >/dev/null || { echo "Java is missing: install a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)"; exit 1; }
	@command -v mvn >/dev/null || { echo "Maven is missing: install it (Debian: apt-get install maven)"; exit 1; }
	@echo "building $(JAR) with Maven (the first time downloads Hudi and Spark, about 150 MB)"
	@mvn --quiet --batch-mode --file asynclock/spark/java/pom.xml package
	@touch $(JAR)

$(UV): requirements/build.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is missing; name it with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "python -m venv failed (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "installing into $(VENV) (the first time downloads about 400 MB, most of it PySpark)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement $<
	@touch $(UV)

# Without UPGRADE what is pinned stays, and only what pyproject.toml asks for besides is added.
lock: $(UV)
	@$(COMPILE) --group build --output-file requirements/build.lock
	@$(COMPILE) --constraint requirements/build.lock --extra all --group test --output-file requirements/dev.lock \
	  pyproject.toml

$(VENV)/ready: pyproject.toml requirements/dev.lock $(UV)
	@UV_COMPILE_BYTECODE=1 $(call INSTALL,--require-hashes --requirement requirements/dev.lock)
	@$(call INSTALL,--no-deps --editable .)
	@touch $(VENV)/ready

clean:
	rm -rf $(VENV) .demo build dist asynclock/spark/java/target $(JAR)
