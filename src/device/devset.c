#include "device/devset.h"

#include <inttypes.h>

struct library { /* one driver in this set */
    const struct dev_driver *driver;
    void *shared;
    unsigned count;
};

struct devset {
    struct dev_env env;
    struct library library[DEV_DRIVERS_MAX];
    size_t libraries;
    struct dev_hub hub;
    struct phys *phys[SPEC_MAX];
    size_t physes;
    struct device *device[SPEC_MAX];
    size_t devices;
};

/* A list of names in a fixed buffer; ends with "..." when they do not all fit. */
struct list {
    char text[200];
    size_t n;
    bool full;
};

static void list_add(struct list *l, const char *name)
{
    if (l->full)
        return;
    l->full = l->n + strlen(name) + sizeof ", , ..." > sizeof l->text;
    l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%s", l->n ? ", " : "",
                             l->full ? "..." : name);
}

/* ---- drivers ---- */

static berth_status open_libraries(struct devset *set, berth_err *err)
{
    for (const struct dev_driver *const *d = dev_drivers(); *d; d++) {
        if (set->libraries == DEV_DRIVERS_MAX)
            BUG("more than %d drivers", DEV_DRIVERS_MAX);
        struct library *l = &set->library[set->libraries];
        l->driver = *d;
        if ((*d)->library_open && (*d)->library_open(&set->env, &l->shared, err))
            return err_add(err, "driver %s", (*d)->name);
        set->libraries++;
        l->count = (*d)->count(l->shared);
    }
    for (const struct dev_absent *a = dev_not_built(); set->env.cuda_cards && a->kind; a++)
        if (strcmp(a->kind, "cuda") == 0) /* asked for by number: never ignored */
            return err_set(err, BERTH_EUNSUPPORTED, "cards %.40s of cuda: %s", set->env.cuda_cards,
                           a->why);
    return BERTH_OK;
}

static struct library *find_library(struct devset *set, const struct spec_name *name)
{
    for (size_t i = 0; i < set->libraries; i++) {
        struct library *l = &set->library[i];
        if (strcmp(l->driver->name, name->kind) == 0 && l->driver->indexed == name->indexed &&
            (l->driver->elastic || name->index < l->count))
            return l;
    }
    return NULL;
}

/* Every real device of the machine with all it has. */
static void default_spec(const struct devset *set, struct spec *out)
{
    out->n = 0;
    for (size_t i = 0; i < set->libraries; i++) {
        const struct library *l = &set->library[i];
        for (unsigned k = 0; k < l->count && out->n < SPEC_MAX; k++) {
            struct spec_name name = { .indexed = l->driver->indexed, .index = k };
            snprintf(name.kind, sizeof name.kind, "%s", l->driver->name);
            spec_name_text(&name);
            out->entry[out->n++] =
                (struct spec_entry) { .name = name, .phys = name, .budget = SPEC_REST };
        }
    }
}

static berth_status not_here(const struct devset *set, const struct spec_name *name, berth_err *err)
{
    struct list l = { .n = 0 };
    struct spec real; /* without elastic ones: nobody but a test is served by null:0 */
    struct dev_absent a;
    size_t i = 0;
    default_spec(set, &real);
    for (size_t k = 0; k < real.n; k++)
        list_add(&l, real.entry[k].name.text);
    while (devset_absent(set, i, &a) && strcmp(a.kind, name->kind) != 0)
        i++;
    bool why = devset_absent(set, i, &a);
    return err_set(err, BERTH_EUNSUPPORTED,
                   "no device %s here%s%s%s; there is: %s (%s@cpu=8g would lend it cpu memory)",
                   name->text, why ? " (" : "", why ? a.why : "", why ? ")" : "", l.text,
                   name->text);
}

/* ---- budgets ---- */

/* The driver has a device now: it hears of host memory, if it wants to. */
static void join_hub(struct devset *set, const struct library *l, struct phys *p)
{
    struct dev_hub *hub = &set->hub;
    size_t i = 0;
    p->hub = hub;
    while (i < hub->watchers && hub->watcher[i].driver != l->driver)
        i++;
    if (i < hub->watchers || !l->driver->host_access)
        return;
    hub->watcher[i].driver = l->driver;
    hub->watcher[i].library = l->shared;
    hub->watchers++;
}

static berth_status open_phys(struct devset *set, const struct spec *s,
                              const struct spec_name *name, struct phys **out, berth_err *err)
{
    struct library *l = find_library(set, name);
    struct spec_shares sh;
    for (size_t i = 0; i < set->physes; i++)
        if (strcmp(set->phys[i]->name, name->text) == 0) {
            *out = set->phys[i];
            return BERTH_OK;
        }
    if (!l)
        return not_here(set, name, err);
    if (spec_shares(s, name->text, &sh, err))
        return err->code;
    /* Elastic: what was asked for, or the driver's own idea when somebody takes "the rest". */
    uint64_t want = l->driver->elastic && !sh.rest ? sh.stated : 0;
    if (l->driver->open(l->shared, &set->env, name->index, want, out, err))
        return err_add(err, "opening %s", name->text);
    set->phys[set->physes++] = *out;
    join_hub(set, l, *out);
    return BERTH_OK;
}

static bool is_host(const struct spec_entry *e, const struct phys *p)
{
    return (p->caps & BERTH_CAP_HOST_VISIBLE) && strcmp(e->name.text, p->name) == 0;
}

