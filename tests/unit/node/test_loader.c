/* Loaders: files through residency, where they go, what stays, what is refused. */
#include "support/loader_rig.h"
#include "support/oom.h"

#include <unistd.h>

#define DEVICES "cpu=512m,null:0=128m,null:1=64m"

/* A file of these names, and what is in them does not matter. */
static void named_file(const char *path, const char *const *name)
{
    struct weights_spec spec[8];
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .fill = model_fill
    };
    berth_err err = { 0 };
    for (; name[args.count]; args.count++)
        spec[args.count] = (struct weights_spec) { .name = name[args.count],
                                                   .dtype = DT_U8,
                                                   .shape = { .ndim = 1, .dim = { 1000 } } };
    assert_ok(weights_write(&args, &err), err);
}

static int fill(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    rig_preset(&r, "checkpoints/sd15.safetensors", "sd15-tiny");
    rig_preset(&r, "checkpoints/unet.safetensors", "sdxl-tiny"); /* under a checkpoint's prefix */
    rig_preset(&r, "diffusion_models/flux.safetensors", "flux-tiny");
    rig_t5(&r, "text_encoders/t5.safetensors");
    rig_preset(&r, "clip/clip_g.safetensors", "clip-g-tiny");
    rig_preset(&r, "vae/ae.safetensors", "flux-tiny-vae");
    char to[1024];
    snprintf(to, sizeof to, "%s", rig_path(&r, "controlnet/other.safetensors"));
    assert_int_equal(rename(model_file("other", 6, 256 << 10), to), 0);
    snprintf(to, sizeof to, "%s", rig_path(&r, "vae_approx/taesd_encoder.safetensors"));
    assert_int_equal(rename(model_file("e", 2, 64 << 10), to), 0);
    snprintf(to, sizeof to, "%s", rig_path(&r, "vae_approx/taesd_decoder.safetensors"));
    assert_int_equal(rename(model_file("d", 2, 64 << 10), to), 0);
    FILE *f = fopen(rig_path(&r, "diffusion_models/bad.safetensors"), "wb");
    assert_non_null(f);
    fputs("no weights at all", f);
    fclose(f);
    rig_close(&r);
    return 0;
}

static void plain_loaders_plan_automatically(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "UNETLoader",
                      "{\"unet_name\": \"flux.safetensors\", \"weight_dtype\": \"default\"}", &err),
              err);
    const struct model_ref *m = call_model(&x, 0);
    assert_int_equal(m->parts, 1);
    struct res_model_info i = res_info(m->part[0]);
    assert_int_equal(i.state, RES_RESIDENT);
    assert_int_equal(i.retention, RES_AUTO);
    assert_string_equal(i.role, "unet");
    assert_int_equal(rig_bytes_on(&r, m->part[0], "null:0"), i.bytes); /* the default device */
    call_release(&x);
    assert_int_equal(res_model_count(r.f.r), 0); /* auto, and nobody holds it */
    rig_close(&r);
}

static void a_checkpoint_is_three_models(void **state)
{
    static const struct {
        const char *file;
        size_t parts[3];
    } row[] = {
        { "sd15.safetensors", { 1, 1, 1 } },
        { "unet.safetensors", { 1, 0, 0 } }, /* None goes out, and who needs it says so */
    };
    static const char *const role[3] = { "unet", "clip", "vae" };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(row); k++) {
        struct rig r;
        struct call x;
        char in[128];
        berth_err err = { 0 };
        rig_open(&r, DEVICES);
        snprintf(in, sizeof in, "{\"ckpt_name\": \"%s\"}", row[k].file);
        assert_ok(rig_run(&r, &x, "CheckpointLoaderSimple", in, &err), err);
        assert_string_equal(res_info(call_model(&x, 0)->part[0]).part, "model.diffusion_model.");
        for (size_t i = 0; i < 3; i++) {
            if (!row[k].parts[i]) {
                assert_int_equal(x.out[i].at[0]->kind, V_NULL);
                continue;
            }
            assert_int_equal(call_model(&x, i)->parts, row[k].parts[i]);
            assert_string_equal(res_info(call_model(&x, i)->part[0]).role, role[i]);
        }
        call_release(&x);
        rig_close(&r);
    }
}

/* An all-in-one file where a diffusion model is wanted, as ComfyUI takes it too. */
static void a_part_of_a_larger_file(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    char from[1024];
    (void)state;
    rig_open(&r, DEVICES);
    snprintf(from, sizeof from, "%s", rig_path(&r, "checkpoints/sd15.safetensors"));
    (void)!symlink(from, rig_path(&r, "diffusion_models/all.safetensors"));
    assert_ok(rig_run(&r, &x, "UNETLoader", "{\"unet_name\": \"all.safetensors\"}", &err), err);
    assert_string_equal(res_info(call_model(&x, 0)->part[0]).part, "model.diffusion_model.");
    call_release(&x);
    rig_close(&r);
}

