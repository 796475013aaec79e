# Every target does the set-up it needs; what is up to date is not done again.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help setup run test end-to-end nightly check bench bench-check drills cluster-drills guards model pictures stop clean preflight jars classes
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV PYTHONPATH UV_PROJECT_ENVIRONMENT
# Where it is set, as in many images, every command and each of Spark's Python workers compiles our modules again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 23

setup: .venv/.ready .venv-airflow/.ready classes ## set everything up: both Python environments, the jars, the class archive

run: .venv/.runs .venv-airflow/.ready classes ## set up and run the main job: broker, Airflow, streams and 1.47 million real purchases, live
	.venv/bin/activity run

test: setup ## set up and pass the tests: unit, component, spark, integration, a drill, and those of the DAGs
	.venv-airflow/bin/pytest -c tests/airflow/pytest.ini tests/airflow --durations 25
	.venv/bin/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 25

end-to-end: setup ## start Airflow and the streams, kill the driver, and see it started again (some minutes)
	.venv/bin/pytest tests/end_to_end --durations 25

nightly: setup ## the same with their long forms: more lives, kills and layers put back, and all that happens under Airflow, in a browser too (two and a half hours on two cores; needs chromium and chromium-driver)
	.venv-airflow/bin/pytest -c tests/airflow/pytest.ini tests/airflow --durations 25
	.venv/bin/pytest --nightly --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 25
	.venv/bin/pytest tests/end_to_end --nightly --durations 25

pictures: setup ## take the pictures of the docs from what `make run` left running (needs chromium and chromium-driver)
	.venv/bin/python tests/end_to_end/pictures.py docs/images
	.venv/bin/python tests/end_to_end/terminal.py docs/images

check: .venv/.ready .venv-airflow/.ready ## lock file, format, lint, types, layers
	infra/uv.sh lock --check
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv-airflow/bin/mypy --config-file dags/mypy.ini
	.venv/bin/lint-imports

# BENCH takes options: make bench BENCH="--only freshness --repeat 1"
bench: setup ## measure freshness, rate, backlog, growth, recovery and half an hour of load, beside the peers (hours; needs Maven)
	mvn --quiet --file benchmarks/peers/kafka_streams/pom.xml package
	.venv/bin/python benchmarks/bench.py --page docs/PERFORMANCE.md $(BENCH)

# DRILLS takes options: make drills DRILLS="--rounds 1 --random 5 --bounces 2 --zombies 1"
drills: setup ## kill, freeze and cut off the running pipeline over and over, and prove that it stays right (two hours)
	.venv/bin/python tests/drills/drills.py $(DRILLS)

# It takes options, too: make cluster-drills CLUSTER_DRILLS="--rounds 2 --only worker --seed 7"
cluster-drills: setup ## kill drivers and workers, kill and freeze executors of a Spark cluster over and over (two hours)
	.venv/bin/python tests/drills/on_cluster.py $(CLUSTER_DRILLS)

# GUARDS takes options: make guards GUARDS="--only VACUUM"
guards: setup ## take out one guard after the other, and see the test that is about it fail (an hour and a half)
	.venv/bin/python tests/drills/guards.py $(GUARDS)

# MODEL takes options: make model MODEL="--lives 500 --life-processes 4"
# One thread of delta-rs a process: a life opens small tables by the hundred, and waits longer for threads than for files.
model: setup ## live 2,000 lives of the model, and note in docs/RELIABILITY.md what they came to (most of an hour)
	TOKIO_WORKER_THREADS=1 .venv/bin/pytest tests/spark/test_model.py -p no:randomly --lives 2000 --visits-page docs/RELIABILITY.md $(MODEL)

bench-check: .venv/.ready ## compare the last benchmark's ratios with the committed ones
	.venv/bin/python benchmarks/ratios.py

stop: ## stop whatever runs: traffic, Airflow, streams, broker
	@if [ -x .venv/bin/activity ]; then .venv/bin/activity stop; fi

clean: stop ## stop, and remove the data in var/ (set-up stays)
	rm -rf var

preflight:
	@infra/preflight.sh

# Compiled once here: every command and each of Spark's Python workers starts in half the time.
.venv/.runs: pyproject.toml uv.lock | preflight
	@echo "Installing the Python packages that a run needs into .venv (1.5 GB, once) …"
	@UV_COMPILE_BYTECODE=1 infra/uv.sh sync --frozen --quiet --inexact --no-default-groups --group run
	@touch $@

.venv/.ready: .venv/.runs
	@echo "Installing those that tests and checks need (0.5 GB, once) …"
	@UV_COMPILE_BYTECODE=1 infra/uv.sh sync --frozen --quiet
	@touch $@

# Airflow's own environment: its Spark provider writes into the same import package as pyspark.
.venv-airflow/.ready: pyproject.toml uv.lock | preflight
	@echo "Installing Airflow into .venv-airflow (0.6 GB, once) …"
	@UV_PROJECT_ENVIRONMENT=.venv-airflow infra/uv.sh sync --frozen --quiet --only-group airflow-dev
	@touch $@

jars: .venv/.runs
	@infra/jars/resolve.sh
	@infra/spark/home.sh
	@infra/spark/compile.sh

classes: jars
	@infra/jars/archive.sh
