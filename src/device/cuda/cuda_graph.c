/* cuda_graph: kernels recorded once and launched as a whole. The card then fetches its commands
 * from its own memory; single launches come over the link, behind the weights that stream. */
#include "device/cuda/cuda_impl.h"

struct cuda_graph {
    struct dev_graph base;
    CUgraph graph;
    CUgraphExec exec;
};

berth_status cuda_record_begin(struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    if (cuda_current(p, err))
        return err->code;
    /* Relaxed: calls on other streams, and those that allocate, go on as ever. */
    return CUDA_TRY(p, cuStreamBeginCapture(cuda_stream(s), CU_STREAM_CAPTURE_MODE_RELAXED), err);
}

void cuda_graph_free(struct dev_graph *graph)
{
    struct cuda_graph *g = (struct cuda_graph *)graph;
    struct cuda_dev *d = cuda_dev(graph->phys);
    CUDA_LOG_FAILURE(d, cuCtxSetCurrent(d->pub.ctx));
    if (g->exec)
        CUDA_LOG_FAILURE(d, cuGraphExecDestroy(g->exec));
    if (g->graph)
        CUDA_LOG_FAILURE(d, cuGraphDestroy(g->graph));
    free(g);
}

berth_status cuda_record_end(struct dev_stream *s, struct dev_graph **out, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    struct cuda_graph *g = calloc(1, sizeof *g);
    CUgraph graph = NULL;
    *out = NULL;
    berth_status st = cuda_current(p, err);
    if (!st)
        st = CUDA_TRY(p, cuStreamEndCapture(cuda_stream(s), &graph), err);
    if (st) /* a stream that is still captured would refuse all that comes */
        (void)p->api->cuStreamEndCapture(cuda_stream(s), &graph);
    if (!g) {
        if (graph)
            CUDA_LOG_FAILURE(cuda_dev(s->phys), cuGraphDestroy(graph));
        return err_set(err, BERTH_ENOMEM, "%s: recorded work", s->phys->name);
    }
    g->base.phys = s->phys;
    g->graph = graph;
    if (!st)
        st = CUDA_TRY(p, cuGraphInstantiateWithFlags(&g->exec, graph, 0), err);
    if (st)
        cuda_graph_free(&g->base);
    else
        *out = &g->base;
    return st;
}

berth_status cuda_graph_launch(struct dev_graph *g, struct dev_stream *s, berth_err *err)
{
    struct cuda_phys *p = cuda_of(s->phys);
    return CUDA_CALL(p, cuGraphLaunch(((struct cuda_graph *)g)->exec, cuda_stream(s)), err);
}
