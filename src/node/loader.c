/* loader: placements read from inputs, files opened and loaded through residency. */
#include "node/loader_impl.h"

#include "model/arch.h"
#include "model/diffusion.h"
#include "model/encoder.h"
#include "model/family.h"
#include "model/upscaler.h"
#include "plan/convert.h"

#include <strings.h>

bool loader_declares(const struct node_call *c, const char *name)
{
    return node_input_index(c->cls, name) != SIZE_MAX;
}

/* ---- placement ---- */

#define NAME_MAX_ 64

/* prefix + name, if the class has such an input; else "". */
static const char *declared(const struct node_call *c, const char *prefix, const char *name,
                            char buf[NAME_MAX_])
{
    snprintf(buf, NAME_MAX_, "%s%s", prefix, name);
    if (!loader_declares(c, buf))
        buf[0] = '\0';
    return buf;
}

static bool has_device(const struct node_env *env, const char *name)
{
    for (size_t i = 0; i < env->devices_n; i++)
        if (strcasecmp(env->devices[i], name) == 0)
            return true;
    return false;
}

/* A link may bring a device that is none of the choices. */
static berth_status check_device(const struct node_env *env, const char *name, berth_err *err)
{
    struct str there = { 0 };
    if (has_device(env, name))
        return BERTH_OK;
    for (size_t i = 0; i < env->devices_n; i++)
        str_addf(&there, "%s%s", i ? ", " : "", env->devices[i]);
    err_set(err, BERTH_EINVAL, "no device '%.40s'; there is: %s", name, str_c(&there));
    str_release(&there);
    return err->code;
}

/* The device a node was told; NULL: none. */
static berth_status read_device(struct node_call *c, const char *prefix, const char **out,
                                berth_err *err)
{
    char name[NAME_MAX_];
    *out = NULL;
    if (!*declared(c, prefix, "compute_device", name) && !*declared(c, prefix, "device", name))
        return BERTH_OK;
    if (in_text(c, name, out, err))
        return err->code;
    if (strcmp(*out, "default") == 0) /* CLIPLoader's own choices: default, cpu */
        *out = NULL;
    return *out ? check_device(c->env, *out, err) : BERTH_OK;
}

/* Donors: one by name, or all that legacy nodes mean. */
static berth_status read_donors(struct node_call *c, const char *prefix, const char *compute,
                                struct str *out, berth_err *err)
{
    char name[NAME_MAX_];
    const char *donor;
    bool others = false;
    if (*declared(c, prefix, "donor_device", name)) {
        if (in_text(c, name, &donor, err))
            return err->code;
        str_adds(out, donor);
        return BERTH_OK;
    }
    if (*declared(c, prefix, "use_other_vram", name) && in_bool(c, name, &others, err))
        return err->code;
    struct plan_devices devices;
    if (res_plan_devices(c->env->res, compute, false, &devices, err))
        return err->code;
    return alloc_legacy_donors(&devices, compute, others, out, err);
}

/* alloc_compose(), but a text that names its compute device is whole as it is: what `berth plan`
 * and /berth/models print can be given back to a loader. */
static berth_status compose(const char *compute, const char *gib, const char *donors,
                            const char *expert, struct str *out, berth_err *err)
{
    if (!strchr(expert, '#'))
        return alloc_compose(compute, gib, donors, expert, out, err);
    str_adds(out, expert);
    return out->bad ? err_set(err, BERTH_ENOMEM, "an allocation string") : BERTH_OK;
}

/* A DisTorch form's string; left empty when it asks for nothing. */
static berth_status read_alloc(struct node_call *c, const char *prefix, const char *compute,
                               struct str *out, berth_err *err)
{
    char name[NAME_MAX_];
    double gib;
    const char *expert;
    struct str number = { 0 }, donors = { 0 };
    if (!*declared(c, prefix, "virtual_vram_gb", name))
        return BERTH_OK;
    berth_status s = in_f64(c, name, &gib, err);
    if (!s && (in_text(c, declared(c, prefix, "expert_mode_allocations", name), &expert, err) ||
               read_donors(c, prefix, compute, &donors, err)))
        s = err->code;
    if (!s) {
        str_addf(&number, "%.9f", gib); /* digits and a point: what the grammar has */
        s = number.bad || donors.bad ? err_set(err, BERTH_ENOMEM, "an allocation string")
                                     : compose(compute, number.p, str_c(&donors), expert, out, err);
    }
    str_release(&number);
    str_release(&donors);
    return s;
}