/* The entry's budget in bytes; refused when all on this phys together want more than there is. */
static berth_status budget_of(const struct devset *set, const struct spec *s, size_t i,
                              struct phys *p, uint64_t *out, berth_err *err)
{
    uint64_t total, driver_free;
    struct spec_shares sh;
    if (p->driver->info(p, &total, &driver_free, err) || spec_shares(s, p->name, &sh, err))
        return err->code;
    if (sh.stated > total || (sh.rest && sh.stated == total)) {
        char want[STR_BYTES_MAX], have[STR_BYTES_MAX];
        return err_set(err, BERTH_ELIMIT,
                       "%s has %s (%" PRIu64 " bytes), its devices want %s (%" PRIu64
                       ")%s: lower them",
                       p->name, str_bytes(total, have), total, str_bytes(sh.stated, want),
                       sh.stated, sh.rest ? " and a rest" : "");
    }
    *out = s->entry[i].budget == SPEC_REST ? total - sh.stated : s->entry[i].budget;
    if (s->entry[i].budget != SPEC_REST)
        return BERTH_OK;
    if (!set->env.host_budget || !is_host(&s->entry[i], p)) {
        uint64_t spare = p->driver->spare ? p->driver->spare(p) : 0;
        *out -= spare < *out / 2 ? spare : *out / 2;
        return BERTH_OK;
    }
    if (set->env.host_budget > *out) {
        char want[STR_BYTES_MAX], have[STR_BYTES_MAX];
        return err_set(err, BERTH_ELIMIT,
                       "a host budget of %s (%" PRIu64 " bytes), and %s has %s (%" PRIu64
                       ") for it",
                       str_bytes(set->env.host_budget, want), set->env.host_budget, p->name,
                       str_bytes(*out, have), *out);
    }
    *out = set->env.host_budget;
    return BERTH_OK;
}

/* ---- life ---- */

/* Whose budget host memory counts against: the host's own device, else the first on its memory. */
static struct device *find_host(const struct devset *set)
{
    struct device *host = NULL;
    for (size_t i = 0; i < set->devices; i++) {
        struct device *d = set->device[i];
        bool own = strcmp(d->name, d->phys->name) == 0;
        if (dev_can(d, BERTH_CAP_HOST_VISIBLE) && (!host || own))
            host = d;
    }
    return host;
}

static berth_status open_entry(struct devset *set, const struct spec *s, size_t i, berth_err *err)
{
    const struct spec_entry *e = &s->entry[i];
    struct dev_config cfg = { .name = e->name.text,
                              .log = set->env.log,
                              .stress = set->env.stress };
    if (open_phys(set, s, &e->phys, &cfg.phys, err) ||
        budget_of(set, s, i, cfg.phys, &cfg.budget, err) ||
        dev_open(&cfg, &set->device[set->devices], err)) {
        char text[SPEC_ENTRY_TEXT_MAX];
        err_add(err, "devices: entry %zu '%.70s'", i + 1, spec_entry_text(e, text));
        return err_about(err, "devices");
    }
    set->devices++;
    log_info(set->env.log, "dev.open", "dev=%s phys=%s budget=%" PRIu64, cfg.name, cfg.phys->name,
             cfg.budget);
    return BERTH_OK;
}

berth_status devset_open(const struct spec *spec, const struct dev_env *env, struct devset **out,
                         berth_err *err)
{
    struct spec all;
    *out = NULL;
    struct devset *set = calloc(1, sizeof *set);
    if (!set)
        return err_set(err, BERTH_ENOMEM, "a set of devices");
    set->env = *env;
    if (open_libraries(set, err))
        goto fail;
    if (!spec) {
        default_spec(set, &all);
        spec = &all;
    }
    for (size_t i = 0; i < spec->n; i++)
        if (open_entry(set, spec, i, err))
            goto fail;
    set->hub.host = find_host(set);
    *out = set;
    return BERTH_OK;
fail:
    devset_close(set);
    return err->code;
}

void devset_close(struct devset *set)
{
    if (!set)
        return;
    set->hub.host = NULL;
    while (set->devices)
        dev_close(set->device[--set->devices]);
    while (set->physes) {
        struct phys *p = set->phys[--set->physes];
        p->driver->close(p);
    }
    while (set->libraries) {
        struct library *l = &set->library[--set->libraries];
        if (l->driver->library_close)
            l->driver->library_close(l->shared);
    }
    free(set);
}

size_t devset_count(const struct devset *set)
{
    return set->devices;
}

struct device *devset_at(const struct devset *set, size_t i)
{
    if (i >= set->devices)
        BUG("device %zu of %zu", i, set->devices);
    return set->device[i];
}

static const char *why_none(const struct library *l, bool *broken)
{
    return l->count || l->driver->elastic || !l->driver->why_none
               ? NULL
               : l->driver->why_none(l->shared, broken);
}

bool devset_absent(const struct devset *set, size_t i, struct dev_absent *out)
{
    for (size_t k = 0; k < set->libraries; k++) {
        const struct library *l = &set->library[k];
        *out = (struct dev_absent) { .kind = l->driver->name };
        out->why = why_none(l, &out->broken);
        if (out->why && !i--)
            return true;
    }
    for (const struct dev_absent *a = dev_not_built(); a->kind; a++) {
        *out = *a;
        if (!i--)
            return true;
    }
    return false;
}

berth_status devset_find(const struct devset *set, const char *name, size_t n, size_t *index,
                         berth_err *err)
{
    struct spec_name want;
    if (spec_parse_name(name, n, &want, err))
        return err->code;
    struct list l = { .n = 0 };
    for (size_t i = 0; i < set->devices; i++) {
        if (strcmp(set->device[i]->name, want.text) == 0) {
            *index = i;
            return BERTH_OK;
        }
        list_add(&l, set->device[i]->name);
    }
    return err_set(err, BERTH_ENOTFOUND, "no device %s; there is: %s", want.text, l.text);
}