static void one_device(void **state)
{
    static const struct {
        const char *cls, *in, *device;
    } row[] = {
        { "UNETLoaderMultiGPU", "{\"unet_name\": \"flux.safetensors\", \"device\": \"null:1\"}",
          "null:1" },
        { "UNETLoaderMultiGPU", "{\"unet_name\": \"flux.safetensors\"}", "null:0" },
        { "VAELoaderMultiGPU", "{\"vae_name\": \"ae.safetensors\", \"device\": \"cpu\"}", "cpu" },
        { "CLIPLoaderMultiGPU", "{\"clip_name\": \"t5.safetensors\", \"device\": \"null:1\"}",
          "null:1" },
        { "CLIPLoader", "{\"clip_name\": \"t5.safetensors\", \"device\": \"cpu\"}", "cpu" },
        { "CLIPLoader", "{\"clip_name\": \"t5.safetensors\", \"device\": \"default\"}", "null:0" },
        { "CLIPLoaderGGUFMultiGPU", "{\"clip_name\": \"t5.safetensors\", \"device\": \"cpu\"}",
          "cpu" },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"compute_device\": \"null:1\", "
          "\"virtual_vram_gb\": 0}",
          "null:1" },
        { "ControlNetLoaderMultiGPU",
          "{\"control_net_name\": \"other.safetensors\", \"device\": \"null:1\"}", "null:1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig r;
        struct call x;
        berth_err err = { 0 };
        rig_open(&r, DEVICES);
        assert_ok(rig_run(&r, &x, row[i].cls, row[i].in, &err), err);
        struct res_model *m = call_model(&x, 0)->part[0];
        if (rig_bytes_on(&r, m, row[i].device) != res_info(m).bytes)
            fail_msg("%s: not all on %s", row[i].cls, row[i].device);
        call_release(&x);
        rig_close(&r);
    }
}

/* What a device cannot hold is planned around it; only what nobody can hold is an error. */
static void a_device_that_is_too_small(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=64m,null:0=8m");
    assert_ok(rig_run(&r, &x, "UNETLoaderMultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"device\": \"null:0\"}", &err),
              err);
    struct res_model *m = call_model(&x, 0)->part[0];
    assert_true(rig_bytes_on(&r, m, "null:0") > 0 && rig_bytes_on(&r, m, "cpu") > 0);
    call_release(&x);
    rig_close(&r);
    rig_open(&r, "cpu=4m,null:0=8m");
    berth_status s = rig_run(&r, &x, "UNETLoaderMultiGPU",
                             "{\"unet_name\": \"flux.safetensors\", \"device\": \"null:0\"}", &err);
    assert_fails(s, err, BERTH_ELIMIT, "flux.safetensors");
    call_release(&x);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static void allocations(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "UNETLoaderDisTorch2MultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"compute_device\": \"null:0\", "
                      "\"virtual_vram_gb\": 0.01, \"donor_device\": \"null:1\"}",
                      &err),
              err);
    struct res_model *m = call_model(&x, 0)->part[0];
    uint64_t lent = rig_bytes_on(&r, m, "null:1");
    uint64_t want = UINT64_C(10737418); /* 0.01 GiB, to within a block */
    assert_true(lent > want - (1 << 20) && lent < want + (1 << 20));
    assert_int_equal(rig_bytes_on(&r, m, "null:0") + lent, res_info(m).bytes);
    call_release(&x);
    assert_ok(rig_run(&r, &x, "UNETLoaderDisTorch2MultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"compute_device\": \"null:0\", "
                      "\"virtual_vram_gb\": 0, \"expert_mode_allocations\": \"cpu,*\"}",
                      &err),
              err);
    m = call_model(&x, 0)->part[0];
    assert_true(rig_bytes_on(&r, m, "cpu") > res_info(m).bytes * 9 / 10);
    assert_string_equal(res_plan(m)->devices.at[res_plan(m)->quotas.compute].name, "null:0");
    call_release(&x);
    rig_close(&r);
}

/* Legacy: donors are the cpu, or every other device first. */
static void legacy_donors(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    for (int others = 0; others < 2; others++) {
        char in[256];
        rig_open(&r, DEVICES);
        snprintf(in, sizeof in,
                 "{\"unet_name\": \"flux.safetensors\", \"device\": \"null:0\", "
                 "\"virtual_vram_gb\": 0.005, \"use_other_vram\": %s}",
                 others ? "true" : "false");
        assert_ok(rig_run(&r, &x, "UnetLoaderGGUFDisTorchMultiGPU", in, &err), err);
        struct res_model *m = call_model(&x, 0)->part[0];
        /* The cpu is the last donor, which takes what fits nowhere: a block at most. */
        assert_true(rig_bytes_on(&r, m, others ? "null:1" : "cpu") > 4 << 20);
        assert_true(rig_bytes_on(&r, m, others ? "cpu" : "null:1") < 1 << 20);
        call_release(&x);
        rig_close(&r);
    }
}

