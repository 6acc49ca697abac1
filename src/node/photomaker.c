/* photomaker: prompts of SDXL with a person from a picture. */
#include "node/compute.h"
#include "node/loader_impl.h"

#include "model/photomaker.h"

#define WORD "photomaker" /* stands for the person */
#define TOKENS 77

/* ---- the model ---- */

/* Only its own tensors: adapters that lie beside them are for other nodes. */
static berth_status find_file(struct node_call *c, const char *name, struct str *path,
                              const char **part, berth_err *err)
{
    struct weights *w = NULL;
    berth_status s = folders_resolve(c->env->folders, "photomaker", name, path, err);
    if (!s)
        s = weights_open(path->p, NULL, &w, err);
    *part = s ? NULL : photomaker_part(w);
    if (!s && !*part)
        s = err_set(err, BERTH_EUNSUPPORTED, "'%.100s' is no PhotoMaker that is known here", name);
    weights_close(w);
    return s;
}

static berth_status run_load(struct node_call *c, berth_err *err)
{
    struct placement p;
    struct opened m = { .parts = 0 };
    struct str path = { 0 };
    const char *name, *part;
    if (in_text(c, "photomaker_model_name", &name, err) || placement_read(c, "", &p, err))
        return err->code;
    berth_status s = find_file(c, name, &path, &part, err);
    p.dtype = c->env->numbers.weights_text; /* ComfyUI keeps it as it keeps text encoders */
    if (!s)
        s = loader_place(c, path.p, *part ? part : NULL, "vision", &p, false, &m.part[0], err);
    if (!s) {
        m.parts = 1;
        res_ref(m.part[0].m);
        m.ref.part[m.ref.parts++] = m.part[0].m;
        s = loader_give(c, 0, &m.ref, err);
    }
    opened_release(&m, s);
    placement_release(&p);
    str_release(&path);
    return s;
}

NODE_CLASS(PhotoMakerLoader, .display = "Load PhotoMaker Model", .category = "model/loaders",
           .module = MOD("photomaker"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(FOLDER_IN("photomaker_model_name", "photomaker")), OUT_OF("PHOTOMAKER"),
           .run = run_load);

/* ---- prompts ---- */

/* Which of the words between single spaces it is, from 0; SIZE_MAX: none. */
static size_t find_word(const char *text)
{
    for (size_t i = 0;; i++) {
        const char *end = strchr(text, ' ');
        size_t n = end ? (size_t)(end - text) : strlen(text);
        if (n == strlen(WORD) && memcmp(text, WORD, n) == 0)
            return i;
        if (!end)
            return SIZE_MAX;
        text = end + 1;
    }
}

static berth_status put_person(struct node_call *c, const struct model_ref *ref,
                               const struct htensor *image, float *token, size_t width,
                               berth_err *err)
{
    struct photomaker p;
    struct net_args args;
    struct net *net = NULL;
    const struct vision_job job = { .image = image->data,
                                    .n = dim(image, 0),
                                    .h = dim(image, 1),
                                    .w = dim(image, 2),
                                    .c = dim(image, 3),
                                    .crop = true,
                                    .pool = c->env->pool,
                                    .cancel = cancel_of(c) };
    if (ready_net(c, ref, "PHOTOMAKER", &args, err) ||
        photomaker_open(&args, res_info(ref->part[0]).part, &p, &net, err))
        return err->code;
    berth_status s = p.width == width
                         ? photomaker_fuse(net, &p, &job, token, err)
                         : err_set(err, BERTH_EINVAL,
                                   "'%.80s' is for prompts of width %llu, this CLIP gives %zu: "
                                   "PhotoMaker is for SDXL models",
                                   ready_name(ref), (unsigned long long)p.width, width);
    struct net_report done = net_report(net);
    ready_done(c, ref->part[0], "vision", &done);
    net_close(net);
    return s;
}

/* As ComfyUI does it: the number of the word among those between spaces is the number of the token
 * that the person is put into, and one more is that of the part of the prompt, as emphasis and
 * embeddings cut it, that is left out. */
static berth_status run_encode(struct node_call *c, berth_err *err)
{
    const struct model_ref *ref;
    struct htensor *image, *with = NULL;
    struct conditioning *x;
    const char *text;
    if (in_model(c, "photomaker", &ref, err) || in_image(c, "image", &image, err) ||
        in_text(c, "text", &text, err))
        return err->code;
    const size_t word = find_word(text);
    const struct text_prompt prompt = { .text = text,
                                        .without = word < UINT32_MAX ? (uint32_t)word + 1 : 0 };
    if (text_conditioning(c, &prompt, 1, NULL, &x, err))
        return err->code;
    const struct htensor *cond = x->at[0].cond;
    const size_t width = dim(cond, 2);
    berth_status s = BERTH_OK;
    if (word != SIZE_MAX && dim(cond, 1) != TOKENS)
        s = err_set(err, BERTH_EINVAL, "a prompt of %zu tokens; with PhotoMaker it has %d",
                    dim(cond, 1), TOKENS);
    if (!s && word < TOKENS) {
        s = htensor_copy(cond, &with, err);
        if (!s)
            s = put_person(c, ref, image, with->data + word * width, width, err);
        if (!s) {
            htensor_unref(x->at[0].cond);
            x->at[0].cond = with;
            with = NULL;
        }
    }
    htensor_unref(with);
    if (!s)
        return out_conditioning(c, 0, x, err);
    conditioning_free(x);
    return s;
}

NODE_CLASS(PhotoMakerEncode, .display = "PhotoMaker Encode",
           .category = "model/conditioning/photomaker", .module = MOD("photomaker"),
           .flags = NODE_V3 | NODE_EXPERIMENTAL,
           INS(SOCKET("photomaker", "PHOTOMAKER"), SOCKET("image", "IMAGE"), SOCKET("clip", "CLIP"),
               TEXT_IN("text", "photograph of photomaker", .more = PROMPT_TEXT)),
           OUT_OF("CONDITIONING"), .run = run_encode);
