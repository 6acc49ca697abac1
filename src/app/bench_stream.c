/* bench_stream: one placement of a model measured: how long it takes to load and to run a step,
 * what crosses the link meanwhile and how much of that shows. Devices are opened anew for each, so
 * that peaks are its own. */
#include "app/bench.h"

#include "base/arena.h"
#include "base/hash.h"
#include "device/devset.h"
#include "model/arch.h"
#include "model/diffusion.h"

#include <inttypes.h>

struct place { /* everything that is open for a row */
    struct devset *set;
    struct tpool *pool;
    struct residency *res;
    struct res_model *m;
    struct diffusion *d;
    struct device *compute;
};

/* The model and what holds it; devices stay open. */
static void close_model(struct place *p)
{
    diffusion_close(p->d);
    if (p->m)
        res_unref(p->m);
    residency_free(p->res);
    tpool_free(p->pool);
    *p = (struct place) { .set = p->set, .compute = p->compute };
}

/* ---- places ---- */

struct donors {
    size_t at[BENCH_DONORS_MAX]; /* indices in the set */
    size_t n;
};

/* A name that is not there, as a mistake in an option. */
static berth_status blame_option(const char *option, berth_err *err)
{
    const berth_err said = *err;
    return err_set(err, BERTH_EINVAL, "%s: %s", option, said.msg);
}

static berth_status find_donors(const struct devset *set, const char *text, struct donors *out,
                                berth_err *err)
{
    *out = (struct donors) { .n = 0 };
    for (const char *at = text; at;) {
        size_t n = strcspn(at, ","), i;
        if (!n)
            return err_set(err, BERTH_EINVAL, "--donor: '%.80s' has an empty place", text);
        if (devset_find(set, at, n, &i, err))
            return blame_option("--donor", err);
        for (size_t k = 0; k < out->n; k++)
            if (out->at[k] == i)
                return err_set(err, BERTH_EINVAL, "--donor: %s twice", devset_at(set, i)->name);
        if (out->n == BENCH_DONORS_MAX)
            return err_set(err, BERTH_EINVAL, "--donor: more than %d", BENCH_DONORS_MAX);
        out->at[out->n++] = i;
        at = at[n] ? at + n + 1 : NULL;
    }
    return BERTH_OK;
}

/* "cuda:0,80%;cpu,20%#cuda:0"; of several donors each takes the same part. */
static berth_status alloc_string(const struct devset *set, size_t compute, const struct donors *d,
                                 struct bench_place *out, berth_err *err)
{
    const char *device = devset_at(set, compute)->name;
    struct str s = { 0 };
    if (out->offload < 100)
        str_addf(&s, "%s,%u%%", device, 100 - out->offload);
    for (size_t i = 0; out->offload && i < d->n; i++)
        str_addf(&s, "%s%s,%.4f%%", s.n ? ";" : "", devset_at(set, d->at[i])->name,
                 out->offload / (double)d->n);
    str_addf(&s, "#%s", device);
    bool fits = !s.bad && s.n < sizeof out->alloc;
    snprintf(out->alloc, sizeof out->alloc, "%s", str_c(&s));
    str_release(&s);
    return fits ? BERTH_OK : err_set(err, BERTH_ELIMIT, "an allocation string of %zu donors", d->n);
}

static berth_status own_donor(const struct devset *set, const char *device, berth_err *err)
{
    bool card = false;
    for (size_t i = 0; i < devset_count(set); i++)
        card |= strcmp(devset_at(set, i)->name, "cpu") != 0;
    if (card)
        return err_set(err, BERTH_EINVAL, "%s computes and cannot be its own donor", device);
    return err_set(err, BERTH_EINVAL,
                   "there is no card: %s would be its own donor; memory stands in for one with "
                   "--devices cuda:0@cpu=8g,cpu (and --preset flux-tiny: flux-dev is 22 GiB), or "
                   "measure --offload 0",
                   device);
}

