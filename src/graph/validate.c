#include "graph/graph.h"

berth_status graph_validate(const struct node_env *env, json_t *prompt, const json_t *targets,
                            struct validation *out, berth_err *err)
{
    (void)env;
    (void)prompt;
    (void)targets;
    *out = (struct validation) { 0 };
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

void validation_release(struct validation *v)
{
    json_decref(v->error);
    json_decref(v->node_errors);
    json_decref(v->outputs);
    *v = (struct validation) { 0 };
}

json_t *validation_no_prompt(void)
{
    return json_pack("{s:{s:s,s:s,s:s,s:{}},s:{}}", "error", "type", "no_prompt", "message",
                     "No prompt provided", "details", "No prompt provided", "extra_info",
                     "node_errors");
}
