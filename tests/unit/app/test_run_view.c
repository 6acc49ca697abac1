/* What people see while a workflow runs, with a clock that moves when it is told. */
#include "support/clock_manual.h"
#include "support/test.h"

#include "app/run_view.h"

#include <stdlib.h>

struct scene {
    struct clock_manual clock;
    struct run_view view;
    json_t *prompt;
    char *text;
    size_t n;
    FILE *out;
};

static const struct term narrow_tty = { .tty = true, .width = 80 };
static const struct term plain = { .width = 80 };

static void scene_open_for(struct scene *s, const struct term *term, const char *prompt,
                           const json_t *outputs, bool quiet)
{
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    clock_manual_init(&s->clock, 1000000000, 0);
    assert_ok(js_parse(prompt, strlen(prompt), NULL, &s->prompt, &err), err);
    s->out = open_memstream(&s->text, &s->n);
    assert_non_null(s->out);
    run_view_init(&s->view, s->out, term, &s->clock.base, s->prompt, outputs, quiet);
}

static void scene_open(struct scene *s, const struct term *term, const char *prompt, bool quiet)
{
    scene_open_for(s, term, prompt, NULL, quiet);
}

static void scene_close(struct scene *s)
{
    run_view_release(&s->view);
    json_decref(s->prompt);
    fclose(s->out);
    free(s->text);
}

static void pass(struct scene *s, double seconds)
{
    clock_manual_advance(&s->clock, (uint64_t)(seconds * 1e9));
}

static void say(struct scene *s, enum exec_event_kind kind, const char *node, double value,
                double max)
{
    const json_t *n = json_object_get(s->prompt, node);
    run_view_event(&s->view, &(struct exec_event) {
                                 .kind = kind,
                                 .node = node,
                                 .class_type = json_string_value(json_object_get(n, "class_type")),
                                 .value = value,
                                 .max = max });
}

/* A node from begin to end. */
static void run(struct scene *s, const char *node, double seconds, int steps)
{
    say(s, EXEC_NODE_START, node, 0, 0);
    for (int i = 1; i <= steps; i++) {
        pass(s, seconds / steps);
        say(s, EXEC_PROGRESS, node, i, steps);
    }
    if (!steps)
        pass(s, seconds);
    say(s, EXEC_NODE_DONE, node, 0, 0);
}

static void is_about(struct scene *s, double share, double left)
{
    double got_left, got = run_view_share(&s->view, &got_left);
    if (got < share - 0.01 || got > share + 0.01 || got_left < left - 0.01 ||
        got_left > left + 0.01)
        fail_msg("%.3f done, %.3f s left; wanted %.3f and %.3f", got, got_left, share, left);
}

#define SAMPLER(i)                                                                                 \
    "\"" i "\": {\"class_type\": \"KSampler\", \"_meta\": {\"title\": \"picture " i "\"}}"
static const char sheet[] = "{\"1\": {\"class_type\": \"CheckpointLoaderSimple\"}, " SAMPLER(
    "2") ", " SAMPLER("3") ", " SAMPLER("4") ", \"5\": {\"class_type\": \"VAEDecode\"}}";

/* One line for all samplers, not one for each: the first tells what the others will take. */
static void many_samplers_are_one_thing(void **state)
{
    struct scene s;
    (void)state;
    scene_open(&s, &narrow_tty, sheet, false);
    run(&s, "1", 2, 0);
    is_about(&s, 0, -1); /* of five nodes one is done, which says nothing */
    say(&s, EXEC_NODE_START, "2", 0, 0);
    is_about(&s, 0, -1);
    pass(&s, 2);
    say(&s, EXEC_PROGRESS, "2", 5, 20); /* a quarter in 2 s: 8 s each */
    is_about(&s, 4.0 / (4 + 6 + 16), 6 + 16);
    pass(&s, 6);
    say(&s, EXEC_PROGRESS, "2", 20, 20);
    say(&s, EXEC_NODE_DONE, "2", 0, 0);
    run(&s, "3", 8, 4);
    is_about(&s, 18.0 / 26, 8);
    run(&s, "4", 8, 4);
    is_about(&s, 1, 0);
    double left;
    say(&s, EXEC_NODE_START, "5", 0, 0);
    assert_true(run_view_share(&s.view, &left) == 1); /* it never goes back */
    scene_close(&s);
}

static void cached_nodes_wait_no_more(void **state)
{
    struct scene s;
    (void)state;
    scene_open(&s, &narrow_tty, sheet, false);
    json_t *data = json_pack("{s:[s,s,s]}", "nodes", "1", "2", "3");
    run_view_event(&s.view, &(struct exec_event) { .kind = EXEC_CACHED, .data = data });
    json_decref(data);
    say(&s, EXEC_NODE_START, "4", 0, 0);
    pass(&s, 3);
    say(&s, EXEC_PROGRESS, "4", 1, 2);
    is_about(&s, 0.5, 3);
    fflush(s.out);
    assert_non_null(strstr(s.text, "4/5 picture 4 1/2, 3 s left"));
    scene_close(&s);
}

