"""A tiny experiment on disk, as the workflow leaves it, for tests of MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from specloss.experiment.cells import Cell
from specloss.tracking import track
from specloss.tracking.store import CELL

DECODING = {"gamma": 8, "temperature": 0.7, "top_k": 0, "top_p": 1.0}


class Study:
    """A tiny experiment on disk, as the workflow leaves it: plan, summary and reports."""

    def __init__(self, root: Path) -> None:
        self.results, self.reports = root / "results", root / "reports" / "tiny"
        self.config = {"name": "tiny", "decoding": DECODING, "seeds": [0, 1], "mlflow": {"uri": None}}
        self.cells = [
            Cell("tiny", "demo", "chain_l2", method, param, seed, self.settings(method))
            for method, param in (("standard_sd", None), ("lenience", 0.4), ("lenience", 0.8))
            for seed in (0, 1)
        ]
        self.summary = pd.DataFrame(
            {
                "pair": "demo",
                "benchmark": "chain_l2",
                "method": [cell.method for cell in self.cells],
                "param": pd.array([cell.param for cell in self.cells], dtype="Float64").astype(float),
                "seed": [cell.seed for cell in self.cells],
                "status": "whole",
                "accuracy": [0.9, 0.92, 0.7, 0.72, 0.8, 0.82],
                "be": [5.0, 5.1, 7.0, 7.1, 6.0, 6.1],
                "tv_pi_p": [float("nan")] * 2 + [0.1] * 4,
            }
        )
        (self.reports / "tables").mkdir(parents=True)
        (self.reports / "tables" / "table4.csv").write_text("method,be\n")
        (self.reports / "index.html").write_text("<html></html>")

    @staticmethod
    def settings(method: str) -> dict:
        return {
            "pair": {"kind": "draft", "target": "models/target", "draft": "models/draft", "dtype": "auto"},
            "benchmark": {"task": "chain", "options": {"level": 2}, "max_new_tokens": 64},
            "decoding": DECODING,
            "rule": method,
            "options": {"residual": "matched"},
        }

    def track(self) -> int:
        self.write()
        return track(self.results / "tiny" / "experiment.json", self.results, self.reports)

    def write(self) -> None:
        folder = self.results / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        self.summary.to_parquet(folder / "summary.parquet")
        plan = {
            "config": self.config,
            "source": "tiny.yaml",
            "cells": [cell.to_dict() for cell in self.cells],
            "settings": [
                {"method": m, "param": p, "matched": ["standard_sd", None] if m == "lenience" else None}
                for m, p in {(cell.method, cell.param): None for cell in self.cells}
            ],
        }
        (folder / "experiment.json").write_text(json.dumps(plan))

    def client(self):
        from mlflow import MlflowClient

        return MlflowClient(f"sqlite:///{self.results.resolve()}/mlflow.db")

    def runs(self) -> dict[str, object]:
        """Active runs by cell id; fails on duplicates."""
        client = self.client()
        experiment = client.get_experiment_by_name("tiny")
        runs = list(client.search_runs([experiment.experiment_id]))
        by_cell = {run.data.tags[CELL]: run for run in runs}
        assert len(by_cell) == len(runs)
        return by_cell
