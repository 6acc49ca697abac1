/* bench: `berth bench stream`, in pieces: bench_file.c weights to run, bench_stream.c one placement
 * measured, cmd_bench.c options and what is printed. */
#pragma once

#include "app/app.h"
#include "device/spec.h"
#include "model/preset.h"
#include "net/net.h"
#include "residency/residency.h"

#define BENCH_DONORS_MAX 16
#define BENCH_ROWS_MAX 16

struct bench_place {  /* of the model's bytes */
    unsigned offload; /* percent on the donors */
    char alloc[512];  /* allocation string */
};

struct bench_model {           /* what is run */
    const char *path;          /* its weights */
    const char *part;          /* prefix of the network in that file; NULL: all of it */
    const struct spec *spec;   /* of devices; NULL: what there is */
    struct dev_env env;        /* for opening them */
    char device[DEV_NAME_MAX]; /* that computes */
    struct bench_place place[BENCH_ROWS_MAX];
    size_t places;
    uint64_t pin_budget; /* as res_config */
    enum plan_layout layout;
    enum dtype act; /* DT_NONE: what the model prefers */
    uint64_t width, height, tokens;
    uint64_t warmup, steps;
    struct net_times *times; /* --profile; NULL: not asked for */
};

struct bench_row { /* one placement */
    const struct bench_place *place;
    uint64_t bytes, donor_bytes; /* of the model; copied each step */
    double load_s, load_gbps;    /* file -> homes */
    double ms, ms_min, ms_max;   /* of a step: median, least, most */
    double runs, copies;         /* queued in a step */
    uint64_t out_of_order;       /* of all steps: runs fetched out of turn */
    uint64_t dropped;            /* of all steps: bytes fetched for nothing */
    double gbps, exposed;        /* of the copies; share of their time that layers stood waiting */
    double link_gbps, limit_ms; /* of one large pinned copy here; donor_bytes at that rate. 0: there
                                    was no room to measure it */
    uint64_t peak, ring;        /* held by this program there, all passes and the load */
    uint64_t card;              /* taken on the whole card at the end, by whomever */
    bool in_place; /* the device is RAM: blocks are read where they lie, whatever the plan */
    uint64_t hash; /* of the output */
};

/* Writes the preset's weights to path. Q4_K and kin: random blocks of the right magnitude, since
 * quantising takes minutes; others as `berth synth`. cancel: signals_watch(). */
berth_status bench_write(const struct preset *p, enum dtype dtype, const char *path,
                         const atomic_bool *cancel, berth_err *err);

/* Has the preset a network that makes pictures step by step? */
berth_status bench_preset_runs(const struct preset *p, berth_err *err);
/* The same of a file; *part as bench_model.part, a constant. */
berth_status bench_part(const char *path, const char **part, berth_err *err);

/* Which devices are meant: opens them, finds the names and writes m->device and the allocation
 * string of every place. Before anything that takes long. device: NULL: the first that is not the
 * host. donor: "cpu", or several that take the same part each: "cpu,cuda:1". BERTH_EINVAL: what was
 * asked for cannot be, whatever the machine has free. */
berth_status bench_places(struct bench_model *m, const char *device, const char *donor,
                          berth_err *err);

/* One placement from opening the devices to closing them. */
berth_status bench_row(const struct app *a, const struct bench_model *m,
                       const struct bench_place *place, const atomic_bool *cancel,
                       struct bench_row *out, berth_err *err);
