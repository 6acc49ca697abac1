/* From the tensors of a file to blocks: names, order, roles, memory layout, limits. */
#include "base/str.h"
#include "plan/blocks.h"
#include "support/data_bytes.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static struct weights *open_file(const char *name, const struct weights_spec *spec, size_t n)
{
    struct weights *w;
    berth_err err = { 0 };
    const char *path = tmp_path(name);
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = n, .fill = fill
    };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

#define V(n)                                                                                       \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            n                                                                                      \
        }                                                                                          \
    }
#define M(a, b)                                                                                    \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            a, b                                                                                   \
        }                                                                                          \
    }

static const struct weights_spec mixed[] = {
    { "part.out.weight", DT_U8, M(10, 30) },
    { "part.emb.weight", DT_U8, M(100, 10) },
    { "part.in.bias", DT_U8, V(7) },
    { "part.in.weight", DT_U8, M(16, 16) },
    { "part.conv.0.weight", DT_F16, { 4, { 2, 2, 3, 3 } } },
    { "part.norm.weight", DT_F32, V(5) },
    { "part.out.bias", DT_U8, V(3) },
    { "part.in.weight_scale", DT_F32, { 0, { 0 } } },
    { "part.out.scale", DT_U8, M(0, 4) }, /* no bytes */
    { "part.alone", DT_U8, M(2, 2) },
    { "part.mod.table", DT_U8, V(9) },
    { "other.x.weight", DT_U8, V(1) },
};

static const struct block *find(const struct blocks *b, const char *name)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->at[i].name, name) == 0)
            return &b->at[i];
    fail_msg("no block %s", name);
    return NULL;
}

static void assert_names(const struct blocks *b, const char *const *name, size_t n)
{
    assert_int_equal(b->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(b->at[i].name, name[i]);
        assert_int_equal(b->at[i].name_len, strlen(name[i]));
    }
}

static void groups_by_name_in_file_order(void **state)
{
    (void)state;
    struct weights *w = open_file("a.safetensors", mixed, ARRAY_LEN(mixed));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, "part.", NULL, &b, &err), err);
    static const char *const names[] = { "out", "emb", "in", "conv.0", "norm", "alone", "mod" };
    assert_names(&b, names, ARRAY_LEN(names));
    assert_int_equal(b.tensors, 11);
    uint64_t sum = 0;
    for (size_t i = 0; i < b.n; i++)
        sum += b.at[i].bytes;
    assert_int_equal(sum, b.bytes);
    assert_int_equal(b.bytes, data_bytes(w) - 1);
    assert_int_equal(find(&b, "out")->bytes, 303);
    assert_int_equal(find(&b, "out")->n, 3);
    assert_int_equal(find(&b, "in")->bytes, 7 + 256 + 4);
    assert_int_equal(find(&b, "in")->kind, BLOCK_LINEAR);
    assert_int_equal(find(&b, "emb")->kind, BLOCK_LINEAR); /* nobody said more */
    assert_int_equal(find(&b, "conv.0")->kind, BLOCK_CONV);
    assert_int_equal(find(&b, "norm")->kind, BLOCK_NORM);
    assert_int_equal(find(&b, "alone")->kind, BLOCK_OTHER);
    assert_int_equal(find(&b, "mod")->kind, BLOCK_OTHER);
    assert_string_equal(block_kind_name(BLOCK_CONV), "Conv");
    blocks_release(&b);

    assert_ok(blocks_from_weights(w, NULL, NULL, &b, &err), err);
    assert_int_equal(b.n, 8); /* "part" has tensor alone only */
    assert_int_equal(find(&b, "part")->bytes, 4);
    blocks_release(&b);
    assert_fails(blocks_from_weights(w, "nobody.", NULL, &b, &err), err, BERTH_ENOTFOUND,
                 "'nobody.'");
    assert_int_equal(b.n, 0);
    blocks_release(&b);
    weights_close(w);
}

static void tensors_lie_aligned_in_their_block(void **state)
{
    (void)state;
    struct weights *w = open_file("b.safetensors", mixed, ARRAY_LEN(mixed));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, "part.", NULL, &b, &err), err);
    uint32_t first = 0;
    for (size_t i = 0; i < b.n; i++) {
        const struct block *k = &b.at[i];
        uint64_t end = 0, bytes = 0;
        assert_int_equal(k->first, first);
        for (uint32_t t = k->first; t < k->first + k->n; t++) {
            assert_int_equal(b.tensor[t].off % BLOCK_ALIGN, 0);
            assert_true(b.tensor[t].off >= end && b.tensor[t].off < end + BLOCK_ALIGN);
            assert_int_equal(b.tensor[t].bytes, b.tensor[t].entry->size);
            assert_memory_equal(b.tensor[t].entry->name + 5, k->name, k->name_len);
            end = b.tensor[t].off + b.tensor[t].bytes;
            bytes += b.tensor[t].bytes;
        }
        assert_int_equal(k->span, end);
        assert_int_equal(k->bytes, bytes);
        first += k->n;
    }
    assert_int_equal(first, b.tensors);
    assert_int_equal(find(&b, "in")->span, 256 + 256 + 4);
    blocks_release(&b);
    weights_close(w);
}

