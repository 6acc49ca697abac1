/* The synthetic weights against the rule written out plainly. */
#include "support/oom.h"
#include "support/test.h"

#include "model/preset.h"
#include "model/synth.h"
#include "model/synth_impl.h"

#include <math.h>

/* The rule of synth.h, word for word. */
static float plain_rule(const char *name, const struct shape *s, uint64_t i)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
    uint64_t z = h + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    z = z ^ z >> 31;
    double u = (double)(z >> 40) / 16777216.0 * 2 - 1;
    if (s->ndim >= 2) {
        double fan = 1;
        for (int k = 1; k < s->ndim; k++)
            fan *= (double)s->dim[k];
        return (float)(u * sqrt(3 / fan));
    }
    const char *dot = strrchr(name, '.');
    const char *last = dot ? dot + 1 : name;
    if (s->ndim == 1 &&
        (!strcmp(last, "weight") || !strcmp(last, "scale") || !strcmp(last, "running_var")))
        return (float)(1 + 0.1 * u);
    return (float)(0.1 * u);
}

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static const struct {
    const char *name;
    struct shape shape;
} cases[] = {
    { "a.weight", { 2, { 37, 91 } } },
    { "a.bias", { 1, { 1000 } } },
    { "norm.weight", { 1, { 1000 } } },
    { "q.scale", { 1, { 1000 } } },
    { "weight", { 1, { 1000 } } },
    { "scale", { 1, { 1000 } } },
    { "bn.running_var", { 1, { 128 } } },
    { "bn.running_mean", { 1, { 128 } } },
    { "a.weights", { 1, { 1000 } } },
    { "a.scale.x", { 1, { 1000 } } },
    { "aweight", { 1, { 1000 } } },
    { "", { 1, { 1000 } } },
    { "logit.weight", { 0, { 0 } } },
    { "conv.weight", { 4, { 10, 7, 3, 3 } } },
    { "na\xc3\xafve.weight", { 3, { 5, 1, 333 } } },
    { "ones.bias", { 8, { 1, 1, 1, 1, 1, 1, 1, 1000 } } },
    { "wide.weight", { 2, { 3, UINT64_C(1) << 33 } } },
};

static void equals_the_plain_rule(void **state)
{
    (void)state;
    const uint64_t firsts[] = { 0, 1, 31, 4095, UINT64_C(0xffffffff), UINT64_C(1) << 34 };
    for (size_t c = 0; c < ARRAY_LEN(cases); c++)
        for (size_t f = 0; f < ARRAY_LEN(firsts); f++) {
            float out[517];
            const struct shape *s = &cases[c].shape;
            synth_fill(cases[c].name, strlen(cases[c].name), s, firsts[f], ARRAY_LEN(out), out);
            for (size_t i = 0; i < ARRAY_LEN(out); i++) {
                float want = plain_rule(cases[c].name, s, firsts[f] + i);
                if (bits(want) != bits(out[i]))
                    fail_msg("'%s' element %llu: %a, the rule says %a", cases[c].name,
                             (unsigned long long)(firsts[f] + i), (double)out[i], (double)want);
            }
        }
}

static void every_kernel_gives_the_same_bits(void **state)
{
    (void)state;
    const struct synth_kernel *plain = &synth_kernels[synth_kernel_count - 1];
    assert_true(plain->here());
    static float want[20000], got[20000];
    const struct synth_rule rules[] = { { 123, sqrt(3.0 / 320) * 0x1p-23, 0 },
                                        { UINT64_MAX, 0.1 * 0x1p-23, 1 } };
    for (size_t r = 0; r < ARRAY_LEN(rules); r++)
        for (size_t k = 0; k < synth_kernel_count; k++) {
            if (!synth_kernels[k].here()) {
                print_message("%s: not on this machine\n", synth_kernels[k].name);
                continue;
            }
            for (size_t n = 0; n < 70; n++) { /* every remainder of every vector width */
                plain->fill(rules[r], n * 7, n, want);
                synth_kernels[k].fill(rules[r], n * 7, n, got);
                assert_memory_equal(want, got, n * sizeof *want);
            }
            plain->fill(rules[r], 99, ARRAY_LEN(want), want);
            synth_kernels[k].fill(rules[r], 99, ARRAY_LEN(got), got);
            assert_memory_equal(want, got, sizeof want);
        }
}

