/* registry.c: classes by name. Both lists are in strcmp() order of their names, so that looking one
 * up in a prompt of ten thousand nodes is a binary search over a table that nobody has to build;
 * the all-nodes test holds them to it. */
#include "media/media.h"
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

#define NODE(c) &node_##c,
static const struct node_class *const loaders[] = {
#include "node/loaders.def"
    NULL, /* the list may be empty */
};
static const struct node_class *const nodes[] = {
#include "node/nodes.def"
    NULL,
};
#undef NODE

#define LOADERS (sizeof loaders / sizeof *loaders - 1)
#define NODES (sizeof nodes / sizeof *nodes - 1)

const char *node_cannot_run(const struct node_class *c)
{
    return c->run == node_not_yet ? "cannot be computed yet"
           : c->flags & NODE_MEDIA && !media_built() ? "cannot be computed: " MEDIA_ABSENT
                                                     : NULL;
}

size_t node_count(void)
{
    return LOADERS + NODES;
}

const struct node_class *node_at(size_t i)
{
    if (i >= node_count())
        BUG("node %zu of %zu", i, node_count());
    return i < NODES ? nodes[i] : loaders[i - NODES];
}

static int by_name(const void *name, const void *entry)
{
    const struct node_class *const *c = entry;
    return strcmp(name, (*c)->name);
}

const struct node_class *node_find(const char *name)
{
    const struct node_class *const *at = bsearch(name, nodes, NODES, sizeof *nodes, by_name);
    if (!at)
        at = bsearch(name, loaders, LOADERS, sizeof *loaders, by_name);
    return at ? *at : NULL;
}

size_t node_input_index(const struct node_class *c, const char *name)
{
    for (size_t i = 0; i < c->ins; i++)
        if (!strcmp(c->in[i].name, name))
            return i;
    return SIZE_MAX;
}
