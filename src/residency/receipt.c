/* receipt: what a free did, as JSON and for people. */
#include "residency/residency_impl.h"

#include "base/json.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

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

static void add_string(struct str *out, const char *before, const char *text)
{
    str_adds(out, before);
    js_write_string(text ? text : "", text ? strlen(text) : 0, out);
}

static void add_bool(struct str *out, const char *before, bool x)
{
    str_adds(out, before);
    str_adds(out, x ? "true" : "false");
}

static void add_kinds(struct str *out, const uint64_t bytes[DEV_KIND_COUNT])
{
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        str_addf(out, "%c\"%s\":%" PRIu64, k ? ',' : '{', dev_kind_name((enum dev_kind)k),
                 bytes[k]);
    str_addc(out, '}');
}

/* Their names, each within quotes. */
static void add_tiers(struct str *out, unsigned tiers, const char *quote, const char *between)
{
    bool first = true;
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        if (tiers & 1u << k) {
            str_addf(out, "%s%s%s%s", first ? "" : between, quote, dev_kind_name((enum dev_kind)k),
                     quote);
            first = false;
        }
}

static void add_model(struct str *out, const struct res_receipt_model *m)
{
    str_addf(out, "{\"id\":%" PRIu64, m->id);
    add_string(out, ",\"name\":", m->name);
    add_string(out, ",\"role\":", m->role);
    if (m->converted != DT_NONE)
        add_string(out, ",\"converted\":", dtype_name(m->converted));
    else
        str_adds(out, ",\"converted\":null");
    str_addf(out, ",\"retention\":\"%s\",\"verdict\":\"%s\"", res_retention_name(m->retention),
             res_verdict_name(m->verdict));
    add_string(out, ",\"why\":", m->why);
    str_addf(out, ",\"bytes\":%" PRIu64 ",\"read\":%" PRIu64 ",\"moved\":%" PRIu64 "}", m->bytes,
             m->read, m->moved);
}

static void add_violation(struct str *out, const struct res_receipt_violation *v)
{
    str_addf(out, "{\"model\":%" PRIu64, v->of->id);
    add_string(out, ",\"name\":", v->of->name);
    add_string(out, ",\"step\":", v->step);
    add_string(out, ",\"block\":", v->block);
    str_addf(out, ",\"was\":\"0x%" PRIx64 "\",\"is\":\"0x%" PRIx64 "\"", v->was, v->is);
    add_bool(out, ",\"gone\":", v->gone);
    str_addc(out, '}');
}

void res_receipt_json(const struct res_receipt *x, struct str *out)
{
    str_addf(out, "{\"serial\":%" PRIu64, x->serial);
    add_string(out, ",\"reason\":", x->reason);
    add_bool(out, ",\"unload_models\":", x->unload_models);
    add_bool(out, ",\"free_memory\":", x->free_memory);
    add_bool(out, ",\"force\":", x->force);
    add_bool(out, ",\"automatic\":", x->automatic);
    add_bool(out, ",\"dry_run\":", x->dry_run);
    str_adds(out, ",\"tiers\":[");
    add_tiers(out, x->tiers, "\"", ",");
    str_adds(out, "],\"models\":[");
    for (size_t i = 0; i < x->models; i++) {
        str_adds(out, i ? "," : "");
        add_model(out, &x->model[i]);
    }
    str_adds(out, "],\"devices\":[");
    for (size_t i = 0; i < x->devices; i++) {
        const struct res_receipt_device *d = &x->device[i];
        str_adds(out, i ? "," : "");
        add_string(out, "{\"device\":", d->name);
        str_adds(out, ",\"before\":");
        add_kinds(out, d->before);
        str_adds(out, ",\"after\":");
        add_kinds(out, d->after);
        str_addf(out, ",\"released\":%" PRIu64 "}", d->released);
    }
    str_addf(out, "],\"rss\":{\"before\":%" PRIu64 ",\"after\":%" PRIu64 "},\"violations\":[",
             x->rss_before, x->rss_after);
    for (size_t i = 0; i < x->violations; i++) {
        str_adds(out, i ? "," : "");
        add_violation(out, &x->violation[i]);
    }
    str_addf(out, "],\"seconds\":%.6f}", (double)x->ns / 1e9);
}

/* ---- for people ---- */

/* Text from outside, fit for a terminal. */
static void add_clean(struct str *out, const char *text)
{
    size_t from = out->n;
    str_adds(out, text ? text : "");
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

static uint64_t sum(const uint64_t bytes[DEV_KIND_COUNT])
{
    uint64_t all = 0;
    for (int k = 0; k < DEV_KIND_COUNT; k++)
        all += bytes[k];
    return all;
}

static void text_devices(const struct res_receipt *x, struct str *out)
{
    char a[STR_BYTES_MAX], b[STR_BYTES_MAX], c[STR_BYTES_MAX];
    str_addf(out, "  %-12s  %9s  %9s  %9s\n", "device", "before", "after", "released");
    for (size_t i = 0; i < x->devices; i++) {
        const struct res_receipt_device *d = &x->device[i];
        str_addf(out, "  %-12s  %9s  %9s  %9s", d->name, str_bytes(sum(d->before), a),
                 str_bytes(sum(d->after), b), str_bytes(d->released, c));
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
    add_tiers(out, x->tiers, "", "+");
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