/* One list of keys that meets every rule about types. */
static void mixed_keys(struct keys *k)
{
    keys_tensor(k, "norm.weight", 3000, 0, 0, 0);       /* one dimension */
    keys_tensor(k, "small.weight", 32, 32, 0, 0);       /* 1024 elements */
    keys_tensor(k, "linear.weight", 33, 256, 0, 0);     /* whole blocks */
    keys_tensor(k, "conv.weight", 256, 4, 3, 3);        /* rows of 3, 9216 = 36 x 256 elements */
    keys_tensor(k, "odd.weight", 33, 33, 0, 0);         /* no whole blocks at all */
    keys_tensor(k, "rows32.weight", 33, 32, 0, 0);      /* blocks of 32, none of 256 */
    keys_tensor(k, "in.linear.weight", 256, 256, 0, 0); /* sensitive */
    assert_false(k->bad);
}

static enum dtype stored(const struct synth *s, const char *name)
{
    for (size_t i = 0; i < s->keys->n; i++)
        if (!strcmp(s->spec[i].name, name))
            return s->spec[i].dtype;
    fail_msg("no '%s'", name);
    return DT_NONE;
}

static void types_follow_the_rules(void **state)
{
    (void)state;
    static const char *const hiprec[] = { "in.", NULL };
    struct keys k = { 0 };
    struct synth s;
    berth_err err;
    mixed_keys(&k);

    assert_ok(synth_init(&s, &k, DT_F16, weights_writer_find("safetensors"), hiprec, NULL, &err),
              err);
    for (size_t i = 0; i < k.n; i++)
        assert_int_equal(s.spec[i].dtype, DT_F16);
    assert_int_equal(s.bytes, 2 * k.params);
    synth_release(&s);

    assert_ok(synth_init(&s, &k, DT_BF16, weights_writer_find("gguf"), hiprec, NULL, &err), err);
    assert_int_equal(stored(&s, "norm.weight"), DT_F32);
    assert_int_equal(stored(&s, "small.weight"), DT_F32);
    assert_int_equal(stored(&s, "odd.weight"), DT_BF16);
    assert_int_equal(stored(&s, "in.linear.weight"), DT_BF16);
    synth_release(&s);

    assert_ok(synth_init(&s, &k, DT_Q4_K, weights_writer_find("gguf"), hiprec, NULL, &err), err);
    assert_int_equal(stored(&s, "norm.weight"), DT_F32);
    assert_int_equal(stored(&s, "small.weight"), DT_F32);
    assert_int_equal(stored(&s, "linear.weight"), DT_Q4_K);
    assert_int_equal(stored(&s, "conv.weight"), DT_Q4_K);
    assert_int_equal(stored(&s, "odd.weight"), DT_F16);
    assert_int_equal(stored(&s, "rows32.weight"), DT_F16);
    assert_int_equal(stored(&s, "in.linear.weight"), DT_F16);
    synth_release(&s);

    assert_ok(synth_init(&s, &k, DT_Q8_0, weights_writer_find("gguf"), NULL, NULL, &err), err);
    assert_int_equal(stored(&s, "rows32.weight"), DT_Q8_0);
    assert_int_equal(stored(&s, "in.linear.weight"), DT_Q8_0);
    synth_release(&s);
    keys_release(&k);
}

static void refuses_and_says_what_goes(void **state)
{
    (void)state;
    struct keys k = { 0 };
    struct synth s;
    berth_err err;
    mixed_keys(&k);
    assert_fails(synth_init(&s, &k, DT_Q8_0, weights_writer_find("safetensors"), NULL, NULL, &err),
                 err, BERTH_EUNSUPPORTED, "gguf instead");
    assert_fails(synth_init(&s, &k, DT_F8_E4M3, weights_writer_find("gguf"), NULL, NULL, &err), err,
                 BERTH_EUNSUPPORTED, "safetensors instead");
    assert_fails(synth_init(&s, &k, DT_Q6_K, weights_writer_find("gguf"), NULL, NULL, &err), err,
                 BERTH_EUNSUPPORTED, "Q8_0");
    assert_fails(synth_init(&s, &k, DT_I32, weights_writer_find("safetensors"), NULL, NULL, &err),
                 err, BERTH_EUNSUPPORTED, "F8_E4M3");
    assert_fails(
        synth_init(&s, &k, DT_F8_E8M0, weights_writer_find("safetensors"), NULL, NULL, &err), err,
        BERTH_EUNSUPPORTED, "cannot make F8_E8M0");
    assert_null(s.spec);
    keys_release(&k);
}

