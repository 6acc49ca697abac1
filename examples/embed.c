/* embed: libberth in a program of your own. Two models, one of them kept; a free; the receipt.
 *
 *     cc embed.c $(pkg-config --cflags --libs berth) -o embed
 *     ./embed kept.safetensors ejected.safetensors ["cpu=4g,null:0=2g"] */
#include <berth/berth.h>

#include <stdio.h>

static int report(const char *what, const berth_err *err)
{
    fprintf(stderr, "embed: %s: %s\n", what, err->msg);
    return 1;
}

/* Opens and loads; the handle is closed by the caller, the model may outlive it. */
static berth_status load(berth_ctx *ctx, const char *path, berth_retention retention,
                         berth_model **out, berth_err *err)
{
    berth_model_config cfg = { .path = path, .retention = retention };
    berth_load_result got;
    berth_model_info info;
    berth_status s = berth_model_open(ctx, &cfg, out, err);
    if (!s)
        s = berth_model_load(*out, NULL, &got, err);
    if (!s)
        s = berth_model_get_info(*out, &info, err);
    if (s)
        return s;
    printf("%-5s %-20s %11llu bytes resident, %llu read, %llu moved\n", info.retention, info.name,
           (unsigned long long)info.resident, (unsigned long long)got.read,
           (unsigned long long)got.moved);
    return BERTH_OK;
}

static berth_status tour(berth_ctx *ctx, const char *kept_path, const char *ejected_path,
                         berth_err *err)
{
    berth_model *kept = NULL, *ejected = NULL, *again = NULL;
    berth_receipt *receipt = NULL;
    berth_free_config both = { .unload_models = 1, .free_memory = 1, .reason = "embed" };
    berth_status s = load(ctx, kept_path, BERTH_KEEP, &kept, err);
    if (!s)
        s = load(ctx, ejected_path, BERTH_EJECT, &ejected, err);
    if (s)
        goto out;

    /* Nobody holds the kept model any more; its anchor does. */
    berth_model_close(kept);
    kept = NULL;
    s = berth_free(ctx, &both, &receipt, err);
    if (s)
        goto out;
    fputs(berth_receipt_text(receipt), stdout);

    /* Found again by its file and plan: 0 bytes read, 0 bytes moved. */
    s = load(ctx, kept_path, BERTH_KEEP, &again, err);
out:
    berth_receipt_free(receipt);
    berth_model_close(again);
    berth_model_close(ejected);
    berth_model_close(kept);
    return s; /* not err->code: an err is meaningful only after a failure */
}

int main(int argc, char **argv)
{
    berth_err err = { 0 };
    berth_ctx *ctx;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: embed KEPT EJECTED [DEVICES]\n");
        return 2;
    }
    berth_config cfg = { .size = sizeof cfg, .devices = argc > 3 ? argv[3] : NULL };
    if (berth_ctx_new(&cfg, &ctx, &err))
        return report("opening the devices", &err);
    berth_status s = tour(ctx, argv[1], argv[2], &err);
    berth_ctx_free(ctx);
    return s ? report("the tour", &err) : 0;
}
