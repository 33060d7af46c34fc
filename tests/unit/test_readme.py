"""README and the pages in docs say nothing that is not so: their Python runs, what they name exists."""

import re

import pytest
import yaml
from places import ROOT

from specloss.cli import app
from specloss.experiment.config import read_config

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
README = PAGES[0].read_text()
PYTHON = {page.name: block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)}
PLACEHOLDERS = re.compile(r"[<>{}*…]|\b(FILE|OUT|NAME|HOST|A|B|my|mine)\b|^owner/")


@pytest.mark.parametrize("block", PYTHON.values(), ids=PYTHON)
def test_its_python_runs(block, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(block, "page", "exec"), {})
    assert "accepted" in capsys.readouterr().out


@each_page
def test_its_commands_exist(page):
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    code = "\n".join(code_of(page.read_text()))
    assert set(re.findall(r"(?:bin/|^|&& |[\w.]+:\d+ )specloss ([a-z][a-z0-9-]*)", code, re.M)) <= known


@each_page
def test_its_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    named = {
        words for code in code_of(page.read_text()) for words in re.findall(r"(?:^|&& )make ([a-z0-9-]+)", code, re.M)
    }
    assert not [target for target in named if not re.search(rf"^{target}:.*##", makefile, re.M)]


@each_page
def test_its_modules_exist(page):
    """`python -m specloss.a.b`, and on the map a room's file as `room.file`."""
    package = ROOT / "src/specloss"
    code = code_of(page.read_text())
    named = [name for text in code for name in re.findall(r"python -m specloss\.([a-z_.]+)", text)]
    rooms = "|".join(folder.name for folder in package.iterdir() if folder.is_dir())
    if page.name == "architecture.md":
        named += [text for text in code if re.fullmatch(rf"({rooms})\.(?!json)[a-z_0-9]+", text)]
    paths = [package / name.replace(".", "/") for name in named]
    assert not [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())]


@each_page
def test_its_links_exist(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    links = [link for link in links if not re.match(r"\w+:", link)]
    assert not [link for link in links if not (page.parent / link).exists()]


@each_page
def test_its_files_exist(page):
    words = {word.rstrip(".,;:)") for code in code_of(page.read_text()) for word in code.split()}
    folders = "src|config|envs|docs|tests|workflow"
    named = {
        word.split("::")[0] for word in words if re.match(rf"({folders})/", word) and not PLACEHOLDERS.search(word)
    }
    assert not [path for path in named if not (ROOT / path).exists()]


@each_page
def test_its_tests_exist(page):
    named = set(re.findall(r"`(test_\w+)`", page.read_text()))
    files = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")] if named else []
    assert not [name for name in named if not any(f"def {name}(" in text for text in files)]


def test_the_readme_is_one_page():
    assert len(README.splitlines()) <= 120


def test_every_page_is_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """Without the tags of mkdocs."""

    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]

    def pages(entry) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]

    docs = ROOT / "docs"
    assert sorted(pages(nav)) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_the_example_in_the_readme_is_a_valid_config(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (block,) = [block for block in re.findall(r"```yaml\n(.*?)```", README, re.S) if "name: mine" in block]
    prompts = tmp_path / "my.jsonl"
    prompts.write_text('{"prompt": "1+1?", "reference": "2"}\n')
    config = tmp_path / "mine.yaml"
    config.write_text(block.replace("my.jsonl", str(prompts)))
    assert read_config(config).name == "mine"


def code_of(text: str) -> list[str]:
    """The text of code blocks and of `code` within lines."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
