/* receipt: the words of residency.h, and what a free did, as JSON and for people. */
#include "residency/residency_impl.h"

#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

/* ---- words ---- */

static const char *const retention_names[] = {
    [RES_AUTO] = "auto",
    [RES_KEEP] = "keep",
    [RES_EJECT] = "eject",
};

const char *res_retention_name(enum res_retention x)
{
    return retention_names[x];
}

bool res_retention_parse(const char *text, enum res_retention *out)
{
    for (size_t i = 0; i < ARRAY_LEN(retention_names); i++)
        if (strcmp(text, retention_names[i]) == 0) {
            *out = (enum res_retention)i;
            return true;
        }
    return false;
}

const char *res_state_name(enum res_state s)
{
    static const char *const name[] = {
        [RES_REGISTERED] = "registered",
        [RES_LOADING] = "loading",
        [RES_RESIDENT] = "resident",
        [RES_EJECTED] = "ejected",
    };
    return name[s];
}

const char *res_anchor_text(enum res_anchor a)
{
    static const char *const name[] = {
        [RES_ANCHOR_KEEP] = "marked keep",
        [RES_ANCHOR_SURVIVED] = "survived a free",
        [RES_ANCHOR_MARKED] = "until the next free",
        [RES_ANCHOR_PROMPT] = "until the prompt ends",
    };
    return name[a];
}

const char *res_verdict_name(enum res_verdict v)
{
    static const char *const name[] = {
        [RES_EJECTED_BY_FREE] = "ejected",
        [RES_KEPT] = "kept",
        [RES_BUSY] = "busy",
        [RES_FAILED] = "failed",
    };
    return name[v];
}

void res_receipt_release(struct res_receipt *x)
{
    arena_release(&x->mem);
    *x = (struct res_receipt) { 0 };
}

/* ---- JSON ---- */

uint64_t res_kinds_sum(const uint64_t bytes[DEV_KIND_COUNT])
{
    uint64_t all = 0;
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        all += bytes[k];
    return all;
}

static void add_kinds(struct jsonout *j, const char *key, const uint64_t bytes[DEV_KIND_COUNT])
{
    jo_open(j, key, '{');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        jo_u64(j, dev_kind_name((enum dev_kind)k), bytes[k]);
    jo_close(j, '}');
}

static void add_model(struct jsonout *j, const struct res_receipt_model *m)
{
    jo_open(j, NULL, '{');
    jo_u64(j, "id", m->id);
    jo_str(j, "name", m->name);
    jo_str(j, "role", m->role);
    jo_str(j, "converted", m->converted != DT_NONE ? dtype_name(m->converted) : NULL);
    jo_str(j, "retention", res_retention_name(m->retention));
    jo_str(j, "verdict", res_verdict_name(m->verdict));
    jo_str(j, "why", m->why);
    jo_u64(j, "bytes", m->bytes);
    jo_u64(j, "read", m->read);
    jo_u64(j, "moved", m->moved);
    jo_close(j, '}');
}

static void add_device(struct jsonout *j, const struct res_receipt_device *d)
{
    jo_open(j, NULL, '{');
    jo_str(j, "device", d->name);
    add_kinds(j, "before", d->before);
    add_kinds(j, "after", d->after);
    jo_u64(j, "released", d->released);
    jo_close(j, '}');
}

static void add_violation(struct jsonout *j, const struct res_receipt_violation *v)
{
    jo_open(j, NULL, '{');
    jo_u64(j, "model", v->of->id);
    jo_str(j, "name", v->of->name);
    jo_str(j, "step", v->step);
    jo_str(j, "block", v->block);
    jo_fmt(j, "was", "\"0x%" PRIx64 "\"", v->was);
    jo_fmt(j, "is", "\"0x%" PRIx64 "\"", v->is);
    jo_bool(j, "gone", v->gone);
    jo_close(j, '}');
}

void res_receipt_json(const struct res_receipt *x, struct str *out)
{
    struct jsonout writer = { .out = out }, *j = &writer;
    jo_open(j, NULL, '{');
    jo_u64(j, "serial", x->serial);
    jo_str(j, "reason", x->reason);
    jo_bool(j, "unload_models", x->unload_models);
    jo_bool(j, "free_memory", x->free_memory);
    jo_bool(j, "force", x->force);
    jo_bool(j, "automatic", x->automatic);
    jo_bool(j, "dry_run", x->dry_run);
    jo_open(j, "tiers", '[');
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        if (x->tiers & 1u << k)
            jo_str(j, NULL, dev_kind_name((enum dev_kind)k));
    jo_close(j, ']');
    jo_open(j, "models", '[');
    for (size_t i = 0; i < x->models; i++)
        add_model(j, &x->model[i]);
    jo_close(j, ']');
    jo_open(j, "devices", '[');
    for (size_t i = 0; i < x->devices; i++)
        add_device(j, &x->device[i]);
    jo_close(j, ']');
    jo_open(j, "rss", '{');
    jo_u64(j, "before", x->rss_before);
    jo_u64(j, "after", x->rss_after);
    jo_close(j, '}');
    jo_open(j, "violations", '[');
    for (size_t i = 0; i < x->violations; i++)
        add_violation(j, &x->violation[i]);
    jo_close(j, ']');
    jo_fmt(j, "seconds", "%.6f", (double)x->ns / 1e9);
    jo_close(j, '}');
}

/* ---- for people ---- */

/* Text from outside, fit for a terminal. */
static void add_clean(struct str *out, const char *text)
{
    size_t from = out->n;
    str_adds(out, text);
    if (!out->bad)
        utf8_sanitize(out->p + from, out->n - from);
}

