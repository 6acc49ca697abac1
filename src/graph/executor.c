#include "graph/graph.h"

berth_status executor_new(const struct executor_config *cfg, struct executor **out, berth_err *err)
{
    (void)cfg;
    *out = NULL;
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

void executor_free(struct executor *x)
{
    (void)x;
}

void executor_reset(void *executor)
{
    (void)executor;
}

berth_status executor_run(struct executor *x, const struct exec_request *q, struct exec_result *out,
                          berth_err *err)
{
    (void)x;
    (void)q;
    *out = (struct exec_result) { .outcome = EXEC_FAILED };
    return err_set(err, BERTH_EUNSUPPORTED, "not there yet");
}

void exec_result_release(struct exec_result *r)
{
    json_decref(r->last_data);
    json_decref(r->outputs);
    json_decref(r->meta);
    json_decref(r->status);
    *r = (struct exec_result) { 0 };
}

struct executor_info executor_info(const struct executor *x)
{
    (void)x;
    return (struct executor_info) { 0 };
}
