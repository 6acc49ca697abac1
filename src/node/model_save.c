/* model_save: models as files. Weights are written as they are now, patches and merges included, in
 * their file's own types, tensor by tensor: only one is in memory beside the model.
 *
 * Names are those ComfyUI writes. Networks of files that call their layers differently (diffusers,
 * OpenCLIP outside of a checkpoint) are refused: their names would have to be translated back. */
#include "node/compute.h"

#include "format/layout.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A tensor of a loaded model on its way to a file. */
struct saving {
    const struct model_ref *ref; /* NULL: a value of our own */
    size_t part, block, tensor;
    float value;
};

struct save_file { /* what is written, in order */
    struct node_call *c;
    struct vec spec, from;         /* struct weights_spec, struct saving */
    struct arena mem;              /* names, texts */
    struct vec meta;               /* struct weights_meta_spec */
    const struct res_model *ready; /* made ready last: there may be room for one only */
    void *now;                     /* tensor `at` as it is written; NULL: none */
    size_t at;
};

static void save_file_release(struct save_file *f)
{
    vec_release(&f->spec);
    vec_release(&f->from);
    vec_release(&f->meta);
    arena_release(&f->mem);
    free(f->now);
    f->now = NULL;
}

static struct save_file save_file_of(struct node_call *c)
{
    return (struct save_file) { .c = c,
                                .spec = { .elem = sizeof(struct weights_spec) },
                                .from = { .elem = sizeof(struct saving) },
                                .meta = { .elem = sizeof(struct weights_meta_spec) } };
}

/* ---- what is in it ---- */

static berth_status add(struct save_file *f, const char *front, const char *name, enum dtype dtype,
                        const struct shape *shape, struct saving from, berth_err *err)
{
    struct weights_spec *s = vec_add(&f->spec);
    size_t n = strlen(front) + strlen(name) + 1;
    char *text = s && vec_push(&f->from, &from) ? arena_array(&f->mem, n, 1) : NULL;
    if (!text)
        return err_set(err, BERTH_ENOMEM, "%zu tensors to save", f->spec.n);
    snprintf(text, n, "%s%s", front, name);
    *s = (struct weights_spec) { .name = text, .dtype = dtype, .shape = *shape };
    return BERTH_OK;
}

/* Weights that are codes are written as their values. */
static bool is_coded(const struct weights_entry *e)
{
    return e->layout && !layout_is_plain(e->layout);
}

/* In which type a tensor is written: its file's, or F16 where safetensors lacks it. */
static enum dtype type_of(const struct weights_entry *e)
{
    if (is_coded(e))
        return DT_F16;
    return weights_writer_find("safetensors")->stores(e->dtype) ? e->dtype : DT_F16;
}

#define SAVED_NAME (RES_KEY_MAX + 32)
/* The name of a tensor in the file, behind `front`, perhaps in buf [SAVED_NAME]; NULL: it is left
 * out. An error: it has none. */
typedef berth_status name_fn(const struct res_model *m, const struct weights_entry *e, char *buf,
                             const char **out, berth_err *err);

static berth_status add_part(struct save_file *f, const struct model_ref *ref, size_t part,
                             const char *front, name_fn *name, berth_err *err)
{
    struct res_model *m = ref->part[part];
    const struct blocks *b = res_blocks(m);
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->at[i].n; k++) {
            const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
            char buf[SAVED_NAME];
            const char *called = NULL;
            const struct weights_entry *of = layout_owner(res_weights(m), e);
            if (of && is_coded(of) && of->layout->pre)
                return err_set(err, BERTH_EUNSUPPORTED,
                               "'%.80s' goes with inputs that are multiplied first: such a model "
                               "cannot be saved yet",
                               of->name);
            if (of && is_coded(of))
                continue;
            struct saving from = { .ref = ref, .part = part, .block = i, .tensor = k };
            if (name(m, e, buf, &called, err) ||
                (called && add(f, front, called, type_of(e), &e->shape, from, err)))
                return err_add(err, "'%.80s'", res_info(m).name);
        }
    return BERTH_OK;
}

/* ---- names ---- */

static berth_status refuse_foreign(const struct weights_entry *e, berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.80s' is not what ComfyUI's own files call it: such a model cannot be saved "
                   "yet",
                   e->name);
}

static berth_status key_name(const struct res_model *m, const struct weights_entry *e, char *buf,
                             const char **out, berth_err *err)
{
    (void)err;
    res_tensor_key(m, e, buf);
    *out = buf;
    return BERTH_OK;
}

