/* berth version: what this binary is, and what it found in this machine. */
#include "app/app.h"
#include "app/jsonout.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

static const char *simd_level(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "avx2";
    return "sse2";
#elif defined(__aarch64__)
    return "neon";
#else
    return "none";
#endif
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

static int run(struct app *a, int argc, char **argv)
{
    bool json = false;
    const struct opt opt[] = {
        { .name = "json", .help = "print one JSON object", .to = &json },
    };
    int n, code;
    if (!app_args(a, &command_version, opt, ARRAY_LEN(opt), argc, argv, &n, &code))
        return code;
    if (n)
        return app_usage(a, "unexpected argument '%.80s'", argv[0]);
    const char *features = build_features();
    if (!json) {
        printf("berth %s\n", berth_version());
        printf("  compiler  %s\n", COMPILER);
        int words = (int)strlen(features) - !!*features; /* without the last blank */
        printf("  build     %s%s%.*s\n", BERTH_BUILD_TYPE, words ? ", " : "", words, features);
        printf("  cpu       %s\n", simd_level());
        return APP_OK;
    }
    struct jsonout j = { .out = stdout };
    jsonout_open(&j, NULL, '{');
    jsonout_str(&j, "version", berth_version());
    jsonout_str(&j, "compiler", COMPILER);
    jsonout_str(&j, "build", BERTH_BUILD_TYPE);
    jsonout_open_flat(&j, "features", '[');
    for (const char *end; (end = strchr(features, ' ')); features = end + 1)
        jsonout_text(&j, NULL, features, (size_t)(end - features));
    jsonout_close(&j, ']');
    jsonout_str(&j, "simd", simd_level());
    jsonout_close(&j, '}');
    return jsonout_end(&j) ? APP_OK : APP_FAILED;
}

const struct command command_version = {
    .name = "version",
    .about = "show version, compiler and processor",
    .usage = "[--json]",
    .run = run,
};
