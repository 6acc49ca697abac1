#include "app/describe.h"

static const struct command *const commands[] = {
#define COMMAND(x) &command_##x,
#include "app/commands.def"
#undef COMMAND
};

const struct command *describe_at(size_t i)
{
    return i < ARRAY_LEN(commands) ? commands[i] : NULL;
}

const struct command *describe_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

bool describe(struct app *a, const struct command *c, describe_fn *fn, void *user)
{
    struct app quiet = *a; /* commands may set what they like: serve logs more, others want JSON */
    char flag[] = "--help", *only_help[] = { flag, NULL };
    quiet.cmd = c->name;
    quiet.on_help = fn;
    quiet.on_help_user = user;
    return c->run(&quiet, 1, only_help) == APP_OK;
}

void describe_globals(struct app *a, void (*fn)(void *user, const struct opts *o), void *user)
{
    struct app_globals g;
    app_globals(a, &g, true);
    fn(user, &g.table);
}
