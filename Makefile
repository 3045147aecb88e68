# Every command a contributor needs. The same ones run in .ci/run.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install lock lint test errors wrap test-fast test-spark test-airflow test-drills bench bench-counts bench-ingest bench-log bench-listing bench-long bench-capacity bench-quality bench-s3 bench-scale bench-sets bench-snapshot bench-growth fault-matrix two-coordinators unsynced soak demo up airflow down clean

# Set in some shells; with it every start would compile all its imports again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python
RUN := PYTHONPATH=include:plugins:scripts $(PYTHON)

# Each may be set in the environment (`ROWS=10000 make bench`) or as an argument (`make bench ROWS=10000`).
SEEDS ?= 10000
FIRST ?= 0
STRIDE ?= 1
ROWS ?= 2000000
ROUNDS ?= 3
MINUTES ?= 10
SIZES ?= 10kB,1MB,1%,100MB
WAYS ?= sample,airflow,tidefold,warm,spark,usual
STORES ?= disk,s3
STEPS ?=
POSITIONS ?= 2
OPERATIONS ?=
TWO ?= 200

##@ Begin

help: ## Show this list
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: ## Install packages (.venv) and jars (.jars) into the clone; does nothing when they are up to date
	@scripts/install

lock: install ## Resolve requirements*.in into the hashed locks
	.venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header -o requirements.txt requirements.in
	.venv/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header -c requirements.txt -o requirements-dev.txt requirements-dev.in

##@ Write

lint: install ## ruff, mypy (--strict for the product; benchmarks and lab call what there is), import contracts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	MYPYPATH=include:plugins:scripts:tests:benchmarks:lab .venv/bin/mypy --config-file= --ignore-missing-imports --explicit-package-bases --check-untyped-defs --follow-imports silent --disable-error-code misc --cache-dir .mypy_cache/lab benchmarks lab
	PYTHONPATH=include:plugins .venv/bin/lint-imports

.PHONY: docs
docs: install ## The documentation site into site/; fails for a dead link
	PYTHONPATH=include:plugins:scripts .venv/bin/mkdocs build --quiet

.PHONY: wheel
wheel: ## Build dist/tidefold-*.whl, the package that users install; needs only a Python with pip
	rm -rf dist/tidefold-*
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m build --wheel --no-isolation --outdir dist . >/dev/null; \
	else python3 -m pip wheel --quiet --no-deps --wheel-dir dist .; fi
	@ls dist/tidefold-*.whl

.PHONY: release golden
release: install ## Builds sdist and wheel, and checks what a user gets of them: contents, licences, each Python, tutorial, golden stores, an own Airflow (STEPS='build contents': only these)
	@PYTHONPATH=include:plugins:scripts STEPS="$(STEPS)" $(PYTHON) -m release

golden: install kafka-jars ## About a minute: makes the golden stores of this version into tests/data/golden, with a real Kafka and PostgreSQL (NAMES='life feeds': only these; decision 0013)
	PYTHONPATH=include:tests:lab $(PYTHON) -m golden tests/data/golden $(or $(NAMES),life set kinds feeds servers)

wrap: ## Wrap the text of README, CONTRIBUTING, CHANGELOG and the pages below docs/ at 100 columns
	$(RUN) scripts/wrap_text.py

errors: install ## Write the table of checks in docs/reference/quality.md from the program
	$(RUN) scripts/suite_reference.py

##@ Test

test-fast: install ## 2 minutes: no Java, no Airflow, no server; the one to run while you write
	@$(RUN) -m test_tiers test-fast $(ARGS)

test: install kafka-jars ## 12 minutes: all that decides whether a change may land, with a real Airflow, Spark and S3 server
	@$(RUN) -m test_tiers test $(ARGS)

.PHONY: test-all
test-all: install ## Hours: every part, one after the other; writes docs/contributors/tests.md (PARTS='connect yarn': only these)
	@$(RUN) -m test_tiers.everything $(PARTS)

