/* The reader of pickles: what torch saved comes out, nothing is run, and what it refuses.
 *
 * tests/unit/format/pickles has files as people have them, each beside a .safetensors of the same
 * tensors (tools/pickle_files.py made both). Hostile ones are put together here. */
#include "unit/format/build.h"

#include "format/pickle_impl.h"
#include "support/torch_file.h"

#include <dirent.h>

#define FILES BERTH_SOURCE_DIR "/tests/unit/format/pickles/"

/* ---- files as people have them ---- */

static void assert_same(const char *path, const struct weights *a, const struct weights *b)
{
    if (weights_count(a) != weights_count(b))
        fail_msg("%s: %zu tensors, not %zu", path, weights_count(a), weights_count(b));
    for (size_t i = 0; i < weights_count(b); i++) {
        const struct weights_entry *y = weights_at(b, i),
                                   *x = weights_find(a, y->name, y->name_len);
        char xs[SHAPE_TEXT_MAX], ys[SHAPE_TEXT_MAX], was[512], now[512];
        berth_err err;
        if (!x)
            fail_msg("%s: no '%s'", path, y->name);
        if (x->dtype != y->dtype || !shape_eq(&x->shape, &y->shape))
            fail_msg("%s: '%s' is %s %s, not %s %s", path, y->name, dtype_name(x->dtype),
                     shape_text(&x->shape, xs), dtype_name(y->dtype), shape_text(&y->shape, ys));
        assert_true(y->size == x->size && y->size <= sizeof was);
        assert_ok(weights_read(a, x, 0, now, (size_t)x->size, &err), err);
        assert_ok(weights_read(b, y, 0, was, (size_t)y->size, &err), err);
        if (memcmp(was, now, (size_t)y->size) != 0)
            fail_msg("%s: '%s' has other values", path, y->name);
    }
}

static void values_are_those_that_torch_saved(void **state)
{
    (void)state;
    DIR *d = opendir(FILES);
    assert_non_null(d);
    int seen = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[512], twin[600];
        struct weights *a, *b;
        berth_err err;
        if (e->d_name[0] == '.' || str_ends(e->d_name, strlen(e->d_name), ".safetensors"))
            continue;
        snprintf(path, sizeof path, FILES "%s", e->d_name);
        snprintf(twin, sizeof twin, "%s.safetensors", path);
        assert_ok(weights_open(path, NULL, &a, &err), err);
        assert_ok(weights_open(twin, NULL, &b, &err), err);
        assert_string_equal(weights_format(a), "pickle");
        assert_int_equal(weights_shards(a), 1);
        weights_verify(a);
        assert_same(e->d_name, a, b);
        weights_close(a);
        weights_close(b);
        seen++;
    }
    closedir(d);
    assert_true(seen >= 25);
}

/* Python's dicts keep their order; in old files the bytes do not. */
static void the_first_tensor_is_the_first_listed(void **state)
{
    (void)state;
    static const char *const files[] = { "pair.pt", "pair_stream.pt" };
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char path[512];
        struct weights *w;
        berth_err err;
        snprintf(path, sizeof path, FILES "%s", files[i]);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        assert_string_equal(weights_first(w)->name, "clip_g");
        weights_close(w);
    }
}

/* Contiguous tensors stay in the mapping, also when they share bytes; others are copies. */
static void only_what_lies_scattered_is_copied(void **state)
{
    (void)state;
    struct weights *w;
    berth_err err;
    assert_ok(weights_open(FILES "views.pt", NULL, &w, &err), err);
    static const char *const there[] = { "base", "tied", "row", "rows", "one", "own", "nothing" };
    static const char *const copied[] = { "columns", "turned", "every_second", "wide",
                                          "channels_last" };
    for (size_t i = 0; i < ARRAY_LEN(there); i++)
        assert_int_equal(weights_find(w, there[i], strlen(there[i]))->shard, 0);
    for (size_t i = 0; i < ARRAY_LEN(copied); i++)
        assert_int_equal(weights_find(w, copied[i], strlen(copied[i]))->shard, 1);
    assert_int_equal(weights_shards(w), 1); /* files */
    assert_true(weights_find(w, "base", 4)->off == weights_find(w, "tied", 4)->off);
    weights_close(w);
}

/* ---- archives put together ---- */

static void zip_of(struct str *f, const struct member *m, size_t n, unsigned flags)
{
    struct str dir = { 0 };
    for (size_t i = 0; i < n; i++)
        zip_add(f, &dir, &m[i], flags);
    zip_end(f, &dir, n);
    str_release(&dir);
}

/* Pickle text: an array's bytes without the NUL behind them. */
#define P(text) text, sizeof text - 1
/* A storage of six floats, key '0', as a persistent id; a tensor [2, 3] in it. */
#define STORED(n)                                                                                  \
    "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"                                             \
    "0X\3\0\0\0cpuK" n "tQ"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"
#define HOOKS                                                                                      \
    "\x89"                                                                                         \
    "ccollections\nOrderedDict\n)R"
