#!/usr/bin/env python3
"""What ComfyUI's /object_info says of the node classes we have: names, order, types, ranges, flags.

usage: object_info.py ANSWER OUT.json DEF...
       object_info.py --menu ANSWER DEF... > src/node/menu.def

ANSWER is what GET /object_info of a ComfyUI 0.33 server gives, as JSON or gzip; its model folders
are best empty, so that no choice depends on a machine. DEF are our lists of classes (NODE(Class)
lines). Written are the facts that decide how workflows load; texts for people (tooltips,
descriptions, search words) are left out. One class a line, so that a change of the reference shows
as a diff of its lines.

--menu: where frontends list each class, and under which name; which of its inputs they fold away.
"""

import gzip
import json
import re
import sys

SPACED = {"VideoSlice": "Video Slice"}  # names that are no identifiers
WORDS = ("tooltip", "placeholder")  # of inputs


def without_words(v):
    if isinstance(v, dict):
        return {k: without_words(x) for k, x in v.items() if k not in WORDS}
    if isinstance(v, int) and v < -(2**63):
        return float(v)  # further down than our integers go; browsers have floats anyway
    return [without_words(x) for x in v] if isinstance(v, list) else v


def facts(info):
    v3 = "output_matchtypes" in info
    for key in ("description", "output_tooltips", "search_aliases", "price_badge"):
        info.pop(key, None)
    info["input"] = without_words(info["input"])
    info["output_is_list"] = [bool(x) for x in info["output_is_list"]]
    for group in info["input"].values():
        for spec in group.values():
            bare = isinstance(spec, list) and len(spec) > 1 and not spec[1]
            if bare and not v3 and info["name"] != "PreviewAny":
                del spec[1]  # options that were a tooltip alone
    return info


def ours(answer, lists):
    wanted = set()
    for path in lists:
        wanted |= set(re.findall(r"^NODE\((\w+)\)", open(path).read(), re.M))
    wanted = {SPACED.get(name, name) for name in wanted}
    with (gzip.open if answer.endswith(".gz") else open)(answer) as f:
        got = json.load(f)
    return wanted, got


def text(v):
    return "NULL" if v is None else json.dumps(v, ensure_ascii=False)


def menu(answer, *lists):
    wanted, got = ours(answer, lists)
    print(
        """/* menu.def: where ComfyUI 0.33 lists the classes that we have too: MENU(class, category,
 * shown name, list of essentials), and which inputs are folded away there: FOLD(class, input).
 * Written by tools/golden/object_info.py --menu, in strcmp() order. */"""
    )
    for k in sorted(wanted & set(got)):
        c = got[k]
        v3 = "output_matchtypes" in c  # older classes without a name are shown by their own
        shown = c["display_name"] if v3 or c["display_name"] != k else None
        row = [
            "MENU(%s" % text(k),
            text(c["category"]),
            text(shown),
            text(c.get("essentials_category")) + ")",
        ]
        line = ", ".join(row)
        print(line if len(line) <= 100 else ", ".join(row[:2]) + ",\n     " + ", ".join(row[2:]))
        for group in ("required", "optional"):
            for name, spec in c["input"].get(group, {}).items():
                if len(spec) > 1 and spec[1].get("advanced"):
                    print("FOLD(%s, %s)" % (text(k), text(name)))


def main():
    answer, out, *lists = sys.argv[1:]
    wanted, got = ours(answer, lists)
    names = sorted(wanted & set(got))
    lines = ["%s: %s" % (json.dumps(k), json.dumps(facts(got[k]))) for k in names]
    with open(out, "w") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")
    print("%d classes; not ComfyUI's own: %s" % (len(names), " ".join(sorted(wanted - set(got)))))


if sys.argv[1] == "--menu":
    menu(*sys.argv[2:])
else:
    main()
