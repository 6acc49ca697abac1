/* berth version: what this binary is, and what it found in this machine. */
#include "app/app.h"
#include "tensor/cpu.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

static const char *simd_level(void)
{
    const char *least = CPU_X86 ? "sse2" : "none";
#if defined(__aarch64__)
    least = "neon";
#endif
    return cpu_level() == CPU_PLAIN ? least : cpu_level_name(cpu_level());
}

/* What was switched on when this binary was built, blank-separated; "" for a plain one. */
static const char *build_features(void)
{
    return ""
#if defined(__SANITIZE_ADDRESS__)
           "asan "
#endif
#if defined(__SANITIZE_THREAD__)
           "tsan "
#endif
#if defined(BERTH_CHECKS)
           "checks "
#endif
        ;
}

/* The cards of this machine as "cuda:0 NVIDIA H200, ...", or why there are none. built: cards were
 * compiled in. */
static void describe_cards(struct app *a, struct str *found, struct str *why, bool *built)
{
    const struct app_ctx_args args = { 0 };
    berth_ctx *ctx = NULL;
    berth_err err;
    const char *kind, *reason;
    *built = true;
    for (const struct dev_absent *x = dev_not_built(); x->kind; x++)
        *built &= strcmp(x->kind, "cuda") != 0;
    enum log_level level = a->log.level;
    a->log.level = LOG_OFF; /* how devices are opened is what `berth devices` tells */
    if (app_ctx_new(a, &args, &ctx, &err))
        str_adds(why, err.msg);
    a->log.level = level;
    if (!ctx)
        return;
    for (size_t i = 0; i < berth_ctx_device_count(ctx); i++) {
        berth_device_info d;
        if (!berth_ctx_device_info(ctx, i, &d, &err) && !strcmp(d.kind, "cuda"))
            str_addf(found, "%s%s %s", found->n ? ", " : "", d.name, d.model);
    }
    for (size_t i = 0; berth_ctx_absent(ctx, i, &kind, &reason); i++)
        if (!strcmp(kind, "cuda") && !why->n)
            str_adds(why, reason);
    berth_ctx_free(ctx);
}

static void print_text(const char *features, const struct str *found, const struct str *why,
                       bool built)
{
    printf("berth %s\n", berth_version());
    printf("  compiler  %s\n", COMPILER);
    int words = (int)strlen(features) - !!*features; /* without the last blank */
    printf("  build     %s%s%.*s\n", BERTH_BUILD_TYPE, words ? ", " : "", words, features);
    printf("  cpu       %s\n", simd_level());
    printf("  cuda      %s%s\n", built && !found->n ? "built in, but no card: " : "",
           found->n ? str_c(found) : str_c(why));
}

static int print_json(const char *features, const struct str *found, const struct str *why,
                      bool built)
{
    struct str text = { 0 };
    struct jsonout j = { .out = &text, .indent = 2 };
    jo_open(&j, NULL, '{');
    jo_str(&j, "version", berth_version());
    jo_str(&j, "compiler", COMPILER);
    jo_str(&j, "build", BERTH_BUILD_TYPE);
    jo_open_flat(&j, "features", '[');
    for (const char *end; (end = strchr(features, ' ')); features = end + 1)
        jo_text(&j, NULL, features, (size_t)(end - features));
    jo_close(&j, ']');
    jo_str(&j, "simd", simd_level());
    jo_open(&j, "cuda", '{');
    jo_bool(&j, "built", built);
    if (found->n)
        jo_str(&j, "cards", str_c(found));
    else
        jo_str(&j, "absent", str_c(why));
    jo_close(&j, '}');
    jo_close(&j, '}');
    bool whole = !text.bad && puts(str_c(&text)) >= 0;
    str_release(&text);
    return whole ? APP_OK : APP_FAILED;
}

static int run(struct app *a, int argc, char **argv)
{
    bool json = false;
    const struct opt opt[] = {
        opt_flag("json", "print one JSON object", &json),
    };
    int n, code;
    if (!app_args(a, &command_version, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s'", argv[0]);
    const char *features = build_features();
    struct str found = { 0 }, why = { 0 };
    bool built;
    describe_cards(a, &found, &why, &built);
    if (json)
        code = print_json(features, &found, &why, built);
    else
        print_text(features, &found, &why, built);
    str_release(&found);
    str_release(&why);
    return code;
}

const struct command command_version = {
    .name = "version",
    .about = "show version, compiler, processor and cards",
    .usage = "[--json]",
    .run = run,
};
