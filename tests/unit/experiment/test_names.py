"""A config takes the names that can be paths, wildcards and columns as they are, and MLflow takes their keys."""

import re

import pytest
from mlflow.utils.validation import _validate_metric_name

from specloss.experiment.names import LONGEST, check_experiment_name, check_name, check_names, mlflow_key

TAKEN_AS_THEY_ARE = ["MBPP+", "a+b.c_d-e", "1", "NA", "a..b", "x" * LONGEST, "+".join("ab" * 25)]
HOSTILE = [
    *("a/b", "ä b", "x=y", "..", ".", "", "-x", "+", "a b", "a\nb", "a\0b", "a{b}", "a*", "a?", "[a]", "a%b", "a~b"),
    *("$(x)", "a'b", 'a"b', "a;b", "a&b", "<b>", "a\\b", "١", "a\ud800", "x" * 300),
]


@pytest.mark.parametrize("name", TAKEN_AS_THEY_ARE)
def test_a_name_that_fits_everywhere_is_taken(name):
    check_names([name, "other"])
    check_experiment_name(name)


@pytest.mark.parametrize("name", [*HOSTILE, "average", "Method", "pair"], ids=ascii)
def test_a_hostile_name_is_refused_in_one_line(name):
    with pytest.raises(ValueError) as caught:
        check_names([name])
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 250


def test_names_that_differ_by_case_alone_are_refused():
    with pytest.raises(ValueError, match="names 'Chain' and 'chain' differ only in case"):
        check_names(["Chain", "other", "chain"])


@pytest.mark.parametrize("name", ["models", "reruns", "analytic", "mlflow.db", "Models"])
def test_an_experiment_is_not_named_as_what_stands_beside_it(name):
    check_name(name)
    with pytest.raises(ValueError, match="is reserved"):
        check_experiment_name(name)


def test_no_two_names_have_the_same_key_of_mlflow_and_mlflow_takes_each():
    names = [*TAKEN_AS_THEY_ARE, *HOSTILE, "MBPP plus", "a plus", "a+", "a u00002b", "+" * 99, "+" * 100, "x" * 301]
    keys = [mlflow_key(name) for name in names]
    assert len({*keys}) == len({*names})
    assert all(re.fullmatch(r"[A-Za-z0-9_.\- ]*", key) for key in keys)  # what every version and system takes
    for key in keys:
        _validate_metric_name(f"on {key}/parse_failures")
        assert len(f"on {key}/parse_failures") <= 250
    assert mlflow_key("MBPP+") == "MBPP plus" and mlflow_key("chain_l4") == "chain_l4"
