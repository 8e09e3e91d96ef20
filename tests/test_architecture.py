"""Import arrows point one way: deploy -> producers, streams -> models, schemas."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "deploy": {"deploy", "producers", "streams", "models", "schemas"},
    "producers": {"producers", "models", "schemas"},
    "streams": {"streams", "models", "schemas"},
    "models": {"models"},
    "schemas": {"schemas"},
}
FOREIGN = {
    "models": {"confluent_kafka", "faust", "aiokafka", "fastavro"},
    "schemas": {"confluent_kafka", "faust", "aiokafka", "sklearn", "numba"},
    "producers": {"faust", "aiokafka", "sklearn", "numba"},
}


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    for file in files:
        ours = imports(file) & MAY_IMPORT.keys()
        assert ours <= MAY_IMPORT[package], f"{file.relative_to(ROOT)} imports {ours}"
        assert not imports(file) & FOREIGN.get(package, set()), file.relative_to(ROOT)


def test_the_top_level_is_fixed() -> None:
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    assert folders - {"build", "dist"} <= {*MAY_IMPORT, "tests"}


def test_nothing_unpickles() -> None:
    for package in MAY_IMPORT:
        for file in (ROOT / package).rglob("*.py"):
            assert not imports(file) & {"pickle", "joblib", "shelve", "marshal"}, file