/* Whatever the file's order, the weight comes first, and what is of one size as in the file. */
static void the_largest_tensor_comes_first(void **state)
{
    (void)state;
    static const struct weights_spec spec[] = {
        { "x.bias", DT_U8, V(8) },    { "x.scale_a", DT_U8, V(4) },
        { "x.none", DT_U8, M(0, 4) }, { "x.weight", DT_U8, M(16, 32) },
        { "x.scale_b", DT_U8, V(4) },
    };
    static const char *const want[] = { "x.weight", "x.bias", "x.scale_a", "x.scale_b", "x.none" };
    static const uint64_t off[] = { 0, 512, 768, 1024, 1280 };
    struct weights *w = open_file("g.safetensors", spec, ARRAY_LEN(spec));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, NULL, NULL, &b, &err), err);
    assert_int_equal(b.at[0].n, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_string_equal(b.tensor[i].entry->name, want[i]);
        assert_int_equal(b.tensor[i].off, off[i]); /* the bias right behind the weight */
    }
    blocks_release(&b);
    weights_close(w);
}

/* Files of no known family: whole last parts, and nothing that only contains one. */
static void usual_names_of_embeddings_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool embedding;
    } row[] = {
        { "model.embed_tokens.weight", true },
        { "token_embd.weight", true },
        { "text.embeddings.token_embedding.weight", true },
        { "text.embeddings.position_embedding.weight", true },
        { "h.wte.weight", true },
        { "h.wpe.weight", true },
        { "shared.weight", true },
        { "patch_embed.weight", false },
        { "patch_embed.proj.weight", false },
        { "embed.weight", false },
        { "time_embedding.weight", false },
        { "shared.0.weight", false },
        { "unshared.weight", false },
        { "my_wte.weight", false },
    };
    struct weights_spec spec[ARRAY_LEN(row)];
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        spec[i] = (struct weights_spec) { row[i].name, DT_U8, M(4, 4) };
    struct weights *w = open_file("h.safetensors", spec, ARRAY_LEN(spec));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, NULL, NULL, &b, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        if (b.at[i].embedding != row[i].embedding)
            fail_msg("%s", row[i].name);
        assert_int_equal(b.at[i].kind, row[i].embedding ? BLOCK_EMBEDDING : BLOCK_LINEAR);
    }
    blocks_release(&b);
    /* a family knows better */
    const struct block_arch none = { .name = "none" };
    assert_ok(blocks_from_weights(w, NULL, &none, &b, &err), err);
    for (size_t i = 0; i < b.n; i++)
        assert_false(b.at[i].embedding);
    blocks_release(&b);
    weights_close(w);
}

static void a_tensor_without_a_dot_is_a_block(void **state)
{
    (void)state;
    static const struct weights_spec spec[] = {
        { "cls", DT_U8, V(5) },
        { "pos", DT_U8, V(6) },
        { "cls.more", DT_U8, V(7) },
        { ".weight", DT_U8, M(2, 4) },
    };
    struct weights *w = open_file("c.safetensors", spec, ARRAY_LEN(spec));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, "", NULL, &b, &err), err);
    static const char *const names[] = { "cls", "pos", "" };
    assert_names(&b, names, ARRAY_LEN(names));
    assert_int_equal(b.at[0].bytes, 12); /* names stay unique */
    assert_int_equal(b.at[2].bytes, 8);
    blocks_release(&b);
    weights_close(w);
}

static uint64_t turn_of(const char *name)
{
    return str_starts(name, strlen(name), "in.")    ? 3
           : str_starts(name, strlen(name), "out.") ? 9
                                                    : 5;
}

static berth_status in_first_out_last(const struct block_arch *a, const struct weights *w,
                                      const char *part, struct block_trace *out, berth_err *err)
{
    (void)err;
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name;
        assert_int_equal(out->use[i].when + out->use[i].work + out->use[i].lookup, 0);
        if (!str_starts(name, strlen(name), part))
            continue;
        name += strlen(part);
        out->use[i] = (struct block_use) { .when = turn_of(name),
                                           .lookup = str_starts(name, strlen(name), "emb.") };
        if (a->about) /* it knows costs */
            out->use[i].work = str_starts(name, strlen(name), "in.") ? 1000 : 3;
    }
    return BERTH_OK;
}

static const struct block_arch arch = { .name = "test", .trace = in_first_out_last };

static void an_architecture_orders_and_protects(void **state)
{
    (void)state;
    struct weights *w = open_file("d.safetensors", mixed, ARRAY_LEN(mixed));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, "part.", &arch, &b, &err), err);
    static const char *const names[] = { "in", "emb", "conv.0", "norm", "alone", "mod", "out" };
    assert_names(&b, names, ARRAY_LEN(names)); /* those of the same rank in file order */
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.at[i].embedding, i == 1);
    assert_int_equal(b.at[1].kind, BLOCK_EMBEDDING);
    assert_string_equal(b.tensor[b.at[0].first].entry->name, "part.in.weight");
    blocks_release(&b);
    weights_close(w);
}

