"""Stubs and sources name the same."""

import ast
import importlib
import inspect
import pathlib

import pytest

import forkless
from forkless import _forkless

HERE = pathlib.Path(forkless.__file__).parent


def names(path):
    """What a stub defines or re-exports, with the members of its classes."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            found.update({alias.asname: None for alias in node.names if alias.asname})
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = None
        elif isinstance(node, ast.ClassDef):
            members = (part for part in node.body if isinstance(part, ast.FunctionDef))
            found[node.name] = {part.name for part in members}
    return found


@pytest.mark.parametrize("name", ["__init__", "_forkless", "_install", "asyncio"])
def test_stubs_are_of_what_there_is(name):
    module = forkless if name == "__init__" else importlib.import_module(f"forkless.{name}")
    stubbed = names(HERE / f"{name}.pyi")
    for one, members in stubbed.items():
        if one == "Usage":
            continue  # of a dict
        assert hasattr(module, one), one
        for member in members or ():
            assert hasattr(getattr(module, one), member), (one, member)
    public = getattr(module, "__all__", None) or [one for one in vars(module) if not one.startswith("_")]
    if name != "_install":
        missing = {one for one in public if one not in stubbed}
        assert missing <= {"Settings"}, missing
    if name == "_forkless":
        for kind in ("Child", "Prepared"):
            there = {one for one in vars(getattr(module, kind)) if not one.startswith("_")}
            assert there <= stubbed[kind], there - stubbed[kind]


def test_parameters_of_the_native_functions():
    for node in ast.parse((HERE / "_forkless.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            there = list(inspect.signature(getattr(_forkless, node.name)).parameters)
            assert there == [arg.arg for arg in node.args.args], node.name


def test_every_setting_is_known():
    """Each name is taken: what is wrong is the value."""
    for name in forkless.Settings.__annotations__:
        with pytest.raises((TypeError, ValueError, OSError, OverflowError)) as caught:
            forkless.prepare(["true"], **{name: object()}) and forkless.prepare(["true"], cgroup="/no/such/group")
        assert "unexpected keyword" not in str(caught.value), name


def test_it_says_that_it_is_typed():
    assert (HERE / "py.typed").exists()
