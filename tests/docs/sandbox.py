"""Where a reader would type: a home of its own, the repository's files, `berth` on the PATH, and a
stand-in for each thing the reader brings (a ComfyUI folder with models of the names the documents
use).

A document is one shell session: what a block exports, changes into or starts is there for the next
one. A server is left running beside the commands that follow, until the next server or the end. The
documents say port 8188; here it is a free one."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import zlib
from pathlib import Path

from markdown import ROOT, Block, Command

BINARY = Path(os.environ.get("BERTH_BINARY", ROOT / "build/dev/berth")).resolve()
SANITIZED = "BERTH_SANITIZED" in os.environ
PATIENCE = 1000 if SANITIZED else 250  # seconds a whole document may take; waiting is no assertion

# What `berth synth` makes of the models that people have: folder/name, preset, type.
MODELS = [
    ("checkpoints/v1-5-pruned-emaonly-fp16.safetensors", "sd15-tiny", "f16"),
    (
        "checkpoints/YOURS.safetensors",
        "sd15-tiny",
        "f16",
    ),  # where a document leaves the name to the reader
    ("diffusion_models/flux1-dev.safetensors", "flux-tiny", "bf16"),
    ("diffusion_models/flux1-dev-Q8_0.gguf", "flux-tiny", "q8_0"),
    ("text_encoders/t5xxl_fp16.safetensors", "t5-tiny", "f16"),
    ("text_encoders/t5-v1_1-xxl-encoder-Q8_0.gguf", "t5-tiny", "q8_0"),
    ("text_encoders/clip_l.safetensors", "clip-l-tiny", "f16"),
    ("text_encoders/qwen_3_4b.safetensors", "qwen3-tiny", "bf16"),
    ("vae/ae.safetensors", "flux-tiny-vae", "bf16"),
]
# A LoRA for the first attention of the tiny UNet, in kohya's names.
LORA_AT = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
LORA = {
    f"{LORA_AT}.lora_{part}.weight": shape for part, shape in (("down", [4, 32]), ("up", [32, 4]))
}
# Of what a reader sees beside the documents; all of it read-only in spirit.
REPOSITORY = [
    "assets",
    "docs",
    "include",
    "tools",
    "bench",
    "Makefile",
    "CMakeLists.txt",
    "CMakePresets.json",
]
# What would keep a failure from us. A reader does not need these: a command a line says the same.
HIDES = {
    ";",
    ";;",
    "||",
    "|&",
    "exit",
    "return",
    "exec",
    "eval",
    "set",
    "trap",
    "if",
    "while",
    "until",
    "case",
    "!",
}
END = "DOCS: all commands have run"  # the session's last line; without it something ended it early

PRELUDE = r"""
set -E # a trap on ERR is there in $(...) as well, whose exit code the shell drops
docs_fail() { echo "DOCS FAILED at $docs_at: $1"; exit 1; }
docs_check() { # PROMISED, one exit code for each part of the pipe
    local promised=$1 last=${@: -1} code
    shift
    [ "$last" -eq "$promised" ] || docs_fail "exit code $last, the document promises $promised"
    for code in "${@:1:$#-1}"; do # 141: its reader, `head`, had enough
        [ "$code" -eq 0 ] || [ "$code" -eq 141 -a "$docs_head" = yes ] ||
            docs_fail "exit code $code inside a pipe"
    done
    [ "$promised" -ne 0 ] || [ ! -e "$DOCS_RUN/error" ] || docs_fail "$(cat "$DOCS_RUN/error")"
}
docs_stop() { # as Ctrl-C and service managers do it; it must end well
    [ -e "$DOCS_RUN/server.pid" ] || return 0
    kill "$(cat "$DOCS_RUN/server.pid")" 2> /dev/null
    wait
    rm -f "$DOCS_RUN/server.pid"
    [ "$(cat "$DOCS_RUN/server.rc")" = 0 ] || { cat "$DOCS_RUN/server.log";
        docs_fail "the server before it ended badly"; }
}
docs_started() { # its line with the address is the sign
    while ! grep -q 'https*://' "$DOCS_RUN/server.log"; do
        [ -e "$DOCS_RUN/server.rc" ] && { cat "$DOCS_RUN/server.log"; docs_fail "no server"; }
        sleep 0.05
    done
}
"""


def refuse(where: str, text: str, server: bool) -> None:
    """Ends with an error when a failure of `text` could pass unseen; see HIDES."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    if server and words[-1] == "&":
        words.pop()
    hidden = sorted(HIDES.union({"&"}).intersection(words))
    assert (
        not hidden
    ), f"{where}: {' '.join(hidden)} hides what commands end with; one command a line"
    assert not (
        "|" in words and "&&" in words
    ), f"{where}: a pipe before && hides what its parts end with"
    assert "`" not in re.sub(r"'[^']*'", "", text), f"{where}: write $(...), not `...`"
    for inside in re.findall(r"\$\(([^()]*)\)", text):
        assert (
            "|" not in inside and "&" not in inside
        ), f"{where}: $({inside}) hides what its parts end with"
        refuse(where, inside, False)