static berth_status read_dtype(struct node_call *c, struct placement *out, berth_err *err)
{
    const char *v;
    if (!loader_declares(c, "weight_dtype"))
        return BERTH_OK;
    if (in_text(c, "weight_dtype", &v, err))
        return err->code;
    if (strcmp(v, "default") != 0)
        out->dtype = v;
    return BERTH_OK;
}

static berth_status read_flags(struct node_call *c, struct placement *out, berth_err *err)
{
    bool keep;
    if (loader_declares(c, "eject_models") && in_bool(c, "eject_models", &out->eject_others, err))
        return err->code;
    if (loader_declares(c, "high_precision_loras") &&
        in_bool(c, "high_precision_loras", &out->high_precision, err))
        return err->code;
    if (loader_declares(c, "keep_loaded") && in_given(c, "keep_loaded")) {
        if (in_bool(c, "keep_loaded", &keep, err))
            return err->code;
        out->retention = keep ? RES_KEEP : RES_EJECT;
    }
    return BERTH_OK;
}

berth_status placement_read(struct node_call *c, const char *prefix, struct placement *out,
                            berth_err *err)
{
    *out = (struct placement) { .retention = RES_AUTO };
    berth_status s = read_device(c, prefix, &out->compute, err);
    if (!s && (read_alloc(c, prefix, out->compute, &out->alloc, err) || read_flags(c, out, err) ||
               read_dtype(c, out, err)))
        s = err->code;
    if (s)
        placement_release(out);
    return s;
}

void placement_release(struct placement *p)
{
    str_release(&p->alloc);
    *p = (struct placement) { .retention = RES_AUTO };
}

struct placement placement_beside(const struct placement *p)
{
    return (struct placement) { .compute = p->compute, .retention = p->retention };
}

static berth_status check_expert(const struct node_check *k, const char *expert, berth_err *err)
{
    struct str full = { 0 };
    struct alloc a;
    if (!*expert)
        return BERTH_OK;
    berth_status s = compose(loader_device(k->env), NULL, NULL, expert, &full, err);
    if (!s)
        s = alloc_parse(full.p, full.n, &a, err);
    for (size_t i = 0; !s && i < a.n; i++)
        if (!has_device(k->env, a.entry[i].device)) {
            s = check_device(k->env, a.entry[i].device, err);
            err_add(err, "expert_mode_allocations: entry %u", a.entry[i].number);
        }
    str_release(&full);
    return s;
}

berth_status loader_validate(const struct node_check *k, berth_err *err)
{
    static const char *const name[] = { "expert_mode_allocations", "unet_expert_mode_allocations",
                                        "clip_expert_mode_allocations" };
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        const json_t *v = check_input(k, name[i]);
        if (node_input_index(k->cls, name[i]) == SIZE_MAX || !v || js_kind(v) != JS_STRING)
            continue;
        if (check_expert(k, json_string_value(v), err)) {
            if (k->refused)
                *k->refused = name[i];
            return err->code;
        }
    }
    return BERTH_OK;
}

/* ---- what is in a file ---- */

struct parts {
    const char *at[VALUE_PARTS];    /* prefixes; NULL: the whole file */
    const char *dtype[VALUE_PARTS]; /* what each becomes unless the loader says; NULL: what it is */
    size_t n;
};

static void add_part(struct parts *p, const char *prefix)
{
    if (p->n < VALUE_PARTS)
        p->at[p->n++] = prefix;
}

/* Is it something that we know, and no such thing? */
static berth_status look_for_other(const struct weights *w, const char *role, bool *other,
                                   struct family_info *f, berth_err *err)
{
    berth_status s = family_find(w, NULL, f, err);
    *other = !s && (!f->role || strcmp(f->role, role) != 0);
    return s == BERTH_ENOTFOUND ? BERTH_OK : s;
}

/* What a loader of this role takes, where it takes that alone; NULL: others will do. */
static const char *alone(const char *role)
{
    static const char *const list[][2] = { { "unet", "diffusion model" },
                                           { UPSCALER_ROLE, "upscale model" },
                                           { "vision", "encoder of pictures" },
                                           { "style", "style model" } };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (strcmp(list[i][0], role) == 0)
            return list[i][1];
    return NULL;
}