static void only_the_model_of_a_checkpoint_is_distributed(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU",
                      "{\"ckpt_name\": \"sd15.safetensors\", \"compute_device\": \"null:1\", "
                      "\"virtual_vram_gb\": 4.0, \"donor_device\": \"cpu\", "
                      "\"keep_loaded\": false}",
                      &err),
              err);
    assert_true(rig_bytes_on(&r, call_model(&x, 0)->part[0], "cpu") > 0);
    for (size_t i = 1; i < 3; i++) {
        struct res_model *m = call_model(&x, i)->part[0];
        assert_int_equal(rig_bytes_on(&r, m, "null:1"), res_info(m).bytes);
        assert_int_equal(res_info(m).retention, RES_EJECT);
    }
    call_release(&x);
    assert_ok(rig_run(&r, &x, "CheckpointLoaderAdvancedMultiGPU",
                      "{\"ckpt_name\": \"sd15.safetensors\", \"unet_device\": \"null:0\", "
                      "\"clip_device\": \"cpu\", \"vae_device\": \"null:1\"}",
                      &err),
              err);
    static const char *const device[3] = { "null:0", "cpu", "null:1" };
    for (size_t i = 0; i < 3; i++) {
        struct res_model *m = call_model(&x, i)->part[0];
        assert_int_equal(rig_bytes_on(&r, m, device[i]), res_info(m).bytes);
    }
    call_release(&x);
    assert_ok(rig_run(&r, &x, "CheckpointLoaderAdvancedDisTorch2MultiGPU",
                      "{\"ckpt_name\": \"sd15.safetensors\", \"unet_compute_device\": \"null:0\", "
                      "\"unet_virtual_vram_gb\": 0.005, \"unet_donor_device\": \"null:1\", "
                      "\"clip_compute_device\": \"cpu\", \"clip_virtual_vram_gb\": 0, "
                      "\"clip_donor_device\": \"cpu\", \"vae_device\": \"null:1\"}",
                      &err),
              err);
    assert_true(rig_bytes_on(&r, call_model(&x, 0)->part[0], "null:1") > 0);
    struct res_model *clip = call_model(&x, 1)->part[0];
    assert_int_equal(rig_bytes_on(&r, clip, "cpu"), res_info(clip).bytes);
    call_release(&x);
    rig_close(&r);
}

/* Before a byte is loaded, and whatever is in the files. */
static void types_nobody_computes_are_refused(void **state)
{
#define TWO "\"clip_name1\": \"clip_g.safetensors\", \"clip_name2\": \"t5.safetensors\""
    static const struct {
        const char *cls, *inputs, *type;
    } row[] = {
        { "DualCLIPLoader", "{" TWO ", \"type\": \"sd3\"}", "'sd3'" },
        { "DualCLIPLoader", "{" TWO ", \"type\": \"hidream\"}", "'hidream'" },
        { "TripleCLIPLoader", "{" TWO ", \"clip_name3\": \"t5.safetensors\"}", "'sd3'" },
    };
#undef TWO
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        berth_err err = { 0 };
        assert_fails(rig_run(&r, &x, row[i].cls, row[i].inputs, &err), err, BERTH_EUNSUPPORTED,
                     row[i].type);
        call_release(&x);
        assert_int_equal(res_model_count(r.f.r), 0);
    }
    rig_close(&r);
}

static berth_status nothing(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

/* What GGUF files say they are for (formats.md). */
static void architectures_of_gguf(void **state)
{
    static const struct {
        const char *arch;
        bool fine;
    } row[] = { { "wan", true }, { "pig", true },    { "cow", true },        { "krea2", true },
                { NULL, true },  { "llama", false }, { "t5encoder", false }, { "", false } };
    static const char *const cls[] = { "UnetLoaderGGUF", "UnetLoaderGGUFMultiGPU" };
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row) * ARRAY_LEN(cls); i++) {
        const char *arch = row[i / ARRAY_LEN(cls)].arch;
        struct weights_meta_spec meta = { "general.architecture", arch };
        struct weights_spec spec = { "some.weight", DT_F16, { 2, { 4, 32 } } };
        char path[1024];
        struct call x;
        berth_err err = { 0 };
        snprintf(path, sizeof path, "%s", rig_path(&r, "diffusion_models/other.gguf"));
        struct weights_write_args args = { .format = "gguf",
                                           .path = path,
                                           .spec = &spec,
                                           .count = 1,
                                           .meta = &meta,
                                           .meta_count = arch ? 1 : 0,
                                           .fill = nothing };
        remove(path);
        assert_ok(weights_write(&args, &err), err);
        berth_status s =
            rig_run(&r, &x, cls[i % ARRAY_LEN(cls)], "{\"unet_name\": \"other.gguf\"}", &err);
        if (row[i / ARRAY_LEN(cls)].fine) /* it is none, but that is not by its word */
            assert_fails(s, err, BERTH_EUNSUPPORTED,
                         "'other.gguf' holds no diffusion model of a family that is known here");
        else
            assert_fails(s, err, BERTH_EINVAL, "'other.gguf' is no diffusion model");
        call_release(&x);
        assert_int_equal(res_model_count(r.f.r), 0);
        remove(path);
    }
    rig_close(&r);
}

