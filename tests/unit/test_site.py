"""The documentation site: built strictly, and nothing in it is fetched from elsewhere."""

import os
import re
import subprocess
import sys

import pytest
from places import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return out


def test_every_page_is_built_without_a_warning(site):
    pages = [page for page in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    for page in pages:
        name = page.relative_to(ROOT / "docs").with_suffix("")
        assert (site / (name.parent if name.name == "index" else name) / "index.html").exists()


def test_no_page_fetches_anything_from_elsewhere(site):
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)")
    found = {address for page in site.rglob("*.html") for address in fetched.findall(page.read_text())}
    styles = {a for sheet in site.rglob("*.css") for a in re.findall(r"url\([\"']?(https?:[^)]*)", sheet.read_text())}
    assert not found | styles


def test_the_api_has_the_names_that_users_import(site):
    page = (site / "api/index.html").read_text()
    assert all(f'id="specloss.{name}"' in page for name in ("load_pair", "decode", "Decoded", "LoadedPair"))
    assert "facts:" not in (site / "rules/lenience/index.html").read_text()
