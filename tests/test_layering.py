"""Who may depend on whom: lower layers never know higher ones."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CPP_LAYERS = ["base", "gguf", "model", "memory", "graph", "arch", "spec", "capi"]
C_API = "pydspark.h"  # plain declarations: any layer may use its structs
GGML_HEADERS = {"ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-cpp.h", "gguf.h"}
# Modules and packages of pydspark, lowest first. Those of one line do not know each other.
PYTHON_LAYERS = [
    ["errors"],
    ["params"],
    ["cache", "compat", "cpu", "hub", "records", "sampling_defaults", "text", "turns"],
    ["_native", "drafting", "generate", "structured"],
    ["prompts"],
    ["calibration", "chat"],
    ["engine", "quantize", "results"],
    ["chat_results", "demo", "loaded"],
    ["llama"],
    ["bench", "cli"],
    ["server"],
]
MAY_USE_THE_CORE = {"_native", "calibration", "engine", "quantize", "demo", "bench", "cli"}
THIRD_PARTY = {
    "text": {"jinja2", "llguidance", "tokenizers"},
    "server": {"starlette", "uvicorn"},
}  # at the top of a module; optional ones are imported where needed

CPP_FILES = sorted(file for file in (ROOT / "csrc").rglob("*") if file.suffix in (".h", ".cpp"))
PYTHON_FILES = sorted(file for file in (ROOT / "pydspark").rglob("*.py"))


def relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


# ---- C++ ----


def includes(text: str) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE)


def cpp_layer(path: str) -> int:
    """The layer of a path below csrc/; the files beside the folders are the C API's."""
    folder, slash, _ = path.partition("/")
    return CPP_LAYERS.index(folder if slash else "capi")


def wrong_includes(path: str, text: str) -> list[str]:
    """Headers that a file below csrc/ may not include."""
    layer = cpp_layer(path)
    pure = path.startswith("base/") and path != "base/log.cpp"  # the one that takes over ggml's log
    wrong = []
    for header in includes(text):
        if header.startswith(("ggml", "gguf")) and "/" not in header:
            wrong += [header] if pure or header not in GGML_HEADERS else []
        elif header != C_API and cpp_layer(header) > layer:
            wrong.append(header)
    return wrong


@pytest.mark.parametrize("file", CPP_FILES, ids=relative)
def test_cpp_includes_go_down(file: Path) -> None:
    assert wrong_includes(file.relative_to(ROOT / "csrc").as_posix(), file.read_text()) == []


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("gguf/a.cpp", "model/b.h"),
        ("spec/a.h", "capi-handles.h"),
        ("base/a.h", "ggml.h"),
        ("graph/a.cpp", "ggml-impl.h"),
        ("arch/a.cpp", "ggml-backend-impl.h"),
    ],
)
def test_wrong_include_is_found(path: str, header: str) -> None:
    assert wrong_includes(path, f'#include "{header}"\n') == [header]


# ---- Python ----


def imported(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Modules that are imported, and whether that happens inside of a function."""
    inside = {id(child) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "pydspark":
            yield from ((f"pydspark.{alias.name}", id(node) in inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            yield node.module or "", id(node) in inside


def python_layer(name: str) -> int:
    found = [i for i, names in enumerate(PYTHON_LAYERS) if name in names]
    assert len(found) == 1, f"PYTHON_LAYERS must say once where {name} belongs"
    return found[0]


def wrong_imports(package: str, source: str) -> list[str]:
    """Modules that a file of ``pydspark.<package>`` may not import."""
    wrong = []
    for module, in_function in imported(ast.parse(source)):
        root, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if root != "pydspark":
            allowed = {*sys.stdlib_module_names, *THIRD_PARTY.get(package, ())}
            wrong += [module] if root not in allowed and not in_function else []
        elif target in ("", "__version__", package):
            continue
        elif python_layer(target) >= python_layer(package) or target == "_native" and package not in MAY_USE_THE_CORE:
            wrong.append(module)
    return wrong


def package_of(file: Path) -> str:
    return file.relative_to(ROOT / "pydspark").with_suffix("").parts[0]


@pytest.mark.parametrize("file", [file for file in PYTHON_FILES if package_of(file) != "__init__"], ids=relative)
def test_python_imports_go_down(file: Path) -> None:
    assert wrong_imports(package_of(file), file.read_text()) == []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("text", "from pydspark._native import Gguf"),
        ("generate", "from pydspark import llama"),
        ("records", "import pydspark.turns"),
        ("hub", "import huggingface_hub"),
        ("llama", "def f() -> None:\n    from pydspark.cli.main import main"),
        ("llama", "from pydspark import _native"),
        ("cli", "from pydspark.server.main import main"),
    ],
)
def test_wrong_import_is_found(package: str, source: str) -> None:
    assert len(wrong_imports(package, source)) == 1


def test_names_of_the_package_are_imported_when_first_used() -> None:
    tree = ast.parse((ROOT / "pydspark/__init__.py").read_text())
    run_at_import = {module for node in tree.body if not isinstance(node, ast.If) for module, _ in imported(node)}
    assert {module for module in run_at_import if module.startswith("pydspark")} == set()
