/* The command-line reader: every form, every mistake. */
#include "support/test.h"

#include "app/args.h"
#include "base/str.h"

struct got {
    bool json, all;
    const char *output, *level;
    uint64_t threads;
    struct opt_list set;
    int n;
    char *argv[OPT_LIST_MAX + 16];
    berth_err err;
};

/* Parses the blank-separated words of `line`. */
static berth_status parse(struct got *g, const char *line, bool front)
{
    static char text[1024];
    *g = (struct got) { .threads = 99 };
    snprintf(text, sizeof text, "%s", line);
    int argc = 0;
    for (char *p = text; *p;) {
        g->argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    const struct opt global[] = {
        opt_text("log-level", "LEVEL", "how much", &g->level),
    };
    const struct opts last = { .at = global, .n = ARRAY_LEN(global) };
    const struct opt opt[] = {
        opt_flag("json", "as JSON", &g->json),
        opt_letter('a', opt_flag("all", "all", &g->all)),
        opt_letter('o', opt_text("output", "FILE", "where", &g->output)),
        opt_letter('j', opt_int("threads", "N", "how many", 1, 64, &g->threads)),
        opt_letter('s', opt_list("set", "X", "several", &g->set)),
    };
    static const struct opt_guess guess[] = { { "thread", "-j has them" }, { 0 } };
    const struct opts first = { .at = opt, .n = ARRAY_LEN(opt), .next = &last, .guess = guess };
    return front ? args_parse_front(&first, argc, g->argv, &g->n, &g->err)
                 : args_parse(&first, argc, g->argv, &g->n, &g->err);
}

static void every_form(void **state)
{
    (void)state;
    struct got g;
    assert_ok(parse(&g, "", false), g.err);
    assert_int_equal(g.n, 0);
    assert_int_equal(g.threads, 99);
    assert_ok(parse(&g, "a --json b --output x c --threads=7 --log-level=info -", false), g.err);
    assert_true(g.json && !g.all);
    assert_string_equal(g.output, "x");
    assert_string_equal(g.level, "info");
    assert_int_equal(g.threads, 7);
    assert_int_equal(g.n, 4);
    assert_string_equal(g.argv[0], "a");
    assert_string_equal(g.argv[2], "c");
    assert_string_equal(g.argv[3], "-");
    assert_ok(parse(&g, "-a -o x -j8", false), g.err);
    assert_true(g.all);
    assert_string_equal(g.output, "x");
    assert_int_equal(g.threads, 8);
    assert_ok(parse(&g, "-ao-", false), g.err); /* bundled, the value attached */
    assert_true(g.all);
    assert_string_equal(g.output, "-");
    assert_ok(parse(&g, "--output=--json --output=", false), g.err); /* the last one counts */
    assert_string_equal(g.output, "");
    assert_false(g.json);
    assert_ok(parse(&g, "--json -- --json -x --", false), g.err);
    assert_int_equal(g.n, 3);
    assert_string_equal(g.argv[0], "--json");
    assert_string_equal(g.argv[1], "-x");
    assert_string_equal(g.argv[2], "--");
    assert_ok(parse(&g, "--output=a=b", false), g.err);
    assert_string_equal(g.output, "a=b");
    assert_ok(parse(&g, "-o -1", false), g.err); /* one dash may be a value */
    assert_string_equal(g.output, "-1");
}

static void every_mistake(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } bad[] = {
        { "--jsn", "unknown option '--jsn', did you mean '--json'?" },
        { "--josn", "did you mean '--json'?" },
        { "--out x", "did you mean '--output'?" },
        { "--outptu=x", "unknown option '--outptu', did you mean '--output'?" },
        { "--log-levle=x", "did you mean '--log-level'?" },
        { "--zebra", "unknown option '--zebra'" },
        { "--thread=3", "unknown option '--thread': -j has them" }, /* not the nearest name */
        { "--threed=3", "did you mean '--threads'?" },
        { "--=x", "unknown option '--'" },
        { "---json", "unknown option '---json'" },
        { "-x", "unknown option '-x'" },
        { "-json", "unknown option '-json', did you mean '--json'?" },
        { "-output", "did you mean '--output'?" },
        { "-bjson", "unknown option '-bjson'" },
        { "-az", "unknown option '-z'" },
        { "--json=yes", "'--json' takes no value" },
        { "--output", "'--output' needs a value: FILE" },
        { "-o", "'-o' needs a value: FILE" },
        { "-j", "'-j' needs a value: N" },
        { "--output --json", "'--json' looks like an option (write --output=--json" },
        { "--threads 0", "--threads: '0' is no number from 1 to 64" },
        { "--threads 65", "from 1 to 64" },
        { "--threads=-1", "from 1 to 64" },
        { "--threads=", "from 1 to 64" },
        { "--threads=4x", "from 1 to 64" },
        { "--threads=99999999999999999999", "from 1 to 64" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct got g;
        if (parse(&g, bad[i].line, false) != BERTH_EINVAL || !strstr(g.err.msg, bad[i].says))
            fail_msg("'%s': '%s', wanted '%s'", bad[i].line, g.err.msg, bad[i].says);
    }
    struct got g;
    assert_fails(parse(&g, "--zebra", false), g.err, BERTH_EINVAL, "zebra");
    assert_null(strstr(g.err.msg, "mean"));
}

static void lists_keep_every_value(void **state)
{
    struct got g;
    struct str line = { 0 };
    (void)state;
    assert_ok(parse(&g, "--set a file --set=b -sc -s d -- --set", false), g.err);
    assert_int_equal(g.set.n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(g.set.at[i], &"a\0b\0c\0d"[2 * i], 2);
    assert_int_equal(g.n, 2);
    assert_string_equal(g.argv[1], "--set"); /* behind "--": no option */
    assert_fails(parse(&g, "--set", false), g.err, BERTH_EINVAL, "'--set' needs a value: X");
    for (int i = 0; i <= OPT_LIST_MAX; i++)
        str_adds(&line, i ? " --set=x" : "--set=x");
    assert_fails(parse(&g, str_c(&line), false), g.err, BERTH_EINVAL, "more than 64 --set");
    str_release(&line);
}

static void a_very_long_option(void **state)
{
    (void)state;
    struct got g;
    char line[400] = "--";
    memset(line + 2, 'x', 300);
    assert_fails(parse(&g, line, false), g.err, BERTH_EINVAL, "unknown option '--xxx");
    assert_true(strlen(g.err.msg) < 120);
}

static void front_stops_at_the_command(void **state)
{
    (void)state;
    struct got g;
    assert_ok(parse(&g, "--log-level info inspect --unknown", true), g.err);
    assert_int_equal(g.n, 2);
    assert_string_equal(g.level, "info");
    assert_string_equal(g.argv[g.n], "inspect");
    assert_ok(parse(&g, "--json", true), g.err);
    assert_int_equal(g.n, 1);
    assert_ok(parse(&g, "-- -x", true), g.err);
    assert_int_equal(g.n, 1);
    assert_fails(parse(&g, "--bad inspect", true), g.err, BERTH_EINVAL, "--bad");
}

static void help_is_aligned(void **state)
{
    (void)state;
    bool flag;
    const char *text;
    const struct opt a[] = { opt_flag("json", "as JSON", &flag) };
    const struct opt b[] = { opt_letter('o', opt_text("output", "FILE", "where", &text)) };
    const struct opts second = { .at = b, .n = 1 }, first = { .at = a, .n = 1, .next = &second };
    struct str s = { 0 };
    args_help(&first, &s);
    assert_string_equal(str_c(&s), "      --json         as JSON\n"
                                   "  -o, --output FILE  where\n");
    str_clear(&s);
    const struct opt wide[] = { { .name = "x",
                                  .help = "eighty columns are what a terminal has, and texts that "
                                          "need more go on below" } };
    args_help(&(struct opts) { .at = wide, .n = 1 }, &s);
    assert_string_equal(
        str_c(&s),
        "      --x  eighty columns are what a terminal has, and texts that need more go\n"
        "           on below\n");
    str_release(&s);
}

static const char *nearest_of(const char *word)
{
    static const char *const words[] = { "inspect",          "synth",
                                         "devices",          "version",
                                         "tiny.safetensors", "sdxl_base.safetensors" };
    struct nearest n = { .word = word };
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        nearest_try(&n, words[i]);
    return n.best ? n.best : "";
}

static void nearest_words(void **state)
{
    (void)state;
    assert_string_equal(nearest_of("inspct"), "inspect");
    assert_string_equal(nearest_of("isnpect"), "inspect");
    assert_string_equal(nearest_of("syntth"), "synth");
    assert_string_equal(nearest_of("device"), "devices");
    assert_string_equal(nearest_of("ver"), "version");
    assert_string_equal(nearest_of("xyz"), "");
    assert_string_equal(nearest_of("nosuch.safetensors"), ""); /* the ending alone is alike */
    assert_string_equal(nearest_of("sdxl_bse.safetensors"), "sdxl_base.safetensors");
    assert_string_equal(nearest_of("tiny.safetensor"), "tiny.safetensors");
    assert_string_equal(nearest_of("TINY.SAFETENSORS"), "tiny.safetensors");
    assert_string_equal(nearest_of(""), "");
    assert_string_equal(nearest_of("a-word-that-is-much-longer-than-anything-there-is"), "");
}

static const char *model_name(size_t i)
{
    static const char *const names[] = { "flux2-dev", "flux-tiny", "flux-dev", "flux-vae",
                                         "sd15",      "Q4_K",      "dpmpp_2m", "dpmpp_2m_sde",
                                         "lm-1",      "lm-2",      "lm-3",     "lm-4",
                                         "lm-5",      "lm-6",      "lm-7",     NULL };
    return names[i];
}

static void suggestions(void **state)
{
    (void)state;
    static const struct {
        const char *word, *want;
    } cases[] = {
        { "flux", ", did you mean 'flux-tiny', 'flux-dev' or 'flux-vae'?" },
        { "FLUX-", ", did you mean 'flux-tiny', 'flux-dev' or 'flux-vae'?" },
        { "flux2", ", did you mean 'flux2-dev'?" },
        { "lm", ", did you mean 'lm-1', 'lm-2', 'lm-3', 'lm-4', 'lm-5' or 2 others?" },
        { "flux-t", ", did you mean 'flux-tiny'?" },
        { "flux-dve", ", did you mean 'flux-dev'?" },
        { "sd", ", did you mean 'sd15'?" },
        { "q4k", ", did you mean 'Q4_K'?" },
        { "dpm++2m", ", did you mean 'dpmpp_2m'?" },
        { "DPM++ 2M SDE", ", did you mean 'dpmpp_2m_sde'?" },
        { "s", "" },
        { "whatever", "" },
        { "", "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str out = { 0 };
        bool some = suggest(&out, cases[i].word, model_name);
        assert_string_equal(str_c(&out), cases[i].want);
        assert_int_equal(some, cases[i].want[0] != '\0');
        str_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(every_mistake),
        cmocka_unit_test(lists_keep_every_value),
        cmocka_unit_test(a_very_long_option),
        cmocka_unit_test(front_stops_at_the_command),
        cmocka_unit_test(help_is_aligned),
        cmocka_unit_test(nearest_words),
        cmocka_unit_test(suggestions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