/* Would it be beside the diffusion model of a checkpoint, which may do without it? */
static bool is_beside(const struct weights *w, const char *role)
{
    const struct arch *arch = arch_detect(w, NULL);
    return strcmp(role, "unet") != 0 && arch && arch->holds_parts;
}

berth_status loader_look(const struct weights *w, const char *name, const char *role,
                         berth_err *err)
{
    struct family_info f;
    struct control_info control;
    bool other;
    if (!role)
        return BERTH_OK;
    if (strcmp(role, "control") == 0)
        return diffusion_control_info(w, NULL, &control, err);
    const char *what = alone(role);
    berth_status s = family_find(w, role, &f, err);
    if (!s && !f.runs)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.100s' is %s: %s", name, f.what,
                       f.why[0] ? f.why : "this family cannot be computed yet");
    if (s != BERTH_ENOTFOUND)
        return s;
    if (!what || is_beside(w, role)) /* whoever takes the parts says what is missing */
        return BERTH_OK;
    if (look_for_other(w, role, &other, &f, err))
        return err->code;
    if (other)
        return err_set(err, BERTH_EINVAL, "'%.100s' holds no %s: it is %s", name, what, f.what);
    return err_set(err, BERTH_EUNSUPPORTED, "'%.100s' holds no %s of a family that is known here",
                   name, what);
}

/* Is there a network of the role beside the one that the file is called after? CLIP's text encoder
 * and its vision encoder come in one. */
static bool has_network(const struct weights *w, const char *role)
{
    for (size_t i = 0; i < arch_count(); i++) {
        const struct arch *a = arch_at(i);
        if (a->role && strcmp(a->role, role) == 0 && a->detect && arch_is(a, w, "", NULL))
            return true;
    }
    return false;
}

/* The parts of a role; where there are none, what the file is instead. */
static berth_status find_parts(const struct weights *w, const char *role, struct parts *out,
                               struct family_info *instead, berth_err *err)
{
    const struct arch *arch = role ? arch_detect(w, NULL) : NULL;
    if (arch && arch->holds_parts) {
        for (size_t i = 0; i < PLACE_PARTS; i++)
            if (strcmp(place_parts[i].role, role) == 0 && arch_of_part(w, "", &place_parts[i]))
                add_part(out, place_parts[i].prefix);
    } else if (!role || (arch && strcmp(arch->role, role) == 0) || has_network(w, role)) {
        add_part(out, NULL);
    }
    if (out->n)
        return BERTH_OK;
    bool other = false;
    berth_status s = look_for_other(w, role, &other, instead, err);
    if (!s && !other && !arch)
        add_part(out, NULL);
    return s;
}

static bool has_fp8(const struct weights *w, const char *part)
{
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if ((e->dtype == DT_F8_E4M3 || e->dtype == DT_F8_E5M2) &&
            (!part || str_starts(e->name, e->name_len, part)))
            return true;
    }
    return false;
}

/* Of a text encoder that has the type of its last norm; DT_NONE: there is no such norm. */
static enum dtype norm_type(const struct weights *w, const char *part)
{
    static const char *const norm[] = { "model.norm.weight",
                                        "model.layers.0.input_layernorm.weight" };
    for (size_t k = 0; k < ARRAY_LEN(norm); k++)
        for (size_t i = 0; i < weights_count(w); i++) {
            const struct weights_entry *e = weights_at(w, i);
            if (str_ends(e->name, e->name_len, norm[k]) &&
                (!part || str_starts(e->name, e->name_len, part)))
                return e->dtype;
        }
    return DT_NONE;
}

/* Is it a language model, whose F32 weights ComfyUI does not round to F16? Weights that are wider
 * than a BF16 norm stay so, too: nothing is lost. */
static bool keeps_f32(const struct weights *w, const char *part)
{
    struct text_found found[TEXT_ENCODERS_MAX];
    size_t n = text_find(w, part, found), own = 0;
    for (size_t i = 0; i < n; i++)
        own += found[i].is->own_type;
    return n && own == n && norm_type(w, part) != DT_F16;
}

/* The env's default for a part. Nobody asked for this file to be converted: what has a type for
 * each tensor stays as it is (GGUF, scaled fp8), and so does a text encoder that is fp8 already: of
 * a T5 ComfyUI too keeps what is small enough. Language models are rounded to fp8 where somebody
 * asked for that, but not to F16. */
