#!/usr/bin/env python3
"""What ComfyUI's nodes about texts, numbers and logic give for many inputs, errors included.

usage: text_nodes.py COMFYUI OUT.json      (a checkout of ComfyUI 0.33 and a Python that can run it)

One case a line: [class, inputs as a prompt names them, outputs] or [class, inputs, null, type of
the exception, its text]. Where we refuse what Python does, the case is left out here and stands in
the unit tests.
"""

import asyncio
import importlib
import json
import math
import sys

MODULES = ("logic", "math", "string", "number_convert", "resolution", "color", "json_prompt")
TEXTS = [
    "",
    "a",
    "Hello, World",
    "straße ŉ İstanbul ǅ",
    "ΑΣ ΑΣΑ Σ",
    "  tabs\tand\u3000spaces\u2003 ",
    "it's o'neil's 3rd-rate x1y",
    "日本語テキスト",
    "é e\u0301 ﬁne",
    "\U0001f600 smile \U0001f468\u200d\U0001f469",
    "line one\nline two\n",
    "\x1c\x85 odd \u200b",
]
EXPRESSIONS = """
a + b|a - b|a * b|a / b|a // b|a % b|a ** b|-a ** 2|2 ** -1|2 ** 3 ** 2|(2 ** 3) ** 2|-7 // 2
-7 % 3|7 % -3|-7.5 // 2|-7.5 % 2
7.5 % -2|0.0 % -3|-0.0 // 1|1 / 3|2 / 4|10 ** 30 / 3 / 10 ** 15|18446744073709551615 / 3
170141183460469231731687303715884105727 / 7 / 10 ** 20|10 ** 30 // 10 ** 15
~a|a ^ b|a & b|a | b|a << b|a >> b|-a >> 1|not a|a and b|a or b|0 or b|0 and b|None or 3
True + True|True & False|~True|-True
a < b|a < b < 9|1 < a > b|a == 7.0|9007199254740993 == 9007199254740992.0
9007199254740993 > 9007199254740992.0|a in values
9 not in values|'x' in 'xyz'|a is None|a is not None|1 if a > b else 2|(1 if a else 2) if b else 3
a if a else undefined
sum(values)|sum(a, b, 1)|sum()|min(values)|max(values)|min(a, b)|max(a, 9, b)|max(1, 2.5)
min(True, 0)|abs(-3)|abs(-2.5)
round(2.5)|round(3.5)|round(-2.5)|round(2.675, 2)|round(1234.5678, 2)|round(1250, -2)
round(1350, -2)|round(1250.0, -2)|round(-1251.5, -1)
round(True)|round(7, 2)|pow(2, 10)|pow(2, -1)|pow(2.5, 2)|pow(9000000, 2)|sqrt(16)|sqrt(2)
ceil(2.1)|ceil(-2.1)|floor(2.9)|floor(-2.1)|floor(7)
log(10)|log(8, 2)|log2(8)|log10(1000)|sin(1)|cos(1)|tan(1)|int(2.9)|int(-2.9)|int('12')
int(' 1_000 ')|float('1e3')|float(3)
int(float('12.5'))|0x10 + 0b11 + 0o17|1_000 + 1|1e3|.5 + 1.|1.5e-3 * 2|values[0]|values[-1]
sum(values[0:2])|sum(values[::-1])|sum(values[5:])
max(values[:1])|a + b # note|  a + b  |((((a))))|int('a' == 'a')|'abc' < 'abd'|int('12'[0])
len(values)|pi|[1, 2]|(1, 2)|{1: 2}|{1}|1, 2|a +
'x'|'it\\'s'|"a" * 3|values|None|a b|(a|a)|012|1__0|a / 0|a // 0|a % 0|1.0 / 0|1.0 // 0|1.0 % 0
0 ** -1|0.0 ** -1|sqrt(-1)|log(0)|log(-1)|log(5, 1)
log('x')|1e308 * 10|-1e308 * 10|1e308 * 10 - 1e308 * 10|10.0 ** 400|(-8) ** 0.5|pow(2, 5000)
5000000 ** 2|2 ** 5000000|1 << 20000|1 << -1
a + 'x'|'x' + a|'x' - 'y'|a < 'x'|-'x'|~1.5|1.5 & 1|a in a|1 in 'x'|min()|min(3)|max(values[9:])
abs('x')|round('x')|round(1.5, 'x')|int('x')|int('1.5')
float('x')|int(None)|float(None)|values[9]|values['x']|values[1.5]|'x'[3]|a[0]|values[::0]
ceil('x')|int(1e308 * 10)|floor(1e308 * 10 - 1e308 * 10)|'ab' * 60000
lambda_|True|False|None is None|(a > 5) + (b > 5)|a if not b else b|not not a|- - a|+ + a|- + ~a
a*-b|a**-b|1 < 2 == 2 > 1|a<b>c
""".strip().replace("\n", "|").split("|") + ["(a\n+ b)"]


