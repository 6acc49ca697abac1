/* Any bytes as an adapter file: refused, or terms that lie inside the weights and can be read to the
 * end, whatever shape the weights have. */
#include "format/format_impl.h"
#include "lora/lora_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void need(bool ok)
{
    if (!ok)
        abort();
}

static const struct lora_name name[] = {
    { .base = "x", .key = "x.weight" },
    { .base = "lora_unet_y", .key = "y.weight" },
    { .base = "q", .key = "x.weight", .row = 0, .rows = 2 },
    { .base = "v", .key = "x.weight", .row = 2, .rows = 2 },
    { .base = "s", .key = "s.weight", .swap = true },
    { .base = "p", .key = "p.scale" },
};
static const char *const keys[] = { "x.weight", "x.bias", "y.weight", "s.weight", "p.scale" };
static const struct shape shapes[] = {
    { 0, { 0 } },          { 1, { 4 } },          { 2, { 4, 6 } }, { 2, { 2, 6 } }, { 2, { 1, 1 } },
    { 4, { 4, 3, 3, 3 } }, { 4, { 4, 6, 1, 1 } }, { 2, { 0, 6 } }, { 2, { 4, 0 } }, { 2, { 3, 5 } },
};

static float sum_of(const float *p, uint64_t n)
{
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

static void check_term(const struct res_term *t, const struct shape *s)
{
    uint64_t rows = s->ndim ? s->dim[0] : 1, cols = 1;
    for (int i = 1; i < s->ndim; i++)
        cols *= s->dim[i];
    need(t->cols == cols && t->rows <= rows && t->row <= rows - t->rows);
    volatile float seen;
    if (t->kind == TERM_LOWRANK)
        seen = sum_of(t->up, t->rows * t->rank) + sum_of(t->down, t->rank * t->cols);
    else
        seen = sum_of(t->dense, t->rows * t->cols);
    (void)seen;
}

static void check_key(const struct res_adapter *a, const char *key, const struct shape *s)
{
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    berth_status got = a->ops->terms(a, key, strlen(key), s, 0.5f, &tmp, &terms, &err);
    need(!got || err.msg[0]);
    need(!terms.n || a->ops->touches(a, key, strlen(key)));
    for (size_t i = 0; i < terms.n; i++)
        check_term(vec_at(&terms, i), s);
    vec_release(&terms);
    arena_release(&tmp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct weights_file file = { .name = "fuzz.safetensors", .data = data, .size = n };
    const struct lora_names names = { name, ARRAY_LEN(name) };
    struct weights *w = NULL;
    struct res_adapter *a = NULL;
    berth_err err = { 0 };
    if (weights_open_memory(&file, 1, NULL, &w, &err))
        return 0; /* that door has fuzzers of its own */
    if (lora_open_weights(w, &names, NULL, &a, &err)) {
        need(!a && err.msg[0]);
        return 0;
    }
    for (size_t k = 0; k < ARRAY_LEN(keys); k++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
            check_key(a, keys[k], &shapes[s]);
    res_adapter_unref(a);
    return 0;
}