.PHONY: accept-durations
accept-durations: ## Accepts the CPU seconds of the last `make test` and `make test-fast`; review the diff of tests/data/durations.json
	@$(RUN) -m test_tiers accept

.PHONY: test-thorough
test-thorough: install ## About an hour: each call that can fail, and more random cases, where `make test` plays a part; all but test-profiles
	TIDEFOLD_THOROUGH=1 $(RUN) -m pytest -n 2 --dist worksteal -k 'not parts_of_any_order' tests/model tests/contract tests/faults tests/unit tests/feeds

.PHONY: test-profiles
test-profiles: install ## An hour or more: 300 random feeds of each tool with a profile, in parts of any order; `make test` plays one
	TIDEFOLD_THOROUGH=1 $(RUN) -m pytest -n 2 tests/feeds/test_profiles.py -k parts_of_any_order

test-spark: install ## Real Spark, Delta and Great Expectations
	$(RUN) -m pytest tests/spark

.PHONY: test-connect
test-connect: install ## About 5 minutes, not part of `make test`: steps on the server of `tidefold spark start`, and its death in the middle of each
	$(RUN) -m pytest tests/connect

.PHONY: test-kafka kafka-jars
test-kafka: kafka-jars ## About a minute: topics of a real broker, which Maven fetches
	$(RUN) -m pytest tests/kafka

.PHONY: kafka-kills kafka-replay kafka-throughput
kafka-kills: kafka-jars ## About a minute a seed: ingests of a topic, and its broker, are killed at random (SEEDS=6)
	PYTHONPATH=$(CURDIR)/include:$(CURDIR)/plugins:$(CURDIR)/scripts:$(CURDIR)/tests:$(CURDIR)/lab $(PYTHON) -m kafka $(if $(filter file,$(origin SEEDS)),6,$(SEEDS))

kafka-throughput: kafka-jars ## Two minutes: records for each CPU second from a topic, beside landed files and beside reading alone (RECORDS=60000)
	PYTHONPATH=$(CURDIR)/include:$(CURDIR)/plugins:$(CURDIR)/scripts:$(CURDIR)/tests:$(CURDIR)/lab $(PYTHON) -m kafka.throughput $(or $(RECORDS),60000) 3

kafka-replay: kafka-jars ## Minutes a seed: what `TORTURE_KEEP=1 make torture` kept goes through a broker, with kills, and is compared (SEEDS='var/torture/seed4 ...')
	PYTHONPATH=$(CURDIR)/include:$(CURDIR)/plugins:$(CURDIR)/scripts:$(CURDIR)/tests:$(CURDIR)/lab $(PYTHON) -m kafka.replay $(if $(filter file,$(origin SEEDS)),$(wildcard var/torture/seed*),$(SEEDS))

kafka-jars: install ## Fetch the broker of the tests by Maven into .jars/kafka (44 MB); does nothing when it is there, or Maven is not
	@test -e .jars/kafka/kafka_2.13-4.3.1.jar || ! command -v mvn >/dev/null || mvn -q -B -f tests/support/kafka-pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.jars/kafka

test-airflow: install ## A real Airflow with its scheduler and a warm Spark
	$(RUN) -m pytest tests/airflow

.PHONY: test-package
test-package: install ## About 4 minutes, not part of `make test`: the wheel in a new environment, and an Airflow of its own with a cluster and S3
	$(RUN) -m pytest tests/package

test-drills: install ## About 20 minutes on a quiet machine, not part of `make test`: four scheduled rounds of three DAGs in a real Airflow while an approval waits, a set, and five days of backfills there
	$(RUN) -m pytest tests/drills

##@ Measure

bench: install ## Folding changes by tidefold and by its peers; writes docs/contributors/benchmarks/fold.md; the first run fetches a Spark each for Iceberg, Hudi and Paimon (ROWS=10000000: the full one; PEERS=delta,iceberg,hudi,paimon,ducklake; SHARES=0.01,0.1; PARTS=lakes)
	ROWS=$(ROWS) ROUNDS=$(ROUNDS) PYTHONPATH=include:plugins:tests:scripts $(PYTHON) benchmarks/fold.py

