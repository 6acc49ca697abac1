/* loading: a model brought to its devices for a node, and what clients hear meanwhile. */
#include "node/node_impl.h"

struct loading { /* one res_load() */
    struct node_call *c;
    const char *name;
    unsigned told; /* percent, or tenths */
};

static unsigned percent_of(uint64_t done, uint64_t total)
{
    return total ? (unsigned)((double)done / (double)total * 100) : 100;
}

static void tell_steps(void *user, uint64_t done, uint64_t total)
{
    struct loading *l = user;
    unsigned percent = percent_of(done, total);
    berth_err unread = { 0 }; /* a cancel is seen by residency itself */
    if (percent <= l->told)
        return;
    l->told = percent;
    (void)call_progress(l->c, percent, 100, &unread);
}

static void tell_text(void *user, uint64_t done, uint64_t total)
{
    struct loading *l = user;
    unsigned tenths = percent_of(done, total) / 10;
    char text[160], size[STR_BYTES_MAX];
    if (tenths <= l->told)
        return;
    l->told = tenths;
    int n = snprintf(text, sizeof text, "loading %.80s: %u0 %% of %s", l->name, tenths,
                     str_bytes(total, size));
    if (n > 0)
        call_text(l->c, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

berth_status call_load(struct node_call *c, struct res_model *m, bool steps, berth_err *err)
{
    struct loading l = { .c = c, .name = res_info(m).name };
    struct res_load_args args = { .progress = steps ? tell_steps : tell_text,
                                  .progress_user = &l,
                                  .cancel = c->host ? c->host->cancel : NULL };
    berth_status s = res_load(m, &args, NULL, err);
    if (!steps &&
        l.told) /* ComfyUI's frontend leaves the last text there, and an empty one unread */
        call_text(c, " ", 1);
    return s;
}