static const char *default_dtype(const struct node_env *env, const struct weights *w,
                                 const char *part, const char *role)
{
    bool text = role && (strcmp(role, "clip") == 0 || strcmp(role, "vision") == 0);
    const char *dtype = text                                ? env->numbers.weights_text
                        : role && strcmp(role, "unet") == 0 ? env->numbers.weights_unet
                                                            : NULL;
    if (!dtype || strcmp(weights_format(w), "gguf") == 0 || res_has_scales(w, part) ||
        (text && has_fp8(w, part)) ||
        (text && res_convert_type(dtype) == DT_F16 && keeps_f32(w, part)))
        return NULL;
    return dtype;
}

/* ---- opening ---- */

/* Opens and loads. The retention waits until the model is there: a load that fails changes none. A
 * resident model is only found again: eject_others is about bringing a model in, so it is asked for
 * after it is known that there is something to bring. */
static berth_status open_and_load(struct node_call *c, struct res_open_args *args,
                                  const struct placement *p, bool eject_others,
                                  struct opened_part *out, berth_err *err)
{
    bool attached;
    if (res_open(c->env->res, args, &out->m, &attached, err))
        return err->code;
    struct res_model_info info = res_info(out->m);
    out->was = out->given = info.retention;
    out->loose = info.anchors == info.anchor[RES_ANCHOR_PROMPT]; /* which ends by itself */
    berth_status s = BERTH_OK;
    if (eject_others && !attached) {
        struct res_model *again = NULL;
        args->eject_others = true;
        s = res_open(c->env->res, args, &again, NULL, err);
        args->eject_others = false;
        res_unref(again);
    }
    if (!s && !p->unloaded)
        s = call_load(c, out->m, true, err);
    if (s) {
        res_unref(out->m);
        out->m = NULL;
    } else if (p->retention != RES_AUTO && res_info(out->m).retention == out->was) {
        out->given = p->retention; /* unless somebody marked it during the load */
        res_set_retention(out->m, p->retention);
    }
    return s;
}

/* Is there no room, as opposed to other trouble? */
static bool no_room(berth_status s)
{
    return s == BERTH_ELIMIT || s == BERTH_ENODEVMEM;
}

/* Where embeddings and small blocks, which stay with compute, have no place beside models that
 * cannot be pushed out, the host computes: ComfyUI does so with text encoders. *err: why not
 * there. */
static berth_status place_on_host(struct node_call *c, struct res_open_args *args,
                                  const struct placement *p, bool eject_others,
                                  struct opened_part *out, berth_err *err)
{
    berth_err second = { 0 };
    struct str text = { 0 };
    const char *wanted = p->compute ? p->compute : loader_device(c->env);
    if (!has_device(c->env, "cpu") || strcasecmp(wanted, "cpu") == 0)
        return err->code;
    args->plan.compute = "cpu";
    if (open_and_load(c, args, p, eject_others, out, &second)) {
        if (second.code == BERTH_ECANCELED)
            *err = second;
        else
            err_append(err, "; on cpu instead: %s", second.msg);
        return err->code;
    }
    log_warn(c->env->log, "node.load", "node=%s device=%s instead=cpu why=\"%s\"", c->id, wanted,
             err->msg);
    str_addf(&text, "%s has no room for the %s beside what is kept there: it will compute on cpu",
             wanted, args->role);
    if (!text.bad)
        call_text(c, text.p, text.n);
    str_release(&text);
    return BERTH_OK;
}

berth_status loader_place(struct node_call *c, const char *path, const char *part, const char *role,
                          const struct placement *p, bool eject_others, struct opened_part *out,
                          berth_err *err)
{
    struct res_open_args args = { .path = path,
                                  .part = part,
                                  .role = role ? role : "model",
                                  .arch = arch_blocks,
                                  .high_precision = p->high_precision,
                                  .dtype = p->dtype,
                                  .plan_may_stay = !p->alloc.n,
                                  .plan = { .automatic = !p->alloc.n,
                                            .alloc = p->alloc.n ? p->alloc.p : NULL,
                                            .compute = p->compute,
                                            .reserve = UINT64_MAX } };
    if (p->alloc.n)
        return open_and_load(c, &args, p, eject_others, out, err);
    if (p->compute) {
        char whole[2 * DEV_NAME_MAX + 8];
        int n = snprintf(whole, sizeof whole, "%s,*#%s", p->compute, p->compute);
        if (n < 0 || (size_t)n >= sizeof whole)
            return err_set(err, BERTH_EINVAL, "device '%.40s...' is not known", p->compute);
        args.plan.alloc = whole;
        berth_status s = open_and_load(c, &args, p, eject_others, out, err);
        if (!no_room(s))
            return s;
        log_info(c->env->log, "node.load", "node=%s device=%s why=\"%s\"", c->id, p->compute,
                 err->msg);
        args.plan.alloc = NULL;
    }
    berth_status s = open_and_load(c, &args, p, eject_others, out, err);
    return no_room(s) ? place_on_host(c, &args, p, eject_others, out, err) : s;
}