def join_or(expressions):
    """`a | b` was cut in two."""
    out = []
    for e in expressions:
        if out and out[-1] == "a " and e == " b":
            out[-1] = "a | b"
        else:
            out.append(e)
    return out


FORMATS = [
    "{a}",
    "{a}{b}",
    "{{{a}}}",
    "{a:.2f}",
    "{a:8.3f}|",
    "{a:<8}|",
    "{a:>8}|",
    "{a:^9}|",
    "{a:*^9}|",
    "{a:+}",
    "{a: }",
    "{a:08}",
    "{a:=+8}",
    "{a:,}",
    "{a:_}",
    "{a:010,}",
    "{a:e}",
    "{a:.3e}",
    "{a:g}",
    "{a:.3g}",
    "{a:G}",
    "{a:%}",
    "{a:.1%}",
    "{a:.3}",
    "{a:.1}",
    "{a!r}",
    "{a!s:>6}",
    "{a:{b}}",
    "{a[0]}",
    "{z}",
    "{}",
    "{0}",
    "{",
    "}",
    "{a",
    "{a!x}",
    "{a:d}",
    "{a:x}",
    "{a:#x}",
    "{a:b}",
    "{a:#o}",
    "{a:X}",
    "{a:c}",
    "{a:s}",
    "{a:q}",
    "{a:#.3g}",
    "{a:.0f}",
    "{a:#.0f}",
]
VALUES = [
    7,
    -42,
    1234567,
    0,
    3.14159,
    -0.5,
    1e20,
    1e-7,
    123.0,
    True,
    "text",
    "é",
    None,
    [1, 2],
    {"k": "v"},
]


