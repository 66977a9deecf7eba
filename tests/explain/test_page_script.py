"""The script of a page, in a browser: folding, search, zoom, details, tables. Skipped where there is no chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import whence

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SQL = """
    CREATE TABLE link (src INT, dst INT);
    CREATE VIEW reachable AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
"""
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium")


def large() -> whence.Database:
    db = whence.open()
    db.execute(SQL)
    db.insert("link", [(i, j) for i in range(120) for j in {i + 1, (i * 7 + 3) % 120, (i * 31 + 11) % 120}])
    return db


def run(page: str, script: str, tmp_path: Path) -> Any:
    """Return what an expression is in a page, after its own script has run."""
    path = tmp_path / "page.html"
    told = f"<script>document.body.dataset.told = JSON.stringify((() => {{{script}}})());</script></body>"
    path.write_text(page.replace("</body>", told), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000", "--dump-dom"]
    assert BROWSER is not None
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run([BROWSER, *options, profile, path.as_uri()], capture_output=True, text=True, timeout=120)
    found = re.search(r'data-told="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    return json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))


TOOLS = """
  const by = id => document.getElementById(id);
  const shown = () => document.querySelectorAll(".mark:not(.away)").length;
  const marks = document.querySelectorAll(".mark").length;
  const wide = () => Number(document.querySelector(".canvas svg").getAttribute("viewBox").split(" ")[2]);
  const search = text => { by("search").value = text; by("search").dispatchEvent(new Event("input")); };
"""


def test_large_page_begins_folded_and_unfolds(tmp_path: Path) -> None:
    page = large().why("reachable", src=0, dst=60).to_html()
    first, every, few, again, count = run(
        page,
        TOOLS + "const first = shown(); by('unfold').click(); const every = shown(); by('fold').click();"
        "const few = shown(); by('reset').click(); return [first, every, few, shown(), marks];",
        tmp_path,
    )
    assert count == every > 300
    assert few <= first == again <= 61


def test_search_unfolds_what_hides_a_hit(tmp_path: Path) -> None:
    why = large().why("reachable", src=0, dst=60)
    far = why.witnesses[-1][-1][1]
    label = f"link({far['src']}, {far['dst']})"
    before, after, said, details = run(
        why.to_html(),
        TOOLS + f"const hit = Array.from(document.querySelectorAll('.mark')).filter(g => g.getAttribute('aria-label')"
        f".endsWith('{label}'))[0]; by('fold').click(); const before = hit.classList.contains('away');"
        f"search('{label}'); return [before, hit.classList.contains('away') || !hit.classList.contains('now'),"
        "by('hits').textContent, by('details').textContent];",
        tmp_path,
    )
    assert (before, after) == (True, False)
    assert said.startswith("1 of ")
    assert label in details
    assert "base row" in details
    assert "witnesses shown" in details


def test_zoom_fold_and_choose_by_keyboard(tmp_path: Path) -> None:
    page = large().why("reachable", src=0, dst=60).to_html()
    script = """
      const key = (on, key) => on.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
      const canvas = document.querySelector(".canvas"), root = document.querySelector(".mark.asked");
      const begin = wide(); key(canvas, "+"); const nearer = wide(); key(canvas, "0"); const before = shown();
      key(root, " "); const folded = shown(), said = root.getAttribute("aria-expanded"); key(root, " ");
      const unfolded = shown(); key(root, "Enter");
      const lit = document.querySelectorAll(".mark.lit").length;
      const pressed = document.querySelectorAll("button[aria-pressed=true]").length;
      key(document, "Escape");
      const left = document.querySelectorAll(".lit").length;
      return [nearer < begin, before, folded, said, unfolded, lit > 2, pressed, left];
    """
    nearer, before, folded, said, unfolded, lit, pressed, left = run(page, TOOLS + script, tmp_path)
    assert nearer
    assert (folded, said, unfolded) == (1, "false", before)
    assert (lit, pressed, left) == (True, 1, 0)


def test_tables_are_searched_and_sorted(tmp_path: Path) -> None:
    db = large()
    page = db.what_if("DELETE FROM link WHERE src < 3").to_html()
    script = """
      const table = document.querySelector("table.find"), rows = () => Array.from(table.tBodies[0].rows);
      const input = table.previousSibling.querySelector("input");
      input.value = "1"; input.dispatchEvent(new Event("input"));
      const left = rows().filter(row => !row.hidden).length;
      input.value = ""; input.dispatchEvent(new Event("input"));
      const head = table.tHead.rows[0].cells[2], values = () => rows().map(row => Number(row.cells[2].textContent));
      head.querySelector("button").click(); const up = values();
      head.querySelector("button").click(); const down = values();
      return [left, rows().filter(row => !row.hidden).length, up, down, head.getAttribute("aria-sort")];
    """
    left, count, up, down, said = run(page, script, tmp_path)
    assert 0 < left < count
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert said == "descending"