bench-counts: install ## About a minute: accepts what fixed workloads cost now in calls, bytes, rows and Spark jobs; review the diff of tests/data/counts.json
	rm -f tests/data/counts.json
	TIDEFOLD_ACCEPT_COUNTS=1 $(RUN) -m pytest -q tests/contract/operations/test_counts.py tests/contract/operations/quarantine/test_key_change_counts.py tests/contract/operations/ingest/test_landing_in_s3.py tests/spark/test_counts_on_spark.py

bench-ingest: install ## About 4 minutes: taking Debezium's JSON in against Spark's from_json; writes docs/contributors/benchmarks/ingest.md
	PYTHONPATH=include:plugins:tests:scripts $(PYTHON) benchmarks/ingest.py

bench-log: install ## About 2 minutes: what writing a log and its ledger costs; writes docs/contributors/benchmarks/log.md
	$(RUN) benchmarks/log.py

bench-listing: install ## About a minute: listing 10,000 and 100,000 objects of a landing prefix in S3; writes docs/contributors/benchmarks/listing.md
	$(RUN) benchmarks/listing.py

bench-long: install ## About 5 minutes: 10,000 small segments, 50 snapshots in a row, memory, reading live; writes docs/contributors/benchmarks/longevity.md
	ROWS=$(if $(filter file,$(origin ROWS)),1000000,$(ROWS)) ROUNDS=$(ROUNDS) PYTHONPATH=include:plugins:tests $(PYTHON) benchmarks/longevity.py

bench-quality: install ## About 3 minutes: the quality gate over a million rows, before and after; writes docs/contributors/benchmarks/quality.md
	ROWS=$(if $(filter file,$(origin ROWS)),1000000,$(ROWS)) ROUNDS=$(ROUNDS) $(RUN) benchmarks/quality.py

bench-s3: install ## About a minute: requests, bytes and seconds of snapshots in S3; writes docs/contributors/benchmarks/s3.md
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/s3.py

bench-scale: install ## About 10 minutes, goes on where it was stopped: bytes and CPU of dealing up to 10,000 buckets and 1,000 change sets, ledger requests, runs over 100 to 5,000 logs; writes docs/contributors/benchmarks/scale.md
	PYTHONPATH=include:plugins:tests:scripts $(PYTHON) benchmarks/scale.py

bench-sets: install ## About 5 minutes: a set of four logs against the same logs alone, in seconds and store calls; writes docs/contributors/benchmarks/sets.md
	ROUNDS=$(ROUNDS) PYTHONPATH=include:plugins:tests:scripts $(PYTHON) benchmarks/sets.py

bench-capacity: install ## About 3 minutes: a model of the CPU of folds, checked at sizes that it has not seen; writes docs/contributors/capacity.md
	PYTHONPATH=include:tests $(PYTHON) benchmarks/capacity.py
	$(RUN) scripts/wrap_text.py

bench-run: install ## About an hour: whole runs, cold start included, by tidefold and by the usual job; writes docs/contributors/benchmarks/run.md
	ROWS=$(if $(filter file,$(origin ROWS)),1000000,$(ROWS)) ROUNDS=$(if $(filter file,$(origin ROUNDS)),5,$(ROUNDS)) SIZES="$(SIZES)" WAYS="$(WAYS)" $(RUN) benchmarks/run.py

bench-growth: install ## About 15 minutes: what one run costs at 100,000 to 10,000,000 rows with the same changes; writes docs/contributors/benchmarks/growth.md (WAYS names the parts)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/growth.py

.PHONY: bench-growth-before
bench-growth-before: install ## About 20 minutes, 8 GB of disk: the same runs at ROWS rows by this code and by that of a clone, in turn (BEFORE); prints CPU seconds
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/growth_before.py

.PHONY: bench-usual
bench-usual: install ## About an hour, 13 GB of memory: whole runs beside the usual job, cold and warm; writes docs/contributors/benchmarks/usual.md (WAYS names the parts)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/usual.py

