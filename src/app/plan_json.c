#include "app/plan.h"

int plan_json(struct app *a, const struct planned *x)
{
    struct jsonout j;
    struct str text = { 0 };
    plan_as_json(x->plan, x->blocks, weights_converted(x->weights), &text);
    app_json_begin(a, &j);
    if (!text.bad)
        fwrite(text.p, 1, text.n, stdout);
    j.nomem |= text.bad;
    str_release(&text);
    return app_json_end(a, &j, APP_OK);
}
