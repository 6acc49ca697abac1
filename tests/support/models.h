/* models: small weight files and a registry over devices, for tests of residency and above it.
 *
 *     struct fixture f;
 *     fixture_open(&f, "cpu=64m,null:0=32m", NULL);
 *     const char *path = model_file("a", 8, 64 << 10);       8 layers of 64 KiB
 *     struct res_model *m = model_open(&f, path, "#null:0", RES_AUTO);
 *     model_load(m);  model_intact(m);  res_unref(m);
 *     fixture_close(&f);                                      nothing leaked, no hazards
 *
 * Layer k of a file is the block "layers.<k>": a weight, and a bias of 100 bytes, so that there is
 * padding between tensors. Byte `at` of tensor t (in file order) is model_byte(t, at). */
#ifndef SUPPORT_MODELS_H
#define SUPPORT_MODELS_H

#include "residency/residency.h"
#include "support/clock_manual.h"
#include "support/devices.h"
#include "support/tmp.h"

#if defined(BERTH_FAKE_CUDA) && defined(FIXTURE_FAKE_CARDS)
#include "support/fake_cuda.h"
#include "support/fake_symbol.h"
#endif

#define MODEL_BIAS_BYTES 100

static inline unsigned char model_byte(size_t tensor, uint64_t at)
{
    return (unsigned char)((at * 31 + at / 251) ^ (tensor * 97 + 13));
}

static inline berth_status model_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                      berth_err *err)
{
    unsigned char *p = dst;
    (void)user, (void)err;
    for (size_t k = 0; k < n; k++)
        p[k] = model_byte(i, off + k);
    return BERTH_OK;
}

/* Writes <name>.safetensors into the test's folder; `bytes` of each layer, bias included. Returns
 * its path, good as tmp_path() is. */
static inline const char *model_file(const char *name, size_t layers, uint64_t bytes)
{
    struct weights_spec *spec = calloc(layers * 2, sizeof *spec);
    char(*text)[64] = calloc(layers * 2, sizeof *text);
    char file[256];
    berth_err err = { 0 };
    assert_true(spec && text && bytes > MODEL_BIAS_BYTES);
    for (size_t i = 0; i < layers * 2; i++) {
        snprintf(text[i], sizeof text[i], "layers.%zu.%s", i / 2, i % 2 ? "bias" : "weight");
        spec[i] = (struct weights_spec) {
            .name = text[i],
            .dtype = DT_U8,
            .shape = { .ndim = 1, .dim = { i % 2 ? MODEL_BIAS_BYTES : bytes - MODEL_BIAS_BYTES } },
        };
    }
    snprintf(file, sizeof file, "%s.safetensors", name);
    const char *path = tmp_path(file);
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = layers * 2, .fill = model_fill
    };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
    free(text);
    return path;
}

struct fixture {
    struct devset *set;
    struct residency *r;
    struct clock_manual
        clock; /* moves only when told: plans and evictions are the same each time */
    struct null_config null;
    uint64_t hazards;
    char hazard[512]; /* the first one */
};

static inline void fixture_hazard(void *user, enum null_hazard kind, const char *text)
{
    struct fixture *f = user;
    (void)kind;
    if (!f->hazards++)
        snprintf(f->hazard, sizeof f->hazard, "%s", text);
}

/* cfg: NULL, or what differs from the defaults; devices and clock are filled in. */
#if defined(BERTH_FAKE_CUDA) && defined(FIXTURE_FAKE_CARDS)
/* The card of support/fake_cuda.h, for sets that name one. */
static inline const char *fixture_card(void)
{
    fake_cuda_reset_fn *reset;
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_reset", &reset);
    reset(); /* to one plain card */
    return BERTH_FAKE_CUDA;
}
#endif

