/* serve_args: translates the flags that ComfyUI's launch scripts pass into ours.
 *
 * They follow Python's argparse: unambiguous beginnings of names, values that may be left out
 * (--listen), several values (--extra-model-paths-config a b). Flags that mean something here
 * become options of `berth serve`. The others are taken out and named in the log, so that a script
 * written for ComfyUI works here. */
#pragma once

#include "app/args.h"
#include "base/arena.h"
#include "base/str.h"

struct serve_args { /* serve_args_release() */
    char **argv;    /* rewritten, for args_parse() */
    int argc;
    struct str ignored; /* "--fast, --cuda-malloc" */
    struct arena mem;
};
/* own: the command's options and the global ones, whose beginnings count too. */
berth_status serve_args_rewrite(const struct opts *own, int argc, char **argv,
                                struct serve_args *out, berth_err *err);
void serve_args_release(struct serve_args *x);
void serve_args_help(struct str *out); /* the list of flags without meaning, for --help */