static size_t columns(const char *s, size_t n) /* characters of clean text */
{
    size_t c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xc0) != 0x80;
    return c;
}

/* What was appended since `from` is at least this wide. */
static void pad(struct str *out, size_t from, size_t width)
{
    size_t wide = out->bad ? width : columns(out->p + from, out->n - from);
    for (; wide < width; wide++)
        str_addc(out, ' ');
}

/* "flux as F8_E4M3": one file may be held in two types. */
static void add_called(struct str *out, const struct res_receipt_model *m)
{
    add_clean(out, m->name);
    if (m->converted != DT_NONE)
        str_addf(out, " as %s", dtype_name(m->converted));
}

static void text_models(const struct res_receipt *x, struct str *out)
{
    size_t width = 5;
    struct str called = { 0 };
    for (size_t i = 0; i < x->models; i++) {
        str_clear(&called);
        add_called(&called, &x->model[i]);
        size_t n = columns(str_c(&called), called.n);
        if (n > width)
            width = n < 40 ? n : 40;
    }
    str_release(&called);
    str_addf(out, "  %-*s  %-8s  %-9s  %-7s  %9s  why\n", (int)width, "model", "role", "retention",
             "verdict", "bytes");
    for (size_t i = 0; i < x->models; i++) {
        const struct res_receipt_model *m = &x->model[i];
        char bytes[STR_BYTES_MAX];
        str_adds(out, "  ");
        size_t from = out->n;
        add_called(out, m);
        pad(out, from, width);
        str_adds(out, "  ");
        from = out->n;
        add_clean(out, m->role);
        pad(out, from, 8);
        str_addf(out, "  %-9s  %-7s  %9s  ", res_retention_name(m->retention),
                 res_verdict_name(m->verdict), str_bytes(m->bytes, bytes));
        add_clean(out, m->why);
        str_addc(out, '\n');
    }
}

static void text_devices(const struct res_receipt *x, struct str *out)
{
    char a[STR_BYTES_MAX], b[STR_BYTES_MAX], c[STR_BYTES_MAX];
    str_addf(out, "  %-12s  %9s  %9s  %9s\n", "device", "before", "after", "released");
    for (size_t i = 0; i < x->devices; i++) {
        const struct res_receipt_device *d = &x->device[i];
        str_addf(out, "  %-12s  %9s  %9s  %9s", d->name, str_bytes(res_kinds_sum(d->before), a),
                 str_bytes(res_kinds_sum(d->after), b), str_bytes(d->released, c));
        const char *between = "  now ";
        for (int k = 0; k < DEV_KIND_COUNT; k++)
            if (d->after[k]) {
                str_addf(out, "%s%s %s", between, dev_kind_name((enum dev_kind)k),
                         str_bytes(d->after[k], a));
                between = ", ";
            }
        str_addc(out, '\n');
    }
}

/* What was asked for, and where the tiers say otherwise, that too. */
static void text_asked(const struct res_receipt *x, struct str *out)
{
    bool trim = x->tiers & RES_TIER_IDLE;
    str_addf(out, "%s%s%s%s", x->unload_models ? " unload_models" : "",
             x->free_memory ? " free_memory" : "", x->force ? " force" : "",
             x->automatic ? " automatic" : "");
    if (!x->unload_models && !x->free_memory)
        str_adds(out, trim ? " trim only" : " nothing");
    if (x->tiers == RES_TIER_ALL)
        return;
    str_adds(out, ", tiers ");
    const char *between = "";
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        if (x->tiers & 1u << k) {
            str_addf(out, "%s%s", between, dev_kind_name((enum dev_kind)k));
            between = "+";
        }
    str_adds(out, x->tiers ? "" : "none");
    if (x->unload_models && !(x->tiers & RES_TIER_WEIGHTS))
        str_adds(out, " (not weights: models stay)");
    if (x->unload_models && !trim)
        str_adds(out, " (not pool-idle: no trim)");
}

static void text_violation(const struct res_receipt_violation *v, struct str *out)
{
    str_adds(out, "  VIOLATION: ");
    add_called(out, v->of);
    str_adds(out, ", ");
    add_clean(out, v->of->role);
    str_addc(out, ',');
    if (v->gone) {
        str_addf(out, " was to stay, but after step '%s' it is gone (was at 0x%" PRIx64 ")\n",
                 v->step, v->was);
        return;
    }
    str_addf(out, " was to stay, but after step '%s' block '", v->step);
    add_clean(out, v->block);
    str_addf(out, "' of it moved from 0x%" PRIx64 " to 0x%" PRIx64 "\n", v->was, v->is);
}

void res_receipt_text(const struct res_receipt *x, struct str *out)
{
    if (x->dry_run)
        str_adds(out, "dry run (");
    else
        str_addf(out, "free %" PRIu64 " (", x->serial);
    add_clean(out, x->reason);
    str_adds(out, x->dry_run ? "), nothing was changed:" : "):");
    text_asked(x, out);
    str_addf(out, " in %.3f s\n", (double)x->ns / 1e9);
    if (x->models)
        text_models(x, out);
    text_devices(x, out);
    if (x->rss_before) {
        char was[STR_BYTES_MAX], is[STR_BYTES_MAX];
        str_addf(out, "  %-12s  %9s  %9s  resident memory of this process\n", "process",
                 str_bytes(x->rss_before, was), str_bytes(x->rss_after, is));
    }
    for (size_t i = 0; i < x->violations; i++)
        text_violation(&x->violation[i], out);
}
