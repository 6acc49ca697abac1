#include "app/presets.h"

int app_unknown(struct app *a, const char *what, const char *name, const char *(*at)(size_t i))
{
    struct str more = { 0 };
    if (!suggest(&more, name, at))
        for (size_t i = 0; at(i); i++)
            str_addf(&more, "%s%s", i ? ", " : "; there are ", at(i));
    int code = app_usage(a, "unknown %s '%.80s'%s", what, name, str_c(&more));
    str_release(&more);
    return code;
}

static const char *preset_name(size_t i)
{
    return i < preset_count() ? preset_at(i)->name : NULL;
}

int app_preset(struct app *a, const char *name, const struct preset **out)
{
    struct str more = { 0 };
    *out = preset_find(name);
    if (*out)
        return APP_OK;
    if (!suggest(&more, name, preset_name)) /* too many to quote them */
        str_addf(&more, "; `berth synth --list` shows all %zu", preset_count());
    int code = app_usage(a, "unknown preset '%.80s'%s", name, str_c(&more));
    str_release(&more);
    return code;
}

const struct weights_writer *app_format_of(enum dtype t)
{
    const struct weights_writer *f = weights_writer_find("safetensors");
    for (size_t i = 0; f && !f->stores(t); i++)
        f = weights_writer_at(i);
    return f ? f : weights_writer_at(0); /* none does: synth_init() will say so */
}
