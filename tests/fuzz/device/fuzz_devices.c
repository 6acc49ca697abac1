/* --devices text: what is accepted reads the same after it was written, and opens or says why. */
#include "device/devset.h"
#include "device/null/null.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool so)
{
    if (!so)
        abort();
}

static void same(const struct spec *a, const struct spec *b)
{
    must(a->n == b->n);
    for (size_t i = 0; i < a->n; i++)
        must(strcmp(a->entry[i].name.text, b->entry[i].name.text) == 0 &&
             strcmp(a->entry[i].phys.text, b->entry[i].phys.text) == 0 &&
             a->entry[i].name.index == b->entry[i].name.index && a->entry[i].budget > 0 &&
             a->entry[i].budget == b->entry[i].budget);
}

static void text_of(const struct spec *s, struct str *out)
{
    char buf[SPEC_ENTRY_TEXT_MAX];
    for (size_t i = 0; i < s->n; i++)
        str_addf(out, "%s%s", i ? "," : "", spec_entry_text(&s->entry[i], buf));
}

static void round_trip(const struct spec *s, bool hypothetical)
{
    struct spec again;
    struct str text = { 0 };
    berth_err err = { 0 };
    text_of(s, &text);
    must(!text.bad && !spec_parse(text.p, text.n, hypothetical, &again, &err));
    same(s, &again);
    str_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *text = (const char *)data;
    struct spec s;
    berth_err err = { 0 };
    if (!spec_parse(text, n, true, &s, &err)) {
        round_trip(&s, true);
        must(!spec_parse(text, n, false, &s, &err)); /* a stated budget is fine in both modes */
    } else {
        must(err.code && err.msg[0] && s.n == 0);
    }
    if (spec_parse(text, n, false, &s, &err)) {
        must(err.code && err.msg[0] && s.n == 0);
        return 0;
    }
    must(s.n > 0 && s.n <= SPEC_MAX);
    round_trip(&s, false);
    struct devset *set;
    struct dev_env env = { 0 };
    if (!devset_open(&s, &env, &set, &err)) {
        must(devset_count(set) == s.n);
        for (size_t i = 0; i < s.n; i++) {
            size_t at;
            const char *name = s.entry[i].name.text;
            must(!devset_find(set, name, strlen(name), &at, &err) && at == i);
            must(devset_at(set, i)->budget > 0);
        }
    } else {
        must(err.msg[0] && (err.code == BERTH_EUNSUPPORTED || err.code == BERTH_ELIMIT));
    }
    devset_close(set);
    return 0;
}