berth_status bench_places(struct bench_model *m, const char *device, const char *donor,
                          berth_err *err)
{
    struct devset *set;
    struct donors donors;
    size_t compute = 0;
    if (devset_open(m->spec, &m->env, &set, err))
        return err->code;
    berth_status s = BERTH_OK;
    if (device && devset_find(set, device, strlen(device), &compute, err))
        s = blame_option("--device", err);
    while (!device && compute + 1 < devset_count(set) &&
           strcmp(devset_at(set, compute)->name, "cpu") == 0)
        compute++; /* the first that is not the host, by name; or the last there is */
    if (!s)
        s = find_donors(set, donor, &donors, err);
    if (!s)
        snprintf(m->device, sizeof m->device, "%s", devset_at(set, compute)->name);
    for (size_t i = 0; i < m->places && !s; i++) {
        for (size_t k = 0; m->place[i].offload && k < donors.n && !s; k++)
            if (donors.at[k] == compute)
                s = own_donor(set, m->device, err);
        if (!s)
            s = alloc_string(set, compute, &donors, &m->place[i], err);
    }
    devset_close(set);
    return s;
}

static berth_status open_devices(const struct bench_model *m, struct place *p, berth_err *err)
{
    size_t i;
    if (devset_open(m->spec, &m->env, &p->set, err) ||
        devset_find(p->set, m->device, strlen(m->device), &i, err))
        return err->code;
    p->compute = devset_at(p->set, i);
    return BERTH_OK;
}

/* ---- the link ---- */

struct link { /* one large copy, and marks around it */
    struct dev_stream *s;
    struct dev_event *from, *to;
    uint64_t dst;
    const void *src;
    size_t n;
};

/* On the device's clock where it has one: until the host knows that a copy is done takes longer
 * than the copy, by one part in fifty. */
static berth_status time_copy(const struct link *x, uint64_t *ns, berth_err *err)
{
    bool done;
    uint64_t begin = clock_mono_ns(clock_system());
    int64_t took;
    if (dev_event_record(x->from, x->s, err) || dev_copy_h2d(x->s, x->dst, x->src, x->n, err) ||
        dev_event_record(x->to, x->s, err) || dev_stream_sync(x->s, err))
        return err->code;
    *ns = clock_mono_ns(clock_system()) - begin;
    if (!(x->s->phys->caps & BERTH_CAP_ASYNC))
        return BERTH_OK;
    if (dev_event_elapsed(x->from, x->to, &done, &took, err))
        return err->code;
    *ns = done && took > 0 ? (uint64_t)took : *ns;
    return BERTH_OK;
}

/* From pinned memory, as fast as this link goes: the best of some. */
static berth_status try_link(struct device *d, size_t n, double *gbps, berth_err *err)
{
    enum { TRIES = 4 };
    struct dev_owner *pinned = NULL, *own = NULL;
    struct dev_host host = { 0 };
    struct dev_mem mem = { 0 };
    struct link x = { .n = n };
    *gbps = 0;
    berth_status st = dev_owner_open(d, "bench", DEV_PINNED, &pinned, err);
    if (!st && !(st = dev_owner_open(d, "bench", DEV_STAGING, &own, err)) &&
        !(st = dev_host_alloc(d, pinned, n, &host, err)) &&
        !(st = dev_alloc(d, own, n, &mem, err)) && !(st = dev_stream_new(d, &x.s, err)) &&
        !(st = dev_event_new(d, &x.from, err)) && !(st = dev_event_new(d, &x.to, err)))
        memset(host.ptr, 1, n);
    x.dst = mem.addr;
    x.src = host.ptr;
    for (int i = 0; i < TRIES && !st; i++) {
        uint64_t ns = 0;
        st = time_copy(&x, &ns, err);
        double rate = ns ? (double)n / (double)ns : 0;
        *gbps = rate > *gbps ? rate : *gbps;
    }
    dev_event_free(x.from);
    dev_event_free(x.to);
    dev_stream_free(x.s);
    dev_free(&mem);
    dev_host_free(&host);
    dev_owner_close(own);
    dev_owner_close(pinned);
    dev_trim(d);
    return st;
}