/* What the architecture says of a block's tensors; nothing where it says nothing. */
static void an_architecture_estimates(void **state)
{
    (void)state;
    struct weights *w = open_file("e.safetensors", mixed, ARRAY_LEN(mixed));
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(blocks_from_weights(w, "part.", &arch, &b, &err), err);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.at[i].work, 0);
    blocks_release(&b);
    struct block_arch knows = arch;
    knows.about = "costs";
    assert_ok(blocks_from_weights(w, "part.", &knows, &b, &err), err);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.at[i].work, (strcmp(b.at[i].name, "in") == 0 ? 1000 : 3) * b.at[i].n);
    blocks_release(&b);
    weights_close(w);
}

/* By the last digit of the block; those that end in 7 are never come to. */
static berth_status by_last_digit(const struct block_arch *a, const struct weights *w,
                                  const char *part, struct block_trace *out, berth_err *err)
{
    (void)a, (void)part, (void)err;
    for (size_t i = 0; i < weights_count(w); i++) {
        char digit = weights_at(w, i)->name[3];
        out->use[i].when = digit == '7' ? 0 : (uint64_t)(digit - '0') + 1;
    }
    return BERTH_OK;
}

static berth_status out_of_memory(const struct block_arch *a, const struct weights *w,
                                  const char *part, struct block_trace *out, berth_err *err)
{
    (void)a, (void)w, (void)part, (void)out;
    return err_set(err, BERTH_ENOMEM, "a trace");
}

static void sorting_is_stable(void **state)
{
    (void)state;
    enum { N = 1000 };
    static struct weights_spec spec[N];
    static char name[N][24];
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "b%03d.weight", i);
        spec[i] = (struct weights_spec) { name[i], DT_U8, V(1) };
    }
    struct weights *w = open_file("e.safetensors", spec, N);
    struct blocks b;
    berth_err err = { 0 };
    const struct block_arch last = { .trace = by_last_digit };
    assert_ok(blocks_from_weights(w, NULL, &last, &b, &err), err);
    assert_int_equal(b.n, N);
    for (int i = 0; i < N; i++) {
        static const int digit[] = { 0, 1, 2, 3, 4, 5, 6, 8, 9, 7 }; /* what nobody uses is last */
        char want[16];
        snprintf(want, sizeof want, "b%03d", i % (N / 10) * 10 + digit[i / (N / 10)]);
        assert_string_equal(b.at[i].name, want);
    }
    blocks_release(&b);
    const struct block_arch fails = { .trace = out_of_memory };
    assert_fails(blocks_from_weights(w, NULL, &fails, &b, &err), err, BERTH_ENOMEM, "a trace");
    weights_close(w);
}

/* Bytes that fit 64 bits, and do not with the padding between them. */
static void too_large_together(void **state)
{
    (void)state;
    const uint64_t quarter = UINT64_C(1) << 62;
    const struct weights_spec spec[] = {
        { "b.w", DT_U8, { .ndim = 1, .dim = { quarter + 2 } } },
        { "b.x", DT_U8, { .ndim = 1, .dim = { quarter - 1 } } },
        { "b.y", DT_U8, { .ndim = 1, .dim = { quarter - 1 } } },
        { "b.z", DT_U8, { .ndim = 1, .dim = { quarter - 1 } } },
    };
    struct weights *w;
    struct blocks b;
    berth_err err = { 0 };
    assert_ok(weights_declare("large", spec, ARRAY_LEN(spec), &w, &err), err);
    assert_fails(blocks_from_weights(w, NULL, NULL, &b, &err), err, BERTH_ELIMIT, "block 'b'");
    blocks_release(&b); /* zeroed is fine */
    weights_close(w);
}

static void survives_oom(void **state)
{
    (void)state;
    struct weights *w = open_file("f.safetensors", mixed, ARRAY_LEN(mixed));
    berth_status s = BERTH_ENOMEM;
    long tries = 0;
    for (; s; tries++) {
        struct blocks b;
        berth_err err = { 0 };
        oom_after(tries);
        s = blocks_from_weights(w, "part.", &arch, &b, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0] && !b.n && !b.mem.head));
        blocks_release(&b);
    }
    assert_true(tries > 1);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_by_name_in_file_order),
        cmocka_unit_test(tensors_lie_aligned_in_their_block),
        cmocka_unit_test(the_largest_tensor_comes_first),
        cmocka_unit_test(usual_names_of_embeddings_are_known),
        cmocka_unit_test(a_tensor_without_a_dot_is_a_block),
        cmocka_unit_test(an_architecture_orders_and_protects),
        cmocka_unit_test(an_architecture_estimates),
        cmocka_unit_test(sorting_is_stable),
        cmocka_unit_test(too_large_together),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
