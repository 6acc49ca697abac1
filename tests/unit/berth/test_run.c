/* Workflows through the public header alone, with the demo model of assets/. */
#include "base/file.h"
#include "image/image.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <unistd.h>

#define DEMO BERTH_SOURCE_DIR "/assets/demo"
#define STEPS 3
#define SIDE 128

/* ---- what happened ---- */

struct heard {
    berth_engine *e;
    struct str trace; /* a word each: what, and of which node */
    size_t previews, errors, progress;
    char node[32], type[64], message[512]; /* of the last error */
    berth_flag *stop;
    double stop_at;         /* progress of the sampler that sets it; 0: none does */
    berth_status from_here; /* what a call from inside an event says */
    bool request_free;
};

static void hear_cached(void *user, const char *const *ids, size_t count)
{
    struct heard *h = user;
    for (size_t i = 0; i < count; i++)
        str_addf(&h->trace, "cached:%s ", ids[i]);
}

static void hear_begins(void *user, const berth_node *node)
{
    struct heard *h = user;
    berth_err err = { 0 };
    assert_int_equal(node->size, sizeof *node);
    str_addf(&h->trace, "%s:%s ", node->id, node->class_type);
    h->from_here = berth_settle(berth_engine_ctx(h->e), NULL, &err);
    if (h->request_free)
        berth_request_free(berth_engine_ctx(h->e), 1, 1, 0);
    h->request_free = false;
}

static void hear_progress(void *user, const berth_node *node, double value, double max)
{
    struct heard *h = user;
    if (strcmp(node->class_type, "KSampler") != 0)
        return;
    h->progress++;
    assert_true(value <= max && max == STEPS);
    if (h->stop_at > 0 && value >= h->stop_at)
        berth_flag_set(h->stop);
}

static void hear_preview(void *user, const berth_node *node, const berth_picture *p)
{
    struct heard *h = user;
    assert_string_equal(node->class_type, "KSampler");
    assert_true(p->width && p->height && p->channels == 3 && p->pixels && !p->is_output);
    h->previews++;
}

static void hear_executed(void *user, const berth_node *node, const char *output)
{
    str_addf(&((struct heard *)user)->trace, "executed:%s:%s ", node->id, output);
}

static void hear_ends(void *user, const berth_node *node)
{
    str_addf(&((struct heard *)user)->trace, "ended:%s ", node->id);
}

static void hear_error(void *user, const berth_run_error *e)
{
    struct heard *h = user;
    h->errors++;
    snprintf(h->node, sizeof h->node, "%s", e->node ? e->node : "-");
    snprintf(h->type, sizeof h->type, "%s", e->type);
    snprintf(h->message, sizeof h->message, "%s", e->message);
    assert_true(e->json[0] == '{');
}

/* ---- engines and prompts ---- */

static berth_engine *open_engine(berth_ctx *ctx)
{
    const berth_engine_config cfg = { .size = sizeof cfg,
                                      .base = tmp_dir(),
                                      .checkpoints = DEMO,
                                      .devices = ctx ? NULL : "cpu=1g",
                                      .threads = 2 };
    berth_engine *e;
    berth_err err = { 0 };
    assert_ok(berth_engine_new(ctx, &cfg, &e, &err), err);
    return e;
}

