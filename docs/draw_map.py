"""Draw the rooms of the package and who uses whom, from the code itself: `python docs/draw_map.py` writes map.svg.

The rooms and their order are those of the import-linter contract in pyproject.toml; the arrows are the imports that
grimp finds. An arrow that others imply (a uses b, b uses c, so a may use c) is left out.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT, ROW, MARGIN = 196, 84, 132, 20  # of a box, of a row with the arrows below it, around the picture
STYLE = """
  .box { fill: #f6f8fa; stroke: #57606a; } .name { font: 600 18px sans-serif; fill: #1f2328; }
  .what { font: 13.5px sans-serif; fill: #57606a; } .arrow { fill: none; stroke: #8c959f; marker-end: url(#tip); }
"""


def layers() -> list[list[str]]:
    """The rooms, top floor first, as the contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = next(c for c in contracts if c["containers"] == ["specloss"])["layers"]
    return [[name.strip() for name in layer.split("|")] for layer in rooms]


def arrows(rooms: list[str]) -> set[tuple[str, str]]:
    """(user, used) of every two rooms of which one imports from the other."""
    graph = grimp.build_graph("specloss", exclude_type_checking_imports=True)
    found = set()
    for module in graph.modules:
        for used in graph.find_modules_directly_imported_by(module):
            pair = tuple([*name.split("."), ""][1] for name in (module, used))
            if pair[0] != pair[1] and set(pair) <= set(rooms):
                found.add(pair)
    return found


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that no path of others replaces; the graph has no circle."""

    def reaches(start: str, end: str, left: set[tuple[str, str]]) -> bool:
        return any(b == end or reaches(b, end, left) for a, b in left if a == start)

    return {edge for edge in edges if not reaches(*edge, edges - {edge})}


def floors(rooms: list[str], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Each room one floor above the highest that it uses; the top floor first, and neighbours below one another."""
    height: dict[str, int] = {}
    for room in TopologicalSorter({room: [b for a, b in edges if a == room] for room in rooms}).static_order():
        height[room] = 1 + max((height[b] for a, b in edges if a == room), default=-1)
    found: list[list[str]] = []
    centre: dict[str, float] = {}
    for floor in range(max(height.values()), -1, -1):
        here = [room for room in rooms if height[room] == floor]
        users = {room: [centre[a] for a, b in edges if b == room and a in centre] for room in here}
        here.sort(key=lambda room: sum(users[room]) / len(users[room]) if users[room] else 0.0)
        centre |= {room: place - (len(here) - 1) / 2 for place, room in enumerate(here)}
        found.append(here)
    return found


def purpose(room: str) -> list[str]:
    """The first line of a room's docstring, in three lines at most."""
    folder = ROOT / "src/specloss" / room
    text = (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).read_text()
    line = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0].replace("`", "").split(". ")[0].rstrip(".")
    return textwrap.wrap(line, 27, max_lines=3, placeholder=" …")


def draw() -> str:
    """The picture as SVG."""
    rooms = [room for floor in layers() for room in floor]
    edges = arrows(rooms)
    shown = reduced(edges)
    plan = floors(rooms, shown)
    most = max(map(len, plan))
    width = 2 * MARGIN + most * WIDTH + (most - 1) * MARGIN
    at = {}
    for number, floor in enumerate(plan):
        left = (width - len(floor) * WIDTH - (len(floor) - 1) * MARGIN) / 2
        for place, room in enumerate(floor):
            at[room] = (left + place * (WIDTH + MARGIN), MARGIN + number * ROW)
    height = 2 * MARGIN + (len(plan) - 1) * ROW + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>The {len(rooms)} rooms of specloss; of the {len(edges)} arrows those that no others imply</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8c959f"/></marker></defs>',
    ]
    for user, used in sorted(shown):
        (x1, y1), (x2, y2) = at[user], at[used]
        x1, x2, y1 = x1 + WIDTH / 2, x2 + WIDTH / 2, y1 + HEIGHT
        # around the boxes of the floors between, if it skips any
        side = 0 if y2 - y1 < ROW else (WIDTH / 2 + MARGIN) * (1 if (x1 + x2) / 2 >= width / 2 else -1)
        curve = f"M{x1:.0f} {y1}C{x1 + side:.0f} {y1 + 45} {x2 + side:.0f} {y2 - 45} {x2:.0f} {y2}"
        parts.append(f'<path class="arrow" d="{curve}"/>')
    for room in rooms:
        x, y = at[room]
        middle = f'x="{x + WIDTH / 2:.0f}" text-anchor="middle"'
        parts.append(f'<rect class="box" x="{x:.0f}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>')
        parts.append(f'<text class="name" {middle} y="{y + 24}">{room}</text>')
        for number, line in enumerate(purpose(room)):
            parts.append(f'<text class="what" {middle} y="{y + 43 + 16 * number}">{escape(line)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (ROOT / "docs/map.svg").write_text(draw())
