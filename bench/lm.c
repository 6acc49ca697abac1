/* lm: a language model as encoder and as writer, on one device: how fast it reads a prompt and how
 * fast it writes behind one, against two ceilings of the same run. Reading is held against one
 * large product; writing, which takes every weight once for each token, against a copy within the
 * memory that holds them.
 *
 *     berth synth -p qwen25vl-7b -d bf16 -o /dev/shm/lm.safetensors
 *     lm --file /dev/shm/lm.safetensors --device cuda:0 --act bf16
 *
 * Times are medians, after one pass that is not counted. */
#include "base/arena.h"
#include "base/tpool.h"
#include "bench.h"
#include "device/devset.h"
#include "model/encoder.h"
#include "op/ops.h"
#include "residency/residency.h"

#define TRIES 5

struct options {
    const char *file, *device;
    enum dtype act;
    size_t tokens, write;
    bool json;
};

struct rig {
    struct devset *set;
    struct device *d;
    struct tpool *pool;
    struct residency *res;
    struct res_model *m;
    struct arena mem;
    struct text_encoder enc;
    double product, copy; /* ceilings: TFLOP/s, GB/s */
};

static const char usage[] =
    "usage: lm --file FILE [--device cpu] [--act f32|bf16|f16] [--tokens 512] [--write 32] "
    "[--json]\n";