static void vaes(void **state)
{
    struct rig r;
    struct call x;
    struct names names = { 0 };
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "VAELoader", "{\"vae_name\": \"taesd\"}", &err), err);
    assert_int_equal(call_model(&x, 0)->parts, 2);
    call_release(&x);
    assert_ok(rig_run(&r, &x, "VAELoader", "{\"vae_name\": \"pixel_space\"}", &err), err);
    assert_int_equal(call_model(&x, 0)->parts, 0);
    call_release(&x);
    const struct node_class *c = node_find("VAELoader");
    assert_ok(node_options(&r.env, &c->in[0], &names, &err), err);
    assert_int_equal(names.n, 3);
    assert_string_equal(names.at[0], "ae.safetensors");
    assert_string_equal(names.at[1], "taesd");
    assert_string_equal(names.at[2], "pixel_space");
    names_release(&names);
    rig_close(&r);
}

static void what_is_refused(void **state)
{
    static const struct {
        const char *cls, *in, *why;
        berth_status status;
    } row[] = {
        { "UNETLoader", "{\"unet_name\": \"none.safetensors\"}", "none.safetensors",
          BERTH_ENOTFOUND },
        { "UNETLoader", "{\"unet_name\": \"../../../../etc/passwd\"}", "etc/passwd",
          BERTH_ENOTFOUND },
        { "UNETLoader", "{\"unet_name\": \"bad.safetensors\"}", "bad.safetensors", BERTH_ELIMIT },
        { "CLIPLoader", "{\"clip_name\": \"../vae/ae.safetensors\"}", "ae.safetensors",
          BERTH_ENOTFOUND },
        { "VAELoader", "{\"vae_name\": \"wrong.safetensors\"}", "a Flux diffusion model",
          BERTH_EINVAL },
        { "UNETLoaderMultiGPU", "{\"unet_name\": \"flux.safetensors\", \"device\": \"cuda:9\"}",
          "cuda:9", BERTH_EINVAL },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0, "
          "\"expert_mode_allocations\": \"null:0 2gb\"}",
          "missing \",\"", BERTH_EINVAL },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0, "
          "\"expert_mode_allocations\": \"null:0,4tb\"}",
          "4tb", BERTH_EINVAL },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 200}", "gigabytes",
          BERTH_EINVAL },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": -1}", "gigabytes",
          BERTH_EINVAL },
        { "UNETLoaderDisTorch2MultiGPU",
          "{\"unet_name\": \"flux.safetensors\", \"donor_device\": \"cuda:5\"}", "cuda:5",
          BERTH_EINVAL },
        { "CheckpointLoaderSimple", "{\"ckpt_name\": \"nounet.safetensors\"}",
          "'nounet.safetensors' holds no diffusion model: it is a VAE", BERTH_EINVAL },
        { "DiffusersLoader", "{\"model_path\": \"x\"}", "'x' has no unet/", BERTH_ENOTFOUND },
    };
    struct rig r;
    char from[1024];
    (void)state;
    rig_open(&r, DEVICES);
    snprintf(from, sizeof from, "%s", rig_path(&r, "diffusion_models/flux.safetensors"));
    (void)!symlink(from, rig_path(&r, "vae/wrong.safetensors"));
    snprintf(from, sizeof from, "%s", rig_path(&r, "vae/ae.safetensors"));
    (void)!symlink(from, rig_path(&r, "checkpoints/nounet.safetensors"));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        berth_err err = { 0 };
        berth_status s = rig_run(&r, &x, row[i].cls, row[i].in, &err);
        assert_fails(s, err, row[i].status, row[i].why);
        call_release(&x);
        assert_int_equal(res_model_count(r.f.r), 0);
    }
    assert_int_equal(unlink(rig_path(&r, "vae/wrong.safetensors")), 0);
    assert_int_equal(unlink(rig_path(&r, "checkpoints/nounet.safetensors")), 0);
    rig_close(&r);
}

/* ---- what stays ---- */

static const char keep_text[] = "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0.005, "
                                "\"keep_loaded\": true}";

