/* Random models, written and read back; random damage, refused or harmless.
 *
 * BERTH_SEED=n repeats one run; a failing seed is printed. */
#include "unit/format/build.h"

#include "support/tmp.h"

enum { MODELS = 60, DAMAGES = 4000, TENSORS_MAX = 40 };

static uint64_t seed, rng;
static volatile uint8_t touched; /* every byte is read, for the sanitizers to see */

static uint64_t rnd(uint64_t below)
{
    rng += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = rng;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static int setup(void **state)
{
    (void)state;
    const char *s = getenv("BERTH_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = s ? strtoull(s, NULL, 10) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20;
    print_message("BERTH_SEED=%llu\n", (unsigned long long)seed);
    return 0;
}

static void begin(uint64_t which)
{
    rng = seed * 31 + which;
}

/* ---- models ---- */

struct model {
    const char *format;
    struct weights_spec spec[TENSORS_MAX];
    char name[TENSORS_MAX][64];
    size_t count;
};

static const char *const parts[] = { "model", "diffusion_model", "blk",  "ä",   "0", "\"q\"",
                                     "\\",    "weight",          "日本", "a b", "/" };

static void random_name(char *out, size_t cap, size_t i)
{
    size_t n = (size_t)snprintf(out, cap, "%zu", i); /* unique */
    for (uint64_t k = rnd(5); k > 0; k--) {
        const char *p = parts[rnd(ARRAY_LEN(parts))];
        if (n + 1 + strlen(p) < cap)
            n += (size_t)snprintf(out + n, cap - n, ".%s", p);
    }
}

static enum dtype random_dtype(bool gguf)
{
    for (;;) {
        enum dtype t = (enum dtype)rnd(DT_COUNT);
        if (gguf ? dtype_desc(t)->ggml_id >= 0 : dtype_desc(t)->st_name != NULL)
            return t;
    }
}

/* A shape the format can take: whole blocks altogether, not always in the last dimension. */
static struct shape random_shape(enum dtype t)
{
    uint64_t block = dtype_desc(t)->elems;
    struct shape s = { .ndim = (int)rnd(7) };
    for (int i = 0; i < s.ndim; i++)
        s.dim[i] = rnd(20) ? 1 + rnd(6) : 0;
    if (block > 1) {
        s.ndim = s.ndim ? s.ndim : 1;
        s.dim[rnd((uint64_t)s.ndim)] = block * (1 + rnd(3));
    }
    return s;
}

static void random_model(struct model *m)
{
    bool gguf = rnd(2);
    m->format = gguf ? "gguf" : "safetensors";
    m->count = rnd(TENSORS_MAX + 1);
    for (size_t i = 0; i < m->count; i++) {
        random_name(m->name[i], sizeof m->name[i], i);
        enum dtype t = random_dtype(gguf);
        m->spec[i] =
            (struct weights_spec) { .name = m->name[i], .dtype = t, .shape = random_shape(t) };
    }
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)err;
    for (size_t k = 0; k < n; k++)
        ((uint8_t *)dst)[k] = (uint8_t)((off + k) * 13 + i);
    return BERTH_OK;
}

static void write_model(const struct model *m, const char *path)
{
    const struct weights_meta_spec meta[] = { { "general.architecture", "sd1" } };
    struct weights_write_args a = { .format = m->format,
                                    .path = path,
                                    .spec = m->spec,
                                    .count = m->count,
                                    .meta = meta,
                                    .meta_count = rnd(2),
                                    .fill = fill };
    berth_err err;
    if (weights_write(&a, &err))
        fail_msg("BERTH_SEED=%llu: %s", (unsigned long long)seed, err.msg);
}

static void compare(const struct weights *w, const struct model *m)
{
    assert_int_equal(weights_count(w), m->count);
    for (size_t i = 0; i < m->count; i++) {
        const struct weights_spec *s = &m->spec[i];
        const struct weights_entry *e = weights_find(w, s->name, strlen(s->name));
        if (!e || e->dtype != s->dtype || !shape_eq(&e->shape, &s->shape))
            fail_msg("BERTH_SEED=%llu: '%s' differs", (unsigned long long)seed, s->name);
        for (uint64_t k = 0; k < e->size; k++)
            if (weights_data(w, e)[k] != (uint8_t)(k * 13 + i))
                fail_msg("BERTH_SEED=%llu: '%s' byte %llu", (unsigned long long)seed, s->name,
                         (unsigned long long)k);
    }
}

static void written_models_are_read_back(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < MODELS; i++) {
        struct model m;
        struct weights *w;
        berth_err err;
        begin(i);
        random_model(&m);
        write_model(&m, tmp_path("model"));
        if (weights_open(tmp_path("model"), NULL, &w, &err))
            fail_msg("BERTH_SEED=%llu, model %llu: %s", (unsigned long long)seed,
                     (unsigned long long)i, err.msg);
        weights_verify(w);
        compare(w, &m);
        weights_close(w);
    }
}

/* ---- damage ---- */

/* Changes a few bytes of the header, preferring the ones that mean something. */
static void damage(uint8_t *p, size_t n)
{
    static const uint8_t loved[] = { 0,   1,   2,   0x7f, 0x80, 0xff, '"', '{', '}', '[',
                                     ']', ',', ':', '0',  '9',  '\\', '-', '.', 'e' };
    for (uint64_t k = 1 + rnd(4); k > 0; k--) {
        size_t at = (size_t)rnd(n < 2000 ? n : 2000);
        switch (rnd(3)) {
        case 0:
            p[at] = loved[rnd(ARRAY_LEN(loved))];
            break;
        case 1:
            p[at] = (uint8_t)(p[at] ^ 1u << rnd(8));
            break;
        default:
            p[at] = p[rnd(n)];
        }
    }
}

/* Whatever the damage: an error with a message, or an index whose invariants hold and whose every
 * byte can be read. */
static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    char *good = NULL;
    size_t n = 0, opened = 0;
    for (uint64_t i = 0; i < DAMAGES; i++) {
        berth_err err = { 0 };
        begin(1000000 + i);
        if (i % 500 == 0) {
            struct model m;
            random_model(&m);
            write_model(&m, tmp_path("model"));
            free(good);
            assert_ok(file_read_all(tmp_path("model"), 16 << 20, &good, &n, &err), err);
        }
        size_t len = rnd(8) ? n : (size_t)rnd(n + 1);
        uint8_t *p = malloc(len ? len : 1);
        memcpy(p, good, len);
        if (len)
            damage(p, len);
        struct weights_file file = { .name = "damaged", .data = p, .size = len };
        struct weights *w = NULL;
        if (weights_open_memory(&file, 1, NULL, &w, &err) == BERTH_OK) {
            weights_verify(w);
            opened++;
            for (size_t k = 0; k < weights_count(w); k++)
                for (uint64_t b = 0; b < weights_at(w, k)->size; b++)
                    touched ^= weights_data(w, weights_at(w, k))[b];
        } else if (!err.msg[0] || w) {
            fail_msg("BERTH_SEED=%llu, damage %llu: no message", (unsigned long long)seed,
                     (unsigned long long)i);
        }
        weights_close(w);
        free(p);
    }
    free(good);
    print_message("%zu of %d damaged files still opened\n", opened, DAMAGES);
    assert_true(opened < DAMAGES); /* some damage was noticed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_models_are_read_back),
        cmocka_unit_test(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
