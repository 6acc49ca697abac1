#!/usr/bin/env python3
"""What ComfyUI's /object_info says of the node classes we have: names, order, types, ranges, flags.

usage: object_info.py COMFYUI OUT.json DEF...      (a checkout of ComfyUI 0.7.0; no packages needed)

COMFYUI is imported with stand-ins for torch and everything else that is not there: definitions need
none of it. DEF are our lists of classes (NODE(Class) lines). Written are the facts that decide how
workflows load; texts for people (tooltips, descriptions) are left out. Choices that come from folders
are "<folder>". One class a line, so that a change of the reference shows as a diff of its lines.
"""
import ast
import asyncio
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import re
import sys
import tempfile
import types
from unittest.mock import MagicMock

REAL = ("comfy_api", "comfy_execution", "comfy_extras", "nodes", "node_helpers", "utils")


class AnyClass(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return stand_in(name) if name[:1].isupper() else MagicMock(name=name)

    def __or__(cls, other):
        return cls

    __ror__ = __or__


def stand_in(name):
    return AnyClass(name, (object,), {
        "__class_getitem__": classmethod(lambda cls, x: cls),
        "__init__": lambda self, *a, **k: None,
        "__getattr__": lambda self, n: MagicMock(),
    })


class Module(types.ModuleType):
    __path__ = []
    __file__ = "stand-in"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = stand_in(name) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that are neither ComfyUI's definitions nor Python's own."""

    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top in REAL or top in sys.stdlib_module_names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


def prepare(root):
    sys.path.insert(0, root)
    os.chdir(root)
    sys.meta_path.insert(0, Finder())

    extensions = types.ModuleType("typing_extensions")
    import typing
    extensions.__dict__.update({k: getattr(typing, k) for k in dir(typing)})
    extensions.override = lambda f: f
    sys.modules["typing_extensions"] = extensions

    folders = Module("folder_paths")
    empty = tempfile.mkdtemp()
    folders.get_filename_list = lambda key: ["<folder>"]
    folders.get_folder_paths = lambda key: []
    folders.filter_files_content_types = lambda files, kinds: files
    for name in ("input", "output", "temp", "user"):
        setattr(folders, "get_%s_directory" % name, lambda: empty)
    sys.modules["folder_paths"] = folders

    import comfy
    import comfy.samplers
    text = open("comfy/samplers.py").read()
    names = ast.literal_eval(re.search(r"^KSAMPLER_NAMES = (\[.*?\])", text, re.S | re.M).group(1))
    names += ["ddim", "uni_pc", "uni_pc_bh2"]
    schedulers = re.findall(r'^    "(\w+)": SchedulerHandler', text, re.M)
    comfy.samplers.KSampler = type("KSampler", (), {"SAMPLERS": names, "SCHEDULERS": schedulers})
    comfy.samplers.SAMPLER_NAMES = names
    comfy.samplers.SCHEDULER_NAMES = schedulers
    comfy.samplers.KSAMPLER_NAMES = names[:-3]

    kinds = Module("comfy.cldm.control_types")  # a table, no more
    exec(open("comfy/cldm/control_types.py").read(), kinds.__dict__)
    sys.modules["comfy.cldm.control_types"] = kinds

    typing_ = Module("comfy.comfy_types.node_typing")

    class Names(type):
        def __getattr__(cls, name):
            return name

    typing_.IO = Names("IO", (), {"ANY": "*", "NUMBER": "FLOAT,INT"})
    typing_.ComfyNodeABC = object
    typing_.InputTypeDict = dict
    sys.modules["comfy.comfy_types"] = typing_
    sys.modules["comfy.comfy_types.node_typing"] = typing_
    comfy.comfy_types = typing_


def legacy(cls, name, module, display):
    groups = cls.INPUT_TYPES()
    info = {
        "input": groups,
        "input_order": {k: list(v) for k, v in groups.items()},
        "output": list(cls.RETURN_TYPES),
        "output_is_list": list(getattr(cls, "OUTPUT_IS_LIST", [False] * len(cls.RETURN_TYPES))),
        "output_name": list(getattr(cls, "RETURN_NAMES", cls.RETURN_TYPES)),
        "name": name,
        "display_name": display.get(name, name),
        "python_module": module,
        "category": getattr(cls, "CATEGORY", "sd"),
        "output_node": bool(getattr(cls, "OUTPUT_NODE", False)),
    }
    for flag in ("DEPRECATED", "EXPERIMENTAL"):
        if getattr(cls, flag, False):
            info[flag.lower()] = True
    return info


def collect(wanted):
    import nodes
    import comfy_extras.nodes_post_processing  # before nodes_latent, which it imports in a circle
    out = {}
    for name, cls in nodes.NODE_CLASS_MAPPINGS.items():
        if name in wanted:
            out[name] = legacy(cls, name, "nodes", nodes.NODE_DISPLAY_NAME_MAPPINGS)
    for file in sorted(os.listdir("comfy_extras")):
        if not re.fullmatch(r"nodes_\w+\.py", file):
            continue
        name = "comfy_extras." + file[:-3]
        module = importlib.import_module(name)
        display = getattr(module, "NODE_DISPLAY_NAME_MAPPINGS", {})
        for key, cls in getattr(module, "NODE_CLASS_MAPPINGS", {}).items():
            if key in wanted:
                out[key] = legacy(cls, key, name, display)
        if not hasattr(module, "comfy_entrypoint"):
            continue
        entry = module.comfy_entrypoint()
        entry = asyncio.run(entry) if inspect.iscoroutine(entry) else entry
        for cls in asyncio.run(entry.get_node_list()):
            try:
                schema = cls.GET_SCHEMA()
            except IndexError:  # a default out of a list that a stand-in leaves empty
                continue
            if schema.node_id in wanted:
                cls.RELATIVE_PYTHON_MODULE = name
                info = cls.GET_NODE_INFO_V1()
                out[info["name"]] = info
    return out


def facts(info):
    info = json.loads(json.dumps(info, default=str))
    for key in ("description", "output_tooltips"):
        info.pop(key, None)
    for group in info["input"].values():
        for spec in group.values():
            if isinstance(spec, list) and len(spec) > 1 and isinstance(spec[1], dict):
                spec[1].pop("tooltip", None)
                if not spec[1] and "output_matchtypes" not in info and info["name"] != "PreviewAny":
                    del spec[1]  # options that were a tooltip alone
    return info


def main():
    root, out, *lists = sys.argv[1:]
    out = os.path.abspath(out)
    wanted = set()
    for path in lists:
        wanted |= set(re.findall(r"^NODE\((\w+)\)", open(path).read(), re.M))
    prepare(root)
    got = collect(wanted)
    lines = ["%s: %s" % (json.dumps(k), json.dumps(facts(got[k]))) for k in sorted(got)]
    with open(out, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
    print("%d classes; not ComfyUI's own: %s" % (len(got), " ".join(sorted(wanted - set(got)))))


main()
