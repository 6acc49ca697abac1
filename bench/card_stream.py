#!/usr/bin/env python3
"""What streaming costs on this machine's card: SD1.5, SDXL and FLUX.1-dev at full size, both
layouts.

    python3 bench/card_stream.py --berth build/berth --dir /dev/shm

Runs `berth bench stream` with 0, 20, 50 and 100 % of each model in pinned RAM and holds every row
against two limits of the same run: own 0 % (all layers, nothing copied) and the link (the row's
bytes at the speed of one large pinned copy). Ends with 1 if a row failed, gave other numbers than 0
%, or is beyond --slack times the larger of the two.
"""
import argparse
import json
import subprocess
import sys

MODELS = {  # preset: options
    "sd15": ["--dtype", "f16", "--width", "512", "--height", "512", "--tokens", "77"],
    "sdxl": ["--dtype", "f16", "--tokens", "77"],
    "flux-dev": ["--dtype", "bf16"],
}


def measure(args, model, layout):
    """The rows of one model, 0 % first."""
    steps = args.steps if model != "flux-dev" else min(args.steps, 9)
    cmd = [
        args.berth, "bench", "stream", "--preset", model, "--layout", layout, "--offload",
        args.offload, "--dir", args.dir, "--pin-budget", args.pin, "--steps", str(steps),
        "--warmup", "3", "--json"
    ] + MODELS[model]
    out = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    got = json.loads(out.stdout) if out.stdout.strip() else {}
    if out.returncode:
        print(
            f"{model} {layout}: exit {out.returncode}: {got.get('error', out.stdout)}", flush=True
        )
    return got.get("rows", []), out.returncode == 0 and got.get("same_output", True)


def tell(model, layout, rows, slack):
    """Prints them; true if all are within the slack."""
    ok, compute = True, rows[0]["ms"] if rows and rows[0]["offload"] == 0 else 0
    for r in rows:
        limit = max(compute, r["limit_ms"])
        over = r["ms"] / limit if limit else 0
        fine = r["offload"] == 0 or over <= slack
        ok = ok and fine
        print(
            f"{model:9} {layout:7} {r['offload']:4} % {r['ms']:8.2f} ms "
            f"({r['ms_min']:.2f}..{r['ms_max']:.2f}) "
            f"{r['ms'] / compute if compute else 0:6.3f} x own 0 %  link {r['limit_ms']:7.2f} ms  "
            f"{over:6.3f} x limit "
            f"{'ok  ' if fine else 'OVER'} {r['gbps']:5.1f} of {r['link_gbps']:.1f} GB/s  exposed "
            f"{100 * r['exposed']:5.1f} %  "
            f"runs {r['runs']:.0f} copies {r['copies']:.0f} out of order {r['out_of_order']} "
            f"dropped {r['dropped'] / 2**20:.0f} MiB "
            f"ring {r['ring'] / 2**20:6.1f} MiB  peak {r['peak'] / 2**20:7.1f} MiB  "
            f"{r['output'][:8]}",
            flush=True,
        )
    return ok


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--berth", default="build/berth")
    p.add_argument("--dir", default="/dev/shm", help="where the weights are written meanwhile")
    p.add_argument("--models", default="sd15,sdxl,flux-dev")
    p.add_argument("--layouts", default="spread,tail")
    p.add_argument("--offload", default="0,20,50,100")
    p.add_argument("--pin", default="60g", help="pin budget")
    p.add_argument("--steps", type=int, default=25)
    p.add_argument("--slack", type=float, default=1.05)
    args = p.parse_args()
    good = True
    for model in args.models.split(","):
        for layout in args.layouts.split(",") if model != "flux-dev" else ["spread"]:
            rows, ran = measure(args, model, layout)
            fine = tell(model, layout, rows, args.slack)
            good = good and ran and fine
            print(
                f"{model:9} {layout:7} same output in every row: {'yes' if ran else 'NO'}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