static void die(const char *what, const berth_err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

/* ---- ceilings ---- */

struct table { /* memory of the device, and ops over it */
    struct dev_stream *s;
    struct dev_owner *owner;
    struct dev_mem mem, scratch;
    struct op_env env;
};

static void table_open(struct rig *r, size_t bytes, struct table *t)
{
    berth_err err;
    *t = (struct table) { 0 };
    if (dev_stream_new(r->d, &t->s, &err) ||
        dev_owner_open(r->d, "bench", DEV_ACTIVATIONS, &t->owner, &err) ||
        dev_alloc(r->d, t->owner, bytes, &t->mem, &err))
        die("memory for a ceiling", &err);
    const bool host = dev_can(r->d, BERTH_CAP_HOST_VISIBLE);
    t->env = (struct op_env) { .backend = op_backend_for(r->d),
                               .pool = r->pool,
                               .stream = host ? NULL : t->s };
    if (host)
        memset((void *)(uintptr_t)t->mem.addr, 1, bytes);
}

static void table_close(struct table *t)
{
    dev_free(&t->scratch);
    dev_free(&t->mem);
    dev_owner_close(t->owner);
    dev_stream_free(t->s);
}

static struct view operand(const struct table *t, size_t *at, enum dtype type, struct shape s)
{
    struct view v;
    uint64_t n, bytes;
    berth_err err = { 0 };
    if (!shape_count(&s, &n) || !dtype_bytes(type, n, &bytes) ||
        view_init(type, &s, (void *)(uintptr_t)(t->mem.addr + *at), (size_t)bytes, &v, &err))
        die("operand", &err);
    *at += ((size_t)bytes + 4095) & ~(size_t)4095;
    return v;
}

static void scratch(struct rig *r, struct table *t, size_t bytes)
{
    berth_err err;
    if (bytes && dev_alloc(r->d, t->owner, bytes, &t->scratch, &err))
        die("scratch", &err);
    t->env.scratch = (void *)(uintptr_t)t->scratch.addr;
    t->env.scratch_bytes = bytes;
}

/* Wall time of `what`, the device waited for; the fastest, since these are ceilings. */
#define FASTEST(t, what, ms)                                                                       \
    do {                                                                                           \
        (ms) = 1e30;                                                                               \
        for (int i_ = -1; i_ < TRIES; i_++) {                                                      \
            berth_err err_;                                                                        \
            const double from_ = bench_now_ms();                                                   \
            if ((what) || dev_stream_sync((t)->s, &err_))                                          \
                die("ceiling", &err_);                                                             \
            const double took_ = bench_now_ms() - from_;                                           \
            (ms) = i_ >= 0 && took_ < (ms) ? took_ : (ms);                                         \
        }                                                                                          \
    } while (0)

static void measure_ceilings(struct rig *r, enum dtype act)
{
    const bool host = dev_can(r->d, BERTH_CAP_HOST_VISIBLE);
    const uint64_t side = host ? 2048 : 8192, bytes = host ? 256u << 20 : 1u << 30;
    const struct shape square = { 2, { side, side } }, line = { 1, { bytes / 4 } };
    struct table t;
    size_t at = 0;
    double ms;
    table_open(r, (size_t)(2 * bytes + (1 << 20)), &t);
    struct op_copy copy = { .x = operand(&t, &at, DT_F32, line),
                            .y = operand(&t, &at, DT_F32, line) };
    scratch(r, &t, op_copy_scratch(&t.env, &copy));
    FASTEST(&t, op_copy(&t.env, &copy, &err_), ms);
    r->copy = 2 * (double)bytes / ms / 1e6;
    dev_free(&t.scratch);
    at = 0;
    struct op_linear p = { .x = operand(&t, &at, act, square),
                           .w = operand(&t, &at, DT_BF16, square),
                           .y = operand(&t, &at, act, square) };
    scratch(r, &t, op_linear_scratch(&t.env, &p));
    FASTEST(&t, op_linear(&t.env, &p, &err_), ms);
    r->product = 2.0 * (double)side * (double)side * (double)side / ms / 1e9;
    table_close(&t);
}

/* ---- the model ---- */

static void open_model(struct rig *r, const struct options *o)
{
    char alloc[2 * DEV_NAME_MAX + 16];
    struct text_found found[TEXT_ENCODERS_MAX];
    berth_err err;
    snprintf(alloc, sizeof alloc, "%s,100%%#%s", r->d->name, r->d->name);
    const struct res_config cfg = { .devices = r->set, .pool = r->pool };
    const struct res_open_args open = { .path = o->file,
                                        .role = "clip",
                                        .arch = arch_blocks,
                                        .plan = { .alloc = alloc, .reserve = UINT64_MAX } };
    if (residency_new(&cfg, &r->res, &err) || res_open(r->res, &open, &r->m, NULL, &err) ||
        res_load(r->m, &(struct res_load_args) { 0 }, NULL, &err))
        die(o->file, &err);
    if (text_find(res_weights(r->m), NULL, found) != 1) {
        fprintf(stderr, "%s: not one language model\n", o->file);
        exit(1);
    }
    const struct net_args net = { .res = r->res, .m = r->m, .pool = r->pool, .act = o->act };
    if (text_encoder_init(&r->enc, res_weights(r->m), &found[0], &r->mem, &err) ||
        text_encoder_open(&r->enc, found[0].root, net, &err))
        die(o->file, &err);
    if (!r->enc.is->speech || !r->enc.is->speech->there(r->enc.config)) {
        fprintf(stderr, "%s: %s writes no text\n", o->file, r->enc.is->name);
        exit(1);
    }
}

struct heard {
    double *at; /* ms, when each token came */
    size_t n;
};

static berth_status note_time(void *user, int32_t id, berth_err *err)
{
    struct heard *h = user;
    (void)id;
    (void)err;
    h->at[h->n++] = bench_now_ms();
    return BERTH_OK;
}

/* Tokens that are in every vocabulary and do not end a text. */
static struct chunks prompt_of(struct rig *r, size_t tokens)
{
    struct token *t = arena_array(&r->mem, tokens, sizeof *t);
    struct token **chunk = arena_array(&r->mem, 1, sizeof *chunk);
    size_t *len = arena_array(&r->mem, 1, sizeof *len);
    berth_err err = { 0 };
    if (!t || !chunk || !len)
        die("a prompt", &err);
    for (size_t i = 0; i < tokens; i++)
        t[i] = (struct token) { .id = (int32_t)(300 + i % 1000), .weight = 1 };
    *chunk = t;
    *len = tokens;
    return (struct chunks) {
        .chunk = chunk, .len = len, .n = 1, .rules = { .start = -1, .end = -1, .pad = 0 }
    };
}

/* ms a pass over the prompt. */
static double measure_reading(struct rig *r, const struct chunks *in)
{
    const struct encoder_size size = r->enc.is->size(r->enc.config);
    const struct encoder_want want = { .layer = 0 };
    float *z = arena_array(&r->mem, in->len[0] * (size_t)size.width, sizeof *z);
    double ms[TRIES];
    berth_err err = { 0 };
    for (int i = -1; i < TRIES; i++) {
        const double from = bench_now_ms();
        if (!z || text_encoder_run(&r->enc, in, &want, z, NULL, NULL, &err))
            die("reading", &err);
        if (i >= 0)
            ms[i] = bench_now_ms() - from;
    }
    return bench_median(ms, TRIES);
}

/* ms a token, behind a prompt. */
static double measure_writing(struct rig *r, const struct chunks *in, size_t tokens)
{
    struct heard h = { .at = arena_array(&r->mem, tokens, sizeof *h.at) };
    const struct speech_how how = { .most = (uint32_t)tokens, .said = note_time, .user = &h };
    struct encoder_job job = { .in = in };
    struct vec said = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    if (!h.at || r->enc.is->speech->speak(&r->enc, &job, &how, &said, &err))
        die("writing", &err);
    vec_release(&said);
    if (h.n < 4) {
        fprintf(stderr, "the model ended its text after %zu tokens\n", h.n);
        exit(1);
    }
    for (size_t i = 0; i + 1 < h.n; i++)
        h.at[i] = h.at[i + 1] - h.at[i];
    return bench_median(h.at + 1, h.n - 2);
}

/* ---- what it says ---- */

static bool has(const struct weights_entry *e, const char *word)
{
    return memmem(e->name, e->name_len, word, strlen(word));
}

struct work { /* matrices: elements that every token goes through; bytes that a new one takes */
    double elements, bytes;
};

static struct work work_of(const struct weights *w)
{
    struct work all = { 0 };
    double table = 0, head = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t n;
        if (e->shape.ndim != 2 || has(e, "visual") || !shape_count(&e->shape, &n))
            continue;
        if (has(e, "embed_tokens")) {
            table = (double)e->size;
        } else if (has(e, "lm_head")) {
            head = (double)e->size;
        } else {
            all.elements += (double)n;
            all.bytes += (double)e->size;
        }
    }
    all.bytes += head > 0 ? head : table; /* without a head the table is one */
    return all;
}