/* examples/workflows/demo.json in small. */
static const char *demo(const char *checkpoint, unsigned seed)
{
    static char text[2048];
    snprintf(
        text, sizeof text,
        "{\"1\":{\"class_type\":\"CheckpointLoaderSimple\",\"inputs\":{\"ckpt_name\":\"%s\"}},"
        "\"2\":{\"class_type\":\"CLIPTextEncode\",\"inputs\":{\"text\":\"a red circle\","
        "\"clip\":[\"1\",1]}},"
        "\"4\":{\"class_type\":\"EmptyLatentImage\",\"inputs\":{\"width\":%d,\"height\":%d,"
        "\"batch_size\":1}},"
        "\"5\":{\"class_type\":\"KSampler\",\"inputs\":{\"model\":[\"1\",0],\"positive\":[\"2\","
        "0],\"negative\":[\"2\",0],\"latent_image\":[\"4\",0],\"seed\":%u,\"steps\":%d,"
        "\"cfg\":1.0,\"sampler_name\":\"euler\",\"scheduler\":\"karras\",\"denoise\":1.0}},"
        "\"6\":{\"class_type\":\"VAEDecode\",\"inputs\":{\"samples\":[\"5\",0],\"vae\":[\"1\","
        "2]}},"
        "\"7\":{\"class_type\":\"SaveImage\",\"inputs\":{\"images\":[\"6\",0],"
        "\"filename_prefix\":\"run\"}}}",
        checkpoint, SIDE, SIDE, seed, STEPS);
    return text;
}
#define MODEL "berth-demo.safetensors"

static berth_status run(struct heard *h, const char *prompt, int partial, berth_result **out,
                        berth_err *err)
{
    const berth_events events = { .size = sizeof events,
                                  .user = h,
                                  .cached = hear_cached,
                                  .node_begins = hear_begins,
                                  .progress = hear_progress,
                                  .preview = hear_preview,
                                  .executed = hear_executed,
                                  .node_ends = hear_ends,
                                  .error = hear_error };
    const berth_run_config cfg = { .size = sizeof cfg,
                                   .prompt = prompt,
                                   .events = &events,
                                   .cancel = h->stop,
                                   .previews = 1,
                                   .partial = partial };
    str_clear(&h->trace);
    h->previews = h->errors = h->progress = 0;
    return berth_run(h->e, &cfg, out, err);
}

static void close_heard(struct heard *h)
{
    berth_engine_free(h->e);
    berth_flag_free(h->stop);
    str_release(&h->trace);
}

/* The picture is there, has its size and is not of one colour. */
static void look_at(const berth_result *r)
{
    berth_output_file file = { .size = sizeof file };
    berth_err err = { 0 };
    char *bytes = NULL;
    size_t n = 0;
    struct image_file f = { 0 };
    assert_int_equal(berth_result_file_count(r), 1);
    assert_ok(berth_result_file(r, 0, &file, &err), err);
    assert_string_equal(file.node, "7");
    assert_string_equal(file.kind, "output");
    assert_ok(file_read_all(file.path, 1 << 24, &bytes, &n, &err), err);
    assert_ok(image_decode((const uint8_t *)bytes, n, NULL, &f, &err), err);
    const struct image *im = &f.frame[0];
    assert_int_equal(im->w, SIDE);
    assert_int_equal(im->h, SIDE);
    uint8_t least = 255, most = 0;
    for (size_t i = 0; i < (size_t)im->w * im->h * im->channels; i++) {
        least = im->px[i] < least ? im->px[i] : least;
        most = im->px[i] > most ? im->px[i] : most;
    }
    assert_true(most - least > 32);
    image_file_release(&f);
    free(bytes);
    assert_int_equal(berth_result_file(r, 1, &file, &err), BERTH_EINVAL);
}

/* ---- tests ---- */

static void draws(void **state)
{
    struct heard h = { .e = open_engine(NULL) };
    berth_result *r;
    berth_err err = { 0 };
    (void)state;
    assert_ok(run(&h, demo(MODEL, 1), 0, &r, &err), err);
    look_at(r);
    assert_int_equal(h.progress, STEPS);
    assert_int_equal(h.previews, STEPS);
    assert_int_equal(h.errors, 0);
    assert_int_equal(h.from_here, BERTH_EBUSY);
    const char *t = str_c(&h.trace);
    assert_true(strncmp(t, "1:CheckpointLoaderSimple ended:1 ", 33) == 0);
    assert_non_null(strstr(t, "6:VAEDecode ended:6 7:SaveImage executed:7:{\"images\":[{"));
    assert_int_equal(berth_result_executed(r), 6);
    assert_int_equal(berth_result_cached(r), 0);
    assert_non_null(strstr(berth_result_outputs(r), "\"filename\":\"run_00001_.png\""));
    assert_non_null(strstr(berth_result_status(r), "\"status_str\":\"success\""));
    assert_string_equal(berth_result_node_errors(r), "{}");
    berth_result_free(r);

    /* Another seed: the model and its prompt are still there. */
    assert_ok(run(&h, demo(MODEL, 2), 0, &r, &err), err);
    assert_true(strncmp(str_c(&h.trace), "cached:1 cached:2 cached:4 ", 27) == 0);
    assert_int_equal(berth_result_executed(r), 3);
    assert_int_equal(berth_result_cached(r), 3);
    berth_result_free(r);
    close_heard(&h);
}

