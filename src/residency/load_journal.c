/* load_journal: the placement of a model that was loaded, as records of the JSON log. */
#include "residency/residency_impl.h"

#define CATEGORY "[MultiGPU DisTorch V2] "

static void add_line(void *user, const char *line)
{
    str_addf(user, "\n%s", line);
}

static void record(const struct res_model *m, const struct str *text)
{
    static const char *const fields[] = { "component", "distorch_2", NULL };
    if (!text->bad)
        journal_record(m->res->journal, JOURNAL_FOCUS, text->p, fields);
}

/* The string is the exact one, which a loader takes; the tables stand behind it. */
void res_journal_plan(const struct res_model *m)
{
    const struct plan *p = &m->plan;
    struct str text = { 0 };
    if (p->quotas.mode == ALLOC_VIRTUAL)
        str_addf(&text, CATEGORY "Virtual VRAM of %s: %.2fGB", m->owner,
                 (double)p->quotas.virtual_bytes / 1073741824.0);
    if (text.n)
        record(m, &text);
    str_clear(&text);
    str_addf(&text, CATEGORY "Final Allocation String of %s:\n", m->owner);
    plan_string(p, &text);
    plan_tables(p, &m->blocks, add_line, &text);
    record(m, &text);
    str_clear(&text);
    str_addf(&text, CATEGORY "Total memory of %s: %.2fMB", m->owner,
             (double)m->blocks.bytes / 1048576.0);
    record(m, &text);
    str_release(&text);
}