static void measure(struct rig *r, const struct options *o)
{
    const struct work work = work_of(res_weights(r->m));
    const struct chunks in = prompt_of(r, o->tokens), one = prompt_of(r, 16);
    const double read = measure_reading(r, &in), write = measure_writing(r, &one, o->write);
    const double rate = 2 * work.elements * (double)o->tokens / read / 1e9;
    const double taken = work.bytes / write / 1e6;
    const char *act = dtype_name(net_act(r->enc.net));
    if (o->json)
        printf("{\"device\": \"%s\", \"act\": \"%s\", \"tokens\": %zu, \"read_ms\": %.3f, "
               "\"tflops\": %.3f, \"product_tflops\": %.3f, \"token_ms\": %.3f, \"gbps\": %.2f, "
               "\"copy_gbps\": %.2f}\n",
               r->d->name, act, o->tokens, read, rate, r->product, write, taken, r->copy);
    else
        printf("%s on %s, activations %s\n"
               "reads %zu tokens in %.1f ms: %.2f TFLOP/s, %.2f of one large product (%.2f)\n"
               "writes a token in %.2f ms: %.1f GB/s of weights, %.2f of a copy (%.1f)\n",
               r->enc.is->name, r->d->name, act, o->tokens, read, rate, rate / r->product,
               r->product, write, taken, taken / r->copy, r->copy);
}

static bool option(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "--file") == 0)
        o->file = value;
    else if (strcmp(name, "--device") == 0)
        o->device = value;
    else if (strcmp(name, "--tokens") == 0)
        return (o->tokens = (size_t)strtoul(value, NULL, 10)) > 0;
    else if (strcmp(name, "--write") == 0)
        return (o->write = (size_t)strtoul(value, NULL, 10)) > 0;
    else if (strcmp(name, "--act") == 0)
        return (o->act = dtype_by_name(value, strlen(value))) != DT_NONE;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    struct options o = { .device = "cpu", .act = DT_F32, .tokens = 512, .write = 32 };
    struct rig r = { 0 };
    struct spec spec;
    char devices[DEV_NAME_MAX + 8];
    size_t at;
    berth_err err;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
        } else if (i + 1 >= argc || !option(&o, argv[i], argv[i + 1])) {
            const bool help = strcmp(argv[i], "--help") == 0;
            fputs(usage, help ? stdout : stderr);
            return help ? 0 : 2;
        } else {
            i++;
        }
    }
    if (!o.file) {
        puts("skipped: needs --file FILE, a language model (berth synth -p qwen3-0.6b -d bf16)");
        return 0;
    }
    const bool cpu = strcmp(o.device, "cpu") == 0;
    snprintf(devices, sizeof devices, "%s%s", o.device, cpu ? "" : ",cpu");
    if (spec_parse(devices, strlen(devices), false, &spec, &err) ||
        devset_open(&spec, &(struct dev_env) { 0 }, &r.set, &err) ||
        devset_find(r.set, o.device, strlen(o.device), &at, &err) || tpool_new(0, &r.pool, &err))
        die("devices", &err);
    r.d = devset_at(r.set, at);
    measure_ceilings(&r, o.act);
    open_model(&r, &o);
    measure(&r, &o);
    net_close(r.enc.net);
    res_unref(r.m);
    residency_free(r.res);
    arena_release(&r.mem);
    tpool_free(r.pool);
    devset_close(r.set);
    return 0;
}