/* With less where there is no room for much; 0, and the row stands without it, where there is room
 * for nothing. Smaller copies than the least say little about large ones. */
static double measure_link(const struct app *a, struct device *d)
{
    const size_t most = (size_t)256 << 20, least = (size_t)4 << 20;
    berth_err err;
    double gbps;
    for (size_t n = most; n >= least; n /= 2)
        if (!try_link(d, n, &gbps, &err))
            return gbps;
    log_warn(&a->log, "bench.link", "device=%s error=\"%s\"", d->name, err.msg);
    return 0;
}

/* ---- a row ---- */

static berth_status open_model(const struct app *a, const struct bench_model *m,
                               const atomic_bool *cancel, struct place *p, struct bench_row *row,
                               berth_err *err)
{
    const struct res_config cfg = {
        .devices = p->set, .pool = p->pool, .log = &a->log, .pin_budget = m->pin_budget
    };
    const struct res_open_args open = {
        .path = m->path,
        .part = m->part,
        .role = "unet",
        .arch = arch_blocks,
        .plan = { .alloc = row->place->alloc, .layout = m->layout, .reserve = UINT64_MAX }
    };
    const struct res_load_args load = { .cancel = cancel };
    if (residency_new(&cfg, &p->res, err) || res_open(p->res, &open, &p->m, NULL, err))
        return err->code;
    uint64_t begin = clock_mono_ns(clock_system());
    if (res_load(p->m, &load, NULL, err))
        return err->code;
    row->bytes = res_info(p->m).bytes;
    row->load_s = (double)(clock_mono_ns(clock_system()) - begin) / 1e9;
    row->load_gbps = (double)row->bytes / row->load_s / 1e9;
    const struct diffusion_args d = { .res = p->res,
                                      .m = p->m,
                                      .part = m->part,
                                      .pool = p->pool,
                                      .cancel = cancel,
                                      .log = &a->log,
                                      .act = m->act,
                                      .times = m->times };
    return diffusion_open(&d, &p->d, err);
}

/* -1 .. 1, from its place. */
static float number(uint64_t i)
{
    uint64_t z = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(int32_t)(z >> 32) * 0x1p-31f;
}

struct step_in { /* what a step gets, the same each time */
    struct diffusion_cond cond;
    const struct diffusion_cond *conds[1];
    float t[1];
    struct diffusion_in in;
    size_t out_n;
};

