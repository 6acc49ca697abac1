/* gligen: boxes of the picture, each with a text, that a model is to keep to. */
#include "node/compute.h"
#include "node/loader_impl.h"

#include "model/gligen.h"

/* ---- the model ---- */

/* Said before anything is loaded. */
static berth_status check_file(struct node_call *c, const char *name, berth_err *err)
{
    struct str path = { 0 };
    struct weights *w = NULL;
    berth_status s = folders_resolve(c->env->folders, "gligen", name, &path, err);
    if (!s)
        s = weights_open(path.p, NULL, &w, err);
    if (!s && (s = gligen_check(w, NULL, err)))
        err_add(err, "'%.100s'", name);
    weights_close(w);
    str_release(&path);
    return s;
}

static berth_status run_load(struct node_call *c, berth_err *err)
{
    const char *name;
    return in_text(c, "gligen_name", &name, err) || check_file(c, name, err) ? err->code
                                                                             : run_file(c, err);
}

NODE_CLASS(GLIGENLoader, .display = "Load GLIGEN Model", .category = "model/loaders",
           .module = "nodes", INS(FOLDER_IN("gligen_name", "gligen")), OUT_OF("GLIGEN"),
           .run = run_load, FILE_OF("gligen_name", "gligen"));

/* ---- boxes ---- */

/* In latent pixels, as ComfyUI divides: rounded down, whatever the model's own ratio. */
#define LATENT_PIXEL 8

static berth_status in_side(const struct node_call *c, const char *name, double *out,
                            berth_err *err)
{
    uint64_t v = 0;
    berth_status s = in_u64(c, name, &v, err);
    if (!s && v > SIDE_MAX)
        s = err_set(err, BERTH_EINVAL, "input '%s' is %llu", name, (unsigned long long)v);
    *out = (double)(v / LATENT_PIXEL);
    return s;
}

/* The pooled text, not projected: what SD1's encoder gives. */
static berth_status box_text(struct node_call *c, const struct model_ref *gligen,
                             struct htensor **out, berth_err *err)
{
    const char *text;
    uint64_t wants;
    struct conditioning *x;
    if (in_text(c, "text", &text, err) ||
        text_conditioning(c, &(struct text_prompt) { .text = text }, 1, NULL, &x, err))
        return err->code;
    struct htensor *pooled = x->at[0].pooled;
    *out = pooled ? htensor_ref(pooled) : NULL;
    conditioning_free(x);
    berth_status s = gligen_check(res_weights(gligen->part[0]), &wants, err);
    if (!s && (!*out || htensor_count(*out) != wants))
        s = err_set(err, BERTH_EINVAL,
                    "'%.80s' takes texts of width %llu, this CLIP gives %zu: GLIGEN is for SD1 "
                    "models",
                    ready_name(gligen), (unsigned long long)wants,
                    *out ? htensor_count(*out) : (size_t)0);
    return htensor_made(s, out);
}

static berth_status run_apply(struct node_call *c, berth_err *err)
{
    const struct conditioning *to;
    const struct model_ref *gligen;
    struct conditioning *out = NULL;
    struct cond_box box = { .counts = 0 };
    if (in_conditioning(c, "conditioning_to", &to, err) ||
        in_model(c, "gligen_textbox_model", &gligen, err) || in_side(c, "height", &box.h, err) ||
        in_side(c, "width", &box.w, err) || in_side(c, "y", &box.y, err) ||
        in_side(c, "x", &box.x, err) || box_text(c, gligen, &box.text, err))
        return err->code;
    berth_status s = conditioning_copy(to, &out, err);
    for (size_t i = 0; !s && i < out->n; i++) {
        struct cond_entry *e = &out->at[i];
        if (cond_boxes(e->box) == GLIGEN_BOXES)
            s = err_set(err, BERTH_ELIMIT, "more than %d boxes", GLIGEN_BOXES);
        else
            s = cond_box_add(&e->box, box, err);
        if (!s) { /* the last one said counts for all of them */
            value_unref(e->gligen);
            e->gligen = value_ref(in_value(c, "gligen_textbox_model"));
        }
    }
    htensor_unref(box.text);
    if (!s)
        return out_conditioning(c, 0, out, err);
    conditioning_free(out);
    return s;
}

NODE_CLASS(GLIGENTextBoxApply, .display = "Apply GLIGEN Text Box",
           .category = "model/conditioning/gligen", .module = "nodes",
           INS(SOCKET("conditioning_to", "CONDITIONING"), SOCKET("clip", "CLIP"),
               SOCKET("gligen_textbox_model", "GLIGEN"),
               TEXT_IN("text", "", .no_default = true, .more = PROMPT_TEXT),
               INT_IN("width", 64, 8, MAX_SIDE, 8), INT_IN("height", 64, 8, MAX_SIDE, 8),
               INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8)),
           OUT_OF("CONDITIONING"), .run = run_apply);