static void stops_in_the_middle(void **state)
{
    struct heard h = { .e = open_engine(NULL), .stop = berth_flag_new(), .stop_at = 2 };
    berth_result *r;
    berth_err err = { 0 };
    (void)state;
    assert_non_null(h.stop);
    assert_int_equal(run(&h, demo(MODEL, 1), 0, &r, &err), BERTH_ECANCELED);
    assert_non_null(strstr(err.msg, "node 5 (KSampler)"));
    assert_int_equal(h.progress, 2);
    assert_int_equal(h.errors, 0);
    assert_int_equal(berth_result_file_count(r), 0);
    assert_null(strstr(str_c(&h.trace), "6:VAEDecode"));
    assert_non_null(strstr(berth_result_status(r), "execution_interrupted"));
    berth_result_free(r);

    /* A flag stays set: nothing begins. Another one is another run. */
    assert_int_equal(run(&h, demo(MODEL, 1), 0, &r, &err), BERTH_ECANCELED);
    assert_int_equal(h.progress, 0);
    berth_result_free(r);
    berth_flag_free(h.stop);
    h.stop = NULL;
    h.stop_at = 0;
    assert_ok(run(&h, demo(MODEL, 1), 0, &r, &err), err);
    look_at(r);
    berth_result_free(r);
    close_heard(&h);
}

#define BAD_PICTURE                                                                                \
    "{\"a\":{\"class_type\":\"LoadImage\",\"inputs\":{\"image\":\"bad.png\"}},"                    \
    "\"b\":{\"class_type\":\"PreviewImage\",\"inputs\":{\"images\":[\"a\",0]}}}"

static void names_the_node_that_fails(void **state)
{
    struct heard h = { .e = open_engine(NULL) };
    berth_result *r;
    berth_err err = { 0 };
    (void)state;
    FILE *bad = fopen(tmp_path("input/bad.png"), "w");
    assert_non_null(bad);
    fputs("no picture", bad);
    fclose(bad);
    berth_status s = run(&h, BAD_PICTURE, 0, &r, &err);
    assert_true(s != BERTH_OK && s == err.code);
    assert_non_null(strstr(err.msg, "node a (LoadImage): "));
    assert_int_equal(h.errors, 1);
    assert_string_equal(h.node, "a");
    assert_true(h.type[0] && h.message[0]);
    assert_non_null(strstr(berth_result_status(r), "execution_error"));
    berth_result_free(r);
    close_heard(&h);
}

/* Two outputs, of which one names a model that is not there. */
#define HALF                                                                                       \
    "{\"1\":{\"class_type\":\"EmptyImage\",\"inputs\":{\"width\":8,\"height\":8,\"batch_size\":1," \
    "\"color\":255}},\"2\":{\"class_type\":\"PreviewImage\",\"inputs\":{\"images\":[\"1\",0]}},"   \
    "\"3\":{\"class_type\":\"LoadImage\",\"inputs\":{\"image\":\"none.png\"}},"                    \
    "\"4\":{\"class_type\":\"PreviewImage\",\"inputs\":{\"images\":[\"3\",0]}}}"

