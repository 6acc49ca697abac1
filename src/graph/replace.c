/* replace: classes that ComfyUI has given up, and what does their work now. A prompt that names one
 * is rewritten before it is looked at, where we have the new class and not the old one. */
#include "graph/graph_impl.h"

struct moved { /* an input: from is its old name, or NULL and value what it is now */
    const char *to, *from, *value;
};
static const struct replacement {
    const char *old, *now;
    struct moved in[4]; /* none: inputs stay as they are */
    const char *widget[2];
    bool outputs; /* output 0 is said to be output 0 */
} replacements[] = {
    { "ResizeImagesByLongerEdge",
      "ImageScaleToMaxDimension",
      { { "image", "images", NULL },
        { "largest_size", "longer_edge", NULL },
        { "upscale_method", NULL, "lanczos" } },
      { "longer_edge" },
      true },
    { "ImageBatch",
      "BatchImagesNode",
      { { "images.image0", "image1", NULL }, { "images.image1", "image2", NULL } },
      { NULL },
      false },
    { "ImageScaleBy",
      "ResizeImageMaskNode",
      { { "input", "image", NULL },
        { "resize_type", NULL, "scale by multiplier" },
        { "resize_type.multiplier", "scale_by", NULL },
        { "scale_method", "upscale_method", NULL } },
      { "upscale_method", "scale_by" },
      false },
    { "T2IAdapterLoader",
      "ControlNetLoader",
      { { "control_net_name", "t2i_adapter_name", NULL } },
      { NULL },
      false },
    { "Load3DAnimation", "Load3D", { { 0 } }, { NULL }, false },
    { "Preview3DAnimation", "Preview3D", { { 0 } }, { NULL }, false },
    { "SDV_img2vid_Conditioning", "SVD_img2vid_Conditioning", { { 0 } }, { NULL }, false },
    { "ConditioningAverage ", "ConditioningAverage", { { 0 } }, { NULL }, false },
};

static size_t moves(const struct replacement *r)
{
    size_t n = 0;
    while (n < ARRAY_LEN(r->in) && r->in[n].to)
        n++;
    return n;
}

/* ---- prompts ---- */

/* The inputs of the new class; NULL: out of memory. */
static json_t *new_inputs(const struct replacement *r, json_t *old)
{
    json_t *made = json_object();
    bool ok = made;
    for (size_t i = 0; i < moves(r) && ok; i++) {
        const struct moved *m = &r->in[i];
        json_t *v = m->from ? json_object_get(old, m->from) : NULL;
        if (!m->from)
            ok = !json_object_set_new(made, m->to, json_string(m->value));
        else if (v)
            ok = !json_object_set(made, m->to, v);
    }
    if (ok)
        return made;
    json_decref(made);
    return NULL;
}

static bool replace_node(const struct node_env *env, json_t *node)
{
    const char *cls = json_string_value(json_object_get(node, "class_type"));
    for (size_t i = 0; cls && i < ARRAY_LEN(replacements); i++) {
        const struct replacement *r = &replacements[i];
        if (strcmp(r->old, cls) != 0 || graph_class(env, cls) || !graph_class(env, r->now))
            continue;
        json_t *inputs = json_object_get(node, "inputs");
        if (moves(r) && json_is_object(inputs) &&
            json_object_set_new(node, "inputs", new_inputs(r, inputs)))
            return false;
        return !json_object_set_new(node, "class_type", json_string(r->now));
    }
    return true;
}

berth_status graph_replace(const struct node_env *env, json_t *prompt, berth_err *err)
{
    const char *id;
    json_t *node;
    json_object_foreach(prompt, id, node) if (!replace_node(env, node)) return err_set(
        err, BERTH_ENOMEM, "replacing the class of a node");
    return BERTH_OK;
}

/* ---- what clients are told ---- */

static json_t *input_mapping(const struct replacement *r)
{
    json_t *list = json_array();
    int bad = 0;
    if (!moves(r)) {
        json_decref(list);
        return json_null();
    }
    for (size_t i = 0; i < moves(r); i++) {
        const struct moved *m = &r->in[i];
        bad |= json_array_append_new(
            list, m->from ? json_pack("{s:s,s:s}", "new_id", m->to, "old_id", m->from)
                          : json_pack("{s:s,s:s}", "new_id", m->to, "set_value", m->value));
    }
    if (!bad)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *widgets(const struct replacement *r)
{
    return r->widget[1]   ? json_pack("[s,s]", r->widget[0], r->widget[1])
           : r->widget[0] ? json_pack("[s]", r->widget[0])
                          : json_null();
}

json_t *graph_replacements(void)
{
    json_t *all = json_object();
    int bad = !all;
    for (size_t i = 0; i < ARRAY_LEN(replacements) && !bad; i++) {
        const struct replacement *r = &replacements[i];
        json_t *out =
            r->outputs ? json_pack("[{s:i,s:i}]", "new_idx", 0, "old_idx", 0) : json_null();
        json_t *one = json_pack("[{s:s,s:s,s:o,s:o,s:o}]", "new_node_id", r->now, "old_node_id",
                                r->old, "old_widget_ids", widgets(r), "input_mapping",
                                input_mapping(r), "output_mapping", out);
        bad |= json_object_set_new(all, r->old, one);
    }
    if (!bad)
        return all;
    json_decref(all);
    return NULL;
}