static void keep_is_found_again_for_nothing(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "UNETLoaderDisTorch2MultiGPU", keep_text, &err), err);
    uint64_t id = res_info(call_model(&x, 0)->part[0]).id;
    call_release(&x); /* as an executor reset does */
    assert_int_equal(res_model_count(r.f.r), 1);
    struct res_metrics before = res_metrics(r.f.r);
    assert_ok(rig_run(&r, &x, "UNETLoaderDisTorch2MultiGPU", keep_text, &err), err);
    struct res_metrics after = res_metrics(r.f.r);
    struct res_model_info i = res_info(call_model(&x, 0)->part[0]);
    assert_int_equal(i.id, id);
    assert_int_equal(i.retention, RES_KEEP);
    assert_int_equal(after.read_bytes, before.read_bytes);
    assert_int_equal(after.moved_bytes, before.moved_bytes);
    assert_int_equal(after.attaches, before.attaches + 1);
    call_release(&x);
    assert_ok(res_eject(res_model_at(r.f.r, 0), &err), err);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static void set_plan(struct res_model *m, const char *alloc)
{
    struct plan_args args = { .alloc = alloc, .reserve = UINT64_MAX };
    berth_err err = { 0 };
    assert_ok(res_replan(m, &args, NULL, &err), err);
    res_plan_by_hand(m); /* as the server does */
}

/* Runs a loader and lets go of its output, as an executor reset does; the bytes that moved. */
static uint64_t moved_by(struct rig *r, const char *cls, const char *inputs)
{
    struct call x;
    berth_err err = { 0 };
    uint64_t before = res_metrics(r->f.r).moved_bytes, read = res_metrics(r->f.r).read_bytes;
    assert_ok(rig_run(r, &x, cls, inputs, &err), err);
    call_release(&x);
    assert_int_equal(res_model_count(r->f.r), 1);
    assert_int_equal(res_metrics(r->f.r).read_bytes, read);
    return res_metrics(r->f.r).moved_bytes - before;
}

/* What somebody set on a model is his until a loader names another place. */
static void a_plan_set_by_hand_stays(void **state)
{
    static const char by_hand[] = "null:0,2m;cpu,*#null:0", flux[] = "flux.safetensors";
    static const char plain[] = "{\"unet_name\": \"flux.safetensors\"}";
    static const struct {
        const char *cls, *rest;
        bool stays;
    } row[] = {
        { "UNETLoader", "", true },
        { "UNETLoaderMultiGPU", ", \"device\": \"null:0\"", true },
        { "UNETLoaderDisTorch2MultiGPU", ", \"compute_device\": \"null:0\", \"virtual_vram_gb\": 0",
          true },
        { "UNETLoaderMultiGPU", ", \"device\": \"null:1\"", false },
        { "UNETLoaderDisTorch2MultiGPU", ", \"virtual_vram_gb\": 0.001", false },
        { "UNETLoaderDisTorch2MultiGPU", ", \"expert_mode_allocations\": \"null:0,4m;cpu,*\"",
          false },
    };
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "UNETLoader", plain, &err), err);
    struct res_model *m = call_model(&x, 0)->part[0];
    res_set_retention(m, RES_KEEP);
    set_plan(m, by_hand);
    uint64_t lent = rig_bytes_on(&r, m, "cpu");
    assert_true(lent > 0);
    assert_int_equal(moved_by(&r, "UNETLoader", plain), 0); /* while another output holds it */
    call_release(&x);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char inputs[256];
        snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s\"%s}", flux, row[i].rest);
        set_plan(m, by_hand);
        bool stayed = moved_by(&r, row[i].cls, inputs) == 0;
        if (stayed != row[i].stays)
            fail_msg("%s %s: the plan %s", row[i].cls, inputs, stayed ? "stayed" : "went");
        assert_int_equal(rig_bytes_on(&r, m, "cpu") == lent, row[i].stays);
        assert_int_equal(res_info(m).plan_by_hand, row[i].stays);
        /* a plan that a loader named is nobody's: the next one that names none is planned anew */
        assert_int_equal(moved_by(&r, "UNETLoader", plain) == 0, row[i].stays);
    }
    set_plan(m, by_hand); /* a loader that names the very same: nothing moves, now it is his */
    assert_int_equal(moved_by(&r, "UNETLoaderDisTorch2MultiGPU",
                              "{\"unet_name\": \"flux.safetensors\", "
                              "\"expert_mode_allocations\": \"null:0,2m;cpu,*#null:0\"}"),
                     0);
    assert_false(res_info(m).plan_by_hand);
    set_plan(m, "null:1,*#null:1"); /* another compute device, and nobody names one */
    assert_int_equal(moved_by(&r, "UNETLoader", plain), 0);
    assert_int_equal(rig_bytes_on(&r, m, "null:1"), res_info(m).bytes);
    set_plan(m, ""); /* automatic: what it would have had anyway */
    assert_false(res_info(m).plan_by_hand);
    assert_int_equal(moved_by(&r, "UNETLoader", plain), 0);
    assert_ok(res_eject(m, &err), err);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static struct res_receipt free_all(struct rig *r)
{
    struct res_free_args args = { .unload_models = true, .free_memory = true };
    struct res_receipt out;
    berth_err err = { 0 };
    assert_ok(res_free(r->f.r, &args, &out, &err), err);
    return out;
}

