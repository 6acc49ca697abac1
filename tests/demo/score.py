"""How well the demo model does with other seeds and settings than the test's; for the model card.

usage: python3 tests/demo/score.py [--shift N] [--cfg X] [--steps N] [--sampler S] [--keep FOLDER]
"""

import argparse
import tempfile

import drawing
import judge


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--shift", type=int, default=0, help="added to every seed")
    p.add_argument("--cfg", type=float)
    p.add_argument("--steps", type=int)
    p.add_argument("--sampler")
    p.add_argument("--scheduler")
    p.add_argument("--keep", help="leave the pictures here")
    a = p.parse_args()
    how = drawing.settings()
    for key, value in (("cfg", a.cfg), ("steps", a.steps), ("sampler_name", a.sampler),
                       ("scheduler", a.scheduler)):
        if value is not None:
            how[key] = value
    with tempfile.TemporaryDirectory() as temporary:
        asked = drawing.prompts()
        made = drawing.draw(a.keep or temporary, [q["prompt"] for q in asked],
                            [i + a.shift for i in range(len(asked))], how)
    right = 0
    for i, (want, rows) in enumerate(zip(asked, made)):
        wrong = judge.judge(rows, want)
        right += not wrong
        if wrong:
            seen = "" if "areas" in want else " | ".join(map(judge.say, judge.things(rows)))
            print(f"{i} {want['prompt']}: {'; '.join(wrong)} | seen: {seen}")
    print(f"{right} of {len(asked)} right", {k: how[k] for k in ("steps", "cfg", "sampler_name")})


if __name__ == "__main__":
    main()