static void refuses_workflows(void **state)
{
    struct heard h = { .e = open_engine(NULL) };
    berth_result *r;
    berth_err err = { 0 };
    (void)state;
    assert_int_equal(run(&h, demo("none.safetensors", 1), 0, &r, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "node 1 (CheckpointLoaderSimple): "));
    assert_string_equal(h.node, "1");
    assert_string_equal(h.type, "value_not_in_list");
    assert_string_equal(str_c(&h.trace), ""); /* nothing ran */
    assert_non_null(strstr(berth_result_node_errors(r), "none.safetensors"));
    berth_result_free(r);

    assert_int_equal(run(&h, HALF, 0, &r, &err), BERTH_EINVAL);
    assert_string_equal(str_c(&h.trace), "");
    berth_result_free(r);
    assert_ok(run(&h, HALF, 1, &r, &err), err);
    assert_int_equal(h.errors, 1);
    assert_int_equal(berth_result_file_count(r), 1);
    assert_non_null(strstr(berth_result_node_errors(r), "\"3\""));
    berth_result_free(r);

    assert_int_equal(run(&h, "{}", 0, &r, &err), BERTH_EINVAL); /* no outputs: of no node */
    assert_string_equal(h.node, "-");
    berth_result_free(r);
    assert_int_equal(run(&h, "{", 0, &r, &err), BERTH_EFORMAT);
    assert_null(r);
    assert_int_equal(run(&h, "{\"nodes\":[],\"links\":[]}", 0, &r, &err), BERTH_EUNSUPPORTED);
    assert_int_equal(run(&h, NULL, 0, NULL, &err), BERTH_EINVAL);
    close_heard(&h);
}

/* A program built with an older header has smaller structs, one built with a newer header larger
 * ones, which are fine as long as they ask for nothing new. */
static void structs_have_sizes(void **state)
{
    struct {
        berth_engine_config cfg;
        uint64_t later;
    } newer = { .cfg = { .size = sizeof newer, .base = tmp_dir(), .devices = "cpu=64m" } };
    berth_engine_config cfg = newer.cfg;
    berth_engine *e;
    berth_err err = { 0 };
    (void)state;
    assert_ok(berth_engine_new(NULL, &newer.cfg, &e, &err), err);
    berth_engine_free(e);
    newer.later = 1;
    assert_int_equal(berth_engine_new(NULL, &newer.cfg, &e, &err), BERTH_EUNSUPPORTED);
    assert_null(e);
    cfg.size = 0;
    assert_int_equal(berth_engine_new(NULL, &cfg, &e, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "berth_engine_config.size"));
    assert_int_equal(berth_engine_new(NULL, NULL, &e, &err), BERTH_EINVAL);

    berth_config ctx_cfg = { .size = sizeof ctx_cfg, .devices = "cpu=64m" };
    berth_ctx *ctx;
    assert_ok(berth_ctx_new(&ctx_cfg, &ctx, &err), err);
    cfg.size = offsetof(berth_engine_config, output); /* `devices` lies beyond */
    cfg.output = "/nonexistent/not read";
    assert_ok(berth_engine_new(ctx, &cfg, &e, &err), err);
    berth_engine_free(e);
    cfg.size = sizeof cfg.size;
    assert_int_equal(berth_engine_new(ctx, &cfg, &e, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "base"));
    berth_ctx_free(ctx);
}

static void count_reset(void *user)
{
    ++*(int *)user;
}