/* Any cut of the bytes gives the bytes of the whole, in every type that can be made. */
static void encodes_alike_however_it_is_cut(void **state)
{
    (void)state;
    struct keys k = { 0 };
    berth_err err;
    keys_tensor(&k, "a.weight", 40, 512, 0, 0);
    const size_t count = 40 * 512;
    float *values = malloc(count * sizeof *values);
    uint8_t *want = malloc(count * 8), *got = malloc(count * 8);
    assert_true(values && want && got);
    synth_fill("a.weight", 8, &k.at[0].shape, 0, count, values);
    int made = 0;
    for (int t = 0; t < DT_COUNT; t++) {
        const struct weights_writer *f =
            synth_can((enum dtype)t, weights_writer_find("safetensors"))
                ? weights_writer_find("safetensors")
                : weights_writer_find("gguf");
        if (!synth_can((enum dtype)t, f))
            continue;
        made++;
        struct synth s;
        assert_ok(synth_init(&s, &k, (enum dtype)t, f, NULL, NULL, &err), err);
        assert_int_equal(s.spec[0].dtype, t);
        const struct dtype_desc *d = dtype_desc((enum dtype)t);
        size_t blocks = count / d->elems;
        d->from_f32(values, want, count);
        const size_t steps[] = { blocks, 1, 7, 4096u / d->elems + 1 };
        for (size_t c = 0; c < ARRAY_LEN(steps); c++) {
            memset(got, 0xee, count * 8);
            for (size_t at = 0; at < blocks; at += steps[c]) {
                size_t n = blocks - at < steps[c] ? blocks - at : steps[c];
                assert_ok(synth_weights_fill(&s, 0, at * d->bytes, got + at * d->bytes,
                                             n * d->bytes, &err),
                          err);
            }
            if (memcmp(got, want, blocks * d->bytes))
                fail_msg("%s in steps of %zu blocks differs", d->name, steps[c]);
        }
        synth_release(&s);
    }
    assert_true(made >= 10); /* six plain ones, four quants */
    free(values);
    free(want);
    free(got);
    keys_release(&k);
}

static void stops_when_told(void **state)
{
    (void)state;
    struct keys k = { 0 };
    struct synth s;
    berth_err err;
    atomic_bool stop = false;
    float out[64];
    keys_tensor(&k, "a.weight", 8, 8, 0, 0);
    assert_ok(synth_init(&s, &k, DT_F32, weights_writer_find("safetensors"), NULL, &stop, &err),
              err);
    assert_ok(synth_weights_fill(&s, 0, 0, out, sizeof out, &err), err);
    atomic_store(&stop, true);
    assert_fails(synth_weights_fill(&s, 0, 0, out, sizeof out, &err), err, BERTH_ECANCELED,
                 "stopped");
    synth_release(&s);
    keys_release(&k);
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    struct keys k = { 0 };
    berth_err err;
    mixed_keys(&k);
    berth_status st = BERTH_ENOMEM;
    for (long n = 0; st != BERTH_OK; n++) {
        struct synth s;
        err = (berth_err) { 0 };
        oom_after(n);
        st = synth_init(&s, &k, DT_F32, weights_writer_find("safetensors"), NULL, NULL, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !s.spec && err.msg[0]));
        synth_release(&s);
    }
    keys_release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_plain_rule),
        cmocka_unit_test(every_kernel_gives_the_same_bits),
        cmocka_unit_test(types_follow_the_rules),
        cmocka_unit_test(refuses_and_says_what_goes),
        cmocka_unit_test(encodes_alike_however_it_is_cut),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
