/* Any bytes as an adapter file: refused, or terms that lie inside the weights and can be read to
 * the end, whatever shape the weights have. */
#include "format/format_impl.h"
#include "lora/lora_impl.h"
#include "merge/merge.h"
#include "support/terms.h"

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
    { .base = "t", .key = "t.weight", .transpose = true },
    { .base = "o", .key = "o.weight", .from = 2, .of = 6 },
};
static const char *const keys[] = { "x.weight", "x.bias",   "y.weight", "s.weight",
                                    "p.scale",  "t.weight", "o.weight" };
static const struct shape shapes[] = {
    { 0, { 0 } },          { 1, { 4 } },          { 2, { 4, 6 } }, { 2, { 2, 6 } }, { 2, { 1, 1 } },
    { 4, { 4, 3, 3, 3 } }, { 4, { 4, 6, 1, 1 } }, { 2, { 0, 6 } }, { 2, { 4, 0 } }, { 2, { 3, 5 } },
};

#define MOST 256 /* elements of the largest of them */

/* Every array to its end, and all of them merged. */
static void check_terms(struct vec *terms, const struct shape *s)
{
    static const float base[MOST];
    static float merged[MOST];
    berth_err err = { 0 };
    struct arena scratch = { 0 };
    const struct merge_plain from = merge_numbers(DT_F32, base);
    struct merge_plain to = merge_numbers(DT_F32, merged);
    struct merge m = {
        .from = &merge_plain, .to = &merge_plain, .base = &from, .result = &to, .cols = 1
    };
    m.rows = s->ndim ? s->dim[0] : 1;
    for (int i = 1; i < s->ndim; i++)
        m.cols *= s->dim[i];
    need(!merge_take(&m, terms, 0, &scratch, &err) || merge_mixes(&m) == merge_spans(&m));
    for (size_t i = 0; i < terms->n; i++) {
        struct res_term *t = vec_at(terms, i);
        struct term_array a[TERM_ARRAYS];
        volatile float seen = 0;
        for (size_t n = term_arrays(t, a); n--;)
            for (size_t k = 0; k < a[n].n; k++)
                seen += (*a[n].at)[k];
        need(!(term_bound(t) < 0));
    }
    if (!merge_mixes(&m) || !merge_spans(&m)) {
        merge_norms(&m, NULL);
        merge_run(&m, NULL);
        (void)merge_amax(&m, NULL);
    }
    arena_release(&scratch);
}

static void check_key(const struct res_adapter *a, const char *key, const struct shape *s)
{
    struct arena tmp = { 0 };
    struct vec terms = { .elem = sizeof(struct res_term) };
    berth_err err = { 0 };
    berth_status got = a->ops->terms(a, key, strlen(key), s, 0.5f, &tmp, &terms, &err);
    need(!got || err.msg[0]);
    need(!terms.n || a->ops->touches(a, key, strlen(key)));
    uint64_t cols = s->ndim == 2 ? s->dim[1] : 0, wide = lora_widens(a, key, strlen(key), cols);
    need(!wide || (wide > cols && a->ops->touches(a, key, strlen(key))));
    if (!got)
        check_terms(&terms, s);
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
