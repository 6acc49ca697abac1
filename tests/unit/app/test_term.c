/* What terminals are promised: no colour where none is wanted, no control characters at all. */
#include "support/clock_manual.h"
#include "support/test.h"

#include "app/term.h"

static void the_rules(void **state)
{
    (void)state;
    struct term t =
        term_decide(true, 120, &(struct term_env) { .lang = "en_US.UTF-8", .term = "xterm" });
    assert_true(t.tty && t.color && t.utf8);
    assert_int_equal(t.width, 120);
    t = term_decide(true, 0, &(struct term_env) { .no_color = "1", .columns = "66", .lang = "C" });
    assert_true(t.tty && !t.color && !t.utf8);
    assert_int_equal(t.width, 66);
    t = term_decide(true, 80, &(struct term_env) { .no_color = "" });
    assert_true(t.color); /* empty does not count */
    t = term_decide(true, 80, &(struct term_env) { .term = "dumb" });
    assert_false(t.color);
    assert_false(t.photos);
    struct term_env rich = { .lang = "C.UTF-8", .colorterm = "truecolor" };
    assert_true(term_decide(true, 80, &rich).photos);
    assert_false(term_decide(false, 80, &rich).photos);
    rich.colorterm = "1";
    assert_false(term_decide(true, 80, &rich).photos);
    rich = (struct term_env) { .lang = "C", .colorterm = "24bit" };
    assert_false(term_decide(true, 80, &rich).photos); /* no block characters */
    t = term_decide(false, 0, &(struct term_env) { .lc_all = "de_DE.utf8", .lang = "C" });
    assert_true(!t.tty && !t.color && t.utf8);
    assert_int_equal(t.width, 80);
    t = term_decide(false, 0, &(struct term_env) { .lc_all = "C", .lang = "de_DE.utf8" });
    assert_false(t.utf8);
    t = term_decide(false, 0, &(struct term_env) { .lc_all = "", .lc_ctype = "C.UTF-8" });
    assert_true(t.utf8);
    assert_int_equal(term_decide(true, 3, &(struct term_env) { 0 }).width, TERM_WIDTH_MIN);
    assert_int_equal(term_decide(true, 9999, &(struct term_env) { 0 }).width, TERM_WIDTH_MAX);
    assert_int_equal(term_decide(false, 0, &(struct term_env) { .columns = "wide" }).width, 80);
    assert_int_equal(term_decide(false, 0, &(struct term_env) { .columns = "99999999999" }).width,
                     TERM_WIDTH_MAX);
    assert_int_equal(term_decide(false, 0, &(struct term_env) { .columns = "0" }).width, 80);
}

static void check_safe(const char *s, size_t n, size_t max, const char *want)
{
    struct str out = { 0 };
    term_safe(&out, s, n, max);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
}

static void check_cell(const char *s, size_t width, const char *want)
{
    struct str out = { 0 };
    term_cell(&out, s, strlen(s), width);
    assert_string_equal(str_c(&out), want);
    assert_int_equal(term_width_of(str_c(&out)), width);
    str_release(&out);
}

/* Columns, not bytes: what stands behind a cell never shifts. */
static void cells_have_their_width(void **state)
{
    (void)state;
    check_cell("", 4, "    ");
    check_cell("abc", 4, "abc ");
    check_cell("abcd", 4, "abcd");
    check_cell("abcdefgh", 6, "abc...");
    check_cell("na\xc3\xafve", 6, "na\xc3\xafve ");
    check_cell("na\xc3\xafvely", 6, "na\xc3\xaf...");
    check_cell("a\033b", 8, "a\\x1bb  ");
    check_cell("a\033bcdef", 6, "a...  "); /* an escape is shown whole or not at all */
    check_cell("abcdef", 3, "...");
}

#define SAFE(s, max, want) check_safe(s, sizeof s - 1, max, want)

static void text_is_made_safe(void **state)
{
    (void)state;
    SAFE("", 0, "");
    SAFE("plain.weight", 0, "plain.weight");
    SAFE("na\xc3\xafve \xe2\x98\x95 \xf0\x9f\x90\x88", 0,
         "na\xc3\xafve \xe2\x98\x95 \xf0\x9f\x90\x88");
    SAFE("\033[31mred\a\r\n\t", 0, "\\x1b[31mred\\x07\\x0d\\n\\x09");
    SAFE("nul\0in", 0, "nul\\x00in");
    SAFE("\x7f\xc2\x85", 0, "\\x7f\\x85"); /* DEL, C1 next line */
    SAFE("a\xe2\x80\xae"
         "b",
         0, "a\\u{202e}b");                                /* right-to-left override */
    SAFE("\xef\xbb\xbfx", 0, "\\u{feff}x");                /* byte order mark */
    SAFE("\xff\xc3(\xe2\x80", 0, "\\xff\\xc3(\\xe2\\x80"); /* malformed */
    SAFE("\xed\xa0\x80", 0, "\\xed\\xa0\\x80");            /* a surrogate */
    SAFE("abcdef", 6, "abcdef");
    SAFE("abcdefg", 6, "abcdef...");
    SAFE("ab\033cd", 5, "ab..."); /* an escape is shown whole or not at all */
    SAFE("\xe2\x98\x95\xe2\x98\x95\xe2\x98\x95", 2, "\xe2\x98\x95\xe2\x98\x95...");
}