PATTERNS = r"""
a|abc|a*|a+|a?|a{2}|a{2,3}|a{,2}|a{2,}|a{,}|a{|a{x}|{2}|a*?|a+?|a??|a{1,3}?|(a|b)*|(a*)*|(a*)+|(?:a
ab)(?:c|bcd)(d*)|(a)(b)?|(a)|(b)|[abc]+|[^abc]+|[a-z]+|[A-Z]+
[]a]+|[^]a]+|[a\-z]+|[-a]+|[a-]+|[z-a]|[a-\d]|[|[a|\d+|\D+|\w+|\W+|\s+|\S+|\bthe\b|\Bo|\Athe|o\Z
^l.*$|^l|o$|.*|.+|.*?o|(\w+) (\w+)|(\w)\1|(?P<x>\w)(?P=x)
(?P<first>\w+)\s(?P<second>\w+)|(?P<x>a)(?P<x>b)|(?P=y)|(?P<1>a)|(?P<>a)|(?Pz)|(?i:THE)|(?-i:the)
(?i)THE|(?s).+|(?m)^\w+|(?x) t h e # note|a(?i)b|(?=the)\w+|(?!the)\b\w+
(?<=the )\w+|(?<!the )\bc\w+|(?<=a+)b|(?<=ab|cd)e|(?<=a|bc)e|(?>a+)ab|a++a|a*+|(a)?(?(1)b|c)
(?(1)a)|(?(x)a)|(?:|a)+|(|a)+|(a|)+b|((a)|b)+|x*|(x)?|\x41|\u00e9|\101|\0|\q|\|(|)|(?|(?z)
*a|a**|a*+*|^*|(?:a|(?#comment)b|(?#|\.|\[|a.c|(a(b(c)))|([a-z]+)([0-9]*)|é+|[à-ÿ]+|ß|ſ|K|σ
[[:alpha:]]|\2(a)|(a\1)|(?P<name>x)|\b|(?<!\w)\w|\w(?!\w)|(\d+)-(\d+)|$|^
""".strip("\n").replace("\\\\", "\\")
SUBJECTS = [
    "",
    "aaa",
    "abcd ab",
    "the cat in the hat",
    "Line one\nline two\n",
    "aa bb a1 b22 12-34 x",
    "Éé ßſ K σς AaBb",
    "b",
    "abab\n\n",
    "a.c [x] a-z",
]
REPLACEMENTS = [
    "",
    "X",
    "<\\g<0>>",
    "\\1",
    "\\g<1>-\\2",
    "\\n\\t\\\\",
    "\\q",
    "\\g<first>",
    "\\g<",
    "\\g<9>",
    "\\101",
    "\\",
    "\\é\\.",
]


def patterns():
    """Lines, in which a bar outside of brackets separates patterns that have none of their own."""
    return [x for line in PATTERNS.split("\n") for x in line.split("|")] + [
        "a|b",
        "(a|b)*",
        "(?:a|ab)(?:c|bcd)(d*)",
        "(?<=ab|cd)e",
        "(?<=a|bc)e",
        "(a)?(?(1)b|c)",
        "(?:|a)+",
        "(|a)+",
        "(a|)+b",
        "((a)|b)+",
        "the|cat",
        "|a",
        "a||b",
        "(a)|(b)",
        "(?(1)a|b|c)",
    ]


def regex_cases():
    for p in patterns():
        for t in SUBJECTS:
            for fold, lines, dot in ((True, False, False), (False, True, True)):
                flags = {"case_insensitive": fold, "multiline": lines, "dotall": dot}
                yield "RegexExtract", {
                    "string": t,
                    "regex_pattern": p,
                    "mode": "All Matches",
                    **flags,
                    "group_index": 1,
                }
                if fold and t in SUBJECTS[1:7:2]:
                    yield "RegexExtract", {
                        "string": t,
                        "regex_pattern": p,
                        "mode": "First Group",
                        **flags,
                        "group_index": 1,
                    }
                    yield "RegexReplace", {
                        "string": t,
                        "regex_pattern": p,
                        "replace": "<\\g<0>>",
                        **flags,
                        "count": 0,
                    }
        yield "RegexMatch", {
            "string": SUBJECTS[3],
            "regex_pattern": p,
            "case_insensitive": True,
            "multiline": False,
            "dotall": False,
        }
        yield "RegexExtract", {
            "string": SUBJECTS[3],
            "regex_pattern": p,
            "mode": "All Groups",
            "case_insensitive": True,
            "multiline": False,
            "dotall": False,
            "group_index": 1,
        }
        yield "RegexExtract", {
            "string": SUBJECTS[3],
            "regex_pattern": p,
            "mode": "First Match",
            "case_insensitive": True,
            "multiline": False,
            "dotall": False,
            "group_index": 1,
        }
    for r in REPLACEMENTS:
        for p in ("(\\w)(\\w)?", "(?P<first>a)", "x*"):
            for count in (0, 1):
                yield "RegexReplace", {
                    "string": "abc a1",
                    "regex_pattern": p,
                    "replace": r,
                    "case_insensitive": True,
                    "multiline": False,
                    "dotall": False,
                    "count": count,
                }


