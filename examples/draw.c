/* draw: a workflow in a program of your own, with what happens meanwhile. Ctrl-C stops it.
 *
 *     cc draw.c $(pkg-config --cflags --libs berth) -o draw
 *     ./draw BASE WORKFLOW.json [CHECKPOINTS [DEVICES]]
 *
 * BASE has models/, and output/ where pictures go; CHECKPOINTS is one more folder of models. */
#include <berth/berth.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static berth_flag *stop;

static void on_signal(int number)
{
    (void)number;
    berth_flag_set(stop);
}

/* ---- events ---- */

static void on_begins(void *user, const berth_node *node)
{
    (void)user;
    printf("node %s %s\n", node->id, node->class_type);
}

static void on_progress(void *user, const berth_node *node, double value, double max)
{
    (void)user;
    printf("progress %s %.0f of %.0f\n", node->id, value, max);
}

static void on_preview(void *user, const berth_node *node, const berth_picture *p)
{
    (void)user;
    printf("preview %s %u x %u\n", node->id, (unsigned)p->width, (unsigned)p->height);
}

static void on_executed(void *user, const berth_node *node, const char *output)
{
    (void)user;
    printf("executed %s %s\n", node->id, output);
}

static void on_error(void *user, const berth_run_error *e)
{
    (void)user;
    printf("error %s %s\n", e->node ? e->node : "-", e->type);
}

/* ---- a run ---- */

static berth_status draw(berth_engine *engine, const char *prompt, berth_err *err)
{
    const berth_events events = { .size = sizeof events,
                                  .node_begins = on_begins,
                                  .progress = on_progress,
                                  .preview = on_preview,
                                  .executed = on_executed,
                                  .error = on_error };
    const berth_run_config cfg = {
        .size = sizeof cfg, .prompt = prompt, .events = &events, .cancel = stop, .previews = 1
    };
    berth_result *result;
    berth_status s = berth_run(engine, &cfg, &result, err);
    for (size_t i = 0; !s && i < berth_result_file_count(result); i++) {
        berth_output_file file = { .size = sizeof file };
        s = berth_result_file(result, i, &file, err);
        if (!s)
            printf("file %s\n", file.path);
    }
    berth_result_free(result);
    return s;
}

/* All of a file, with a NUL behind it. */
static char *read_text(const char *path)
{
    FILE *in = fopen(path, "rb");
    long n = in && !fseek(in, 0, SEEK_END) ? ftell(in) : -1;
    char *text = n > 0 ? calloc(1, (size_t)n + 1) : NULL;
    if (text && (fseek(in, 0, SEEK_SET) || fread(text, 1, (size_t)n, in) != (size_t)n)) {
        free(text);
        text = NULL;
    }
    if (in)
        fclose(in);
    return text;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: draw BASE WORKFLOW.json [CHECKPOINTS [DEVICES]]\n");
        return 2;
    }
    const berth_engine_config cfg = { .size = sizeof cfg,
                                      .base = argv[1],
                                      .checkpoints = argc > 3 ? argv[3] : NULL,
                                      .devices = argc > 4 ? argv[4] : NULL };
    berth_engine *engine = NULL;
    berth_err err = { 0 };
    char *prompt = read_text(argv[2]);
    stop = berth_flag_new();
    if (!prompt || !stop) {
        fprintf(stderr, "draw: cannot read %s\n", argv[2]);
        return 1;
    }
    signal(SIGINT, on_signal);
    berth_status s = berth_engine_new(NULL, &cfg, &engine, &err);
    if (!s)
        s = draw(engine, prompt, &err);
    if (s)
        fprintf(stderr, "draw: %s: %s\n", berth_status_text(s), err.msg);
    berth_engine_free(engine);
    berth_flag_free(stop);
    free(prompt);
    return s != BERTH_OK;
}