/* keep_loaded false goes, true stays, and who said nothing stays this time. */
static void free_takes_what_was_marked(void **state)
{
    struct rig r;
    struct call a, b, c;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &a, "UNETLoaderDisTorch2MultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0.005, "
                      "\"eject_models\": false, \"keep_loaded\": false}",
                      &err),
              err);
    assert_ok(rig_run(&r, &b, "VAELoaderDisTorch2MultiGPU",
                      "{\"vae_name\": \"ae.safetensors\", \"virtual_vram_gb\": 0, "
                      "\"eject_models\": false, \"keep_loaded\": true}",
                      &err),
              err);
    assert_ok(rig_run(&r, &c, "CLIPLoader", "{\"clip_name\": \"t5.safetensors\"}", &err), err);
    call_release(&a);
    assert_int_equal(res_model_count(r.f.r), 2); /* eject: gone with its last handle */
    assert_ok(rig_run(&r, &a, "UNETLoaderDisTorch2MultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0.005, "
                      "\"eject_models\": false, \"keep_loaded\": false}",
                      &err),
              err);
    struct res_receipt first = free_all(&r);
    assert_int_equal(res_info(call_model(&a, 0)->part[0]).state, RES_EJECTED);
    assert_int_equal(res_info(call_model(&b, 0)->part[0]).state, RES_RESIDENT);
    assert_int_equal(res_info(call_model(&c, 0)->part[0]).state, RES_RESIDENT);
    call_release(&a);
    call_release(&b);
    call_release(&c);
    struct res_receipt second = free_all(&r);
    assert_int_equal(res_model_count(r.f.r), 1); /* the kept one */
    assert_int_equal(res_info(res_model_at(r.f.r, 0)).retention, RES_KEEP);
    res_set_retention(res_model_at(r.f.r, 0), RES_EJECT);
    res_receipt_release(&first);
    res_receipt_release(&second);
    rig_close(&r);
}

/* eject_models empties the device before a model comes, and only then. */
static void eject_models_is_about_coming(void **state)
{
    static const char unet[] = "{\"unet_name\": \"flux.safetensors\", \"virtual_vram_gb\": 0, "
                               "\"eject_models\": true, \"keep_loaded\": true}";
    struct rig r;
    struct call a, b;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &a, "CLIPLoader", "{\"clip_name\": \"t5.safetensors\"}", &err), err);
    struct res_model *clip = call_model(&a, 0)->part[0];
    assert_true(rig_bytes_on(&r, clip, "null:0") > 0);
    assert_ok(rig_run(&r, &b, "UNETLoaderDisTorch2MultiGPU", unet, &err), err);
    assert_int_equal(rig_bytes_on(&r, clip, "null:0"), 0);
    call_release(&b);
    assert_ok(res_load(clip, NULL, NULL, &err), err);
    assert_true(rig_bytes_on(&r, clip, "null:0") > 0);
    assert_ok(rig_run(&r, &b, "UNETLoaderDisTorch2MultiGPU", unet, &err), err); /* found again */
    assert_true(rig_bytes_on(&r, clip, "null:0") > 0);
    call_release(&a);
    call_release(&b);
    res_set_retention(res_model_at(r.f.r, 0), RES_EJECT);
    rig_close(&r);
}

/* A family that nobody can run is refused by its header: one true sentence, nothing opened. */
static void families_nobody_computes_are_refused(void **state)
{
    static const struct {
        const char *cls, *input, *folder, *name[4], *what;
    } row[] = {
        { "UNETLoader",
          "unet_name",
          "diffusion_models",
          { "mlp_t5.0.weight" },
          "a Hunyuan-DiT model" },
        { "UNETLoaderDisTorch2MultiGPU",
          "unet_name",
          "diffusion_models",
          { "joint_blocks.0.context_block.attn.qkv.weight", "context_embedder.weight" },
          "an SD3 or SD3.5 model" },
        { "CheckpointLoaderSimple", /* an all-in-one file, whose text encoder is of SD's kind */
          "ckpt_name",
          "checkpoints",
          { "model.diffusion_model.joint_blocks.0.context_block.attn.qkv.weight",
            "model.diffusion_model.context_embedder.weight",
            "text_encoders.clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj."
            "weight" },
          "an SD3 or SD3.5 model" },
        { "CLIPLoader",
          "clip_name",
          "text_encoders",
          { "layers.0.self_attn.sinks" },
          "a GPT-OSS text encoder" },
    };
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x;
        berth_err err = { 0 };
        char at[64], in[96], said[160];
        snprintf(at, sizeof at, "%s/family.safetensors", row[i].folder);
        snprintf(in, sizeof in, "{\"%s\": \"family.safetensors\"}", row[i].input);
        snprintf(said, sizeof said,
                 "'family.safetensors' is %s: this family cannot be computed yet", row[i].what);
        remove(rig_path(&r, at));
        named_file(rig_path(&r, at), row[i].name);
        assert_fails(rig_run(&r, &x, row[i].cls, in, &err), err, BERTH_EUNSUPPORTED, said);
        call_release(&x);
        assert_int_equal(res_model_count(r.f.r), 0);
        remove(rig_path(&r, at));
    }
    rig_close(&r);
}

