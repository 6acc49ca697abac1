"""PNG and safetensors files, with the standard library and torch alone."""
from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import torch

_NAMES = {torch.float16: "F16", torch.float32: "F32", torch.bfloat16: "BF16"}
_TYPES = {name: t for t, name in _NAMES.items()}


def write_png(path: Path | str, pixels: torch.Tensor) -> None:
    """pixels: [3,h,w] in 0..1."""
    rgb = (pixels.clamp(0, 1) * 255 + 0.5).to(torch.uint8).permute(1, 2, 0).contiguous().cpu()
    h, w, _ = rgb.shape
    lines = torch.cat([torch.zeros(h, 1, dtype=torch.uint8), rgb.reshape(h, -1)], 1)
    data = zlib.compress(lines.numpy().tobytes(), 6)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(
            ">I", zlib.crc32(kind + body))

    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def sheet(pictures: torch.Tensor, across: int) -> torch.Tensor:
    """[n,3,h,w] side by side, with thin white lines between."""
    n, _, h, w = pictures.shape
    down = -(-n // across)
    out = torch.ones(3, down * (h + 4) - 4, across * (w + 4) - 4)
    for i, p in enumerate(pictures.cpu()):
        y, x = i // across * (h + 4), i % across * (w + 4)
        out[:, y:y + h, x:x + w] = p
    return out


def write_safetensors(path: Path | str, tensors: dict[str, torch.Tensor],
                      metadata: dict[str, str]) -> None:
    header: dict = {"__metadata__": metadata} if metadata else {}
    at, parts = 0, []
    for name in sorted(tensors):
        t = tensors[name].detach().cpu()
        raw = t.flatten().clone().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for raw in parts:
            f.write(raw)


def read_safetensors(path: Path | str) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__", {})
    out = {}
    for name, e in header.items():
        a, b = e["data_offsets"]
        out[name] = torch.frombuffer(bytearray(data[8 + n + a:8 + n + b]),
                                     dtype=_TYPES[e["dtype"]]).reshape(e["shape"])
    return out, metadata
