/* graph_world: everything the nodes of a workflow may ask for, tiny, and workflows run in it as a
 * prompt is: validated, then executed, with every value that a node hands on looked at.
 *
 *     world_open();
 *     world_try(bytes, n);       the workflow these bytes are (graph_dice.h)
 *     world_close();             nothing leaked
 *
 * Held       A value has the shape its type promises. No message names a folder of this machine
 *            that the server would not hide. No value depends on what fresh memory held: none is
 *            made of its pattern, and where the bytes say so the workflow runs once more over
 *            another pattern and must give the same.
 * Bounded    What would take long ends: allocations beyond WORLD_LARGEST fail, WORLD_STEPS steps of
 *            a node interrupt the prompt.
 * Broken     abort(), behind a line that says what; the sanitizers have their own way. */
#ifndef SUPPORT_GRAPH_WORLD_H
#define SUPPORT_GRAPH_WORLD_H

#include "base/file.h"
#include "base/hash.h"
#include "graph/graph.h"
#include "node/clips.h"
#include "node/compute.h"
#include "support/graph_dice.h"
#include "support/loader_rig.h"
#include "support/lora_files.h"
#include "support/oom.h"
#include "support/tokenizer.h"
#include "text/bpe.h"
#include "text/unigram.h"

#include <ftw.h>
#include <time.h>

/* Room for what loaders of ours mark keep, one after the other, and little more. */
#define WORLD_DEVICES "cuda:0@cpu=160m,cuda:1@cpu=64m,cpu=512m"
#define WORLD_LARGEST ((size_t)1 << 18)
#define WORLD_STEPS 3

static const int world_fill[2] = { 0xa7, 0x5a };

struct world {
    struct rig r;
    bool open;
    char tokenizers[512];
    const char *folder[1];
    /* What CheckpointLoaderSimple gives: opened for real, once, which saves half of the time. The
     * other loaders run each time. */
    struct call held[3];
    const char *checkpoint[3]; /* their names */
    struct node_class *cls;    /* node_count() of them, as node_at() */
    atomic_bool cancel;
    size_t steps; /* of the node that runs */
    int fill;
    uint64_t hash; /* of what the node that runs has made */
    struct made {  /* of each node by its number: what it made in this run, and how often */
        uint64_t hash;
        size_t calls;
    } made[2 * GRAPH_NODES + 1];
    const char *text;
    bool show;                                   /* every graph, and how its nodes end */
    size_t ran, refused, failed, stopped, nodes; /* counted over all */
};
static struct world world;

static inline _Noreturn void world_broken(const char *what, const char *about)
{
    fprintf(stderr, "%s: %s\n%s\n", what, about, world.text ? world.text : "");
    abort();
}

/* ---- values ---- */

static inline void world_tensor(const struct htensor *t, const char *cls)
{
    uint32_t pattern = (uint32_t)world.fill * 0x01010101u, bits;
    if (!t)
        return;
    size_t n = htensor_count(t);
    for (size_t i = 0; i < n; i++) {
        memcpy(&bits, &t->data[i], sizeof bits);
        if (bits == pattern)
            world_broken("memory that nobody has written leaves", cls);
    }
    world.hash = hash_xxh64(t->data, n * sizeof(float), world.hash);
    world.hash = hash_xxh64(t->shape.dim, (size_t)t->shape.ndim * sizeof *t->shape.dim, world.hash);
}

static inline void world_conditioning(const struct conditioning *x, const char *cls)
{
    for (size_t i = 0; i < x->n; i++) {
        world_tensor(x->at[i].cond, cls);
        world_tensor(x->at[i].pooled, cls);
        world_tensor(x->at[i].mask, cls);
        world_tensor(x->at[i].concat_latent, cls);
        world_tensor(x->at[i].concat_mask, cls);
    }
}

static inline void world_audio(const struct value *v, const char *cls)
{
    const struct audio *a = v->object.obj;
    if (a->wave->shape.ndim != 3 || !a->rate)
        world_broken("no such sound", cls);
    world_tensor(a->wave, cls);
}