/* One engine per context; a free empties its cache and still calls who asked for it before. */
static void shares_a_context(void **state)
{
    int resets = 0;
    berth_config cfg = { .size = sizeof cfg,
                         .devices = "cpu=1g",
                         .reset = count_reset,
                         .reset_user = &resets,
                         .pressure_percent = 101 };
    berth_engine_config second = { .size = sizeof second, .base = tmp_dir() };
    berth_free_config all = { .unload_models = 1, .free_memory = 1 };
    berth_ctx *ctx;
    berth_engine *e;
    berth_result *r;
    berth_err err = { 0 };
    (void)state;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    struct heard h = { .e = open_engine(ctx) };
    assert_ptr_equal(berth_engine_ctx(h.e), ctx);
    assert_int_equal(berth_engine_new(ctx, &second, &e, &err), BERTH_EBUSY);
    assert_ok(run(&h, HALF, 1, &r, &err), err);
    assert_int_equal(berth_result_executed(r), 2);
    assert_int_equal(berth_result_receipt_count(r), 0);
    assert_null(berth_result_receipt(r, 0));
    berth_result_free(r);
    assert_ok(berth_free(ctx, &all, NULL, &err), err);
    assert_int_equal(resets, 1);
    h.request_free = true; /* from inside the run: acts behind it */
    assert_ok(run(&h, HALF, 1, &r, &err), err);
    assert_int_equal(berth_result_executed(r), 2); /* nothing was cached */
    assert_int_equal(resets, 2);
    assert_int_equal(berth_result_receipt_count(r), 1);
    assert_non_null(berth_receipt_json(berth_result_receipt(r, 0)));
    berth_result_free(r);

    assert_ok(berth_prompt_begin(ctx, &err), err);
    assert_int_equal(run(&h, HALF, 1, &r, &err), BERTH_EBUSY);
    berth_result_free(r);
    assert_ok(berth_prompt_end(ctx, NULL, &err), err);
    assert_ok(run(&h, HALF, 1, NULL, &err), err); /* nobody wants the result */
    close_heard(&h);
    assert_ok(berth_free(ctx, &all, NULL, &err), err); /* the callback is the context's again */
    assert_int_equal(resets, 3);
    berth_ctx_free(ctx);
}

static void opening_survives_oom(void **state)
{
    const char *const tokenizers[] = { "a", "b" };
    const berth_engine_config cfg = {
        .size = sizeof cfg, .base = tmp_dir(), .tokenizers = tokenizers, .tokenizer_count = 2
    };
    berth_config ctx_cfg = { .size = sizeof ctx_cfg, .devices = "cpu=64m" };
    berth_status s = BERTH_ENOMEM;
    berth_ctx *ctx;
    berth_engine *e = NULL;
    berth_err err = { 0 };
    long k = 0;
    (void)state;
    assert_ok(berth_ctx_new(&ctx_cfg, &ctx, &err), err);
    for (; s && k < 10000; k++) {
        oom_after(k);
        s = berth_engine_new(ctx, &cfg, &e, &err);
        oom_off();
        assert_true(!s == !!e);
        assert_true(!s || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_true(k > 10);
    berth_engine_free(e);
    berth_ctx_free(ctx);
}

/* Each allocation of a small run fails once: an error in words, or a result that lacks nothing. */
static void runs_survive_oom(void **state)
{
    struct heard h = { .e = open_engine(NULL) };
    bool hit = true;
    (void)state;
    for (long k = 0; hit && k < 20000; k++) {
        berth_free_config all = { .unload_models = 1, .free_memory = 1 };
        berth_result *r;
        berth_err err = { 0 };
        assert_ok(berth_free(berth_engine_ctx(h.e), &all, NULL, &err), err);
        oom_once(k);
        berth_status s = run(&h, HALF, 1, &r, &err);
        hit = oom_seen() > k;
        oom_off();
        assert_true(s ? s == err.code && err.msg[0] : berth_result_file_count(r) == 1);
        /* The first error is of the half that is refused, then it runs. */
        if (h.errors && !strstr(err.msg, "the result of a run that was done"))
            assert_int_equal(h.errors, s ? 2 : 1);
        berth_result_free(r);
    }
    assert_false(hit);
    close_heard(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
        cmocka_unit_test(stops_in_the_middle),
        cmocka_unit_test(names_the_node_that_fails),
        cmocka_unit_test(refuses_workflows),
        cmocka_unit_test(structs_have_sizes),
        cmocka_unit_test(shares_a_context),
        cmocka_unit_test(opening_survives_oom),
        cmocka_unit_test(runs_survive_oom),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
