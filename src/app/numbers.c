#include "app/numbers.h"

#include "base/str.h"

struct choice {
    bool given;
    const char *name;
    enum dtype type;
};

/* The one that is given, into *out; two exclude each other. */
static int choose(struct app *a, const struct choice *c, size_t n, enum dtype *out)
{
    const struct choice *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!c[i].given)
            continue;
        if (first)
            return app_usage(a, "--%s or --%s, not both", first->name, c[i].name);
        first = &c[i];
        *out = c[i].type;
    }
    return APP_OK;
}

/* ComfyUI's features; only one of them changes what is computed here. */
static int read_fast(struct app *a, const char *text, bool *fp8)
{
    static const char *const known[] = { "fp8_matrix_mult", "fp16_accumulation", "cublas_ops",
                                         "autotune" };
    *fp8 = text && !*text;
    while (text && *text) {
        size_t n = strcspn(text, ","), i = 0;
        while (i < ARRAY_LEN(known) && !str_eq(text, n, known[i]))
            i++;
        if (i == ARRAY_LEN(known))
            return app_usage(a,
                             "--fast: '%.*s' is none of fp8_matrix_mult, fp16_accumulation, "
                             "cublas_ops, autotune",
                             (int)(n < 80 ? n : 80), text);
        *fp8 |= i == 0;
        text += n + (text[n] == ',');
    }
    return APP_OK;
}

/* A type to hold weights in, if it is one, instead of one to compute in; *act is then left
 * alone. */
static const char *stored_type(enum dtype chosen, enum dtype *act)
{
    if (chosen == DT_F8_E4M3 || chosen == DT_F8_E5M2)
        return dtype_name(chosen);
    if (chosen != DT_NONE)
        *act = chosen;
    return NULL;
}

int app_numbers(struct app *a, const struct number_options *o, struct node_numbers *out)
{
    const struct choice all[] = { { o->force_fp32, "force-fp32", DT_F32 },
                                  { o->force_fp16, "force-fp16", DT_F16 } };
    const struct choice unet[] = { { o->fp32_unet, "fp32-unet", DT_F32 },
                                   { o->fp16_unet, "fp16-unet", DT_F16 },
                                   { o->bf16_unet, "bf16-unet", DT_BF16 },
                                   { o->e4m3_unet, "fp8_e4m3fn-unet", DT_F8_E4M3 },
                                   { o->e5m2_unet, "fp8_e5m2-unet", DT_F8_E5M2 } };
    const struct choice vae[] = { { o->fp32_vae, "fp32-vae", DT_F32 },
                                  { o->fp16_vae, "fp16-vae", DT_F16 },
                                  { o->bf16_vae, "bf16-vae", DT_BF16 } };
    const struct choice text[] = { { o->fp16_text, "fp16-text-enc", DT_F16 },
                                   { o->fp32_text, "fp32-text-enc", DT_F32 },
                                   { o->e4m3_text, "fp8_e4m3fn-text-enc", DT_F8_E4M3 },
                                   { o->e5m2_text, "fp8_e5m2-text-enc", DT_F8_E5M2 } };
    enum dtype of_unet = DT_NONE, of_text = DT_NONE, unread = DT_NONE;
    int code;
    *out = node_numbers_own;
    if ((code = choose(a, all, ARRAY_LEN(all), &out->act_unet)))
        return code;
    out->act_vae = o->force_fp32 ? DT_F32 : DT_NONE;
    if ((code = choose(a, unet, ARRAY_LEN(unet), &of_unet)) ||
        (code = choose(a, vae, ARRAY_LEN(vae), &out->act_vae)) ||
        (code = choose(a, text, ARRAY_LEN(text), &of_text)) ||
        (code = read_fast(a, o->fast, &out->fp8)))
        return code;
    out->weights_unet = stored_type(of_unet, &out->act_unet);
    if (of_text != DT_NONE && of_text != DT_F16)
        out->weights_text = stored_type(of_text, &unread);
    out->cpu_noise = o->cpu_noise;
    return APP_OK;
}