static void check_bar(bool utf8, double share, int width, const char *want)
{
    const struct term t = { .utf8 = utf8 };
    struct str out = { 0 };
    term_bar(&out, &t, share, width);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
}

static void bars(void **state)
{
    (void)state;
    check_bar(false, 0, 4, "....");
    check_bar(false, 0.5, 4, "##..");
    check_bar(false, 1, 4, "####");
    check_bar(false, 7, 4, "####");
    check_bar(false, -7, 4, "....");
    check_bar(true, 0.5, 4, "██  ");
    check_bar(true, 0.625, 2, "█▎");
    check_bar(true, 1, 2, "██");
    check_bar(true, 0, 2, "  ");
}

static void check_number(uint64_t v, const char *full, const char *brief)
{
    struct str out = { 0 };
    term_number(&out, v);
    assert_string_equal(str_c(&out), full);
    str_clear(&out);
    term_short_number(&out, v);
    assert_string_equal(str_c(&out), brief);
    str_release(&out);
}

static void numbers(void **state)
{
    (void)state;
    check_number(0, "0", "0");
    check_number(999, "999", "999");
    check_number(1000, "1,000", "1.00 K");
    check_number(859520964, "859,520,964", "860 M");
    check_number(11901408320, "11,901,408,320", "11.9 B");
    check_number(999999, "999,999", "1.00 M");
    check_number(UINT64_MAX, "18,446,744,073,709,551,615", "18446744 T");
}

static void counts_and_their_words(void **state)
{
    (void)state;
    struct str out = { 0 };
    term_count(&out, 0, "tensor");
    str_addc(&out, ',');
    term_count(&out, 1, "tensor");
    str_addc(&out, ',');
    term_count(&out, 1234, "tensor");
    assert_string_equal(str_c(&out), "0 tensors,1 tensor,1234 tensors");
    str_release(&out);
}

static void words_wrap_whole(void **state)
{
    (void)state;
    struct str out = { 0 };
    term_wrap(&out, "host-visible async pinned peer", 2, 20);
    assert_string_equal(str_c(&out), "\n  host-visible async\n  pinned peer");
    str_clear(&out);
    term_wrap(&out, "a-word-that-is-too-long  b", 2, 10);
    assert_string_equal(str_c(&out), "\n  a-word-that-is-too-long\n  b");
    str_clear(&out);
    term_wrap(&out, "", 2, 10);
    assert_string_equal(str_c(&out), "");
    str_release(&out);
}

static void colours_only_when_wanted(void **state)
{
    (void)state;
    const struct term on = { .color = true }, off = { 0 };
    assert_string_equal(term_color(&off, 3), "");
    assert_string_equal(term_style(&off, STYLE_BOLD), "");
    assert_int_equal(term_color(&on, 3)[0], '\033');
    assert_ptr_equal(term_color(&on, 1), term_color(&on, 1 + TERM_COLORS));
    assert_string_equal(term_style(&on, STYLE_RESET), "\033[0m");
    for (unsigned i = 0; i < TERM_COLORS; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(term_color(&on, i), term_color(&on, k));
}

static void progress_waits_and_cleans_up(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct clock_manual clock;
    clock_manual_init(&clock, 5, 0);
    struct term t = { .tty = true, .color = true, .utf8 = true, .width = 100 };
    struct progress p;
    progress_init(&p, f, &t, &clock.base, "file");
    progress_set(&p, 10, 100);
    clock_manual_advance(&clock, PROGRESS_DELAY_NS - 1);
    progress_set(&p, 20, 100);
    fflush(f);
    assert_int_equal(n, 0); /* short jobs stay quiet */
    clock_manual_advance(&clock, PROGRESS_DELAY_NS + 1);
    progress_set(&p, UINT64_C(2000000000), UINT64_C(8000000000));
    fflush(f);
    assert_non_null(strstr(text, "25 %"));
    assert_non_null(strstr(text, "954 MiB/s"));
    assert_non_null(strstr(text, "0:06 left"));
    assert_null(strchr(text, '\n'));
    size_t before = n;
    progress_set(&p, UINT64_C(2100000000), UINT64_C(8000000000)); /* too soon to draw again */
    fflush(f);
    assert_int_equal(n, before);
    progress_end(&p);
    fflush(f);
    assert_string_equal(text + before, "\r\033[K");
    progress_end(&p);
    fclose(f);
    free(text);
}

/* What one drawing shows on a terminal of `width` columns without colour, without the "\r". */
static char *draw(int width, const char *label, uint64_t done, uint64_t total)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct clock_manual clock;
    clock_manual_init(&clock, 0, 0);
    const struct term t = { .tty = true, .width = width };
    struct progress p;
    progress_init(&p, f, &t, &clock.base, label);
    clock_manual_advance(&clock, 4 * PROGRESS_DELAY_NS);
    progress_set(&p, done, total);
    fclose(f);
    assert_int_equal(text[0], '\r');
    memmove(text, text + 1, n);
    return text;
}

