"""draw: a workflow in a Python program of your own, over libberth by ctypes; no packages.

    python3 draw.py BASE WORKFLOW.json [CHECKPOINTS [DEVICES]]

BASE has models/, and output/ where pictures go; CHECKPOINTS is one more folder of models.
$BERTH_LIBRARY names the library where the loader does not find it.
"""
import ctypes as c
import ctypes.util
import os
import sys

STATUS = ("OK", "ENOMEM", "ENODEVMEM", "EINVAL", "EFORMAT", "ELIMIT", "EIO", "ENOTFOUND",
          "EUNSUPPORTED", "EDEVICE", "ECANCELED", "EBUSY")


class Err(c.Structure):
    """All of berth_err: the library writes all of it."""
    _fields_ = [("code", c.c_int), ("native", c.c_int), ("file", c.c_char_p), ("line", c.c_int),
                ("msg", c.c_char * 512), ("subject", c.c_char_p), ("device", c.c_char * 32),
                ("number", c.c_uint64), ("names", c.c_ushort), ("name", c.c_ushort * 2 * 16),
                ("cause", c.c_ushort), ("subject_at", c.c_ushort), ("reserved", c.c_char * 114)]


class Sized(c.Structure):
    """Structs of berth.h that begin with their size."""

    def __init__(self, **fields):
        super().__init__(size=c.sizeof(self), **fields)


class EngineConfig(Sized):
    _fields_ = [("size", c.c_size_t), ("base", c.c_char_p), ("output", c.c_char_p),
                ("input", c.c_char_p), ("temp", c.c_char_p), ("user", c.c_char_p),
                ("checkpoints", c.c_char_p),
                ("model_paths", c.POINTER(c.c_char_p)), ("model_path_count", c.c_size_t),
                ("tokenizers", c.POINTER(c.c_char_p)), ("tokenizer_count", c.c_size_t),
                ("no_metadata", c.c_int), ("unload_after_run", c.c_int),
                ("devices", c.c_char_p), ("ram_budget", c.c_uint64), ("pin_budget", c.c_uint64),
                ("reserve", c.c_uint64), ("threads", c.c_uint32), ("log_level", c.c_int),
                ("log", c.c_void_p), ("log_user", c.c_void_p),
                ("media_helper", c.c_char_p)]


class Node(c.Structure):
    _fields_ = [("size", c.c_size_t), ("id", c.c_char_p), ("class_type", c.c_char_p)]


class Picture(c.Structure):
    _fields_ = [("size", c.c_size_t), ("width", c.c_uint32), ("height", c.c_uint32),
                ("channels", c.c_uint32), ("is_output", c.c_int),
                ("pixels", c.POINTER(c.c_uint8))]


class RunError(c.Structure):
    _fields_ = [("size", c.c_size_t), ("code", c.c_int), ("node", c.c_char_p),
                ("class_type", c.c_char_p), ("type", c.c_char_p), ("message", c.c_char_p),
                ("json", c.c_char_p)]


CACHED = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(c.c_char_p), c.c_size_t)
NODE = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Node))
PROGRESS = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Node), c.c_double, c.c_double)
PREVIEW = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Node), c.POINTER(Picture))
TEXT = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Node), c.POINTER(c.c_char), c.c_size_t)
EXECUTED = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Node), c.c_char_p)
ERROR = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(RunError))


class Events(Sized):
    _fields_ = [("size", c.c_size_t), ("user", c.c_void_p), ("cached", CACHED),
                ("node_begins", NODE), ("progress", PROGRESS), ("preview", PREVIEW),
                ("text", TEXT), ("executed", EXECUTED), ("node_ends", NODE), ("error", ERROR)]


class RunConfig(Sized):
    _fields_ = [("size", c.c_size_t), ("prompt", c.c_char_p), ("prompt_bytes", c.c_size_t),
                ("id", c.c_char_p), ("events", c.POINTER(Events)), ("cancel", c.c_void_p),
                ("previews", c.c_int), ("partial", c.c_int)]


class OutputFile(Sized):
    _fields_ = [("size", c.c_size_t), ("node", c.c_char_p), ("path", c.c_char_p),
                ("kind", c.c_char_p)]