/* Without samplers every node counts the same until it is known better. */
static void other_workflows(void **state)
{
    struct scene s;
    (void)state;
    scene_open(&s, &narrow_tty,
               "{\"a\": {\"class_type\": \"LoadImage\"}, "
               "\"b\": {\"class_type\": \"ImageScale\", \"inputs\": {\"image\": [\"a\", 0]}}, "
               "\"c\": {\"class_type\": \"NobodyKnowsThis\", \"inputs\": {\"x\": [\"b\", 0]}}, "
               "\"d\": {}}",
               false);
    is_about(&s, 0, -1);
    run(&s, "a", 2, 0);
    is_about(&s, 2.0 / 6, 4);
    scene_close(&s);
}

/* Two samplers, one of which nobody reads; a save reads the other, a second save both. */
static const char branches[] =
    "{\"1\": {\"class_type\": \"KSampler\"}, \"2\": {\"class_type\": \"KSampler\"}, "
    "\"3\": {\"class_type\": \"VAEDecode\", \"inputs\": {\"samples\": [\"1\", 0]}}, "
    "\"4\": {\"class_type\": \"SaveImage\", \"inputs\": {\"images\": [\"3\", 0]}}, "
    "\"5\": {\"class_type\": \"KSampler\", \"inputs\": {\"latent_image\": [\"1\", 0]}}, "
    "\"6\": {\"class_type\": \"SaveLatent\", \"inputs\": {\"samples\": [\"5\", 0]}}}";

static void nodes_nobody_asked_for_do_not_count(void **state)
{
    struct scene s;
    json_t *only = json_pack("[s]", "4");
    (void)state;
    for (int chosen = 0; chosen < 2; chosen++) {
        scene_open_for(&s, &narrow_tty, branches, chosen ? only : NULL, false);
        run(&s, "1", 4, 4);
        is_about(&s, chosen ? 1 : 0.5, chosen ? 0 : 4); /* "2" never runs; "5" for the second */
        fflush(s.out);
        assert_non_null(strstr(s.text, chosen ? "1/3 KSampler" : "1/5 KSampler"));
        scene_close(&s);
    }
    json_decref(only);
}

/* What other machines say of their steps is not always possible. */
static void impossible_steps(void **state)
{
    static const struct {
        double value, max;
    } said[] = { { 250, 100 }, { 1e300, 2e300 }, { -5, 10 },     { 3, -1 },
                 { 5, 0 },     { 1e-300, 1e14 }, { 1e300, 1e14 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        struct scene s;
        double left;
        scene_open(&s, &narrow_tty, sheet, false);
        say(&s, EXEC_NODE_START, "2", 0, 0);
        pass(&s, 3);
        say(&s, EXEC_PROGRESS, "2", said[i].value, said[i].max);
        double share = run_view_share(&s.view, &left);
        assert_true(share >= 0 && share <= 1);
        assert_true(left == -1 || (left >= 0 && left < 1e6));
        assert_true(s.view.value >= 0 && s.view.value <= s.view.max && s.view.max < 1e15);
        scene_close(&s);
    }
}

static void a_line_never_wraps(void **state)
{
    static const int width[] = { 40, 64, 80, 200 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(width); i++) {
        struct scene s;
        const struct term term = { .tty = true, .width = width[i] };
        scene_open(&s, &term,
                   "{\"1\": {\"class_type\": \"KSampler\", \"_meta\": {\"title\": \"a title that "
                   "is much longer \\u001b[31m than any line of a terminal has room for\"}}}",
                   false);
        run(&s, "1", 100000, 1000);
        fflush(s.out);
        assert_null(strstr(s.text, "[31m than"));
        for (const char *at = s.text, *end; *at; at = end + !!*end) {
            end = at + strcspn(at, "\r");
            size_t n = (size_t)(end - at), escape = strncmp(at, "\033[K", 3) ? 0 : 3;
            assert_true(n - escape < (size_t)width[i]);
        }
        scene_close(&s);
    }
}

/* A log file gets a line now and then, not one for each step. */
static void logs_stay_short(void **state)
{
    struct scene s;
    size_t lines = 0;
    (void)state;
    scene_open(&s, &plain, sheet, false);
    run(&s, "1", 1, 0);
    run(&s, "2", 11, 100);
    run(&s, "3", 11, 100);
    fflush(s.out);
    assert_null(strchr(s.text, '\r'));
    assert_null(strchr(s.text, '\033'));
    for (const char *at = s.text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 1 + 23 / 5);
    assert_int_equal(strncmp(s.text, "1/5 CheckpointLoaderSimple\n", 27), 0);
    scene_close(&s);
    scene_open(&s, &plain, sheet, true);
    run(&s, "2", 11, 100);
    fflush(s.out);
    assert_int_equal(s.n, 0);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_samplers_are_one_thing),
        cmocka_unit_test(cached_nodes_wait_no_more),
        cmocka_unit_test(other_workflows),
        cmocka_unit_test(nodes_nobody_asked_for_do_not_count),
        cmocka_unit_test(impossible_steps),
        cmocka_unit_test(a_line_never_wraps),
        cmocka_unit_test(logs_stay_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
