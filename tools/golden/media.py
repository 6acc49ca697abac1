#!/usr/bin/env python3
"""What ComfyUI reads from small clips, and what its nodes of sound make of small waves.

usage: media.py COMFYUI FOLDER [--seed N]   (ComfyUI 0.33.0, PyAV 18.1, torchaudio 2.11; ffmpeg 5.1)

COMFYUI is a checkout whose own code is run on the CPU. Writes into FOLDER the clips media_*.mkv and
media_*.mp4, made of synthetic pictures; media.json, and media.safetensors with the tensors that it
names:
    clips  "file", "start", "duration", "slice" (from and for so long), and what ComfyUI says of it:
           "frames" (a tensor), "sound" (a tensor or null), "rate", "fps", "bit_depth",
           "color_space", "seconds"; "eps", "sound_eps"
    sounds "class", "inputs" ({"audio": tensor, "rate": n} or plain), "outputs" (likewise), "eps"
"""

import argparse
import json
import os
import subprocess
import sys

P = argparse.ArgumentParser()
P.add_argument("comfyui")
P.add_argument("folder")
P.add_argument("--seed", type=int, default=33)
ARGS = P.parse_args()
ARGS.folder = os.path.abspath(ARGS.folder)
sys.path.insert(0, ARGS.comfyui)
os.chdir(ARGS.comfyui)
sys.argv = ["media.py", "--cpu"]

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()
import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.version.cuda = None  # torchaudio wants the builds for cards to be of one version
from safetensors.torch import save_file  # noqa: E402
from comfy_api.latest import InputImpl  # noqa: E402
from comfy_extras import nodes_audio  # noqa: E402

RNG = np.random.default_rng(ARGS.seed)
TENSORS, CLIPS, SOUNDS = {}, [], []


def pictures(n, h, w):
    y, x = np.mgrid[0:h, 0:w] / 9.0
    out = np.zeros((n, h, w, 3))
    for i in range(n):
        for c in range(3):
            out[i, :, :, c] = 0.5 + 0.45 * np.sin(x + i / 2 + c) * np.cos(y * (1 + c / 3))
    return (out * 255 + RNG.uniform(-6, 6, out.shape)).clip(0, 255).astype(np.uint8)


def encode(name, n, h, w, *options, sound=None):
    """Raw pictures through ffmpeg, to a file as people have them."""
    path = os.path.join(ARGS.folder, name)
    command = [
        "ffmpeg",
        "-loglevel",
        "error",
        "-y",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{w}x{h}",
        "-r",
        "8",
        "-i",
        "-",
    ]
    if sound:
        command += [
            "-f",
            "lavfi",
            "-i",
            f"sine=frequency=700:sample_rate=8000:duration={n / 8}",
            "-c:a",
            sound,
        ]
    command += [*options, "-fflags", "+bitexact", "-flags:v", "+bitexact", path]
    subprocess.run(command, input=pictures(n, h, w).tobytes(), check=True)
    return path


def clip(path, eps, sound_eps=0.0, slice=None):
    video = InputImpl.VideoFromFile(path)
    if slice:
        video = video.as_trimmed(*slice, strict_duration=False)
    name = os.path.basename(path)
    got = video.get_components()
    key = f"{name}{'' if not slice else f':{slice[0]}:{slice[1]}'}"
    TENSORS[key] = got.images.float().contiguous()
    one = {
        "file": name,
        "slice": slice,
        "frames": key,
        "sound": None,
        "fps": float(got.frame_rate),
        "bit_depth": video.get_bit_depth(),
        "color_space": video.get_color_space(),
        "seconds": video.get_duration(),
        "eps": eps,
        "sound_eps": sound_eps,
    }
    if got.audio is not None:
        one["sound"] = key + ".sound"
        one["rate"] = got.audio["sample_rate"]
        TENSORS[one["sound"]] = got.audio["waveform"].float().clone().contiguous()
    CLIPS.append(one)