/* ---- while it runs ---- */

struct watcher {
    unsigned calls;
    double last, max;
};

static berth_status on_progress(void *user, const struct node_step *s, berth_err *err)
{
    struct watcher *w = user;
    (void)err;
    assert_true(s->value >= w->last && s->value <= s->max && !s->picture);
    w->calls++;
    w->last = s->value;
    w->max = s->max;
    return BERTH_OK;
}

static void progress_and_interrupt(void **state)
{
    struct rig r;
    struct call x;
    struct watcher w = { 0 };
    atomic_bool cancel = false;
    berth_err err = { 0 };
    static const char in[] = "{\"unet_name\": \"flux.safetensors\"}";
    (void)state;
    rig_open(&r, DEVICES);
    rig_call(&r, &x, "UNETLoader", in);
    x.host = (struct node_host) { .user = &w, .progress = on_progress, .cancel = &cancel };
    assert_ok(x.c.cls->run(&x.c, &err), err);
    assert_true(w.calls > 0 && w.calls <= 100 && w.last == 100 && w.max == 100); /* percent */
    call_release(&x);
    rig_call(&r, &x, "UNETLoader", in);
    x.host.cancel = &cancel;
    atomic_store(&cancel, true);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ECANCELED);
    call_release(&x);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static void survives_oom(void **state)
{
    static const struct {
        const char *cls, *in;
    } row[] = {
        { "ControlNetLoaderDisTorch2MultiGPU",
          "{\"control_net_name\": \"other.safetensors\", \"virtual_vram_gb\": 0.0005, "
          "\"keep_loaded\": false}" },
        { "UnetLoaderGGUFDisTorchMultiGPU",
          "{\"unet_name\": \"small.safetensors\", \"use_other_vram\": true, "
          "\"virtual_vram_gb\": 0.0001}" },
        { "CheckpointLoaderSimpleMultiGPU", "{\"ckpt_name\": \"small.safetensors\"}" },
        { "VAELoader", "{\"vae_name\": \"taesd\"}" },
    };
    struct rig r;
    char from[1024];
    (void)state;
    rig_open(&r, DEVICES);
    snprintf(from, sizeof from, "%s", rig_path(&r, "diffusion_models/flux.safetensors"));
    (void)!symlink(from, rig_path(&r, "diffusion_models/small.safetensors"));
    (void)!symlink(from, rig_path(&r, "checkpoints/small.safetensors"));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct call x;
            berth_err err = { 0 };
            rig_call(&r, &x, row[i].cls, row[i].in);
            oom_after(k);
            s = x.c.cls->run(&x.c, &err);
            oom_off();
            if (s && (s != BERTH_ENOMEM || !err.msg[0]))
                fail_msg("%s, %ld: %s", row[i].cls, k, err.msg);
            call_release(&x);
            assert_int_equal(res_model_count(r.f.r), 0);
        }
    }
    rig_close(&r);
}

static berth_status check(struct rig *r, const char *cls, const char *inputs, berth_err *err)
{
    json_t *o;
    berth_err bad = { 0 };
    assert_ok(js_parse(inputs, strlen(inputs), NULL, &o, &bad), bad);
    const char *refused = NULL;
    struct node_check k = {
        .env = &r->env, .cls = node_find(cls), .id = "1", .inputs = o, .refused = &refused
    };
    berth_status s = k.cls->validate(&k, err);
    if (s)
        err_add(err, "%s", refused ? refused : "no input");
    json_decref(o);
    return s;
}

