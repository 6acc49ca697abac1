/* Models, plans, free and snapshots through the public header alone; files made with the synthetic
 * presets. */
#include "support/oom.h"
#include "support/presets.h"

#include <math.h>
#include <pthread.h>

static berth_ctx *open_ctx(const char *devices)
{
    berth_config cfg = { .size = sizeof cfg, .devices = devices, .threads = 2 };
    berth_ctx *ctx;
    berth_err err = { 0 };
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    return ctx;
}

static berth_model *open_model(berth_ctx *ctx, const char *path, const char *alloc,
                               berth_retention retention)
{
    berth_model_config cfg = { .path = path, .alloc = alloc, .retention = retention };
    berth_model *m;
    berth_err err = { 0 };
    assert_ok(berth_model_open(ctx, &cfg, &m, &err), err);
    return m;
}

static berth_load_result load(berth_model *m)
{
    berth_load_result got;
    berth_err err = { 0 };
    assert_ok(berth_model_load(m, NULL, &got, &err), err);
    return got;
}

static berth_model_info info_of(berth_model *m)
{
    berth_model_info info;
    berth_err err = { 0 };
    assert_ok(berth_model_get_info(m, &info, &err), err);
    return info;
}

/* Weights in RAM of a model that computes on a card are pinned as far as the budget goes. */
static void pins_keep_to_their_budget(void **state)
{
    static const struct {
        uint64_t budget, least, most; /* pinned bytes, whole pages */
    } row[] = { { 0, 3 << 20, 64 << 20 }, { 2 << 20, 1 << 20, 3 << 20 }, { BERTH_NO_PINS, 0, 0 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        berth_config cfg = { .size = sizeof cfg,
                             .devices = "cpu=256m,null:0=64m",
                             .threads = 2,
                             .pin_budget = row[i].budget };
        berth_ctx *ctx;
        berth_device_info d;
        berth_err err = { 0 };
        assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
        berth_model *m =
            open_model(ctx, preset_file("sd15-tiny", DT_F16), "cpu,*#null:0", BERTH_EJECT);
        load(m);
        assert_ok(berth_ctx_device_info(ctx, 0, &d, &err), err);
        assert_in_range(d.pinned, row[i].least, row[i].most);
        assert_true(d.pinned + d.in_use >= info_of(m).bytes / 2); /* embeddings compute */
        berth_model_close(m);
        berth_ctx_free(ctx);
    }
}

static void kept_model_comes_back_for_nothing(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    const char *unet = preset_file("sd15-tiny", DT_F16);
    const char *flux = preset_file("flux-tiny", DT_F16);
    berth_model *kept = open_model(ctx, unet, "null:0,1mb;cpu,*#null:0", BERTH_KEEP);
    berth_model *gone = open_model(ctx, flux, NULL, BERTH_EJECT);
    assert_int_equal(info_of(kept).handles, 1);
    assert_string_equal(info_of(kept).state, "registered");
    assert_true(load(kept).read == info_of(kept).bytes);
    load(gone);
    uint64_t before, after;
    assert_ok(berth_model_checksum(kept, &before, &err), err);
    berth_block_info block, again;
    assert_ok(berth_model_block(kept, 3, &block, &err), err);
    assert_string_equal(block.device, block.home);
    assert_true(block.address);
    uint64_t id = info_of(kept).id;
    berth_model_close(kept);
    assert_int_equal(berth_ctx_model_count(ctx), 2);

    berth_receipt *receipt;
    berth_free_config both = { .unload_models = 1, .free_memory = 1, .reason = "test" };
    assert_ok(berth_free(ctx, &both, &receipt, &err), err);
    assert_int_equal(berth_receipt_ejected(receipt), 1);
    assert_int_equal(berth_receipt_violations(receipt), 0);
    assert_non_null(strstr(berth_receipt_json(receipt), "\"reason\""));
    assert_non_null(strstr(berth_receipt_text(receipt), "sd15-tiny"));
    berth_receipt_free(receipt);
    assert_string_equal(info_of(gone).state, "ejected");
    assert_int_equal(info_of(gone).resident, 0);

    kept = open_model(ctx, unet, "null:0,1mb;cpu,*#null:0", BERTH_KEEP);
    berth_load_result got = load(kept);
    assert_true(!got.read && !got.moved && got.was_resident);
    assert_int_equal(info_of(kept).id, id);
    assert_non_null(strstr(info_of(kept).anchors, "marked keep"));
    assert_ok(berth_model_block(kept, 3, &again, &err), err);
    assert_true(again.address == block.address);
    assert_ok(berth_model_checksum(kept, &after, &err), err);
    assert_true(before == after);

    /* The ejected one comes back too, from its file. */
    assert_true(load(gone).read == info_of(gone).bytes);
    berth_model_close(gone);
    berth_model_close(kept);
    berth_ctx_free(ctx);
}

static void plans(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_model_config cfg = { .path = preset_file("flux-tiny", DT_F16),
                               .alloc = "cuda:0,50%;cpu,50%" };
    berth_plan *p, *same;
    assert_ok(berth_plan_make(NULL, &cfg, "cuda:0=24g,cpu=64g", &p, &err), err);
    assert_string_equal(berth_plan_compute(p), "cuda:0");
    assert_int_equal(berth_plan_device_count(p), 2);
    uint64_t sum = 0;
    for (size_t i = 0; i < berth_plan_device_count(p); i++) {
        berth_plan_device d;
        assert_ok(berth_plan_device_at(p, i, &d, &err), err);
        assert_true(d.share > 0.4 && d.share < 0.6);
        sum += d.bytes;
    }
    assert_true(sum == berth_plan_bytes(p));
    cfg.alloc = berth_plan_string(p);
    assert_ok(berth_plan_make(NULL, &cfg, "cuda:0=24g,cpu=64g", &same, &err), err);
    assert_int_equal(berth_plan_block_count(same), berth_plan_block_count(p));
    for (size_t i = 0; i < berth_plan_block_count(p); i++) {
        berth_plan_block a, b;
        assert_ok(berth_plan_block_at(p, i, &a, &err), err);
        assert_ok(berth_plan_block_at(same, i, &b, &err), err);
        assert_string_equal(a.device, b.device);
    }
    berth_plan_device d;
    assert_fails(berth_plan_device_at(p, 2, &d, &err), err, BERTH_EINVAL, "device 2");
    berth_plan_free(same);
    berth_plan_free(p);
    cfg.alloc = "cuda:9,1gb";
    assert_fails(berth_plan_make(NULL, &cfg, "cuda:0=24g,cpu=64g", &p, &err), err, BERTH_EINVAL,
                 "entry 1");
    assert_null(p);
    assert_fails(berth_plan_make(NULL, &cfg, NULL, &p, &err), err, BERTH_EINVAL, "context");
    cfg.alloc = NULL;
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    assert_ok(berth_plan_make(ctx, &cfg, NULL, &p, &err), err);
    assert_string_equal(berth_plan_compute(p), "null:0");
    berth_plan_free(p);
    berth_ctx_free(ctx);
}

/* A quarter of a file in F32, in the plan and in memory, and the weights of one that was saved
 * so. */
static void weights_of_another_type(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_model_config cfg = { .path = preset_file("flux-tiny", DT_F32), .dtype = "" },
                       as = { .path = preset_file("flux-tiny", DT_F32), .dtype = "F8_E4M3" },
                       saved = { .path = preset_file("flux-tiny", DT_F8_E4M3) },
                       bad = { .path = preset_file("flux-tiny", DT_F32), .dtype = "BF16" };
    berth_plan *p, *less;
    berth_model *plain, *m, *again, *same, *none;
    uint64_t sum[2];
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    assert_ok(berth_plan_make(ctx, &cfg, NULL, &p, &err), err);
    assert_ok(berth_plan_make(ctx, &as, NULL, &less, &err), err);
    assert_true(berth_plan_bytes(p) == 4 * berth_plan_bytes(less));
    assert_ok(berth_model_open(ctx, &cfg, &plain, &err), err);
    assert_ok(berth_model_open(ctx, &as, &m, &err), err);
    as.dtype = "fp8_e4m3fn"; /* another word for it */
    assert_ok(berth_model_open(ctx, &as, &again, &err), err);
    assert_ok(berth_model_open(ctx, &saved, &same, &err), err);
    assert_true(info_of(m).id != info_of(plain).id && info_of(again).id == info_of(m).id);
    assert_true(info_of(m).bytes == berth_plan_bytes(less));
    load(m);
    load(same);
    assert_true(info_of(m).resident == info_of(same).resident);
    assert_ok(berth_model_checksum(m, &sum[0], &err), err);
    assert_ok(berth_model_checksum(same, &sum[1], &err), err);
    assert_true(sum[0] == sum[1]);
    berth_plan_free(p);
    berth_plan_free(less);
    assert_fails(berth_plan_make(ctx, &bad, NULL, &p, &err), err, BERTH_EINVAL, "not to 'BF16'");
    assert_fails(berth_model_open(ctx, &bad, &none, &err), err, BERTH_EINVAL, "not to 'BF16'");
    bad.path = tmp_path("q8.gguf");
    preset_write("flux-tiny", DT_Q8_0, bad.path);
    bad.dtype = "F8_E5M2";
    assert_fails(berth_plan_make(ctx, &bad, NULL, &p, &err), err, BERTH_EUNSUPPORTED,
                 "weights of a GGUF file are not converted");
    assert_fails(berth_model_open(ctx, &bad, &none, &err), err, BERTH_EUNSUPPORTED,
                 "weights of a GGUF file are not converted");
    berth_model_close(plain);
    berth_model_close(m);
    berth_model_close(again);
    berth_model_close(same);
    berth_ctx_free(ctx);
}

static void moves_what_must_move(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m,null:1=64m");
    berth_model *m =
        open_model(ctx, preset_file("flux-tiny", DT_F16), "null:0,*#null:0", BERTH_AUTO);
    load(m);
    uint64_t before, after;
    assert_ok(berth_model_checksum(m, &before, &err), err);
    berth_load_result got;
    assert_ok(berth_model_replan(m, "null:0,70%;null:1,30%#null:0", NULL, BERTH_SPREAD, &got, &err),
              err);
    assert_true(got.moved > 0 && got.moved < info_of(m).bytes && !got.read);
    assert_ok(berth_model_checksum(m, &after, &err), err);
    assert_true(before == after);
    assert_ok(berth_model_eject(m, &err), err);
    assert_fails(berth_model_checksum(m, &after, &err), err, BERTH_EINVAL, "flux");
    berth_model_close(m);
    assert_int_equal(berth_ctx_model_count(ctx), 0);
    berth_ctx_free(ctx);
}

struct canceling {
    berth_model *m;
    uint64_t calls;
    berth_status nested; /* what calling back gave */
};

static void cancel_now(void *user, uint64_t done, uint64_t total)
{
    struct canceling *c = user;
    berth_err err = { 0 };
    assert_true(done <= total);
    c->calls++;
    berth_model_cancel(c->m);
    c->nested = berth_model_load(c->m, NULL, NULL, &err); /* refused, and takes no cancel away */
}

static void cancels(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    struct canceling c = { 0 };
    c.m = open_model(ctx, preset_file("sd15-tiny", DT_F16), NULL, BERTH_AUTO);
    berth_load_config cfg = { .progress = cancel_now, .progress_user = &c };
    assert_fails(berth_model_load(c.m, &cfg, NULL, &err), err, BERTH_ECANCELED, "sd15-tiny");
    assert_true(c.calls > 0);
    assert_int_equal(c.nested, BERTH_EBUSY);
    assert_int_equal(info_of(c.m).resident, 0);
    load(c.m);               /* one cancel ends one load */
    berth_model_cancel(c.m); /* too late: nothing runs */
    assert_ok(berth_model_eject(c.m, &err), err);
    load(c.m);
    berth_model_close(c.m);
    berth_ctx_free(ctx);
}

static void bad_words(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=64m");
    berth_model *m;
    berth_model_config cfg = { 0 };
    assert_fails(berth_model_open(ctx, &cfg, &m, &err), err, BERTH_EINVAL, "path");
    berth_plan *plan;
    assert_fails(berth_plan_make(ctx, &cfg, NULL, &plan, &err), err, BERTH_EINVAL, "path");
    assert_fails(berth_free(ctx, NULL, NULL, &err), err, BERTH_EINVAL, "free");
    cfg.path = "x";
    cfg.layout = (berth_layout)7;
    assert_fails(berth_plan_make(ctx, &cfg, NULL, &plan, &err), err, BERTH_EINVAL, "layout 7");
    cfg.layout = BERTH_TAIL;
    cfg.path = tmp_path("nothing.safetensors");
    assert_fails(berth_model_open(ctx, &cfg, &m, &err), err, BERTH_ENOTFOUND, "nothing");
    cfg.retention = (berth_retention)7;
    assert_fails(berth_model_open(ctx, &cfg, &m, &err), err, BERTH_EINVAL, "retention 7");
    berth_free_config free_cfg = { .unload_models = 1, .tiers = "weights, gold" };
    assert_fails(berth_free(ctx, &free_cfg, NULL, &err), err, BERTH_EINVAL, "gold");
    const char *nobody[] = { "nobody" };
    free_cfg = (berth_free_config) { .unload_models = 1, .models = nobody, .model_count = 1 };
    assert_fails(berth_free(ctx, &free_cfg, NULL, &err), err, BERTH_ENOTFOUND, "nobody");
    berth_model_info info;
    assert_fails(berth_ctx_model_info(ctx, 0, &info, &err), err, BERTH_EINVAL, "model 0 of 0");
    berth_ctx_free(ctx);
    berth_config both = { .size = sizeof both, .devices = "cpu=64m", .ram_budget = 1 << 20 };
    assert_fails(berth_ctx_new(&both, &ctx, &err), err, BERTH_EINVAL, "RAM budget");
}

static void ram_budget_is_hard(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_config cfg = { .size = sizeof cfg, .ram_budget = 1 << 20 };
    berth_ctx *ctx;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    size_t cpu;
    berth_device_info info;
    assert_ok(berth_ctx_device_find(ctx, "cpu", &cpu, &err), err);
    assert_ok(berth_ctx_device_info(ctx, cpu, &info, &err), err);
    assert_int_equal(info.budget, 1 << 20);
    berth_model_config model = { .path = preset_file("sd15-tiny", DT_F16), .alloc = "cpu,*#cpu" };
    berth_model *m;
    assert_fails(berth_model_open(ctx, &model, &m, &err), err, BERTH_ELIMIT, "cpu");
    berth_ctx_free(ctx);
}

static void snapshots(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=64m,null:0=64m");
    berth_snapshot(ctx, "mine", "first");
    char *text;
    assert_ok(berth_snapshot_summary(ctx, &text, &err), err);
    assert_non_null(strstr(text, "mine_first"));
    assert_non_null(strstr(text, "null:0|0.00"));
    berth_text_free(text);
    assert_ok(berth_snapshot_json(ctx, 0, &text, &err), err);
    assert_int_equal(text[0], '[');
    assert_non_null(strstr(text, "\"mine\""));
    berth_text_free(text);
    berth_ctx_free(ctx);
}

static const char *some_id(void *user, int workflow)
{
    return workflow ? NULL : user;
}

static void json_log(void **state)
{
    (void)state;
    berth_err err = { 0 };
    char prompt[] = "p-1", *text;
    size_t n;
    berth_config cfg = { .size = sizeof cfg,
                         .devices = "cpu=64m",
                         .json_log = { .path = tmp_path("log/mgpu.jsonl"),
                                       .level = "focus",
                                       .fields = "{\"host\": \"here\"}",
                                       .id = some_id,
                                       .user = prompt } };
    berth_ctx *ctx;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    berth_snapshot(ctx, "mine", "first");
    berth_ctx_free(ctx);
    assert_ok(file_read_all(tmp_path("log/mgpu.jsonl"), 10000, &text, &n, &err), err);
    assert_non_null(strstr(text, "\"prompt_id\": \"p-1\", \"host\": \"here\"}\n"));
    assert_null(strstr(text, "workflow_id"));
    free(text);
}

/* up [32, 2], down [2, 4 * 3 * 3] for the first convolution of the tiny UNet: up . down is 2 k
 * everywhere, k = up's value. */
static berth_status fill_lora(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    (void)user, (void)off, (void)err;
    for (size_t k = 0; k < n / sizeof(float); k++)
        ((float *)dst)[k] = i ? 1.0f : 0.25f;
    return BERTH_OK;
}

static const char *lora_file(void)
{
    const struct weights_spec spec[] = {
        { "lora_unet_conv_in.lora_up.weight", DT_F32, { 4, { 32, 2, 1, 1 } } },
        { "lora_unet_conv_in.lora_down.weight", DT_F32, { 4, { 2, 4, 3, 3 } } },
    };
    const char *path = tmp_path("lora.safetensors");
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = 2, .fill = fill_lora
    };
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

static uint64_t checksum(berth_model *m)
{
    uint64_t sum;
    berth_err err = { 0 };
    assert_ok(berth_model_checksum(m, &sum, &err), err);
    return sum;
}

static void adapters_go_on_and_off(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    berth_model *m =
        open_model(ctx, preset_file("sd15-tiny", DT_F16), "null:0,30%;cpu,70%#null:0", BERTH_AUTO);
    load(m);
    uint64_t plain = checksum(m);
    berth_adapter *a;
    assert_ok(berth_adapter_open(m, lora_file(), &a, &err), err);
    berth_adapter_info about;
    berth_adapter_get_info(a, &about);
    assert_true(about.targets == 1 && about.tensors == 2 && about.unknown == 0);
    berth_adapter_use bad[] = { { a, NAN }, { NULL, 1 } };
    assert_fails(berth_model_set_adapters(m, bad, 1, &err), err, BERTH_EINVAL, "no number");
    assert_fails(berth_model_set_adapters(m, bad + 1, 1, &err), err, BERTH_EINVAL, "NULL");
    berth_adapter_use use = { a, 0.5f };
    assert_ok(berth_model_set_adapters(m, &use, 1, &err), err);
    assert_true(checksum(m) == plain); /* with the next load */
    berth_load_result got = load(m);
    assert_true(got.read && got.read < 8192); /* weight [32, 4, 3, 3] and bias, F16 */
    uint64_t patched = checksum(m);
    assert_true(patched != plain);
    assert_int_equal(info_of(m).adapters, 1);
    got = load(m);
    assert_true(!got.read && !got.moved);
    assert_ok(berth_model_set_adapters(m, NULL, 0, &err), err);
    load(m);
    assert_true(checksum(m) == plain);
    assert_ok(berth_model_set_adapters(m, &use, 1, &err), err);
    berth_adapter_close(a); /* the model keeps what it uses */
    load(m);
    assert_true(checksum(m) == patched);
    assert_fails(berth_adapter_open(m, tmp_path("none.safetensors"), &a, &err), err,
                 BERTH_ENOTFOUND, "none");
    berth_model_close(m);
    berth_model *vae = open_model(ctx, preset_file("flux-tiny-vae", DT_F16), NULL, BERTH_AUTO);
    assert_fails(berth_adapter_open(vae, lora_file(), &a, &err), err, BERTH_EUNSUPPORTED, "vae");
    berth_model_close(vae);
    berth_ctx_free(ctx);
}

/* An err is meaningful only after a failure: nobody may look into a dirty one. */
static void dirty_errors_do_no_harm(void **state)
{
    (void)state;
    berth_err err;
    berth_ctx *ctx;
    berth_model *m;
    berth_plan *p;
    berth_adapter *a;
    berth_load_result got;
    berth_model_info info;
    berth_block_info block;
    berth_metrics metrics;
    uint64_t sum;
    char *text;
    const char *unet = preset_file("sd15-tiny", DT_F16), *lora = lora_file();
    berth_config cfg = { .size = sizeof cfg,
                         .devices =
                             "cpu=48m,null:0=64m" }; /* making room fails and retries inside */
    berth_model_config model = { .path = unet, .alloc = "null:0,50%;cpu,50%#null:0" };
    berth_free_config both = { .unload_models = 1, .free_memory = 1 };
#define fine(call)                                                                                 \
    do {                                                                                           \
        memset(&err, 0x5a, sizeof err);                                                            \
        assert_int_equal(call, BERTH_OK);                                                          \
    } while (0)
    fine(berth_ctx_new(&cfg, &ctx, &err));
    fine(berth_plan_make(ctx, &model, NULL, &p, &err));
    berth_plan_free(p);
    fine(berth_model_open(ctx, &model, &m, &err));
    fine(berth_adapter_open(m, lora, &a, &err));
    berth_adapter_use use = { a, 1 };
    fine(berth_model_set_adapters(m, &use, 1, &err));
    fine(berth_model_load(m, NULL, &got, &err));
    fine(berth_model_use_begin(m, &err));
    berth_model_use_end(m);
    fine(berth_model_get_info(m, &info, &err));
    fine(berth_ctx_model_info(ctx, 0, &info, &err));
    fine(berth_model_block(m, 0, &block, &err));
    fine(berth_model_checksum(m, &sum, &err));
    fine(berth_model_set_retention(m, BERTH_KEEP, &err));
    fine(berth_ctx_set_retention(ctx, info.id, BERTH_AUTO, &err));
    fine(berth_model_replan(m, "null:0,40%;cpu,60%#null:0", NULL, BERTH_TAIL, &got, &err));
    fine(berth_prompt_begin(ctx, &err));
    fine(berth_prompt_end(ctx, NULL, &err));
    fine(berth_settle(ctx, NULL, &err));
    fine(berth_free(ctx, &both, NULL, &err));
    fine(berth_force_full_cleanup(ctx, "test", 0, &text, &err));
    berth_text_free(text);
    fine(berth_ctx_metrics(ctx, &metrics, &err));
    assert_int_equal(metrics.loads, 1);
    fine(berth_snapshot_summary(ctx, &text, &err));
    berth_text_free(text);
    fine(berth_snapshot_json(ctx, 0, &text, &err));
    berth_text_free(text);
    fine(berth_model_eject(m, &err));
#undef fine
    berth_adapter_close(a);
    berth_model_close(m);
    berth_ctx_free(ctx);
}

static void close_handle(void *user) /* an executor that drops what it cached */
{
    berth_model **m = user;
    berth_model_close(*m);
    *m = NULL;
}

static void prompts_and_the_executor(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_model *cached = NULL;
    berth_config cfg = { .size = sizeof cfg,
                         .devices = "cpu=256m,null:0=64m",
                         .reset = close_handle,
                         .reset_user = &cached };
    berth_ctx *ctx;
    berth_receipt *receipt;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    berth_model *keep = open_model(ctx, preset_file("sd15-tiny", DT_F16), NULL, BERTH_KEEP);
    cached = open_model(ctx, preset_file("flux-tiny", DT_F16), NULL, BERTH_EJECT);
    load(keep);
    load(cached);

    /* the automatic one after a prompt that used an eject model; no reset */
    assert_ok(berth_prompt_begin(ctx, &err), err);
    assert_ok(berth_model_use_begin(cached, &err), err);
    assert_fails(berth_model_eject(cached, &err), err, BERTH_EBUSY, "flux");
    berth_model_use_end(cached);
    assert_ok(berth_prompt_end(ctx, &receipt, &err), err);
    assert_non_null(receipt);
    assert_int_equal(berth_receipt_ejected(receipt), 1);
    berth_receipt_free(receipt);
    assert_non_null(cached);
    assert_string_equal(info_of(cached).state, "ejected");

    /* a request acts right after the prompt; the reset closes the executor's handle */
    assert_ok(berth_prompt_begin(ctx, &err), err);
    berth_request_free(ctx, 0, 1, 0);
    assert_non_null(cached);
    assert_ok(berth_prompt_end(ctx, &receipt, &err), err);
    assert_non_null(receipt);
    berth_receipt_free(receipt);
    assert_null(cached);
    assert_int_equal(berth_ctx_model_count(ctx), 1);
    assert_string_equal(info_of(keep).state, "resident");
    assert_ok(berth_settle(ctx, &receipt, &err), err);
    assert_null(receipt); /* nothing was asked for */

    /* by id, without a handle: it goes with the next free */
    uint64_t id = info_of(keep).id;
    berth_model_close(keep);
    assert_int_equal(berth_ctx_model_count(ctx), 1);
    assert_ok(berth_ctx_set_retention(ctx, id, BERTH_EJECT, &err), err);
    assert_int_equal(berth_ctx_model_count(ctx), 1);
    berth_request_free(ctx, 1, 0, 0);
    assert_ok(berth_settle(ctx, NULL, &err), err);
    assert_int_equal(berth_ctx_model_count(ctx), 0);
    assert_fails(berth_ctx_set_retention(ctx, id, BERTH_KEEP, &err), err, BERTH_ENOTFOUND, "id");
    berth_ctx_free(ctx);
}

static void *look(void *arg)
{
    berth_ctx *ctx = arg;
    for (int i = 0; i < 200; i++) {
        berth_err err = { 0 };
        berth_model_info info;
        char *text;
        if (berth_ctx_model_count(ctx))
            berth_ctx_model_info(ctx, 0, &info, &err);
        if (!berth_snapshot_json(ctx, 0, &text, &err))
            berth_text_free(text);
    }
    return NULL;
}

static void any_thread(void **state)
{
    (void)state;
    berth_err err = { 0 };
    berth_ctx *ctx = open_ctx("cpu=256m,null:0=64m");
    const char *path = preset_file("flux-tiny", DT_F16);
    pthread_t watcher;
    assert_int_equal(pthread_create(&watcher, NULL, look, ctx), 0);
    for (int i = 0; i < 10; i++) {
        berth_model *m = open_model(ctx, path, NULL, BERTH_EJECT);
        load(m);
        berth_free_config all = { .unload_models = 1, .force = 1 };
        assert_ok(berth_free(ctx, &all, NULL, &err), err);
        berth_model_close(m);
    }
    pthread_join(watcher, NULL);
    berth_ctx_free(ctx);
}

static void survives_oom(void **state)
{
    (void)state;
    const char *path = preset_file("flux-tiny", DT_F16);
    berth_status s = BERTH_ENOMEM;
    for (int k = 0; s != BERTH_OK; k++) {
        berth_config cfg = { .size = sizeof cfg, .devices = "cpu=64m,null:0=64m", .threads = 1 };
        berth_ctx *ctx = NULL;
        berth_model *m = NULL;
        berth_err err = { 0 };
        berth_model_config model = { .path = path, .alloc = "null:0,50%;cpu,*#null:0" };
        oom_after(k);
        s = berth_ctx_new(&cfg, &ctx, &err);
        if (!s)
            s = berth_model_open(ctx, &model, &m, &err);
        if (!s)
            s = berth_model_load(m, NULL, NULL, &err);
        oom_off();
        assert_true(s == BERTH_OK || err.msg[0]);
        berth_model_close(m);
        berth_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pins_keep_to_their_budget),
        cmocka_unit_test(kept_model_comes_back_for_nothing),
        cmocka_unit_test(plans),
        cmocka_unit_test(weights_of_another_type),
        cmocka_unit_test(moves_what_must_move),
        cmocka_unit_test(cancels),
        cmocka_unit_test(bad_words),
        cmocka_unit_test(ram_budget_is_hard),
        cmocka_unit_test(snapshots),
        cmocka_unit_test(json_log),
        cmocka_unit_test(adapters_go_on_and_off),
        cmocka_unit_test(dirty_errors_do_no_harm),
        cmocka_unit_test(prompts_and_the_executor),
        cmocka_unit_test(any_thread),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