/* Without what is in front of a VAE's names in checkpoints. */
static berth_status vae_name(const struct res_model *m, const struct weights_entry *e, char *buf,
                             const char **out, berth_err *err)
{
    static const char *const fronts[] = { "first_stage_model.", "vae." };
    (void)m;
    (void)buf;
    *out = e->name;
    for (size_t i = 0; i < ARRAY_LEN(fronts); i++)
        if (str_starts(e->name, e->name_len, fronts[i]))
            *out = e->name + strlen(fronts[i]);
    return strstr(e->name, "down_blocks.") || strstr(e->name, "up_blocks.") ? refuse_foreign(e, err)
                                                                            : BERTH_OK;
}

/* In a checkpoint: as the checkpoint it came from has it, or as one of a single CLIP-L. */
static berth_status checkpoint_clip_name(const struct res_model *m, const struct weights_entry *e,
                                         char *buf, const char **out, berth_err *err)
{
    static const char *const fronts[] = { "cond_stage_model.", "conditioner.", "text_encoders." };
    static const char clip_l[] = "clip_l.";
    char key[RES_KEY_MAX];
    for (size_t i = 0; i < ARRAY_LEN(fronts); i++)
        if (str_starts(e->name, e->name_len, fronts[i])) {
            *out = e->name;
            return BERTH_OK;
        }
    size_t n = res_tensor_key(m, e, key);
    if (!str_starts(key, n, clip_l))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' has no place in a checkpoint yet: CLIPSave writes it", e->name);
    snprintf(buf, SAVED_NAME, "cond_stage_model.%s", key + sizeof clip_l - 1);
    *out = buf;
    return BERTH_OK;
}

/* ---- writing ---- */

/* The model that a tensor is of, with its weights at hand. Another one may have to go for it. */
static berth_status make_ready(struct save_file *f, const struct saving *from,
                               struct res_model **out, berth_err *err)
{
    *out = from->ref ? from->ref->part[from->part] : NULL;
    if (!*out || *out == f->ready)
        return BERTH_OK;
    f->ready = NULL;
    if (ready_load(f->c, from->ref, from->part, err))
        return err->code;
    f->ready = *out;
    return BERTH_OK;
}

static const struct weights_entry *entry_of(const struct res_model *m, const struct saving *from)
{
    const struct blocks *b = res_blocks(m);
    return b->tensor[b->at[from->block].first + from->tensor].entry;
}

/* Of a weight that is codes. */
static berth_status values_of(const struct res_model *m, const struct weights_entry *e,
                              enum dtype to, void *dst, size_t count, berth_err *err)
{
    float *f = malloc((count + 1) * sizeof *f);
    berth_status s = f ? layout_values(res_weights(m), e, f, err)
                       : err_set(err, BERTH_ENOMEM, "'%.80s'", e->name);
    if (!s)
        s = convert(DT_F32, f, to, dst, count, err);
    free(f);
    return s;
}

/* Tensor i as it is written, in f->now. */
static berth_status fetch(struct save_file *f, size_t i, berth_err *err)
{
    const struct saving *from = vec_at(&f->from, i);
    const struct weights_spec *s = vec_at(&f->spec, i);
    struct res_model *m;
    uint64_t count, bytes;
    free(f->now);
    f->now = NULL;
    if (call_check(f->c, err) || make_ready(f, from, &m, err))
        return err->code;
    if (!shape_count(&s->shape, &count) || !dtype_bytes(s->dtype, count, &bytes))
        return err_set(err, BERTH_EFORMAT, "'%.80s': its shape does not fit", s->name);
    struct res_tensor_at at = m ? res_tensor_at(m, from->block, from->tensor)
                                : (struct res_tensor_at) { .bytes = bytes, .dtype = s->dtype };
    void *raw = malloc(at.bytes + 1), *to = at.dtype == s->dtype ? raw : malloc(bytes + 1);
    berth_status st = raw && to ? BERTH_OK : err_set(err, BERTH_ENOMEM, "'%.80s'", s->name);
    if (!st && m && at.dtype != s->dtype && is_coded(entry_of(m, from)))
        st = values_of(m, entry_of(m, from), s->dtype, to, (size_t)count, err);
    else if (!st && m)
        st = res_tensor_read(m, from->block, from->tensor, raw, (size_t)at.bytes, err);
    else if (!st)
        memcpy(raw, &from->value, bytes < sizeof from->value ? bytes : sizeof from->value);
    if (!st && to != raw && !(m && is_coded(entry_of(m, from))))
        st = convert(at.dtype, raw, s->dtype, to, (size_t)count, err);
    if (to != raw)
        free(raw);
    if (st)
        free(to);
    f->now = st ? NULL : to;
    f->at = i;
    return st;
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    struct save_file *f = user;
    if ((!f->now || f->at != i) && fetch(f, i, err))
        return err->code;
    memcpy(dst, (const char *)f->now + off, n);
    return BERTH_OK;
}

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    struct save_file *f = user;
    berth_err unread = { 0 }; /* an interrupt ends the next fetch() */
    call_progress(f->c, (double)done, total ? (double)total : 1, &unread);
}