static void progress_never_wraps(void **state)
{
    (void)state;
    const uint64_t gib = UINT64_C(1) << 30;
    static const struct {
        int width;
        const char *label, *want;
    } cases[] = {
        { 80, "a.gguf",
          "a.gguf #####................  25 %  4.00 GiB of 16.0 GiB  1.00 GiB/s  "
          "0:12 left" },
        { 60, "a.gguf", "a.gguf  25 %  4.00 GiB of 16.0 GiB  1.00 GiB/s  0:12 left" },
        { 48, "a.gguf", "a.gguf  25 %  4.00 GiB of 16.0 GiB  0:12 left" },
        { 40, "a.gguf", "a.gguf  25 %  1.00 GiB/s  0:12 left" },
        { 24, "a.gguf", "a.gguf  25 %  0:12 left" },
        { 14, "a.gguf", "a.gguf  25 %" },
        { 8, "a.gguf", " 25 %" },
        { 3, "a.gguf", "" },
        { 20, "a-rather-long-name.gguf", "a-rather-l...  25 %" },
        { 20,
          "\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4",
          "\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4\xe6\xb0\xb4...  25 %" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *got = draw(cases[i].width, cases[i].label, 4 * gib, 16 * gib);
        assert_string_equal(got, cases[i].want);
        free(got);
    }
    for (int width = 1; width < 120; width++) {
        char *got = draw(width, "some-model-or-other.safetensors", 3 * gib, 16 * gib);
        if ((int)strlen(got) >= width)
            fail_msg("%d columns for a line of %zu", width, strlen(got));
        free(got);
    }
}

/* A disk that is fast for three seconds and slow from then on. */
static void time_left_follows_the_recent_past(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct clock_manual clock;
    clock_manual_init(&clock, 0, 0);
    const struct term t = { .tty = true, .width = 100 };
    struct progress p;
    const uint64_t mib = UINT64_C(1) << 20, total = 10000 * mib;
    uint64_t done = 0;
    progress_init(&p, f, &t, &clock.base, "file");
    for (int tenth = 1; tenth <= 430; tenth++) {
        clock_manual_advance(&clock, PROGRESS_EVERY_NS);
        done += (tenth <= 30 ? 100 : 10) * mib;
        progress_set(&p, done, total);
        fflush(f);
        if (tenth == 19)
            assert_null(strstr(text, "left")); /* too early to tell */
        if (tenth == 20)
            assert_non_null(strstr(text, "0:08 left"));
    }
    /* 3000 MiB are left at 100 MiB/s; the average from the start would say 0:18 */
    const char *last = strrchr(text, '\r');
    assert_non_null(strstr(last, "0:30 left"));
    assert_non_null(strstr(last, "100 MiB/s"));
    size_t before = n;
    progress_end(&p);
    fclose(f);
    assert_int_equal(text[before], '\r'); /* without colour blanks wipe it out */
    assert_int_equal(text[n - 1], '\r');
    free(text);
}

static void progress_is_silent_without_a_terminal(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    struct clock_manual clock;
    clock_manual_init(&clock, 0, 0);
    const struct term t = { .width = 80 };
    struct progress p;
    progress_init(&p, f, &t, &clock.base, "file");
    clock_manual_advance(&clock, 5 * PROGRESS_DELAY_NS);
    progress_set(&p, 1, 2);
    progress_end(&p);
    fclose(f);
    assert_int_equal(n, 0);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rules),
        cmocka_unit_test(text_is_made_safe),
        cmocka_unit_test(cells_have_their_width),
        cmocka_unit_test(bars),
        cmocka_unit_test(numbers),
        cmocka_unit_test(colours_only_when_wanted),
        cmocka_unit_test(progress_waits_and_cleans_up),
        cmocka_unit_test(progress_never_wraps),
        cmocka_unit_test(time_left_follows_the_recent_past),
        cmocka_unit_test(counts_and_their_words),
        cmocka_unit_test(words_wrap_whole),
        cmocka_unit_test(progress_is_silent_without_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
