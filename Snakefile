"""specloss: (method x parameter x benchmark x seed) cells -> decode -> score -> summary -> tables, figures, report."""

import os
import shlex
import sys

from snakemake.utils import update_config

from specloss.cluster.ray_head import OWNER, owner_here
from specloss.cluster.relay import follow
from specloss.experiment.config import is_experiment, read_values
from specloss.common.oneline import plain_lines
from specloss.experiment.plan import describe, make_plan
from specloss.reviewer.names import with_table_cells
from specloss.cluster.runs import cancel_orphans, claim_folder, remember_owner
from specloss.common.yamlfile import ConfigError, as_written

if not is_experiment(config) and "name" not in config:  # none given by --configfile: the embedded default

    configfile: "config/demo.yaml"


FILES = list(map(os.path.relpath, workflow.configfiles))
# an experiment.json goes by the name of the config that it is from
SOURCE = config.get("source", FILES[-1]) if is_experiment(config) else FILES[-1] if FILES else "config"
MAIN = workflow.is_main_process
# jobs call `specloss`: the one of this environment, activated or not
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
try:
    # Snakemake has read them, but as YAML 1.1, and of a key that stands twice it takes the last
    config = {}
    for file in FILES:
        update_config(config, read_values(file))
    # what --config and a profile say: Snakemake leaves lists and mappings of it as texts
    update_config(config, as_written(workflow.config_settings.config))
    # Snakemake knows its targets only after it has read this file
    PLAN = with_table_cells(make_plan(config, SOURCE, check=MAIN, targets=sys.argv[1:]), sys.argv[1:])
    if MAIN and not workflow.dryrun:
        claim_folder(PLAN.experiment.name)
        PLAN.write()
except (ConfigError, OSError) as error:
    print(f"specloss: error: {error}", file=sys.stderr)
    sys.exit(1)
if MAIN:
    print(plain_lines(describe(PLAN)), file=sys.stderr)
    os.environ[OWNER] = owner_here()

RESULTS, REPORTS, EXPERIMENT = str(PLAN.folder), str(PLAN.reports), str(PLAN.file)
BENCHMARKS = f"{RESULTS}/benchmarks"  # times and memory of jobs, by rule; a job is never done again for their sake
CLUSTER = PLAN.experiment.cluster
RELAYS = []
ADDRESS = f"--address {shlex.quote(CLUSTER.address)}" if CLUSTER.address else ""


report: "workflow/report/workflow.rst"


wildcard_constraints:
    cell=r"pair=[^/]+/benchmark=[^/]+/method=[^/]+/param=[^/]+/seed=\d+",
    batch=r"[^/]+",
    name=r"[A-Za-z0-9_]+",


include: "workflow/rules/models.smk"
include: "workflow/rules/cells.smk"
include: "workflow/rules/reports.smk"
include: "workflow/rules/screen.smk"
include: "workflow/rules/demo_pair.smk"
include: "workflow/rules/analytic.smk"


localrules:
    all,
    analytic,


rule all:
    default_target: True
    input:
        f"{REPORTS}/index.html",
        f"{RESULTS}/tracked.txt",


onstart:
    remember_owner(PLAN.experiment.name)
    if orphans := cancel_orphans(PLAN.experiment.name, PLAN.results):
        print(f"cancelled Slurm jobs of a run that was killed: {' '.join(orphans)}", file=sys.stderr)
    if workflow.non_local_exec:
        RELAYS.append(follow(PLAN.folder))


onsuccess:
    for relay in RELAYS:
        relay.stop()
    shell("specloss stop {ADDRESS}")
    if not workflow.dag_settings.targets:
        print(f"done: {REPORTS}/index.html", file=sys.stderr)


onerror:
    for relay in RELAYS:
        relay.stop()
    shell("specloss stop {ADDRESS}")