static berth_status add_meta(struct save_file *f, const char *key, const char *value,
                             berth_err *err)
{
    char *k = arena_strndup(&f->mem, key, strlen(key));
    char *v = arena_strndup(&f->mem, value, strlen(value));
    struct weights_meta_spec m = { k, v };
    return k && v && vec_push(&f->meta, &m) ? BERTH_OK
                                            : err_set(err, BERTH_ENOMEM, "metadata of a model");
}

/* To <prefix>_<counter>_.safetensors in the output folder: never in place of another file. */
static berth_status write_file(struct save_file *f, struct saved *to, berth_err *err)
{
    struct str path = { 0 };
    for (size_t i = 0; i < to->texts; i++)
        if (add_meta(f, to->text[i].key, to->text[i].value, err))
            return err->code;
    if (save_free_path(to, ".safetensors", &path, err)) {
        str_release(&path);
        return err->code;
    }
    struct weights_write_args a = { .format = "safetensors",
                                    .path = str_c(&path),
                                    .spec = f->spec.p,
                                    .count = f->spec.n,
                                    .meta = f->meta.p,
                                    .meta_count = f->meta.n,
                                    .fill = fill,
                                    .user = f,
                                    .progress = on_progress,
                                    .progress_user = f };
    berth_status s = weights_write(&a, err);
    if (!s)
        log_info(f->c->env->log, "node.saved", "node=%s tensors=%zu path=%s", f->c->id, f->spec.n,
                 str_c(&path));
    str_release(&path);
    return s;
}

/* ---- the nodes ---- */

/* What a loader must be told to sample it the same way. */
static berth_status add_marks(struct save_file *f, const struct model_ref *ref,
                              const struct diffusion_info *info, berth_err *err)
{
    const struct shape none = { .ndim = 1 }, scalar = { 0 };
    const bool v = info->predicts == PREDICT_V;
    struct msampling ms;
    if (ready_msampling(ref, &ms, err))
        return err->code;
    bool edm = ms.cfg.table == MS_CONTINUOUS_EDM && (ms.cfg.type == MS_V || ms.cfg.type == MS_EDM);
    bool zsnr = v && ms.cfg.zsnr;
    struct saving max = { .value = ms_sigma_max(&ms) }, min = { .value = ms_sigma_min(&ms) };
    ms_release(&ms);
    if ((v || info->predicts == PREDICT_EPS) &&
        add_meta(f, "modelspec.predict_key", v ? "v" : "epsilon", err))
        return err->code;
    if (v && add(f, "", "v_pred", DT_F32, &none, (struct saving) { 0 }, err))
        return err->code;
    if (zsnr && add(f, "", "ztsnr", DT_F32, &none, (struct saving) { 0 }, err))
        return err->code;
    if (edm && (add(f, "", "edm_vpred.sigma_max", DT_F32, &scalar, max, err) ||
                add(f, "", "edm_vpred.sigma_min", DT_F32, &scalar, min, err)))
        return err->code;
    return BERTH_OK;
}

static berth_status add_model(struct save_file *f, berth_err *err)
{
    const struct model_ref *ref;
    struct diffusion_info info;
    if (in_model(f->c, "model", &ref, err) || ready_info(ref, &info, err))
        return err->code;
    if (info.renamed)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' has diffusers' names: such a model cannot be saved yet",
                       ready_name(ref));
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < ref->parts; i++)
        s = add_part(f, ref, i, "model.", key_name, err);
    return s ? s : add_marks(f, ref, &info, err);
}

static berth_status add_input(struct save_file *f, const char *input, const char *front,
                              name_fn *name, berth_err *err)
{
    const struct model_ref *ref;
    if (in_model(f->c, input, &ref, err))
        return err->code;
    if (!ref->parts)
        return err_set(err, BERTH_EUNSUPPORTED, "this %s has no weights to save", input);
    for (size_t i = 0; i < ref->parts; i++)
        if (add_part(f, ref, i, front, name, err))
            return err->code;
    return BERTH_OK;
}

enum { SAVE_MODEL = 1, SAVE_CLIP = 2, SAVE_VAE = 4 };

static berth_status run_save(struct node_call *c, berth_err *err)
{
    const unsigned what = *(const unsigned *)c->cls->own;
    struct save_file f = save_file_of(c);
    const char *prefix;
    struct saved to = { 0 };
    berth_status s = in_text(c, "filename_prefix", &prefix, err);
    if (!s)
        s = save_begin(c, "output", prefix, 0, 0, &to, err);
    if (!s && what & SAVE_MODEL)
        s = add_model(&f, err);
    if (!s && what & SAVE_CLIP)
        s = add_input(&f, "clip", "", checkpoint_clip_name, err);
    if (!s && what & SAVE_VAE)
        s = add_input(&f, "vae", what & SAVE_MODEL ? "first_stage_model." : "", vae_name, err);
    if (!s)
        s = write_file(&f, &to, err);
    save_end(&to);
    save_file_release(&f);
    return s;
}