/* Whoever gets None will only know that: what the file is instead is said here. */
/* The sentence, which travels with the output as well: owned; NULL: no memory for it. */
static char *tell_missing(struct node_call *c, const char *name, const char *role, const char *what)
{
    struct str text = { 0 };
    str_addf(&text, "'%.100s' holds no %s: it is %s", name, role, what);
    log_warn(c->env->log, "node.load", "node=%s role=%s why=\"%s\"", c->id, role, str_c(&text));
    if (!text.bad)
        call_text(c, text.p, text.n);
    char *said = text.bad ? NULL : strdup(str_c(&text));
    str_release(&text);
    return said;
}

berth_status loader_open(struct node_call *c, const char *key, const char *name, const char *role,
                         const struct placement *p, struct opened *to, bool *found, berth_err *err)
{
    struct str path = { 0 };
    struct weights *w = NULL;
    struct family_info is = { .what = "of a family that is not known" };
    struct parts parts = { 0 };
    struct model_ref *ref = &to->ref;
    berth_status s = folders_resolve(c->env->folders, key, name, &path, err);
    if (!s && (weights_open(path.p, NULL, &w, err) || loader_look(w, name, role, err) ||
               find_parts(w, role, &parts, &is, err)))
        s = err->code;
    for (size_t i = 0; i < parts.n; i++)
        parts.dtype[i] = default_dtype(c->env, w, parts.at[i], role);
    weights_close(w);
    if (!s && !parts.n && !found)
        s = err_set(err, BERTH_EINVAL, "'%s' holds no %s: it is %s", name, role, is.what);
    for (size_t i = 0; !s && i < parts.n; i++) {
        struct opened_part *part = &to->part[ref->parts];
        struct placement here = *p; /* borrows */
        if (!here.dtype)
            here.dtype = parts.dtype[i];
        if (ref->parts == VALUE_PARTS)
            s = err_set(err, BERTH_ELIMIT, "'%s': more than %d networks", name, VALUE_PARTS);
        else
            s = loader_place(c, path.p, parts.at[i], role, &here, p->eject_others && !ref->parts,
                             part, err);
        if (s) {
            err_add(err, "loading '%.100s'", name);
            break;
        }
        res_ref(part->m);
        ref->part[ref->parts++] = part->m;
        to->parts++;
    }
    if (found)
        *found = parts.n > 0;
    if (!s && !parts.n) {
        free(ref->missing);
        ref->missing = tell_missing(c, name, role, is.what);
    }
    str_release(&path);
    return s;
}

/* A keep that becomes auto stays anchored; a model that was not anchored before must not be after.
 * Marks that others set while the node ran stay. */
static void take_back(const struct opened_part *p)
{
    if (p->given == p->was || res_info(p->m).retention != p->given)
        return;
    if (p->loose)
        res_set_retention(p->m, RES_EJECT);
    res_set_retention(p->m, p->was);
}

void opened_release(struct opened *o, berth_status failed)
{
    model_ref_release(&o->ref);
    for (size_t i = o->parts; i-- > 0;) { /* the same file twice: the first one knows */
        if (failed)
            take_back(&o->part[i]);
        res_unref(o->part[i].m);
    }
    *o = (struct opened) { 0 };
}

berth_status loader_give(struct node_call *c, size_t i, struct model_ref *taken, berth_err *err)
{
    if (taken->parts || taken->said.no_network)
        return out_value(c, i, value_model(taken), err);
    char *why = taken->missing;
    taken->missing = NULL;
    return out_value(c, i, value_none(why), err);
}
