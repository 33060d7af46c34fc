"""specloss: (method x parameter x benchmark x seed) cells -> decode -> score -> summary -> tables, figures, report."""

import os
import sys

from specloss.cluster.head import owner_id
from specloss.config import ConfigError
from specloss.plan import describe, make_plan
from specloss.workflow import claim_folder, remember_owner

if "name" not in config:  # none given by --configfile: the embedded default

    configfile: "config/demo.yaml"


SOURCE = str(workflow.configfiles[-1]) if workflow.configfiles else "config"
MAIN = workflow.is_main_process
# jobs call `specloss`: the one of this environment, activated or not
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
try:
    # Snakemake knows its targets only after it has read this file
    PLAN = make_plan(config, SOURCE, check=MAIN, targets=sys.argv[1:])
    if MAIN and not workflow.dryrun:
        claim_folder(PLAN.experiment.name)
        PLAN.write()
except ConfigError as error:
    print(f"specloss: error: {error}", file=sys.stderr)
    sys.exit(1)
if MAIN:
    print(describe(PLAN), file=sys.stderr)
    os.environ["SPECLOSS_OWNER"] = owner_id(os.getpid())

RESULTS, REPORTS, EXPERIMENT = str(PLAN.folder), str(PLAN.reports), str(PLAN.file)


wildcard_constraints:
    cell=r"pair=[^/]+/benchmark=[^/]+/method=[^/]+/param=[^/]+/seed=\d+",
    batch=r"[^/]+",
    name=r"[A-Za-z0-9_]+",


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


onsuccess:
    shell("specloss stop")
    if not workflow.dag_settings.targets:
        print(f"done: {REPORTS}/index.html", file=sys.stderr)


onerror:
    shell("specloss stop")