static inline void world_value(const struct value *v, const char *type, const char *cls)
{
    int want = !strcmp(type, "IMAGE") ? 4 : !strcmp(type, "MASK") ? 3 : 0;
    if (want && (v->kind != V_TENSOR || v->tensor->shape.ndim != want))
        world_broken("no such picture or mask", cls);
    if (v->kind == V_TENSOR)
        world_tensor(v->tensor, cls);
    if (v->kind == V_LATENT) {
        const struct latent *l = &v->latent;
        world_tensor(l->samples, cls);
        world_tensor(l->noise_mask, cls);
        if (l->batch_index)
            world.hash =
                hash_xxh64(l->batch_index, dim(l->samples, 0) * sizeof *l->batch_index, world.hash);
    }
    if (v->kind == V_OBJECT && v->object.type == &type_conditioning)
        world_conditioning(v->object.obj, cls);
    if (v->kind == V_OBJECT && v->object.type == &type_audio)
        world_audio(v, cls);
    if (v->kind == V_OBJECT && v->object.type == &type_video) {
        const struct video *clip = v->object.obj;
        if (!clip->path == !clip->images ||
            (clip->images && clip->at + clip->n > dim(clip->images, 0)))
            world_broken("no such video", cls);
        if (clip->audio)
            world_audio(clip->audio, cls);
    }
}

static inline berth_status world_checkpoint(struct node_call *c, berth_err *err)
{
    const char *file;
    berth_status s = in_text(c, "ckpt_name", &file, err);
    for (size_t i = 0; !s && i < ARRAY_LEN(world.held); i++)
        for (size_t k = 0; !s && !strcmp(file, world.checkpoint[i]) && k < c->cls->outs; k++)
            s = out_value(c, k, value_ref(world.held[i].out[k].at[0]), err);
    return s;
}

/* In place of a class's own run(). */
static inline berth_status world_run(struct node_call *c, berth_err *err)
{
    const char *name = c->cls->name;
    clock_t began = clock();
    berth_status s = !strcmp(name, "CheckpointLoaderSimple") ? world_checkpoint(c, err)
                                                             : node_find(name)->run(c, err);
    struct made *made = &world.made[strtoul(c->id, NULL, 10) % ARRAY_LEN(world.made)];
    world.nodes++;
    world.hash = made->hash;
    for (size_t i = 0; !s && i < c->cls->outs; i++)
        for (size_t k = 0; k < c->out[i].n; k++)
            world_value(c->out[i].at[k], c->cls->out[i].type, name);
    *made = (struct made) { world.hash, made->calls + !s };
    for (const char *at = err->msg; s && (at = strstr(at, tmp_dir())); at++)
        if (at == err->msg || at[-1] != '\'') /* the server hides what stands between quotes */
            world_broken("what a client would be told", err->msg);
    if (s && !err->msg[0])
        world_broken("no word about what is wrong", name);
    if (world.show)
        fprintf(stderr, "%ld ms %s: %s\n", (long)((clock() - began) * 1000 / CLOCKS_PER_SEC), name,
                s ? err->msg : "ok");
    return s;
}

static inline const struct node_class *world_find(const char *name)
{
    for (size_t i = 0; i < node_count(); i++)
        if (!strcmp(world.cls[i].name, name))
            return &world.cls[i];
    return NULL;
}

/* ---- files ---- */

static inline void world_put(const char *name, const struct str *bytes)
{
    char path[64];
    assert_false(bytes->bad);
    snprintf(path, sizeof path, "base/input/%s", name);
    tmp_write(path, str_c(bytes), bytes->n);
}

/* Pictures of all kinds of channels and sizes, one of them with three frames. */
static inline void world_pictures(void)
{
    static const uint32_t size[][3] = { { 24, 16, 3 }, { 17, 9, 4 }, { 1, 1, 1 }, { 40, 40, 3 } };
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(size); i++) {
        struct image im[3] = { 0 };
        struct str out = { 0 };
        char name[32];
        for (size_t f = 0; f < 3; f++) {
            assert_ok(image_init(&im[f], size[i][0], size[i][1], size[i][2], &err), err);
            for (size_t k = 0; k < (size_t)im[f].w * im[f].h * im[f].channels; k++)
                im[f].px[k] = (uint8_t)(k * 7 + i + f * 50);
        }
        struct image_png_args png = { .level = 1 };
        struct image_anim_args anim = { .fps = 10, .level = 1 };
        assert_ok(i == 3 ? image_anim_png(im, 3, &anim, &out, &err)
                         : image_png(im, &png, &out, &err),
                  err);
        snprintf(name, sizeof name, "%zu.png", i);
        world_put(name, &out);
        str_release(&out);
        for (size_t f = 0; f < 3; f++)
            image_release(&im[f]);
    }
    world_put("broken.png", &(struct str) { .p = (char[]) { "\x89PNG\r\n\x1a\nrest" }, .n = 12 });
}