def cases():
    yield from regex_cases()
    for e in join_or(EXPRESSIONS):
        yield "ComfyMathExpression", {"expression": e, "values.a": 7, "values.b": 2}
    for e in (
        "a + b",
        "a / b",
        "a // b",
        "a % b",
        "a ** b",
        "not a",
        "~b",
        "a == b",
        "values[0]",
        "sum(values)",
        "c",
    ):
        yield "ComfyMathExpression", {"expression": e, "values.a": -2.5, "values.b": True}
    yield "ComfyMathExpression", {"expression": " \n ", "values.a": 1}
    yield "ComfyMathExpression", {
        "expression": "z + values[1]",
        "values.z": 3,
        "values.b": 18446744073709551615,
        "values.a": 1,
    }
    for v in (
        True,
        False,
        0,
        7,
        -3,
        18446744073709551615,
        2.9,
        -2.9,
        0.0,
        " 12 ",
        "1e3",
        "1_000",
        "-0x1",
        "",
        "  ",
        "abc",
        "inf",
        "-Infinity",
        "nan",
        "9007199254740993",
        "1.5",
        "+7",
        ".5",
        "5.",
        "1e400",
        "٣x",
        [1],
        None,
        {"a": 1},
    ):
        yield "ComfyNumberConvert", {"value": v}
    for v in (None, False, True, 0, 1, 0.0, -0.0, 0.5, "", "x", [], [0], {}, {"a": 0}):
        yield "ComfyNotNode", {"value": v}
        yield "ComfyAndNode", {"values.value0": 1, "values.value3": v}
        yield "ComfyOrNode", {"values.value0": v, "values.value9": 0}
    for s in (True, False):
        yield "ComfySwitchNode", {"switch": s, "on_false": "no", "on_true": 7}
    for r in (
        "1:1 (Square)",
        "2:3 (Portrait Photo)",
        "3:2 (Photo)",
        "3:4 (Portrait Standard)",
        "4:3 (Standard)",
        "9:16 (Portrait Widescreen)",
        "16:9 (Widescreen)",
        "21:9 (Ultrawide)",
    ):
        for mp, m in ((1.0, 8), (0.1, 8), (2.5, 64), (16.0, 128), (0.3, 12)):
            yield "ResolutionSelector", {"aspect_ratio": r, "megapixels": mp, "multiple": m}
    for c in ("#ffffff", "#01020380", "#AbCdEf", "#12345", "ffffff", "#gggggg", "#1234567"):
        yield "ColorToRGBInt", {"color": c}
    for t in TEXTS:
        for mode in ("UPPERCASE", "lowercase", "Capitalize", "Title Case"):
            yield "CaseConverter", {"string": t, "mode": mode}
        for mode in ("Both", "Left", "Right"):
            yield "StringTrim", {"string": t, "mode": mode}
        yield "StringLength", {"string": t}
        for a, b in ((0, 3), (1, -1), (-3, 100), (-100, 2), (3, 1), (2, 2)):
            yield "StringSubstring", {"string": t, "start": a, "end": b}
        for f in ("", "l", "Σ", "e", "\n"):
            yield "StringReplace", {"string": t, "find": f, "replace": "<é>"}
            for exact in (True, False):
                yield "StringContains", {
                    "string": t,
                    "substring": f.upper(),
                    "case_sensitive": exact,
                }
                for mode in ("Starts With", "Ends With", "Equal"):
                    yield "StringCompare", {
                        "string_a": t,
                        "string_b": f.upper(),
                        "mode": mode,
                        "case_sensitive": exact,
                    }
        yield "StringConcatenate", {"string_a": t, "string_b": "b", "delimiter": ", "}
    for v in VALUES:
        for f in FORMATS:
            yield "StringFormat", {"f_string": f, "values.a": v, "values.b": 9}
    for text in (
        '{"k": 1}',
        '{"k": "é"}',
        '{"k": null}',
        '{"k": true}',
        '{"k": 3.0}',
        '{"k": [1, "a", {"b": null}]}',
        '{"k": {"a": 1e20}}',
        '{"j": 1}',
        "[1]",
        "nonsense",
        "",
        '{"k": 12345678901234567890}',
    ):
        yield "JsonExtractString", {"json_string": text, "key": "k"}
    for indent in (0, 2, 8):
        yield "ConvertDictionaryToString", {
            "dictionary": {"a": [1, 2.0, "é\n"], "b": {}, "c": [], "d": None, "e": True},
            "indent": indent,
        }
        yield "ConvertArrayToString", {"array": [1, [2, {"x": 1e16}], "ü"], "indent": indent}
    for style in (
        {"style": "none"},
        {"style": "photo", "style.photo": "35mm"},
        {"style": "art_style", "style.art_style": "ink"},
    ):
        for about in ("", "  ", "a cat"):
            yield "BuildJsonPromptIdeogram", {
                "element": [{"type": "obj"}],
                "high_level_description": about,
                "background": "grey",
                **style,
                "aesthetics": "calm",
                "lighting": "soft",
                "medium": "film",
                "color_palette": ["#ffaa00", "", 3],
            }


