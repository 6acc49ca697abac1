/* berth completion: the program a shell completes our commands with. */
#include "app/describe.h"

static const struct shell *const shells[] = { &shell_bash, &shell_fish, &shell_zsh };

struct writer {
    const struct shell *shell;
    struct str out;
};

static void begin(void *user, const struct opts *o)
{
    struct writer *w = user;
    w->shell->begin(&w->out, o);
}

static void add(void *user, const struct command *c, const struct opts *o)
{
    struct writer *w = user;
    w->shell->command(&w->out, c, o);
}

static int print(struct app *a, const struct shell *s)
{
    struct writer w = { .shell = s };
    describe_globals(a, begin, &w);
    for (size_t i = 0; describe_at(i); i++)
        if (!describe(a, describe_at(i), add, &w))
            w.out.bad = true;
    str_adds(&w.out, s->end);
    int code = w.out.bad ? app_no_memory(a) : (fputs(str_c(&w.out), stdout), APP_OK);
    str_release(&w.out);
    return code;
}

static int run(struct app *a, int argc, char **argv)
{
    int n, code;
    if (!app_args(a, &command_completion, NULL, 0, argc, argv, &n, &code))
        return code;
    for (size_t i = 0; n == 1 && i < ARRAY_LEN(shells); i++)
        if (!strcmp(argv[0], shells[i]->name))
            return print(a, shells[i]);
    if (n == 1)
        return app_usage(a, "'%.80s' is none of bash, fish, zsh", argv[0]);
    return app_usage(a, "for which shell? bash, fish or zsh");
}

static void how(struct str *out)
{
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        str_addf(out, "  %-4s  %s\n", shells[i]->name, shells[i]->use);
}

const struct command command_completion = {
    .name = "completion",
    .about = "print completions for bash, fish or zsh",
    .usage = "bash|fish|zsh",
    .args = "SHELL",
    .more = "An installed package has put them in place already. Else, at the start of the\n"
            "shell:\n",
    .tables = how,
    .run = run,
};