static berth_status make_input(const struct bench_model *m, const struct diffusion_info *info,
                               struct arena *mem, struct step_in *s, berth_err *err)
{
    size_t h = (size_t)m->height / info->latent.ratio, w = (size_t)m->width / info->latent.ratio;
    size_t n = h * w * info->latent.channels, text = (size_t)(m->tokens * info->context_dim);
    float *x = arena_array(mem, n, sizeof *x), *out = arena_array(mem, n, sizeof *out);
    float *context = arena_array(mem, text, sizeof *context);
    if (!x || !out || !context)
        return err_set(err, BERTH_ENOMEM, "the inputs of a step");
    for (size_t i = 0; i < n; i++)
        x[i] = number(i);
    for (size_t i = 0; i < text; i++)
        context[i] = number(i + n);
    s->cond = (struct diffusion_cond) { .context = context,
                                        .tokens = (size_t)m->tokens,
                                        .width = (size_t)info->context_dim };
    s->conds[0] = &s->cond;
    s->t[0] = 0.7f;
    struct shape picture = { 4, { 1, info->latent.channels, h, w } };
    if (info->latent.rank == 3) /* a film of one frame */
        picture = (struct shape) { 5, { 1, info->latent.channels, 1, h, w } };
    s->in =
        (struct diffusion_in) { .shape = picture, .x = x, .t = s->t, .cond = s->conds, .out = out };
    s->out_n = n;
    return BERTH_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void sum_up(struct bench_row *row, double *ms, size_t n, const struct stream_stats *before,
                   const struct stream_stats *after)
{
    qsort(ms, n, sizeof *ms, by_value);
    row->ms = ms[n / 2];
    row->ms_min = ms[0];
    row->ms_max = ms[n - 1];
    const struct stream_stats counted = { .timed = after->timed - before->timed,
                                          .copy_ns = after->copy_ns - before->copy_ns,
                                          .exposed_ns = after->exposed_ns - before->exposed_ns };
    row->gbps = stream_gbps(&counted);
    row->exposed = stream_exposed(&counted);
    row->runs = (double)(after->runs - before->runs) / (double)n;
    row->copies = (double)(after->copies - before->copies) / (double)n;
    row->out_of_order = after->out_of_order - before->out_of_order;
    row->dropped = after->dropped - before->dropped;
    row->donor_bytes = after->donor_bytes;
    row->ring = after->ring_bytes;
}

static berth_status run_steps(const struct bench_model *m, struct place *p, struct bench_row *row,
                              berth_err *err)
{
    struct arena mem = { 0 };
    struct step_in s;
    struct stream_stats before = { 0 }, after;
    double *ms = arena_array(&mem, (size_t)m->steps, sizeof *ms);
    berth_status st = ms ? make_input(m, diffusion_info(p->d), &mem, &s, err)
                         : err_set(err, BERTH_ENOMEM, "the times of %" PRIu64 " steps", m->steps);
    for (uint64_t i = 0; i < m->warmup + m->steps && !st; i++) {
        if (i == m->warmup && m->times)
            *m->times = (struct net_times) { .n = 0 };
        if (i == m->warmup)
            before = diffusion_report(p->d).stream;
        uint64_t begin = clock_mono_ns(clock_system());
        st = diffusion_forward(p->d, &s.in, err);
        double took = (double)(clock_mono_ns(clock_system()) - begin) / 1e6;
        if (i >= m->warmup)
            ms[i - m->warmup] = took;
        uint64_t hash = st ? 0 : hash_xxh64(s.in.out, s.out_n * sizeof(float), 0);
        if (!st && i && hash != row->hash)
            st = err_set(err, BERTH_EDEVICE, "step %" PRIu64 " gave other numbers than the first",
                         i + 1);
        row->hash = hash;
    }
    if (!st) {
        after = diffusion_report(p->d).stream;
        sum_up(row, ms, (size_t)m->steps, &before, &after);
    }
    arena_release(&mem);
    return st;
}

berth_status bench_row(const struct app *a, const struct bench_model *m,
                       const struct bench_place *place, const atomic_bool *cancel,
                       struct bench_row *row, berth_err *err)
{
    struct place p = { 0 };
    struct dev_info info;
    *row = (struct bench_row) { .place = place };
    berth_status s = open_devices(m, &p, err);
    if (!s)
        s = tpool_new(0, &p.pool, err);
    if (!s)
        s = open_model(a, m, cancel, &p, row, err);
    if (!s)
        s = run_steps(m, &p, row, err);
    if (!s)
        s = dev_info(p.compute, &info, err);
    close_model(&p);
    if (!s) { /* after the model: its peaks are its own, and its memory is free again */
        row->peak = info.stats.peak_held;
        row->in_place = dev_can(p.compute, BERTH_CAP_HOST_VISIBLE);
        row->card = info.total - info.free;
        row->link_gbps = measure_link(a, p.compute);
    }
    if (!s && row->link_gbps > 0)
        row->limit_ms = (double)row->donor_bytes / row->link_gbps / 1e6;
    devset_close(p.set);
    return s ? err_add(err, "%u %% offloaded", place->offload) : BERTH_OK;
}