/* Clips of golden/data, which need not be read to be there. */
static inline void world_clips(void)
{
    static const char *const from[] = { "media_odd.mp4", "media_deep.mkv" };
    for (size_t i = 0; i < ARRAY_LEN(from); i++) {
        char path[512];
        struct str bytes = { 0 };
        size_t n;
        berth_err err;
        snprintf(path, sizeof path, BERTH_SOURCE_DIR "/tests/golden/data/%s", from[i]);
        assert_ok(file_read_all(path, 1 << 20, &bytes.p, &n, &err), err);
        bytes.n = n;
        world_put(i ? "deep.mkv" : "clip.mp4", &bytes);
        bytes.n = n / 2;
        world_put(i ? "cut.mkv" : "broken.mp4", &bytes);
        free(bytes.p);
    }
}

static inline void world_latents(void)
{
    static const struct weights_spec spec[][2] = {
        { { "latent_format_version_0", DT_F32, { 1, { 0 } } },
          { "latent_tensor", DT_F32, { 4, { 2, 4, 3, 5 } } } },
        { { "latent_format_version_0", DT_F32, { 1, { 0 } } },
          { "latent_tensor", DT_F32, { 3, { 4, 3, 5 } } } },
    };
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(spec); i++) {
        struct weights_write_args args = { .format = "safetensors",
                                           .path = tmp_path(i ? "base/input/odd.latent"
                                                              : "base/input/a.latent"),
                                           .spec = spec[i],
                                           .count = 2,
                                           .fill = lora_fill };
        assert_ok(weights_write(&args, &err), err);
    }
}

static inline void world_models(struct rig *r)
{
    static const char *const file[][2] = {
        { "checkpoints/sd15.safetensors", "sd15-tiny" },
        { "checkpoints/inpaint.safetensors", "sd15-inpaint-tiny" },
        { "checkpoints/sdxl.safetensors", "sdxl-base-tiny" },
        { "diffusion_models/flux.safetensors", "flux-tiny" },
        { "diffusion_models/qwen.safetensors", "qwen-image-tiny" },
        { "diffusion_models/sd15.gguf", "sd15-unet-tiny" },
        { "text_encoders/l.safetensors", "clip-l-tiny" },
        { "text_encoders/t5.safetensors", "t5-tiny" },
        { "text_encoders/l.gguf", "clip-l-tiny" },
        { "vae/ae.safetensors", "flux-tiny-vae" },
        { "vae/sd.safetensors", "vae-tiny" },
        { "vae/wan.safetensors", "wan-tiny-vae" },
    };
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(file); i++)
        rig_preset(r, file[i][0], file[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(world.held); i++) {
        char inputs[96];
        world.checkpoint[i] = strchr(file[i][0], '/') + 1;
        snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s\"}", world.checkpoint[i]);
        assert_ok(rig_run(r, &world.held[i], "CheckpointLoaderSimple", inputs, &err), err);
    }
    lora_file(rig_path(r, "loras/a.safetensors"), call_model(&world.held[0], 0)->part[0],
              call_model(&world.held[0], 1)->part[0]);
}

