#include "base/cgroup.h"

#include "base/ktext.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define PATH_MAX_BYTES 1024
#define PATH_LEVELS 32

struct walk {
    const char *root, *controller;
    cgroup_fn *fn;
    void *user;
};

struct group { /* one line of /proc/self/cgroup; path points into it */
    enum cgroup_version version;
    const char *path;
    size_t n;
};

/* Lines are id:controllers:path, version 2 names no controllers. False: not about this
 * controller. */
static bool group_of(const struct ktext_line *l, const char *controller, struct group *g)
{
    const char *end = l->s + l->n;
    const char *c1 = memchr(l->s, ':', l->n);
    const char *c2 = c1 ? memchr(c1 + 1, ':', (size_t)(end - c1 - 1)) : NULL;
    if (!c2 || c2 + 1 == end || c2[1] != '/')
        return false;
    const char *names = c1 + 1;
    *g = (struct group) { .version = names == c2 ? CGROUP_V2 : CGROUP_V1,
                          .path = c2 + 1,
                          .n = (size_t)(end - c2 - 1) };
    if (g->version == CGROUP_V2)
        return true;
    while (names < c2) {
        const char *comma = memchr(names, ',', (size_t)(c2 - names));
        const char *stop = comma ? comma : c2;
        if (str_eq(names, (size_t)(stop - names), controller))
            return true;
        names = stop + 1;
    }
    return false;
}

static void show_group(const struct walk *w, const struct group *g)
{
    char dir[PATH_MAX_BYTES];
    bool own = g->version == CGROUP_V1; /* mount */
    int base = snprintf(dir, sizeof dir, "%s/sys/fs/cgroup%s%s", w->root, own ? "/" : "",
                        own ? w->controller : "");
    if (base <= 0 || (size_t)base >= sizeof dir)
        return;
    size_t n = (size_t)base;
    bool climbs = memmem(g->path, g->n, "/..", 3) != NULL;
    if (!climbs && g->n < sizeof dir - n) {
        memcpy(dir + n, g->path, g->n);
        n += g->n;
    }
    for (int level = 0; level < PATH_LEVELS; level++) {
        dir[n] = '\0';
        w->fn(w->user, dir, g->version);
        if (n <= (size_t)base)
            break;
        while (n > (size_t)base && dir[n - 1] != '/')
            n--;
        if (n > (size_t)base)
            n--;
    }
}

void cgroup_each(const char *root, const char *controller, cgroup_fn *fn, void *user)
{
    struct ktext t;
    if (!ktext_read_in(&t, root, "proc/self/cgroup"))
        return;
    const struct walk w = { root, controller, fn, user };
    struct ktext_line l;
    struct group g;
    for (size_t at = 0; ktext_line(&t, &at, &l);)
        if (group_of(&l, controller, &g))
            show_group(&w, &g);
}