def nested(inputs):
    out = {}
    for key, v in inputs.items():
        parts = key.split(".")
        if len(parts) == 1 and any(k.startswith(key + ".") for k in inputs) or key == "style":
            out.setdefault(key, {})[key] = v
        elif len(parts) == 2:
            out.setdefault(parts[0], {})[parts[1]] = v
        else:
            out[key] = v
    order = "abcdefghijklmnopqrstuvwxyz"
    for key in ("values",):
        if isinstance(out.get(key), dict):
            out[key] = dict(
                sorted(out[key].items(), key=lambda kv: order.find(kv[0]) if len(kv[0]) == 1 else 0)
            )
    if set(inputs) == {"value"}:
        return inputs
    return out


def classes():
    found = {}
    for name in MODULES:
        module = importlib.import_module("comfy_extras.nodes_" + name)
        entry = asyncio.run(module.comfy_entrypoint())
        for cls in asyncio.run(entry.get_node_list()):
            found[cls.GET_SCHEMA().node_id] = cls
    return found


def run(cls, name, inputs):
    try:
        out = cls.execute(**nested(inputs))
    except Exception as e:  # noqa: BLE001: the text is what is recorded
        kind = type(e)
        module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
        return [name, inputs, None, module + kind.__qualname__, str(e)]
    result = list(out.result) if hasattr(out, "result") else list(out.args)
    if any(isinstance(x, float) and not math.isfinite(x) for x in result):
        raise SystemExit("%s %s gives %s" % (name, inputs, result))
    return [name, inputs, result]


def main():
    root, path = sys.argv[1:]
    sys.path.insert(0, root)
    sys.argv = sys.argv[:1] + ["--cpu"]
    importlib.import_module("comfy.options").enable_args_parsing()
    found = classes()
    rows, seen = [], set()
    for name, inputs in cases():
        row = run(found[name], name, inputs)
        if "regex_pattern" in inputs:  # an error, and no match, of a pattern say enough once
            key = (
                name,
                inputs["regex_pattern"],
                inputs.get("mode"),
                inputs.get("replace"),
                inputs["dotall"],
            )
            dull = row[2] is None or row[2] in ([""], [inputs["string"]])
            if dull and key in seen:
                continue
            seen.add(key if dull else None)
        rows.append(row)
    # We refuse integers beyond 64 bits.
    rows = [
        r for r in rows if not any(type(x) is int and not -(2**63) <= x < 2**64 for x in r[2] or [])
    ]
    rows = [r for r in rows if r[2] != ["\0"]]  # and our reader of JSON those
    lines = [json.dumps(r, ensure_ascii=False) for r in rows]
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")
    print("%d cases" % len(lines))


main()
