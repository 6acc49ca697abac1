#include "support/clock_manual.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

/* 2026-02-28T23:59:59.007Z */
#define WHEN (UINT64_C(1772323199) * 1000000000 + 7999999)

struct out { /* a log that writes into memory */
    char *text;
    size_t n;
    struct log_file file;
    struct clock_manual clock;
    struct log log;
};

static void out_init(struct out *o, log_write_fn *write)
{
    *o = (struct out) { 0 };
    o->file.out = open_memstream(&o->text, &o->n);
    assert_non_null(o->file.out);
    clock_manual_init(&o->clock, 0, WHEN);
    o->log = (struct log) {
        .level = LOG_DEBUG, .write = write, .user = &o->file, .clock = &o->clock.base
    };
}

static void out_release(struct out *o)
{
    fclose(o->file.out);
    free(o->text);
}

static void text_lines(void **state)
{
    (void)state;
    struct out o;
    out_init(&o, log_write_text);
    log_info(&o.log, "res.evict", "model=%s bytes=%d", "flux", 12);
    assert_string_equal(o.text, "2026-02-28T23:59:59.007Z info  res.evict model=flux bytes=12\n");
    clock_manual_advance(&o.clock, 1000000000);
    log_error(&o.log, "x", "%s", "");
    assert_non_null(strstr(o.text, "\n2026-03-01T00:00:00.007Z error x\n"));
    out_release(&o);
}

static void color_is_around_the_level(void **state)
{
    (void)state;
    struct out o;
    out_init(&o, log_write_text);
    o.file.color = true;
    log_warn(&o.log, "e", "a=1");
    assert_string_equal(o.text, "2026-02-28T23:59:59.007Z \033[33mwarn \033[0m e a=1\n");
    out_release(&o);
}

static void control_characters_stay_out(void **state)
{
    (void)state;
    struct out o;
    out_init(&o, log_write_text);
    log_info(&o.log, "e", "name=%s", "a\033[2Jb\nc\xc2\x9b\xff");
    assert_string_equal(strchr(o.text, ' '), " info  e name=a?[2Jb?c???\n");
    out_release(&o);
    out_init(&o, log_write_json);
    log_info(&o.log, "e", "name=\"%s\"", "a\033[2Jb\nc\xc2\x9b\xff");
    assert_non_null(strstr(o.text, "\"name\":\"a\\u001b[2Jb\\nc\\u009b\xef\xbf\xbd\"}\n"));
    out_release(&o);
}

static void levels(void **state)
{
    (void)state;
    struct out o;
    enum log_level l;
    out_init(&o, log_write_text);
    o.log.level = LOG_WARN;
    log_info(&o.log, "quiet", "a=1");
    fflush(o.file.out);
    assert_int_equal(o.n, 0);
    log_warn(&o.log, "loud", "a=1");
    assert_non_null(strstr(o.text, "loud"));
    o.log.level = LOG_OFF;
    size_t n = o.n;
    log_error(&o.log, "quiet", "a=1");
    log_event(&o.log, LOG_OFF, "never", "a=1");
    assert_int_equal(o.n, n);
    log_error(NULL, "nowhere", "a=1");
    log_error(&(struct log) { .level = LOG_DEBUG }, "nowhere", "a=1");
    out_release(&o);
    assert_true(log_level_parse("debug", 5, &l) && l == LOG_DEBUG);
    assert_true(log_level_parse("off", 3, &l) && l == LOG_OFF);
    assert_false(log_level_parse("warning", 7, &l));
    assert_false(log_level_parse("", 0, &l));
    assert_string_equal(log_level_name(LOG_ERROR), "error");
    assert_string_equal(log_level_name((enum log_level)17), "?");
}