#define SAVED(c, what, ...)                                                                        \
    NODE_CLASS(c, .category = "model/merging", .module = MOD("model_merging"),                     \
               .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO, .run = run_save,           \
               .own = &(const unsigned) { what }, __VA_ARGS__)

SAVED(CheckpointSave, SAVE_MODEL | SAVE_CLIP | SAVE_VAE, .display = "Save Checkpoint",
      INS(SOCKET("model", "MODEL"), SOCKET("clip", "CLIP"), SOCKET("vae", "VAE"),
          TEXT_IN("filename_prefix", "checkpoints/ComfyUI")));
SAVED(ModelSave, SAVE_MODEL,
      INS(SOCKET("model", "MODEL"), TEXT_IN("filename_prefix", "diffusion_models/ComfyUI")));
SAVED(VAESave, SAVE_VAE, INS(SOCKET("vae", "VAE"), TEXT_IN("filename_prefix", "vae/ComfyUI_vae")));

/* ---- text encoders: a file for each ---- */

static bool is_of(const struct res_model *m, const struct weights_entry *e, const char *encoder,
                  char key[RES_KEY_MAX])
{
    return str_starts(key, res_tensor_key(m, e, key), encoder);
}

/* Tensors of one encoder ("clip_l.") under its own names. */
static berth_status add_encoder(struct save_file *f, const struct model_ref *ref,
                                const char *encoder, berth_err *err)
{
    static const char inner[] = "transformer.";
    for (size_t p = 0; p < ref->parts; p++) {
        struct res_model *m = ref->part[p];
        const struct blocks *b = res_blocks(m);
        for (size_t i = 0; i < b->n; i++)
            for (size_t k = 0; k < b->at[i].n; k++) {
                const struct weights_entry *e = b->tensor[b->at[i].first + k].entry;
                char key[RES_KEY_MAX];
                struct saving from = { .ref = ref, .part = p, .block = i, .tensor = k };
                if (!is_of(m, e, encoder, key))
                    continue;
                if (strstr(key, "resblocks."))
                    return refuse_foreign(e, err);
                const char *name = key + strlen(encoder);
                name += strncmp(name, inner, sizeof inner - 1) == 0 ? sizeof inner - 1 : 0;
                if (add(f, "", name, type_of(e), &e->shape, from, err))
                    return err->code;
            }
    }
    return BERTH_OK;
}

static berth_status save_encoder(struct node_call *c, const struct model_ref *ref,
                                 const char *prefix, const char *encoder, size_t *files,
                                 berth_err *err)
{
    struct save_file f = save_file_of(c);
    struct saved to = { 0 };
    struct str name = { 0 };
    berth_status s = add_encoder(&f, ref, encoder, err);
    if (!s && f.spec.n) {
        str_addf(&name, "%s_%.*s", prefix, (int)strlen(encoder) - 1, encoder);
        s = name.bad ? err_set(err, BERTH_ENOMEM, "a name")
                     : save_begin(c, "output", str_c(&name), 0, 0, &to, err);
        if (!s && !c->env->disable_metadata)
            s = add_meta(&f, "format", "pt", err);
        if (!s)
            s = write_file(&f, &to, err);
        ++*files;
    }
    str_release(&name);
    save_end(&to);
    save_file_release(&f);
    return s;
}

static berth_status run_clip_save(struct node_call *c, berth_err *err)
{
    static const char *const encoders[] = { "clip_l.",    "clip_g.", "clip_h.",    "t5xxl.",
                                            "pile_t5xl.", "mt5xl.",  "umt5xxl.",   "t5base.",
                                            "gemma2_2b.", "llama.",  "hydit_clip." };
    const struct model_ref *ref;
    const char *prefix;
    size_t files = 0;
    if (in_model(c, "clip", &ref, err) || in_text(c, "filename_prefix", &prefix, err))
        return err->code;
    for (size_t i = 0; i < ARRAY_LEN(encoders); i++)
        if (save_encoder(c, ref, prefix, encoders[i], &files, err))
            return err->code;
    return files ? BERTH_OK
                 : err_set(err, BERTH_EUNSUPPORTED, "none of its encoders can be saved yet");
}

NODE_CLASS(CLIPSave, .category = "model/merging", .module = MOD("model_merging"),
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
           INS(SOCKET("clip", "CLIP"), TEXT_IN("filename_prefix", "clip/ComfyUI")),
           .run = run_clip_save);