static inline void fixture_open(struct fixture *f, const char *devices,
                                const struct res_config *cfg)
{
    berth_err err = { 0 };
    *f = (struct fixture) { .hazards = 0 };
    f->null = (struct null_config) { .on_hazard = fixture_hazard, .user = f };
    clock_manual_init(&f->clock, 1000000000, UINT64_C(1700000000) * 1000000000);
    struct dev_env env = { .null = &f->null, .log = cfg ? cfg->log : NULL };
#if defined(BERTH_FAKE_CUDA) && defined(FIXTURE_FAKE_CARDS)
    if (strstr(devices, "cuda:"))
        env.cuda_library = fixture_card();
#endif
    f->set = open_devices(devices, &env);
    struct res_config c = cfg ? *cfg : (struct res_config) { 0 };
    c.devices = f->set;
    c.clock = c.clock ? c.clock : &f->clock.base;
    assert_ok(residency_new(&c, &f->r, &err), err);
}

static inline void fixture_check(struct fixture *f)
{
    berth_err err = { 0 };
    assert_ok(res_check(f->r, &err), err);
    for (size_t i = 0; i < devset_count(f->set); i++)
        assert_sound(devset_at(f->set, i));
    if (f->hazards)
        fail_msg("%llu hazards: %s", (unsigned long long)f->hazards, f->hazard);
}

/* Bytes in use on a device, pinned ones included. */
static inline uint64_t fixture_in_use(const struct fixture *f, const char *device)
{
    struct dev_stats s = stats_of(device_named(f->set, device));
    return s.in_use + s.pinned;
}

/* pre: no handles. Whatever is left afterwards is a leak. */
static inline void fixture_close(struct fixture *f)
{
    fixture_check(f);
    residency_free(f->r);
    for (size_t i = 0; i < devset_count(f->set); i++) {
        struct dev_ledger_row row[4];
        size_t n = dev_ledger(devset_at(f->set, i), row, ARRAY_LEN(row), NULL);
        for (size_t k = 0; k < n && k < ARRAY_LEN(row); k++)
            if (row[k].kind != DEV_POOL_IDLE)
                fail_msg("%s: '%s' %s leaks %llu bytes", devset_at(f->set, i)->name, row[k].owner,
                         dev_kind_name(row[k].kind), (unsigned long long)row[k].bytes);
    }
    devset_close(f->set);
    if (f->hazards)
        fail_msg("%llu hazards: %s", (unsigned long long)f->hazards, f->hazard);
}

/* alloc NULL: automatic, nothing kept free. */
static inline struct res_model *model_open(struct fixture *f, const char *path, const char *alloc,
                                           enum res_retention retention)
{
    struct res_open_args args = { .path = path, .plan.alloc = alloc, .retention = retention };
    struct res_model *m;
    berth_err err = { 0 };
    assert_ok(res_open(f->r, &args, &m, NULL, &err), err);
    return m;
}

static inline struct res_load_result model_load(struct res_model *m)
{
    struct res_load_result got;
    berth_err err = { 0 };
    assert_ok(res_load(m, NULL, &got, &err), err);
    return got;
}

/* Every byte of a model from model_file() is what the file has. pre: RESIDENT, no patches. */
static inline void model_intact(struct res_model *m)
{
    const struct blocks *b = res_blocks(m);
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->at[i].n; k++) {
            const struct block_tensor *t = &b->tensor[b->at[i].first + k];
            unsigned char *got = malloc(t->bytes + 1);
            size_t layer = 0;
            berth_err err = { 0 };
            assert_non_null(got);
            assert_ok(res_tensor_read(m, i, k, got, (size_t)t->bytes, &err), err);
            assert_int_equal(sscanf(t->entry->name, "layers.%zu.", &layer), 1);
            size_t tensor = layer * 2 + (strstr(t->entry->name, ".bias") != NULL);
            for (uint64_t at = 0; at < t->bytes; at++)
                if (got[at] != model_byte(tensor, at))
                    fail_msg("%s: byte %llu is wrong", t->entry->name, (unsigned long long)at);
            free(got);
        }
}

#endif