static inline void world_tokenizers(void)
{
    berth_err err = { 0 };
    snprintf(world.tokenizers, sizeof world.tokenizers, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(tmp_path("tokenizers/t5"), &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/clip"), false) > 0);
    assert_ok(unigram_write_stand_in(tmp_path("tokenizers/t5"), &err), err);
    world.folder[0] = world.tokenizers;
    world.r.env.tokenizers = world.folder;
    world.r.env.tokenizers_n = 1;
    world.r.env.assets = node_assets_new();
    assert_non_null(world.r.env.assets);
}

static inline void world_open(void)
{
    if (world.open)
        return;
    rig_open(&world.r, WORLD_DEVICES);
    world_models(&world.r);
    world_tokenizers();
    world_pictures();
    world_latents();
    world_clips();
    world.r.env.media_helper = *BERTH_BINARY && media_built() ? BERTH_BINARY : NULL;
    world.cls = calloc(node_count(), sizeof *world.cls);
    assert_non_null(world.cls);
    for (size_t i = 0; i < node_count(); i++) {
        world.cls[i] = *node_at(i);
        if (!node_cannot_run(node_at(i)))
            world.cls[i].run = world_run;
    }
    world.r.env.find = world_find;
    world.r.env.previews = true;
    world.open = true;
}

static inline void world_close(void)
{
    for (size_t i = 0; i < ARRAY_LEN(world.held); i++)
        call_release(&world.held[i]);
    node_assets_free(world.r.env.assets);
    free(world.cls);
    rig_close(&world.r);
    world = (struct world) { 0 };
}

/* ---- a run ---- */

static inline void world_event(void *user, const struct exec_event *e)
{
    (void)user;
    if (e->kind == EXEC_NODE_START)
        world.steps = 0;
    if (e->kind == EXEC_PROGRESS && e->max != 100 && /* that is a load: percent */
        ++world.steps > WORLD_STEPS)
        atomic_store(&world.cancel, true);
}

static inline int world_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    return ftw->level && flag != FTW_DP ? remove(path) : 0;
}

static inline enum exec_outcome world_execute_one(struct executor *x, json_t *prompt, json_t *id)
{
    json_t *outputs = json_pack("[O]", id);
    struct exec_request q = {
        .prompt_id = "random", .prompt = prompt, .outputs = outputs, .cancel = &world.cancel
    };
    struct exec_result r;
    berth_err err = { 0 };
    assert_non_null(outputs);
    atomic_store(&world.cancel, false);
    oom_largest(WORLD_LARGEST);
    oom_fill(world.fill);
    berth_status s = executor_run(x, &q, &r, &err);
    oom_fill(-1);
    oom_largest(SIZE_MAX);
    if (s)
        world_broken("the executor gave up", err.msg);
    enum exec_outcome how = r.outcome;
    exec_result_release(&r);
    json_decref(outputs);
    return how;
}

/* Every output by itself, over one cache: what fails must not keep the others from running. */
static inline enum exec_outcome world_execute(json_t *prompt, const json_t *outputs, int fill,
                                              enum cache_mode cache)
{
    struct executor *x = NULL;
    struct executor_config cfg = {
        .env = &world.r.env, .cache = cache, .lru = 3, .event = world_event
    };
    enum exec_outcome how = EXEC_OK;
    json_t *id;
    size_t i;
    berth_err err = { 0 };
    memset(world.made, 0, sizeof world.made);
    world.fill = fill;
    assert_ok(executor_new(&cfg, &x, &err), err);
    json_array_foreach((json_t *)(uintptr_t)outputs, i, id)
    {
        enum exec_outcome one = world_execute_one(x, prompt, id);
        how = one > how ? one : how;
    }
    executor_free(x);
    nftw(folders_own(world.r.folders, FOLDERS_OUTPUT), world_remove, 8, FTW_DEPTH | FTW_PHYS);
    nftw(folders_own(world.r.folders, FOLDERS_TEMP), world_remove, 8, FTW_DEPTH | FTW_PHYS);
    return how;
}

/* Over other memory. What ran in both gives the same; what did not had no room in one of them. */
static inline void world_again(const struct graph *g, json_t *prompt, const json_t *outputs,
                               enum cache_mode cache)
{
    struct made before[ARRAY_LEN(world.made)];
    memcpy(before, world.made, sizeof before);
    world_execute(prompt, outputs, world_fill[1], cache);
    for (size_t i = 0; i < g->n; i++)
        if (before[i + 1].calls == world.made[i + 1].calls &&
            before[i + 1].hash != world.made[i + 1].hash)
            world_broken("another result over other memory", g->node[i].cls->name);
}

static inline void world_try(const uint8_t *p, size_t n)
{
    struct graph g;
    struct validation v;
    json_t *prompt = NULL;
    berth_err err = { 0 };
    bool twice = n && p[0] % 4 == 0;
    enum cache_mode cache = n ? (enum cache_mode)(p[0] / 4 % 4) : CACHE_CLASSIC;
    graph_roll(&g, &world.r.env, n ? p + 1 : p, n ? n - 1 : 0);
    world.text = str_c(&g.text);
    if (world.show)
        fprintf(stderr, "%s\n", world.text);
    assert_ok(js_parse(world.text, g.text.n, NULL, &prompt, &err), err);
    assert_ok(graph_validate(&world.r.env, prompt, NULL, &v, &err), err);
    world.refused += !v.ok;
    if (v.ok) {
        enum exec_outcome a = world_execute(prompt, v.outputs, world_fill[0], cache);
        world.ran += a == EXEC_OK;
        world.failed += a == EXEC_FAILED;
        world.stopped += a == EXEC_STOPPED;
        if (twice)
            world_again(&g, prompt, v.outputs, cache);
    }
    validation_release(&v);
    json_decref(prompt);
    graph_release(&g);
    world.text = NULL;
}

#endif