def split(block: Block) -> list[Command]:
    """Cuts a block into commands: a line, and those that a backslash, a quote or a here-document
    carries on."""
    found, lines, start = [], [], 0
    for n, line in enumerate(block.text.splitlines()):
        if not lines and (not line.strip() or line.lstrip().startswith("#")):
            continue
        start = start if lines else n
        lines.append(line)
        text = "\n".join(lines)
        parsed = subprocess.run(["bash", "-n", "-c", text], capture_output=True)
        if (
            line.endswith("\\") or parsed.returncode or parsed.stderr
        ):  # of a here-document without an end bash only warns
            continue
        found.append(Command(block, start, text))
        refuse(found[-1].where(), text, found[-1].is_server())
        lines = []
    assert not lines, f"{block.where(start)}: never ends: {lines}"
    return found


def script(commands: list[Command], port: int) -> str:
    out = [PRELUDE]
    for c in commands:
        # The man page speaks of an installed Berth; what it installs there is examples/.
        text = c.text.replace("8188", str(port)).replace(
            "/usr/share/berth/workflows/", "examples/workflows/"
        )
        out.append(
            f"docs_at='{c.where()}'; printf '\\n%s$ ' \"$docs_at \"; cat <<'DOCS_END'\n{text}\n"
            f"DOCS_END"
        )
        if c.is_server():
            text = re.sub(r"\s*&\s*(#[^\n]*)?$", "", text)
            out.append('docs_stop; rm -f "$DOCS_RUN"/server.*; : > "$DOCS_RUN/server.log"')
            out.append(
                '{\nexport DOCS_SERVER=yes\n%s\necho $? > "$DOCS_RUN/server.rc"\n} >> '
                '"$DOCS_RUN/server.log" 2>&1 &\ndocs_started' % text
            )
        else:
            out.append(f"docs_head={'yes' if re.search(r'[|] *head ', text) else 'no'}")
            out.append("""trap 'echo "exit code $? of $BASH_COMMAND" >> "$DOCS_RUN/error"' ERR""")
            out.append(f'{text}\ndocs_codes=("${{PIPESTATUS[@]}}")\ntrap - ERR')
            out.append(f'docs_check {c.block.exits} "${{docs_codes[@]}}"; rm -f "$DOCS_RUN/error"')
    out.append(f"docs_stop\necho; echo '{END}'")
    return "\n".join(out) + "\n"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def png(path: Path, side: int = 64) -> None:
    """A picture with a transparent middle: for img2img and, by its hole, for inpainting."""
    rows = b"".join(
        b"\0"
        + b"".join(
            bytes(
                [
                    x * 4,
                    y * 4,
                    128,
                    0 if side // 4 < x < 3 * side // 4 and side // 4 < y < 3 * side // 4 else 255,
                ]
            )
            for x in range(side)
        )
        for y in range(side)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def small(workflow: Path, to: Path) -> None:
    """The example with a small picture and few steps: its commands are what is tried here, not the
    processor."""
    nodes = json.loads(workflow.read_text())
    for inputs in (n["inputs"] for n in nodes.values()):
        for name, most in (
            ("width", 64),
            ("height", 64),
            ("steps", 2),
            ("end_at_step", 1),
            ("start_at_step", 1),
            ("max_length", 16),
        ):
            if isinstance(inputs.get(name), int) and (
                name != "end_at_step" or inputs[name] < 10000
            ):
                inputs[name] = min(inputs[name], most)
    to.write_text(json.dumps(nodes))


def stand_ins(folder: Path) -> Path:
    """A ComfyUI folder, made once for all documents."""
    comfyui = folder / "ComfyUI"

    def synth(*args: str) -> None:
        subprocess.run([BINARY, "synth", *args], check=True, stdout=subprocess.DEVNULL)

    for name, preset, dtype in MODELS:
        path = comfyui / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        synth("--preset", preset, "--dtype", dtype, "--output", str(path))
    synth("--tokenizer", str(folder / "tokenizers"))
    shutil.copytree(folder / "tokenizers", comfyui / "comfy/sd1_tokenizer")
    shutil.copytree(folder / "tokenizers", comfyui / "comfy/text_encoders/t5_tokenizer")
    shutil.copytree(folder / "tokenizers/qwen25", comfyui / "comfy/text_encoders/qwen25_tokenizer")
    (folder / "lora.json").write_text(json.dumps(LORA))
    (comfyui / "models/loras").mkdir()
    synth(
        "--keys",
        str(folder / "lora.json"),
        "--output",
        str(comfyui / "models/loras/style.safetensors"),
    )
    (comfyui / "input").mkdir()
    (comfyui / "output").mkdir()
    png(comfyui / "input/example.png")
    return comfyui


class Sandbox:
    def __init__(self, folder: Path, comfyui: Path):
        self.home, self.cwd, self.run_dir = folder / "home", folder / "berth", folder / "run"
        for d in (self.home, self.cwd / "build", self.run_dir, folder / "bin", folder / "tmp"):
            d.mkdir(parents=True)
        for name in REPOSITORY:
            if (ROOT / name).exists():
                (self.cwd / name).symlink_to(ROOT / name)
        (self.cwd / "build/release").symlink_to(BINARY.parent)
        shutil.copytree(ROOT / "examples", self.cwd / "examples")
        for workflow in (self.cwd / "examples/workflows").glob("*.json"):
            small(workflow, workflow)
        # Models are shared by links, what is written is the document's own.
        shutil.copytree(comfyui, self.home / "ComfyUI", copy_function=os.link)
        self.port = free_port()
        # A server of the document is on its port and known by its pid; those that make demo starts
        # are its own.
        self.tool(
            folder / "bin/berth",
            f"""case $1$DOCS_SERVER in serveyes) echo $$ > "$DOCS_RUN/server.pid"
            shift; exec {BINARY} serve --port {self.port} "$@" ;; esac
            exec {BINARY} "$@" """,
        )
        (self.cwd / "build/berth").symlink_to(folder / "bin/berth")
        # The Makefile's own recipes, without what they are built from: that is built, or this would
        # not run.
        self.tool(folder / "bin/make", f'exec {shutil.which("make")} -o all -o deps "$@"')
        # An answer that says 400 is a command that failed; readers see it, an exit code of 0 would
        # hide it here.
        self.tool(folder / "bin/curl", f'exec {shutil.which("curl")} --fail-with-body "$@"')
        keep = {
            k: v
            for k, v in os.environ.items()
            if k.startswith(("ASAN_", "UBSAN_", "TSAN_", "LANG", "LC_"))
        }
        self.env = {
            **keep,
            "HOME": str(self.home),
            "TMPDIR": str(folder / "tmp"),
            "DOCS_RUN": str(self.run_dir),
            "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "dumb",
            "BERTH_URL": f"http://127.0.0.1:{self.port}",
        }

    @staticmethod
    def tool(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, commands: list[Command]) -> str:
        """All commands in one shell; raises with what was printed when one ends otherwise than
        promised."""
        log = self.run_dir / "session.log"
        with open(log, "wb") as out:
            shell = subprocess.Popen(
                ["bash", "-c", script(commands, self.port)],
                cwd=self.cwd,
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code = shell.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                code = "no end"
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)  # what a failed document left running
                except ProcessLookupError:
                    pass
        text = log.read_text(errors="replace")
        assert code == 0, f"{code}\n{text[-6000:]}"
        assert text.endswith(
            f"{END}\n"
        ), f"the session ended before its last command\n{text[-6000:]}"
        return text
