/* menu.c: where frontends list a class, and which of its inputs they fold away. ComfyUI moves its
 * classes from menu to menu with every version; what it has too stands in menu.def as it has it,
 * and what it has not where the class says. */
#include "node/node_impl.h"

#include <stdlib.h>
#include <string.h>

struct place {
    const char *cls;
    struct node_menu menu;
};
#define MENU(c, category, shown, essentials) { c, { category, shown, essentials } },
#define FOLD(c, in)
static const struct place places[] = {
#include "node/menu.def"
};
#undef MENU
#undef FOLD

#define MENU(c, category, shown, essentials)
#define FOLD(c, in) { c, in },
static const struct fold {
    const char *cls, *in;
} folds[] = {
#include "node/menu.def"
};
#undef MENU
#undef FOLD

static int by_name(const void *name, const void *place)
{
    return strcmp(name, ((const struct place *)place)->cls);
}

struct node_menu node_menu(const struct node_class *c)
{
    const struct place *p = bsearch(c->name, places, ARRAY_LEN(places), sizeof *places, by_name);
    return p ? p->menu : (struct node_menu) { c->category, c->display, c->essentials };
}

bool node_is_folded(const struct node_class *c, const struct node_input *in)
{
    for (size_t i = 0; i < ARRAY_LEN(folds); i++)
        if (strcmp(folds[i].cls, c->name) == 0 && strcmp(folds[i].in, in->name) == 0)
            return true;
    return false;
}
