"""Names given in a config, and what they become outside the project. No heavy imports here.

The name of an experiment, pair, model, benchmark or method is part of paths (`benchmark=NAME`, Hive style), a wildcard
of Snakemake, a word in comments of Slurm, a column of tables and a part of MLflow's keys. A config takes the names that
can be all of these unchanged and refuses the others, so that a name looks the same everywhere. Only MLflow's keys
have a narrower alphabet: `mlflow_key`. Markdown, LaTeX and HTML escape any text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

LONGEST = 100  # characters; folders have 255, of which some are ours
MLFLOW_LONGEST = 200  # of the 250 that MLflow gives a key; the rest is for what stands beside the name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
# beside the experiments in the folders of results and reports
_TAKEN = {"models", "reruns", "analytic", "train_demo", "train_demo_eagle3"}
_TAKEN |= {"mlflow.db", "mlflow-artifacts", "tracking.lock"}
# columns that stand beside those of the benchmarks, and what `specloss cell` calls all of these
_WORDS = {"pair", "method", "param", "against", "average"}


def check_name(name: str, kind: str = "name", reserved: Iterable[str] = _WORDS) -> None:
    """ValueError, in one line, for a name that cannot be used everywhere as it is."""
    if len(name) > LONGEST:
        raise ValueError(f"{kind} {name[:20]!r}... has {len(name):,} characters; at most {LONGEST} are allowed")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{kind} {name!r} must consist of ASCII letters, digits, '_', '.', '+' or '-', and begin with a letter "
            "or digit: it is part of paths"
        )
    if name.lower() in reserved:
        raise ValueError(f"{kind} {name!r} is reserved; choose another")


def check_names(names: Iterable[str]) -> None:
    """Check all names of a section, of which no two may differ only in case."""
    seen: dict[str, str] = {}
    for name in names:
        check_name(name)
        if (twin := seen.setdefault(name.lower(), name)) != name:
            raise ValueError(
                f"names {twin!r} and {name!r} differ only in case: not every file system can tell them apart"
            )


def check_experiment_name(name: str) -> None:
    """Check an experiment's name: its folders are beside other folders of the project."""
    check_name(name, reserved=_TAKEN)


def mlflow_key(name: str) -> str:
    """A name as a part of a key of MLflow: `MBPP+` is `MBPP plus`. No two names give the same key.

    MLflow allows ASCII letters, digits, `_ - .` and the space. Names contain no space, so a space introduces the
    replacement of a character that MLflow lacks.
    """
    key = re.sub(r"[^A-Za-z0-9_.-]", lambda found: " plus" if found[0] == "+" else f" u{ord(found[0]):06x}", name)
    if len(key) <= MLFLOW_LONGEST:
        return key
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{key[: MLFLOW_LONGEST - 40]} sha{digest}"