static void json_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* behind the event */
    } t[] = {
        { "", "}" },
        { "a=1 b=two", ",\"a\":\"1\",\"b\":\"two\"}" },
        { "a=\"two words\" b=3", ",\"a\":\"two words\",\"b\":\"3\"}" },
        { "a= b=", ",\"a\":\"\",\"b\":\"\"}" },
        { "a=\"\" b=1", ",\"a\":\"\",\"b\":\"1\"}" },
        { "  a=1   b=2  ", ",\"a\":\"1\",\"b\":\"2\"}" },
        { "k.v-x_9=1", ",\"k.v-x_9\":\"1\"}" },
        { "a=b=c", ",\"a\":\"b=c\"}" },
        { "a=say\"hi\"", ",\"a\":\"say\\\"hi\\\"\"}" },
        { "a=\"say \\x \"hi\"!\" b=1", ",\"a\":\"say \\\\x \\\"hi\\\"!\",\"b\":\"1\"}" },
        { "just some words", ",\"msg\":\"just some words\"}" },
        { "a=1 some words b=2", ",\"a\":\"1\",\"b\":\"2\",\"msg\":\"some words\"}" },
        { "a=\"never closed b=1", ",\"b\":\"1\",\"msg\":\"a=\\\"never closed\"}" },
        { "=1", ",\"msg\":\"=1\"}" },
        { "\xc3\xa9=1", ",\"msg\":\"\xc3\xa9=1\"}" },
        { "ts=x level=y event=z msg=w", ",\"msg\":\"ts=x level=y event=z msg=w\"}" },
        { "a=1 a=2", ",\"a\":\"1\",\"msg\":\"a=2\"}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct out o;
        char want[512];
        out_init(&o, log_write_json);
        log_debug(&o.log, "e.v", "%s", t[i].text);
        snprintf(want, sizeof want,
                 "{\"ts\":\"2026-02-28T23:59:59.007Z\",\"level\":\"debug\",\"event\":\"e.v\"%s\n",
                 t[i].want);
        assert_string_equal(o.text, want);
        json_t *v = NULL;
        berth_err err = { 0 };
        assert_ok(js_parse(o.text, o.n, NULL, &v, &err), err);
        json_decref(v);
        out_release(&o);
    }
}

static void long_lines_are_cut_and_stay_json(void **state)
{
    (void)state;
    struct out o;
    char text[9000];
    out_init(&o, log_write_json);
    memset(text, '\x01', sizeof text); /* six bytes each in JSON */
    text[sizeof text - 1] = '\0';
    log_info(&o.log, "long", "a=%s", text);
    json_t *v = NULL;
    berth_err err = { 0 };
    assert_ok(js_parse(o.text, o.n, NULL, &v, &err), err);
    const char *a = json_string_value(json_object_get(v, "a"));
    assert_true(strlen(a) > 1000);
    assert_string_equal(a + strlen(a) - 3, "...");
    json_decref(v);
    out_release(&o);
    out_init(&o, log_write_json);
    text[0] = '\0';
    for (int i = 0; i < 100; i++) /* more pairs than fields: the rest is kept as text */
        snprintf(text + strlen(text), 32, "k%d=%d ", i, i);
    log_info(&o.log, "many", "%s", text);
    assert_ok(js_parse(o.text, o.n, NULL, &v, &err), err);
    assert_string_equal(json_string_value(json_object_get(v, "k31")), "31");
    assert_non_null(strstr(json_string_value(json_object_get(v, "msg")), "k99=99"));
    json_decref(v);
    out_release(&o);
}

static void exhaustion_says_so(void **state)
{
    (void)state;
    static log_write_fn *const sinks[] = { log_write_text, log_write_json };
    for (size_t s = 0; s < ARRAY_LEN(sinks); s++)
        for (long k = 0; k < 12; k++) {
            struct out o;
            out_init(&o, sinks[s]);
            oom_after(k);
            log_info(&o.log, "e", "a=1 %0200d words", 7);
            oom_off();
            assert_true(o.n > 0 && o.text[o.n - 1] == '\n');
            if (k == 0)
                assert_non_null(strstr(o.text, "out of memory"));
            out_release(&o);
        }
}

static void *shout(void *arg)
{
    for (int i = 0; i < 200; i++)
        log_info(arg, "shout", "i=%d pad=%0500d", i, 7);
    return NULL;
}

/* Lines of threads do not mix, on a real descriptor. */
static void lines_are_whole(void **state)
{
    (void)state;
    const char *path = tmp_path("log");
    struct log_file f = { .out = fopen(path, "w") };
    struct log log = { .level = LOG_DEBUG, .write = log_write_json, .user = &f };
    pthread_t t[4];
    assert_non_null(f.out);
    for (int k = 0; k < 4; k++)
        assert_int_equal(pthread_create(&t[k], NULL, shout, &log), 0);
    for (int k = 0; k < 4; k++)
        pthread_join(t[k], NULL);
    fclose(f.out);
    char *text;
    size_t n, lines = 0;
    berth_err err = { 0 };
    assert_ok(file_read_all(path, 1 << 24, &text, &n, &err), err);
    for (char *p = text, *end; *p; p = end + 1, lines++) {
        end = strchr(p, '\n');
        json_t *v = NULL;
        assert_ok(js_parse(p, (size_t)(end - p), NULL, &v, &err), err);
        json_decref(v);
    }
    assert_int_equal(lines, 800);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_lines),
        cmocka_unit_test(color_is_around_the_level),
        cmocka_unit_test(control_characters_stay_out),
        cmocka_unit_test(levels),
        cmocka_unit_test(json_lines),
        cmocka_unit_test(long_lines_are_cut_and_stay_json),
        cmocka_unit_test(exhaustion_says_so),
        cmocka_unit_test(lines_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