#define TENSOR REBUILD "(" STORED("\6") "K\0K\2K\3\x86K\3K\1\x86" HOOKS "tR"
/* A tensor [0, 3] there: no bytes of its own. */
#define NOTHING REBUILD "(" STORED("\6") "K\0K\0K\3\x86K\3K\1\x86" HOOKS "tR"
#define HEAD "\x80\2}X\1\0\0\0a"

static const char floats[] = "aaaabbbbccccddddeeeeffff"; /* 24 bytes */

/* An archive with this pickle and the storage. */
static void archive_of(struct str *f, const char *pickle, size_t n)
{
    const struct member m[] = { { "x/data.pkl", pickle, n }, { "x/data/0", floats, 24 } };
    zip_of(f, m, 2, LATER);
}

static void an_archive_put_together_opens(void **state)
{
    (void)state;
    struct str f = { 0 };
    struct weights *w;
    void *mem;
    berth_err err;
    archive_of(&f, P(HEAD TENSOR "s."));
    dump_case("valid", &f);
    assert_ok(open_bytes(&f, "a.pt", &mem, &w, &err), err);
    assert_int_equal(weights_count(w), 1);
    assert_int_equal(weights_at(w, 0)->size, 24);
    assert_memory_equal(weights_data(w, weights_at(w, 0)), floats, 24);
    weights_close(w);
    free(mem);
    str_release(&f);
}

/* ---- pickles that want something else ---- */