/* Before anything is loaded: the string, not the numbers that depend on the model. */
static void expert_strings_are_validated(void **state)
{
    static const struct {
        const char *expert, *why;
    } row[] = {
        { "", NULL },
        { "null:0,50%;cpu,*", NULL },
        { "CUDA:0,2gb", "entry 1: no device 'cuda:0'" },
        { "null:0,2gb;gpu0,1gb", "entry 2" },
        { "null:0 2gb", "missing" },
        { "null:0,4tb", "4tb" },
        { ";;", "no device entries" },
        { "null:0,1gb#cpu", NULL }, /* as berth plan prints it: with the compute device */
        { "null:0,1gb#cpu#cpu", "#" },
        { "null:0,25%;cpu,4gb", "mixed" },
    };
    struct rig r;
    (void)state;
    rig_open(&r, DEVICES);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char in[200];
        berth_err err = { 0 };
        snprintf(in, sizeof in, "{\"expert_mode_allocations\": \"%s\"}", row[i].expert);
        berth_status s = check(&r, "UNETLoaderDisTorch2MultiGPU", in, &err);
        if (row[i].why)
            assert_fails(s, err, BERTH_EINVAL, row[i].why);
        else
            assert_ok(s, err);
    }
    berth_err err = { 0 };
    assert_fails(check(&r, "CheckpointLoaderAdvancedDisTorch2MultiGPU",
                       "{\"clip_expert_mode_allocations\": \"x\"}", &err),
                 err, BERTH_EINVAL, "clip_expert_mode_allocations");
    assert_ok(check(&r, "CheckpointLoaderAdvancedDisTorch2MultiGPU",
                    "{\"clip_expert_mode_allocations\": [\"4\", 0]}", &err),
              err); /* a link: when it runs */
    rig_close(&r);
}

static void a_label(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    assert_ok(rig_run(&r, &x, "DeviceSelectorMultiGPU", "{\"device\": \"null:1\"}", &err), err);
    assert_string_equal(x.out[0].at[0]->s.p, "null:1");
    call_release(&x);
    rig_close(&r);
}

static berth_status no_values(void *user, size_t i, uint64_t off, void *dst, size_t n,
                              berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

/* An adapter is no model, whatever loader it is given to. */
static void adapters_are_told(void **state)
{
    static const struct weights_spec spec[2][3] = {
        { { "lora_unet_conv_in.lora_up.weight", DT_F32, { 2, { 4, 4 } } },
          { "lora_unet_conv_in.lora_down.weight", DT_F32, { 2, { 4, 4 } } },
          { "lora_unet_conv_in.alpha", DT_F32, { 0, { 0 } } } },
        { { "lora_unet_conv_in.lokr_w1_a", DT_F32, { 2, { 4, 4 } } },
          { "lora_unet_conv_in.lokr_w1_b", DT_F32, { 2, { 4, 4 } } },
          { "lora_unet_conv_in.lokr_w2", DT_F32, { 2, { 4, 4 } } } },
    };
    static const char *const file[] = { "checkpoints/l.safetensors",
                                        "diffusion_models/l.safetensors" };
    struct rig r;
    struct call x;
    (void)state;
    rig_open(&r, "cpu=64m");
    for (size_t i = 0; i < 2; i++) {
        struct weights_write_args args = { .format = "safetensors",
                                           .path = rig_path(&r, file[i]),
                                           .spec = spec[i],
                                           .count = ARRAY_LEN(spec[i]),
                                           .fill = no_values };
        berth_err err = { 0 };
        assert_ok(weights_write(&args, &err), err);
        if (i)
            assert_fails(rig_run(&r, &x, "UNETLoader", "{\"unet_name\": \"l.safetensors\"}", &err),
                         err, BERTH_EINVAL,
                         "'l.safetensors' holds no diffusion model: it is a LoRA");
        else
            assert_fails(rig_run(&r, &x, "CheckpointLoaderSimple",
                                 "{\"ckpt_name\": \"l.safetensors\"}", &err),
                         err, BERTH_EINVAL,
                         "'l.safetensors' holds no diffusion model: it is a LoRA");
        call_release(&x);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_told),
        cmocka_unit_test(plain_loaders_plan_automatically),
        cmocka_unit_test(a_checkpoint_is_three_models),
        cmocka_unit_test(a_part_of_a_larger_file),
        cmocka_unit_test(one_device),
        cmocka_unit_test(a_device_that_is_too_small),
        cmocka_unit_test(allocations),
        cmocka_unit_test(legacy_donors),
        cmocka_unit_test(only_the_model_of_a_checkpoint_is_distributed),
        cmocka_unit_test(types_nobody_computes_are_refused),
        cmocka_unit_test(architectures_of_gguf),
        cmocka_unit_test(vaes),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(families_nobody_computes_are_refused),
        cmocka_unit_test(keep_is_found_again_for_nothing),
        cmocka_unit_test(a_plan_set_by_hand_stays),
        cmocka_unit_test(free_takes_what_was_marked),
        cmocka_unit_test(eject_models_is_about_coming),
        cmocka_unit_test(progress_and_interrupt),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(expert_strings_are_validated),
        cmocka_unit_test(a_label),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