def clips():
    x264 = ("-c:v", "libx264", "-crf", "20", "-g", "3")
    tags = (
        "-colorspace",
        "bt709",
        "-color_primaries",
        "bt709",
        "-color_trc",
        "bt709",
        "-color_range",
        "tv",
    )
    plain = encode("media_plain.mp4", 5, 32, 64, *x264, "-pix_fmt", "yuv420p", sound="alac")
    clip(plain, 2e-6)
    clip(plain, 2e-6, slice=(0.25, 0.25))
    clip(plain, 2e-6, slice=(-0.3, 0))
    odd = encode("media_odd.mp4", 3, 22, 50, *x264, "-pix_fmt", "yuv420p", *tags, sound="aac")
    clip(odd, 2e-6, 2e-4)
    clip(
        encode(
            "media_deep.mkv",
            2,
            24,
            46,
            *x264,
            "-pix_fmt",
            "yuv420p10le",
            "-color_trc",
            "smpte2084",
            "-colorspace",
            "bt2020nc",
            sound="flac",
        ),
        2e-6,
    )
    clip(
        encode("media_full.mkv", 2, 24, 40, "-c:v", "mjpeg", "-q:v", "3", "-pix_fmt", "yuvj422p"),
        1.01 / 255,
    )
    clip(encode("media_444.mkv", 2, 20, 34, *x264, "-pix_fmt", "yuv444p"), 2e-6)
    turned = os.path.join(ARGS.folder, "media_turned.mp4")
    subprocess.run(
        [
            "ffmpeg",
            "-loglevel",
            "error",
            "-y",
            "-i",
            odd,
            "-c",
            "copy",
            "-an",
            "-metadata:s:v",
            "rotate=90",
            "-fflags",
            "+bitexact",
            turned,
        ],
        check=True,
    )
    clip(turned, 2e-6)


def wave(name, b, c, n, rate, loud=0.5):
    TENSORS[name] = torch.from_numpy(RNG.uniform(-loud, loud, (b, c, n)).astype(np.float32))
    return {"audio": name, "rate": rate}


def run(cls, eps=0.0, **inputs):
    given = {
        k: {"waveform": TENSORS[v["audio"]], "sample_rate": v["rate"]} if isinstance(v, dict) else v
        for k, v in inputs.items()
    }
    outputs = []
    for i, o in enumerate(getattr(nodes_audio, cls).execute(**given).result):
        key = f"{cls}.{len(SOUNDS)}.{i}"
        if o is None:
            outputs.append(None)
            continue
        TENSORS[key] = o["waveform"].float().clone().contiguous()
        outputs.append({"audio": key, "rate": o["sample_rate"]})
    SOUNDS.append({"class": cls, "inputs": inputs, "outputs": outputs, "eps": eps})


def sounds():
    a, b = wave("a", 1, 2, 500, 44100), wave("b", 1, 2, 300, 44100, 0.9)
    mono, low = wave("mono", 1, 1, 400, 16000), wave("low", 1, 1, 350, 24000)
    two = wave("two", 2, 2, 260, 48000)
    for x in (a, two):
        for start, seconds in ((0, 0.003), (0.002, 60.0), (-0.004, 0.002), (-9, 0.001)):
            run("TrimAudioDuration", audio=x, start_index=start, duration=seconds)
        run("SplitAudioChannels", audio=x)
        run("AudioAdjustVolume", 1e-6, audio=x, volume=-7)
        run("AudioAdjustVolume", 1e-5, audio=x, volume=25)
    run("AudioAdjustVolume", audio=a, volume=0)
    run("JoinAudioChannels", 2e-6, audio_left=mono, audio_right=low)
    run("JoinAudioChannels", audio_left=mono, audio_right=None)
    for direction in ("after", "before"):
        run("AudioConcat", audio1=a, audio2=b, direction=direction)
        run("AudioConcat", 2e-6, audio1=mono, audio2=a, direction=direction)
        run("AudioConcat", audio1=None, audio2=a, direction=direction)
    for method in ("add", "mean", "subtract", "multiply"):
        run("AudioMerge", 1e-6, audio1=a, audio2=b, merge_method=method)
        run("AudioMerge", 2e-6, audio1=mono, audio2=low, merge_method=method)
        run("AudioMerge", 4e-6, audio1=two, audio2=mono, merge_method=method)
    eq = {"low_freq": 100, "mid_freq": 1000, "mid_q": 0.707, "high_freq": 5000}
    for gains in ((6, 0, 0), (0, -9.5, 0), (0, 0, 12), (24, 3, -24), (0, 0, 0)):
        run(
            "AudioEqualizer3Band",
            1e-4,
            audio=a,
            low_gain_dB=gains[0],
            mid_gain_dB=gains[1],
            high_gain_dB=gains[2],
            **eq,
        )
    run("EmptyAudio", duration=0.0123, sample_rate=44100, channels=2)
    run("EmptyAudio", duration=0.01, sample_rate=8000, channels=1)


clips()
sounds()
with open(os.path.join(ARGS.folder, "media.json"), "w") as f:
    rows = [json.dumps(x) for x in CLIPS], [json.dumps(x) for x in SOUNDS]
    f.write('{"clips": [\n%s\n],\n"sounds": [\n%s\n]}\n' % tuple(",\n".join(x) for x in rows))
save_file(
    {k: v.clone() for k, v in TENSORS.items()}, os.path.join(ARGS.folder, "media.safetensors")
)
print(len(CLIPS), "clips,", len(SOUNDS), "sounds")