class BerthError(Exception):
    def __init__(self, err):
        self.code = STATUS[err.code]
        super().__init__(err.msg.decode())


def load(path=None):
    """The library, with what its functions take and return."""
    lib = c.CDLL(path or os.environ.get("BERTH_LIBRARY") or ctypes.util.find_library("berth"))
    out, err = c.POINTER(c.c_void_p), c.POINTER(Err)
    for name, result, args in (
            ("engine_new", c.c_int, [c.c_void_p, c.POINTER(EngineConfig), out, err]),
            ("engine_free", None, [c.c_void_p]),
            ("flag_new", c.c_void_p, []),
            ("flag_set", None, [c.c_void_p]),
            ("flag_free", None, [c.c_void_p]),
            ("run", c.c_int, [c.c_void_p, c.POINTER(RunConfig), out, err]),
            ("result_free", None, [c.c_void_p]),
            ("result_outputs", c.c_char_p, [c.c_void_p]),
            ("result_file_count", c.c_size_t, [c.c_void_p]),
            ("result_file", c.c_int, [c.c_void_p, c.c_size_t, c.POINTER(OutputFile), err])):
        function = getattr(lib, "berth_" + name)
        function.restype, function.argtypes = result, args
    return lib


class Engine:
    """Runs workflows: with Engine(base) as engine: engine.run(text, ...)."""

    def __init__(self, base, checkpoints=None, devices=None, library=None):
        self.lib, self.handle = load(library), c.c_void_p()
        cfg = EngineConfig(base=os.fsencode(base),
                           checkpoints=checkpoints and os.fsencode(checkpoints),
                           devices=devices and devices.encode())
        self._check(self.lib.berth_engine_new, None, c.byref(cfg), c.byref(self.handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.berth_engine_free(self.handle)
        self.handle = None

    def _check(self, function, *args):
        err = Err()
        if function(*args, c.byref(err)):
            raise BerthError(err)

    def run(self, prompt, hear=lambda *event: None):
        """Paths of the files it wrote. hear(kind, ...) is told what happens; True stops the run."""
        stop = self.lib.berth_flag_new()

        def tell(*event):
            if hear(*event):
                self.lib.berth_flag_set(stop)

        def name(node):
            return node.contents.id.decode(), node.contents.class_type.decode()

        events = Events(
            cached=CACHED(lambda _, ids, n: tell("cached", [ids[i].decode() for i in range(n)])),
            node_begins=NODE(lambda _, node: tell("node", *name(node))),
            progress=PROGRESS(lambda _, node, value, most: tell("progress", name(node)[0],
                                                                int(value), int(most))),
            preview=PREVIEW(lambda _, node, p: tell("preview", name(node)[0], p.contents.width,
                                                    p.contents.height)),
            executed=EXECUTED(lambda _, node, out: tell("executed", name(node)[0], out.decode())),
            error=ERROR(lambda _, e: tell("error", (e.contents.node or b"-").decode(),
                                          e.contents.type.decode())))
        cfg = RunConfig(prompt=prompt.encode(), events=c.pointer(events), cancel=stop, previews=1)
        result = c.c_void_p()
        try:
            self._check(self.lib.berth_run, self.handle, c.byref(cfg), c.byref(result))
            return [self._file(result, i)
                    for i in range(self.lib.berth_result_file_count(result))]
        finally:
            self.lib.berth_result_free(result)
            self.lib.berth_flag_free(stop)

    def _file(self, result, index):
        file = OutputFile()
        self._check(self.lib.berth_result_file, result, index, c.byref(file))
        return os.fsdecode(file.path)


def main(argv):
    if not 3 <= len(argv) <= 5:
        print("usage: draw.py BASE WORKFLOW.json [CHECKPOINTS [DEVICES]]", file=sys.stderr)
        return 2
    with open(argv[2], encoding="utf-8") as file:
        prompt = file.read()
    try:
        with Engine(argv[1], *argv[3:]) as engine:
            for path in engine.run(prompt, print):
                print("file", path)
    except BerthError as e:
        print(f"draw.py: {e.code}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
