/* bench: `berth bench stream`, in pieces: bench_file.c weights to run, bench_stream.c one placement
 * measured, cmd_bench.c options and what is printed. */
#ifndef APP_BENCH_H
#define APP_BENCH_H

#include "app/app.h"
#include "model/preset.h"
#include "net/net.h"
#include "residency/residency.h"

struct bench_model {     /* what is run */
    const char *path;    /* its weights */
    const char *devices; /* --devices; NULL: what there is */
    const char *device;  /* that computes; NULL: the default */
    const char *donor;   /* "cpu", or several: "cpu,cuda:1" */
    uint64_t pin_budget; /* as res_config */
    enum plan_layout layout;
    enum dtype act; /* DT_NONE: what the model prefers */
    uint64_t width, height, tokens;
    uint64_t warmup, steps;
    struct net_times *times; /* --profile; NULL: not asked for */
};

struct bench_row {    /* one placement */
    unsigned offload; /* percent, as asked for */
    char alloc[256];  /* allocation string */
    char device[DEV_NAME_MAX];
    uint64_t bytes, donor_bytes; /* of the model; copied each step */
    double load_s, load_gbps;    /* file -> homes */
    double ms, ms_min, ms_max;   /* of a step: median, least, most */
    double gbps, exposed;        /* of the copies; share of their time that layers stood waiting */
    double link_gbps, limit_ms;  /* of one large pinned copy here; donor_bytes at that rate */
    uint64_t peak, ring;         /* held by this program there, all passes and the load */
    uint64_t card;               /* taken on the whole card at the end, by whomever */
    uint64_t hash;               /* of the output */
};

/* Writes the preset's weights to path. Q4_K and kin: random blocks of the right magnitude, since
 * quantising takes minutes; others as `berth synth`. cancel: signals_watch(). */
berth_status bench_write(const struct preset *p, enum dtype dtype, const char *path,
                         const atomic_bool *cancel, berth_err *err);
const char *bench_extension(enum dtype dtype);

/* One placement from opening the devices to closing them. */
berth_status bench_row(const struct app *a, const struct bench_model *m, unsigned offload,
                       const atomic_bool *cancel, struct bench_row *out, berth_err *err);

#endif