static const struct {
    const char *name, *pickle;
    size_t n;
    berth_status want;
    const char *text;
} hostile[] = {
    { "os_system", P("\x80\2cos\nsystem\nX\2\0\0\0id\x85R."), BERTH_EUNSUPPORTED,
      "wants os.system, which Berth does not run" },
    { "posix_system", P("\x80\2}X\1\0\0\0acposix\nsystem\nX\2\0\0\0id\x85Rs."), BERTH_EUNSUPPORTED,
      "wants posix.system" },
    { "eval",
      P("\x80\2cbuiltins\neval\nX\1\0\0\0"
        "1\x85R."),
      BERTH_EUNSUPPORTED, "wants builtins.eval" },
    { "exec_py2",
      P("\x80\2c__builtin__\nexec\nX\1\0\0\0"
        "1\x85R."),
      BERTH_EUNSUPPORTED, "wants __builtin__.exec" },
    { "stack_global", P("\x80\4\x8c\2os\x8c\6system\x93\x8c\2id\x85R."), BERTH_EUNSUPPORTED,
      "wants os.system" },
    { "stack_global_memo", P("\x80\4\x8c\2os\x94\x8c\6system\x94h\0h\1\x93."), BERTH_EUNSUPPORTED,
      "wants os.system" },
    { "stack_global_of_numbers", P("\x80\4K\1K\2\x93."), BERTH_EFORMAT, "imports an integer" },
    { "getattr", P("\x80\2cbuiltins\ngetattr\n."), BERTH_EUNSUPPORTED, "wants builtins.getattr" },
    { "torch_hub", P("\x80\2ctorch.hub\nload\n."), BERTH_EUNSUPPORTED, "wants torch.hub.load" },
    { "torch_load", P("\x80\2ctorch\nload\n."), BERTH_EUNSUPPORTED, "wants torch.load" },
    { "dotted", P("\x80\4\x8c\5torch\x8c\20_utils.os.system\x93."), BERTH_EUNSUPPORTED,
      "wants torch._utils.os.system" },
    { "module_of_torch", P("\x80\2ctorch.nn.modules.linear\nLinear\n)\x81."), BERTH_EUNSUPPORTED,
      "wants torch.nn.modules.linear.Linear" },
    { "omegaconf", P("\x80\2comegaconf.listconfig\nListConfig\n)\x81."), BERTH_EUNSUPPORTED,
      "wants omegaconf.listconfig.ListConfig" },
    { "inst", P("\x80\2(X\2\0\0\0idios\nsystem\n."), BERTH_EUNSUPPORTED, "wants os.system" },
    { "obj", P("\x80\2(ctorch\nSize\n)o."), BERTH_EUNSUPPORTED, "0x6f" },
    { "newobj_ex", P("\x80\4ctorch\nSize\n)}\x92."), BERTH_EUNSUPPORTED, "0x92" },
    { "ext1", P("\x80\2\x82\1."), BERTH_EUNSUPPORTED, "0x82" },
    { "buffer", P("\x80\5\x97."), BERTH_EUNSUPPORTED, "0x97" },
    { "persid_text", P("\x80\2Pstorage\n."), BERTH_EUNSUPPORTED, "0x50" },
    { "protocol_9", P("\x80\11N."), BERTH_EUNSUPPORTED, "protocol 9" },
    { "call_a_text", P("\x80\2X\2\0\0\0os)R."), BERTH_EFORMAT, "calls a text with a tuple" },
    { "call_a_dict", P("\x80\2})R."), BERTH_EFORMAT, "calls a dict" },
    { "call_a_tensor", P("\x80\2" TENSOR ")R."), BERTH_EFORMAT, "calls a tensor" },
    { "call_without_tuple", P("\x80\2ctorch\nSize\n]R."), BERTH_EFORMAT, "with a list" },
    { "call_a_type", P("\x80\2ctorch\nFloatStorage\n)R."), BERTH_EUNSUPPORTED,
      "calls torch.FloatStorage" },
    { "build_text", P("\x80\2X\1\0\0\0a}b."), BERTH_EUNSUPPORTED, "sets attributes of a text" },
    { "build_name", P("\x80\2ctorch\nSize\n}b."), BERTH_EUNSUPPORTED, "sets attributes of a name" },
    { "build_list", P("\x80\2]}b."), BERTH_EUNSUPPORTED, "sets attributes of a list" },
    { "build_itself", P("\x80\2ctorch.nn.modules.container\nParameterDict\n)\x81q\0h\0b."),
      BERTH_EFORMAT, "a dict without a tensor" },
    { "from_type_in_itself", P("\x80\2ctorch._tensor\n_rebuild_from_type_v2\nq\0h\0NNt\x87R."),
      BERTH_EFORMAT, "a mark that is not there" },
    { "from_type_twice", P("\x80\2ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0N)NtR."),
      BERTH_EFORMAT, "arguments it cannot have" },
    /* stack, marks, memo */
    { "empty", P(""), BERTH_EFORMAT, "cut short" },
    { "stop_alone", P("."), BERTH_EFORMAT, "more from its stack" },
    { "cut", P(HEAD "X\377\0\0\0"), BERTH_EFORMAT, "cut short" },
    { "no_stop", P("\x80\2}"), BERTH_EFORMAT, "cut short" },
    { "text_huge", P("\x80\2X\377\377\377\377a."), BERTH_ELIMIT, "a text of 4294967295 bytes" },
    { "text_huge_8", P("\x80\4\x8d\377\377\377\377\377\377\377\377a."), BERTH_ELIMIT, "a text of" },
    { "long_huge", P("\x80\2\x8b\377\377\377\377a."), BERTH_ELIMIT, "a text of" },
    { "name_endless", P("\x80\2ctorch"), BERTH_EFORMAT, "has no end" },
    { "pop_too_far", P("\x80\2N00N."), BERTH_EFORMAT, "more from its stack" },
    { "below_the_mark", P("\x80\2}K\1K\2(s."), BERTH_EFORMAT, "more from its stack" },
    { "mark_missing", P("\x80\2t."), BERTH_EFORMAT, "a mark that is not there" },
    { "nothing_marked", P("\x80\2(t."), BERTH_EFORMAT, "a tuple without a tensor" },
    { "mark_left", P("\x80\2}(."), BERTH_EFORMAT, "ends inside a collection" },
    { "memo_bomb", P("\x80\2Nr\377\377\377\377."), BERTH_ELIMIT, "memo entries" },
    { "memo_far", P("\x80\2Nr\377\377\0\0."), BERTH_EFORMAT, "numbers a value 65535" },
    { "memo_missing", P("\x80\2h\7."), BERTH_EFORMAT, "refers to value 7 before" },
    { "memo_of_nothing", P("\x80\2q\0."), BERTH_EFORMAT, "more from its stack" },
    { "odd_items", P("\x80\2}(Nu."), BERTH_EFORMAT, "adds 1 values to a dict" },
    { "append_to_dict", P("\x80\2}Na."), BERTH_EFORMAT, "adds 1 values to a dict" },
    { "set_in_tuple", P("\x80\2)NNs."), BERTH_EFORMAT, "adds 2 values to a tuple" },
    { "number_long", P("\x80\2L9999999999999999999L\n."), BERTH_EFORMAT, "is no number" },
    { "number_none", P("\x80\2I\n."), BERTH_EFORMAT, "is no number" },
    /* storages and tensors */
    { "no_tensor", P("\x80\2}."), BERTH_EFORMAT, "a dict without a tensor" },
    { "a_number", P("\x80\2K\1."), BERTH_EFORMAT, "an integer without a tensor" },
    { "persid_number", P("\x80\2K\1Q."), BERTH_EFORMAT, "no storage" },
    { "persid_short", P("\x80\2X\7\0\0\0storage\x85Q."), BERTH_EFORMAT, "no storage" },
    { "persid_type",
      P("\x80\2(X\7\0\0\0storagectorch\nSize\nX\1\0\0\0"
        "0X\3\0\0\0cpuK\6tQ."),
      BERTH_EFORMAT, "no storage" },
    { "persid_negative",
      P("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
        "0X\3\0\0\0cpuJ\377\377\377\377tQ."),
      BERTH_EFORMAT, "no storage" },
    { "persid_view",
      P("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
        "0X\3\0\0\0cpuK\6)tQ."),
      BERTH_EUNSUPPORTED, "before 0.4" },
    { "persid_too_large",
      P("\x80\2(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
        "0X\3\0\0\0cpu\x8a\10\377\377\377\377\377\377\377\177tQ."),
      BERTH_EFORMAT, "too large" },
    { "two_lives", P("\x80\2" STORED("\6") "0" STORED("\5") "."), BERTH_EFORMAT, "in two ways" },
    { "storage_larger", P(HEAD REBUILD "(" STORED("\7") "K\0K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "28 bytes in the pickle and 24 in the archive" },
    { "storage_missing",
      P(HEAD REBUILD "((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
                     "1X\3\0\0\0cpuK\6tQ"
                     "K\0K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "is not there" },
    { "storage_elsewhere",
      P(HEAD REBUILD
        "((X\7\0\0\0storagectorch\nFloatStorage\nX\13\0\0\0../data.pklX\3\0\0\0cpuK\6tQ"
        "K\0K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "is not there" },
    { "offset_beyond", P(HEAD REBUILD "(" STORED("\6") "K\1K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "reaches beyond its storage" },
    { "offset_negative",
      P(HEAD REBUILD "(" STORED("\6") "J\377\377\377\377K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "arguments it cannot have" },
    { "offset_huge",
      P(HEAD REBUILD "(" STORED(
          "\6") "\x8a\10\377\377\377\377\377\377\377\177K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "reaches beyond its storage" },
    { "stride_beyond", P(HEAD REBUILD "(" STORED("\6") "K\0K\2K\3\x86K\4K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "reaches beyond its storage" },
    { "stride_negative",
      P(HEAD REBUILD "(" STORED("\6") "K\5K\2K\3\x86K\3J\377\377\377\377\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "below zero" },
    { "stride_overflow",
      P(HEAD REBUILD "(" STORED(
          "\6") "K\0K\3K\1\x86\x8a\10\377\377\377\377\377\377\377\177K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "reaches beyond its storage" },
    { "strides_missing", P(HEAD REBUILD "(" STORED("\6") "K\0K\2K\3\x86)" HOOKS "tRs."),
      BERTH_EFORMAT, "has 0 strides" },
    { "shape_text", P(HEAD REBUILD "(" STORED("\6") "K\0X\1\0\0\0aK\1\x85" HOOKS "tRs."),
      BERTH_EUNSUPPORTED, "a text of 0 as its shape" },
    { "shape_nine",
      P(HEAD REBUILD "(" STORED("\6") "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)" HOOKS "tRs."),
      BERTH_EUNSUPPORTED, "a tuple of 9 as its shape" },
    { "shape_overflow",
      P(HEAD REBUILD "(" STORED("\6") "K\0\x8a\10\377\377\377\377\377\377\377\177\x8a\10\377\377"
                                      "\377\377\377\377\377\177\x86K"
                                      "\0K\0\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "reaches beyond its storage" },
    { "tensor_of_a_text", P(HEAD REBUILD "(X\1\0\0\0aK\0))tRs."), BERTH_EFORMAT,
      "arguments it cannot have" },
    { "tensor_of_nothing", P(HEAD REBUILD ")Rs."), BERTH_EFORMAT, "arguments it cannot have" },
    { "parameter_of_text", P(HEAD "ctorch._utils\n_rebuild_parameter\nX\1\0\0\0a\x85Rs."),
      BERTH_EFORMAT, "arguments it cannot have" },
    { "untyped_without_type",
      P(HEAD REBUILD "((X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0"
                     "0X\3\0\0\0cpuK\30tQK\0K\2K\3\x86K\3K\1\x86" HOOKS "tRs."),
      BERTH_EFORMAT, "arguments it cannot have" },
    { "complex",
      P(HEAD REBUILD "((X\7\0\0\0storagectorch\nComplexFloatStorage\nX\1\0\0\0"
                     "0X\3\0\0\0cpuK\6tQ."),
      BERTH_EUNSUPPORTED, "wants torch.ComplexFloatStorage" },
    /* a tensor of a billion elements in six floats */
    { "expanded", P(HEAD REBUILD "(" STORED("\6") "K\0J\0\312\232;\x85K\0\x85" HOOKS "tRs."),
      BERTH_ELIMIT, "share their bytes" },
    { "name_twice", P("\x80\2}(X\1\0\0\0a" TENSOR "q\0X\1\0\0\0ah\0u."), BERTH_EFORMAT,
      "'a' occurs twice" },
    { "name_empty", P("\x80\2}(X\0\0\0\0" TENSOR "X\1\0\0\0bNu."), BERTH_EFORMAT,
      "empty tensor name" },
    { "name_escape", P("\x80\2}X\1\0\0\0\33" TENSOR "s."), BERTH_EFORMAT, "control character" },
    { "itself", P("\x80\2}q\0(X\1\0\0\0ah\0X\1\0\0\0b" TENSOR "u."), BERTH_ELIMIT,
      "inside each other" },
    { "itself_only", P("\x80\2}q\0X\1\0\0\0ah\0s."), BERTH_ELIMIT, "inside each other" },
    { "deep", P("\x80\2]]]]]]]]]]]]]aaaaaaaaaaaa."), BERTH_ELIMIT, "inside each other" },
};

static void nothing_but_tensors_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        struct str f = { 0 };
        char name[64];
        archive_of(&f, hostile[i].pickle, hostile[i].n);
        snprintf(name, sizeof name, "vm_%s", hostile[i].name);
        expect_refusal(name, &f, "x.ckpt", hostile[i].want, hostile[i].text);
        str_release(&f);
    }
}

/* ---- pickles that grow ---- */

static void expect_limit(const char *name, const struct str *pickle, const char *text)
{
    struct str f = { 0 };
    berth_err err = { 0 };
    struct weights *w;
    void *mem;
    archive_of(&f, pickle->p, pickle->n);
    if (open_bytes(&f, "x.pt", &mem, &w, &err) != BERTH_ELIMIT || !strstr(err.msg, text))
        fail_msg("%s: '%s', wanted '%s'", name, err.msg, text);
    free(mem);
    str_release(&f);
}

/* Ten lists of ten of ten ...: few bytes, 10^7 places to walk. */
static void sharing_does_not_multiply(void **state)
{
    (void)state;
    struct str p = { 0 };
    str_add(&p, P("\x80\2]q\0"));
    for (char level = 0; level < 7; level++) {
        str_adds(&p, "](");
        for (int i = 0; i < 10; i++)
            str_add(&p, (const char[]) { 'h', level }, 2);
        str_add(&p, (const char[]) { 'e', 'q', (char)(level + 1) }, 3);
    }
    str_adds(&p, ".");
    expect_limit("shared", &p, "values in the pickle");
    str_release(&p);
}

/* One tensor without elements, which takes no bytes, in n lists of n: each place has its own
 * name. */
static void places_do_not_multiply(void **state)
{
    (void)state;
    struct str p = { 0 };
    str_add(&p, P("\x80\2](" NOTHING "q\0"));
    for (int i = 1; i < 100; i++)
        str_add(&p, P("h\0"));
    str_add(&p, P("eq\1]("));
    for (int i = 0; i < 100; i++)
        str_add(&p, P("h\1"));
    str_add(&p, P("e."));
    expect_limit("places", &p, "1 tensors in more than 1028 places");
    str_release(&p);
}

/* Each place has a copy of its name: together no more than a header could hold. */
static void names_are_bounded_together(void **state)
{
    (void)state;
    struct str p = { 0 }, f = { 0 };
    berth_err err = { 0 };
    struct weights *w;
    struct weights_limits lim = weights_limits_default;
    str_add(&p, P("\x80\2}X\144\0\0\0"));
    str_pad(&p, 'k', p.n + 100);
    str_add(&p, P("](" NOTHING "q\0"));
    for (int i = 1; i < 20; i++)
        str_add(&p, P("h\0"));
    str_add(&p, P("es."));
    archive_of(&f, p.p, p.n);
    const struct weights_file file = { .name = "x.pt", .data = f.p, .size = f.n };
    lim.max_header = 10 * 102 + 10 * 103;
    assert_ok(weights_open_memory(&file, 1, &lim, &w, &err), err);
    assert_int_equal(weights_count(w), 20);
    weights_close(w);
    lim.max_header--;
    assert_int_equal(weights_open_memory(&file, 1, &lim, &w, &err), BERTH_ELIMIT);
    assert_non_null(strstr(err.msg, "names of tensors that take more than 2049 bytes"));
    str_release(&p);
    str_release(&f);
}

static void limits_of_values_steps_and_memory(void **state)
{
    (void)state;
    struct str p = { 0 };
    str_add(&p, P("\x80\2"));
    str_pad(&p, 'N', PK_VALUES_MAX + 3); /* a value, and a place on the stack, each */
    expect_limit("values", &p, "values in the pickle");
    str_clear(&p);
    str_add(&p, P("\x80\2"));
    str_pad(&p, '(', PK_VALUES_MAX + 3);
    expect_limit("marks", &p, "marks in the pickle");
    str_clear(&p);
    str_add(&p, P("\x80\2N"));
    while (p.n < PK_STEPS_MAX + 2)
        str_adds(&p, "20202020202020202020202020202020"); /* up and down */
    expect_limit("steps", &p, "more than 67108864 steps");
    str_clear(&p);
    str_add(&p, P("\x80\2NN"));
    for (int i = 0; i < 12; i++) { /* a tuple of four million, twelve times: 32 MiB each */
        str_adds(&p, "(");
        str_pad(&p, 'N', p.n + 1);
        str_pad(&p, '2', p.n + PK_VALUES_MAX - 100);
        str_adds(&p, "t");
    }
    expect_limit("memory", &p, "takes more than 268435456 bytes");
    str_release(&p);
}

/* ---- archives that lie ---- */

/* The valid archive with `n` bytes at `at` behind the k-th `find` replaced. */
static const struct {
    const char *name, *find;
    int nth;
    size_t at, n;
    const char *put;
    berth_status want;
    const char *text;
} lies[] = {
    { "local_name", "PK\3\4", 1, 30, 1, "y", BERTH_EFORMAT, "described differently" },
    { "local_method", "PK\3\4", 1, 8, 1, "\10", BERTH_EFORMAT, "described differently" },
    { "local_size", "PK\3\4", 1, 22, 1, "\1", BERTH_EFORMAT, "described differently" },
    { "local_crc", "PK\3\4", 1, 14, 1, "\1", BERTH_EFORMAT, "described differently" },
    { "local_wide", "PK\3\4", 1, 18, 4, "\377\377\377\377", BERTH_EFORMAT, "described diff" },
    { "local_name_long", "PK\3\4", 1, 26, 2, "\377\377", BERTH_EFORMAT, "has no header" },
    { "local_extra_long", "PK\3\4", 1, 28, 2, "\377\377", BERTH_EFORMAT, "has no header" },
    { "local_magic", "PK\3\4", 1, 0, 1, "Q", BERTH_EFORMAT, "has no header" },
    { "compressed", "PK\1\2", 1, 10, 1, "\10", BERTH_EUNSUPPORTED, "is compressed" },
    { "encrypted", "PK\1\2", 1, 8, 1, "\11", BERTH_EUNSUPPORTED, "is encrypted" },
    { "packed_size", "PK\1\2", 1, 20, 1, "\7", BERTH_EUNSUPPORTED, "is compressed" },
    { "size_beyond", "PK\1\2", 1, 20, 8, "\0\0\0\177\0\0\0\177", BERTH_EFORMAT, "where only" },
    { "size_wide", "PK\1\2", 1, 20, 8, "\377\377\377\377\377\377\377\377", BERTH_EFORMAT,
      "cut short or malformed" },
    { "size_smaller", "PK\1\2", 1, 20, 8, "\10\0\0\0\10\0\0\0", BERTH_EFORMAT,
      "24 bytes in the pickle and 8 in" },
    { "head_beyond", "PK\1\2", 1, 42, 4, "\0\0\0\177", BERTH_EFORMAT, "has no header" },
    { "head_in_directory", "PK\1\2", 1, 42, 4, "\60\1\0\0", BERTH_EFORMAT, "has no header" },
    { "central_name", "PK\1\2", 1, 46, 8, "x/data/1", BERTH_EFORMAT, "described differently" },
    { "central_magic", "PK\1\2", 1, 0, 1, "Q", BERTH_EFORMAT, "cut short or malformed" },
    { "central_extra", "PK\1\2", 1, 30, 2, "\377\377", BERTH_EFORMAT, "cut short or malformed" },
    { "crc_of_pickle", "PK\1\2", 0, 16, 1, "\1", BERTH_EFORMAT, "data.pkl is damaged" },
    { "members_more", "PK\5\6", 0, 8, 4, "\3\0\3\0", BERTH_EFORMAT, "cut short or malformed" },
    { "members_many", "PK\5\6", 0, 8, 4, "\377\377\377\377", BERTH_EFORMAT,
      "cut short or malformed" },
    { "several_disks", "PK\5\6", 0, 4, 1, "\1", BERTH_EUNSUPPORTED, "several parts" },
    { "directory_beyond", "PK\5\6", 0, 16, 4, "\0\0\0\177", BERTH_EFORMAT, "outside the file" },
    { "directory_large", "PK\5\6", 0, 12, 4, "\0\0\0\177", BERTH_EFORMAT, "outside the file" },
    { "no_end", "PK\5\6", 0, 0, 1, "Q", BERTH_EFORMAT, "without its directory" },
    { "comment_long", "PK\5\6", 0, 20, 1, "\1", BERTH_EFORMAT, "without its directory" },
};

static char *nth(const struct str *f, const char *find, int k)
{
    char *at = f->p;
    for (;; at++) {
        at = memmem(at, f->n - (size_t)(at - f->p), find, strlen(find));
        assert_non_null(at);
        if (k-- == 0)
            return at;
    }
}

static void lying_archives_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        struct str f = { 0 };
        char name[64];
        archive_of(&f, P(HEAD TENSOR "s."));
        memcpy(nth(&f, lies[i].find, lies[i].nth) + lies[i].at, lies[i].put, lies[i].n);
        snprintf(name, sizeof name, "zip_%s", lies[i].name);
        expect_refusal(name, &f, "x.pt", lies[i].want, lies[i].text);
        str_release(&f);
    }
}

static void other_archives_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct member m[3];
        size_t n;
        berth_status want;
        const char *text;
    } c[] = {
        { "big_endian",
          { { "x/data.pkl", P(HEAD TENSOR "s.") },
            { "x/data/0", floats, 24 },
            { "x/byteorder", P("big") } },
          3,
          BERTH_EUNSUPPORTED,
          "big-endian" },
        { "torchscript",
          { { "x/data.pkl", P("\x80\2N.") }, { "x/constants.pkl", P("\x80\2).") } },
          2,
          BERTH_EUNSUPPORTED,
          "TorchScript" },
        { "no_pickle", { { "x/readme", P("hello") } }, 1, BERTH_EUNSUPPORTED, "without data.pkl" },
        { "other_folder",
          { { "x/readme", P("a") }, { "y/data.pkl", P("\x80\2N.") } },
          2,
          BERTH_EUNSUPPORTED,
          "without data.pkl" },
        { "member_twice",
          { { "x/data.pkl", P("\x80\2N.") }, { "x/data.pkl", P("\x80\2N.") } },
          2,
          BERTH_EFORMAT,
          "occurs twice" },
    };
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        struct str f = { 0 };
        char name[64];
        zip_of(&f, c[i].m, c[i].n, 0);
        snprintf(name, sizeof name, "zip_%s", c[i].name);
        expect_refusal(name, &f, "x.pt", c[i].want, c[i].text);
        str_release(&f);
    }
}

static void members_inside_others_are_refused(void **state)
{
    (void)state;
    struct str f = { 0 }, dir = { 0 }, in = { 0 }, inner = { 0 };
    zip_add(&in, &inner, &(struct member) { "x/data.pkl", P(HEAD TENSOR "s.") }, 0);
    zip_add(&f, &dir, &(struct member) { "x/around", in.p, in.n }, 0);
    uint32_t at = (uint32_t)(f.n - in.n); /* of the header inside */
    memcpy(inner.p + 42, &at, sizeof at);
    str_add(&dir, inner.p, inner.n);
    zip_end(&f, &dir, 2);
    expect_refusal("zip_overlap", &f, "x.pt", BERTH_EFORMAT, "overlap");
    str_release(&in);
    str_release(&inner);
    str_release(&f);
    str_release(&dir);
}

/* The numbers of large archives: sizes and places in the ZIP64 fields, the directory's in its own
 * record. */
static void wide_numbers_are_read(void **state)
{
    (void)state;
    const struct member m[] = { { "x/data.pkl", P(HEAD TENSOR "s.") }, { "x/data/0", floats, 24 } };
    struct str f = { 0 }, dir = { 0 };
    struct weights *w;
    void *mem;
    berth_err err;
    for (size_t i = 0; i < 2; i++) {
        uint64_t at = f.n, len = strlen(m[i].name);
        str_adds(&f, "PK\3\4");
        zip_uint(&f, 0, 8);
        zip_uint(&f, 0, 6);
        zip_uint(&f, UINT64_MAX, 8);
        zip_uint(&f, len, 2);
        zip_uint(&f, 20, 2);
        str_adds(&f, m[i].name);
        zip_uint(&f, 1, 2);
        zip_uint(&f, 16, 2);
        zip_uint(&f, m[i].n, 8);
        zip_uint(&f, m[i].n, 8);
        str_add(&f, m[i].data, m[i].n);
        str_adds(&dir, "PK\1\2");
        zip_uint(&dir, 0, 8);
        zip_uint(&dir, 0, 8);
        zip_uint(&dir, UINT64_MAX, 8);
        zip_uint(&dir, len, 2);
        zip_uint(&dir, 28, 2);
        zip_uint(&dir, 0, 2 + 8);
        zip_uint(&dir, UINT32_MAX, 4);
        str_adds(&dir, m[i].name);
        zip_uint(&dir, 1, 2);
        zip_uint(&dir, 24, 2);
        zip_uint(&dir, m[i].n, 8);
        zip_uint(&dir, m[i].n, 8);
        zip_uint(&dir, at, 8);
    }
    uint64_t at = f.n, end;
    str_add(&f, dir.p, dir.n);
    end = f.n;
    str_adds(&f, "PK\6\6");
    zip_uint(&f, 44, 8);
    zip_uint(&f, 0, 4);
    zip_uint(&f, 0, 8);
    zip_uint(&f, 2, 8);
    zip_uint(&f, 2, 8);
    zip_uint(&f, dir.n, 8);
    zip_uint(&f, at, 8);
    str_adds(&f, "PK\6\7");
    zip_uint(&f, 0, 4);
    zip_uint(&f, end, 8);
    zip_uint(&f, 1, 4);
    str_adds(&f, "PK\5\6");
    zip_uint(&f, 0, 4);
    zip_uint(&f, UINT32_MAX, 4);
    zip_uint(&f, UINT64_MAX, 8);
    zip_uint(&f, 0, 2);
    dump_case("zip_wide", &f);
    assert_ok(open_bytes(&f, "x.pt", &mem, &w, &err), err);
    assert_memory_equal(weights_data(w, weights_at(w, 0)), floats, 24);
    weights_close(w);
    free(mem);
    nth(&f, "PK\6\7", 0)[8]++; /* where the record is not */
    expect_refusal("zip_wide_lost", &f, "x.pt", BERTH_EFORMAT, "cut short or malformed");
    str_release(&f);
    str_release(&dir);
}

/* ---- files from before 2020 ---- */

#define MAGIC "\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define VERSION "\x80\2M\351\3."
#define LITTLE "\x80\2}X\15\0\0\0little_endian\x88s."
#define KEYS                                                                                       \
    "\x80\2]X\1\0\0\0"                                                                             \
    "0a."
#define COUNT "\6\0\0\0\0\0\0\0"
#define SIX "aaaabbbbccccddddeeeeffff"
#define OLD HEAD TENSOR "s."

static const struct {
    const char *name, *file;
    size_t n;
    berth_status want;
    const char *text;
} streams[] = {
    { "dict_alone", P("\x80\2}."), BERTH_EUNSUPPORTED, "not one that torch.save() wrote" },
    { "magic_other", P("\x80\2\x8a\12\x6d\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."),
      BERTH_EUNSUPPORTED, "not one that torch.save() wrote" },
    { "magic_alone", P(MAGIC), BERTH_EFORMAT, "cut short" },
    { "version", P(MAGIC "\x80\2M\352\3." LITTLE), BERTH_EUNSUPPORTED, "another version" },
    { "big", P(MAGIC VERSION "\x80\2}X\15\0\0\0little_endian\x89s."), BERTH_EUNSUPPORTED,
      "big-endian" },
    { "facts_missing", P(MAGIC VERSION "\x80\2N."), BERTH_EUNSUPPORTED, "big-endian" },
    { "call_in_front", P("\x80\2cos\nsystem\n."), BERTH_EUNSUPPORTED, "wants os.system" },
    { "call", P(MAGIC VERSION LITTLE "\x80\2cos\nsystem\nX\2\0\0\0id\x85R."), BERTH_EUNSUPPORTED,
      "wants os.system" },
    { "call_behind", P(MAGIC VERSION LITTLE OLD "\x80\2cos\nsystem\n."), BERTH_EUNSUPPORTED,
      "wants os.system" },
    { "no_keys", P(MAGIC VERSION LITTLE OLD), BERTH_EFORMAT, "cut short" },
    { "keys_fewer", P(MAGIC VERSION LITTLE OLD "\x80\2]."), BERTH_EFORMAT, "names 1 storages" },
    { "keys_twice",
      P(MAGIC VERSION LITTLE OLD "\x80\2]X\1\0\0\0"
                                 "0aX\1\0\0\0"
                                 "0a."),
      BERTH_EFORMAT, "names 1 storages" },
    { "keys_other",
      P(MAGIC VERSION LITTLE OLD "\x80\2]X\1\0\0\0"
                                 "1a." COUNT SIX),
      BERTH_EFORMAT, "no tensor is in" },
    { "keys_number", P(MAGIC VERSION LITTLE OLD "\x80\2]K\1a." COUNT SIX), BERTH_EFORMAT,
      "no tensor is in" },
    { "count_none", P(MAGIC VERSION LITTLE OLD KEYS "\6\0\0"), BERTH_EFORMAT, "cut short" },
    { "count_other", P(MAGIC VERSION LITTLE OLD KEYS "\5\0\0\0\0\0\0\0" SIX), BERTH_EFORMAT,
      "6 elements in the pickle and 5" },
    { "data_short", P(MAGIC VERSION LITTLE OLD KEYS COUNT "aaaabbbb"), BERTH_EFORMAT,
      "takes 24 bytes, but only 8 are there" },
    { "module_unknown", P(MAGIC VERSION LITTLE "\x80\2(X\6\0\0\0modulecnet\nNet\nNNtQ)\x81."),
      BERTH_EUNSUPPORTED, "wants net.Net" },
};

static void lying_streams_are_refused(void **state)
{
    (void)state;
    struct str f = { 0 };
    struct weights *w;
    void *mem;
    berth_err err;
    str_add(&f, P(MAGIC VERSION LITTLE OLD KEYS COUNT SIX));
    dump_case("stream_valid", &f);
    assert_ok(open_bytes(&f, "x.pt", &mem, &w, &err), err);
    assert_memory_equal(weights_data(w, weights_at(w, 0)), SIX, 24);
    weights_close(w);
    free(mem);
    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        char name[64];
        str_clear(&f);
        str_add(&f, streams[i].file, streams[i].n);
        snprintf(name, sizeof name, "stream_%s", streams[i].name);
        expect_refusal(name, &f, "x.pt", streams[i].want, streams[i].text);
    }
    str_release(&f);
}

/* Each file with its end missing is refused, wherever it is cut: no byte of it is optional but
 * what lies behind the last storage. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "views.pt", "views_stream.pt" };
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        char path[512], *data;
        size_t n;
        berth_err err;
        snprintf(path, sizeof path, FILES "%s", names[k]);
        assert_ok(file_read_all(path, 1 << 20, &data, &n, &err), err);
        for (size_t cut = 0; cut < n; cut++) {
            struct str f = { 0 };
            struct weights *w;
            void *mem;
            str_add(&f, data, cut);
            assert_true(open_bytes(&f, "x.pt", &mem, &w, &err) != BERTH_OK && !w);
            free(mem);
            str_release(&f);
        }
        free(data);
    }
}

static void exhaustion_is_clean(void **state)
{
    (void)state;
    static const char *const names[] = { "views.pt", "views_stream.pt", "lightning.ckpt",
                                         "inversion_first.pt" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char path[512], *data;
        size_t n;
        berth_err err;
        snprintf(path, sizeof path, FILES "%s", names[i]);
        assert_ok(file_read_all(path, 1 << 20, &data, &n, &err), err);
        expect_survives_oom(&(struct weights_file) { names[i], data, n }, 1);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_that_torch_saved),
        cmocka_unit_test(the_first_tensor_is_the_first_listed),
        cmocka_unit_test(only_what_lies_scattered_is_copied),
        cmocka_unit_test(an_archive_put_together_opens),
        cmocka_unit_test(nothing_but_tensors_is_known),
        cmocka_unit_test(sharing_does_not_multiply),
        cmocka_unit_test(places_do_not_multiply),
        cmocka_unit_test(names_are_bounded_together),
        cmocka_unit_test(limits_of_values_steps_and_memory),
        cmocka_unit_test(lying_archives_are_refused),
        cmocka_unit_test(other_archives_are_told_apart),
        cmocka_unit_test(members_inside_others_are_refused),
        cmocka_unit_test(wide_numbers_are_read),
        cmocka_unit_test(lying_streams_are_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(exhaustion_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
