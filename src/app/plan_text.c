#include "app/plan.h"

static void print_line(void *user, const char *line)
{
    (void)user;
    puts(line);
}

static void print_headline(const struct app *a, const struct planned *x)
{
    const struct plan *p = x->plan;
    char bytes[STR_BYTES_MAX];
    struct str s = { 0 };
    str_adds(&s, term_style(&a->out, STYLE_BOLD));
    term_safe(&s, x->file, strlen(x->file), 0);
    str_adds(&s, term_style(&a->out, STYLE_RESET));
    if (x->prefix[0]) {
        str_adds(&s, ", ");
        term_safe(&s, x->prefix, strlen(x->prefix), 0);
    }
    if (weights_converted(x->weights) != DT_NONE)
        str_addf(&s, " as %s", dtype_name(weights_converted(x->weights)));
    str_addf(&s, "\n  %s\n  %s in ",
             x->arch ? x->arch->base.about : "network not known: blocks in file order",
             str_bytes(p->bytes, bytes));
    term_count(&s, p->n, "block");
    str_addf(&s, ", layout %s, computes on %s\n", plan_layout_name(p->layout),
             p->devices.at[p->quotas.compute].name);
    fputs(str_c(&s), stdout);
    str_release(&s);
}

void plan_text(const struct app *a, const struct planned *x)
{
    const struct quotas *q = &x->plan->quotas;
    const char *bold = term_style(&a->out, STYLE_BOLD), *off = term_style(&a->out, STYLE_RESET);
    print_headline(a, x);
    if (!x->brief) {
        puts("");
        plan_tables(x->plan, x->blocks, print_line, NULL);
    }
    plan_picture(a, x);
    for (size_t i = 0, said = 0; i < q->notes; i++)
        if (q->warn[i] || !a->quiet)
            printf("%s%s: %s\n", said++ ? "" : "\n", q->warn[i] ? "warning" : "note", q->note[i]);
    struct str s = { 0 };
    plan_string(x->plan, &s);
    printf("\n%sallocation string%s\n  --alloc '%s'%s", bold, off, str_c(&s),
           x->plan->layout == PLAN_TAIL ? " --layout tail" : "");
    if (x->prefix[0])
        printf(" --part '%s'", x->prefix);
    if (weights_converted(x->weights) != DT_NONE)
        printf(" --dtype %s", dtype_name(weights_converted(x->weights)));
    putchar('\n');
    str_release(&s);
}
