"""Executors in processes of their own (`local-cluster`): the same program, and an executor that is killed in mid-epoch.

Spark is started in a process of its own: there is one Java to a process, and this one may have another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.xdist_group("spark")
def test_in_a_cluster(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", f"from tests.spark.in_cluster import main; main({str(tmp_path)!r})"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert child.returncode == 0, child.stderr[-6000:]
    assert child.stdout.split() == ["mixed", "killed", "done"], child.stdout
