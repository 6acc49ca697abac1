#include "server/body.h"

#include "plan/alloc.h"

bool body_is_one_of(const char *word, const char *const *known)
{
    while (*known && strcmp(*known, word) != 0)
        known++;
    return *known != NULL;
}

berth_status body_check(const json_t *body, const char *const *known, berth_err *err)
{
    const char *key;
    json_t *x;
    struct str list = { 0 };
    if (js_kind(body) != JS_OBJECT)
        return err_set(err, BERTH_EINVAL, "not an object");
    json_object_foreach((json_t *)body, key, x)
    {
        if (body_is_one_of(key, known))
            continue;
        for (size_t i = 0; known[i]; i++)
            str_addf(&list, "%s%s", i ? ", " : "", known[i]);
        err_set(err, BERTH_EINVAL, "'%.40s' is none of %s", key, str_c(&list));
        str_release(&list);
        return err->code;
    }
    return BERTH_OK;
}

berth_status body_text(const json_t *body, const char *name, const char **out, berth_err *err)
{
    const json_t *v = json_object_get(body, name);
    *out = "";
    if (!v || js_kind(v) == JS_NULL)
        return BERTH_OK;
    if (js_kind(v) != JS_STRING)
        return err_set(err, BERTH_EINVAL, "%s: not a text", name);
    if (json_string_length(v) > ALLOC_TEXT_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: %zu bytes, at most %d", name, json_string_length(v),
                       ALLOC_TEXT_MAX);
    *out = json_string_value(v);
    return BERTH_OK;
}

berth_status body_bool(const json_t *body, const char *name, bool *out, berth_err *err)
{
    const json_t *v = json_object_get(body, name);
    if (v && js_kind(v) != JS_BOOL && js_kind(v) != JS_NULL)
        return err_set(err, BERTH_EINVAL, "%s: neither true nor false", name);
    *out = json_is_true(v);
    return BERTH_OK;
}

static bool is_there(const json_t *body, const char *name)
{
    const json_t *v = json_object_get(body, name);
    return v && js_kind(v) != JS_NULL;
}

berth_status body_allocation(const json_t *body, struct str *out, bool *given, berth_err *err)
{
    const char *alloc, *donor, *compute;
    double gib = 0;
    bool virtual = is_there(body, "virtual_vram_gb");
    *given = virtual || is_there(body, "allocation");
    if (body_text(body, "allocation", &alloc, err) || body_text(body, "compute", &compute, err) ||
        body_text(body, "donor_device", &donor, err))
        return err->code;
    if (virtual && (!js_get_f64(json_object_get(body, "virtual_vram_gb"), &gib) ||
                    !(gib >= 0 && gib <= ALLOC_GIB_MAX)))
        return err_set(err, BERTH_EINVAL, "virtual_vram_gb: not a number from 0 to %d",
                       ALLOC_GIB_MAX);
    if (virtual && alloc[0])
        return err_set(err, BERTH_EINVAL, "allocation beside virtual_vram_gb: which one?");
    if (donor[0] && !virtual)
        return err_set(err, BERTH_EINVAL, "donor_device goes with virtual_vram_gb");
    if (gib > 0)
        str_addf(out, "#%s;%.9f;%s", compute, gib, donor[0] ? donor : "cpu");
    else
        str_adds(out, alloc);
    return out->bad ? err_set(err, BERTH_ENOMEM, "the allocation string") : BERTH_OK;
}