.PHONY: bench-large
bench-large: install ## About an hour, 12 GB of disk: 100,000,000 rows loaded from Parquet, changed, restored; Iceberg and delta-rs beside it (WAYS names the parts)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/large.py

.PHONY: bench-cores
bench-cores: install ## About 30 minutes, 2 GB of disk: ingests of one large file, and a run of a change of 10 %, on one core and on two; writes docs/contributors/benchmarks/cores.md (WAYS names the parts)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/cores.py

.PHONY: bench-plan
bench-plan: install ## About 15 minutes, 3 GB of disk: two plans of 10,000,000 rows on Spark beside their first load; writes docs/contributors/benchmarks/plan.md
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/plan.py
	$(RUN) scripts/wrap_text.py

.PHONY: bench-executors
bench-executors: install ## About 5 minutes: CPU of a fold on one, two and four executors of a cluster; writes its part of docs/contributors/capacity.md
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) benchmarks/executors.py
	$(RUN) scripts/wrap_text.py

bench-snapshot: install ## About 10 minutes: full snapshots and restores against plain copies and Spark; writes docs/contributors/benchmarks/snapshot.md
	PYTHONPATH=include:plugins:tests $(PYTHON) benchmarks/snapshot.py

fault-matrix: install ## Every operation with every fault; writes docs/contributors/reliability.md (POSITIONS=2: calls that are struck for each fault; OPERATIONS="ingest sets": these rows alone)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) -m faults.matrix $(POSITIONS) $(OPERATIONS)

two-coordinators: install ## 200 rounds of two processes on one log, on disk and on versitygw; writes docs/contributors/reliability.md
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) -m faults.coordinators $(TWO)

unsynced: install ## Every store that a power cut can leave after any call of a life, opened again; writes docs/contributors/reliability.md
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) -m faults.unsynced

soak: install ## 8 processes, killed and stopped, on disk and on versitygw (MINUTES=10, STORES=disk,s3); with LIVES=1 also 10,000 random lives and every pair of crashes (SEEDS=200 STRIDE=50: fewer; FIRST: the first seed)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) -m faults.history $(MINUTES) $(STORES)
ifdef LIVES
	PYTHONPATH=include:tests $(PYTHON) -m model.soak $(SEEDS) $(FIRST)
	PYTHONPATH=include:tests $(PYTHON) -m support.scenarios $(STRIDE)
endif

##@ Lab: hours, or tools of its own (lab/README.md says what each needs, and when it last ran)

DATABASES ?= both
TORTURE ?= $(CURDIR)/var/torture
.PHONY: mutants mutants-torture
mutants: install ## About 6 minutes: takes each behaviour of Flink out in turn, and shows that a test fails; writes docs/contributors/flink.md
	PYTHONPATH=lab $(PYTHON) -m mutations

mutants-torture: install torture-tools ## About an hour: takes mends of the source's changes out, and plays the seed of `make torture` that finds each (SEEDS='16 28': only theirs)
	TORTURE=$(TORTURE) PYTHONPATH=include:tests:lab $(PYTHON) -m mutations.seeds $(if $(filter file,$(origin SEEDS)),,$(SEEDS))

.PHONY: torture torture-tools
torture: install torture-tools ## Random tables and workloads of a real PostgreSQL and MariaDB under a real Debezium, compared with their dumps (SEEDS=30 FIRST=0 DATABASES=mariadb; SEEDS=failed: those that once found something; RECORD=1 writes its page)
	TORTURE_RECORD=$(RECORD) PYTHONPATH=include:tests:lab $(PYTHON) -m torture $(if $(filter file,$(origin SEEDS)),4,$(SEEDS)) $(FIRST) $(DATABASES)

.PHONY: test-sources
test-sources: install ## About an hour: types, attestations, planted faults, loads with kills, the operators, on a real PostgreSQL under a real Debezium (SIZES='50 10 20000': attestations, rounds of ten faults, rows; LOADS='20 20000 1000000': loads, rows; PROOFS=overlap: only that)
	bash lab/torture/tools.sh $(TORTURE) postgres
	SIZES="$(SIZES)" LOADS="$(LOADS)" PYTHONPATH=include:tests:lab:scripts $(PYTHON) -m sources $(TORTURE) $(PROOFS)

torture-tools: ## What `make torture` needs, once: MariaDB of Debian packages and Debezium's engines by Maven
	bash lab/torture/tools.sh $(TORTURE)

.PHONY: test-delta
test-delta: install ## More than an hour: source tables by Spark, each version by value, and Spark's commands on published tables; writes docs/contributors/delta-tables.md (CASES='plain,OPTIMIZE': only those)
	PYTHONPATH=include:plugins:scripts:tests:lab $(PYTHON) -m delta_tables "$(CASES)"

.PHONY: test-versions
test-versions: install ## Minutes a cell, not part of `make test`: the package beside other versions of Spark, Airflow and Python; writes docs/contributors/versions.md (CELL=spark35,spark40,spark41,airflow31,airflow32,floors)
	PYTHONPATH=include:plugins:scripts:tests:lab $(PYTHON) -m versions $(CELL)

.PHONY: test-standalone
test-standalone: install ## About 3 minutes, not part of `make test`: a short run on a cluster, with a killed worker and a busy S3
	$(RUN) -m pytest lab/cluster

.PHONY: test-compose
test-compose: install ## About 20 minutes: docker-compose.yaml in real containers, by podman as root; writes docs/contributors/benchmarks/compose.md (DEBIAN_MIRROR: base images without a registry; CERTIFICATES: a folder of .crt files)
	PYTHONPATH=include:plugins:scripts:tests:lab $(PYTHON) -m compose

.PHONY: test-cluster
test-cluster: install ## About 20 minutes, not part of `make test`: outages of workers, executors, driver and S3 on a cluster, through Airflow; writes docs/contributors/benchmarks/cluster.md (needs Go; STORIES='driver': only those)
	PYTHONPATH=include:plugins:scripts:tests:lab $(PYTHON) -m cluster

.PHONY: test-yarn
test-yarn: install ## About 30 minutes, not part of `make test`: pipelines on Hadoop's mini YARN, also through Airflow; writes docs/contributors/benchmarks/yarn.md (needs Go and a Maven repository; STORIES='client': only those)
	PYTHONPATH=include:plugins:scripts:tests:lab $(PYTHON) -m yarn

##@ Run Airflow

demo: install ## About 3 minutes: Airflow runs the pipeline over the sample input, phase by phase
	@$(RUN) -m demo

up: install ## Start Airflow and leave it running (address, user and password are printed)
	@$(RUN) -m local_airflow up

airflow: install ## A command of the Airflow that `make up` started: make airflow ARGS="dags list"
	@$(RUN) -m local_airflow airflow $(ARGS)

down: ## Stop what `make up` (or an interrupted demo) started
	@if [ -x $(PYTHON) ]; then $(RUN) -m local_airflow down; fi

.PHONY: cluster cluster-land
PHASE ?= phase2
cluster: install ## A Spark master, two workers, an S3 server (needs Go) and Airflow on them, until Ctrl-C (WORKER_PYTHON=...: the interpreter of the workers)
	@$(RUN) -m local_cluster up

cluster-land: install ## Land more changes of the sample for `make cluster` (PHASE=phase3)
	@$(RUN) -m local_cluster land $(PHASE)

.PHONY: pictures
pictures: install ## About 3 minutes: the pictures of README and docs, taken of page, graph, question and report in a real Airflow (NAMES='page-log report': only these)
	PYTHONPATH=include:plugins:scripts:tests $(PYTHON) -m support.pictures $(NAMES)

.PHONY: page-axe
page-axe: install ## Fetches axe-core by npm into var/axe, and looks at each page with it, light and dark
	mkdir -p var/axe && cd var/axe && npm pack --silent axe-core@4.10.3 | xargs tar -xzf
	$(RUN) -m pytest -q tests/airflow/test_page_screens.py -k axe

clean: down ## Stop Airflow, then remove var/ and the tools' caches; .venv and .jars stay
	rm -rf var .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
