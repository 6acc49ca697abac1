/* The flags of ComfyUI's launch scripts, as argparse reads them. */
#include "app/serve_args.h"
#include "support/oom.h"
#include "support/test.h"

static const char *listen_to;
static const struct opt own[] = {
    { .name = "listen", .kind = OPT_TEXT, .to = &listen_to },
    { .name = "port", .kind = OPT_TEXT, .to = &listen_to },
    { .name = "preview-size", .kind = OPT_TEXT, .to = &listen_to },
    { .name = "preview-method", .kind = OPT_TEXT, .to = &listen_to },
    { .name = "cache-none", .kind = OPT_FLAG, .to = &listen_to },
    { .name = "fp8_e4m3fn-unet", .kind = OPT_FLAG, .to = &listen_to },
};
static const struct opts table = { .at = own, .n = ARRAY_LEN(own) };

#define WORDS 16

/* Rewrites the words of `in`, separated by spaces; "!" in front of what comes out: an error. */
static void becomes(const char *in, const char *want, const char *ignored)
{
    char text[400], *argv[WORDS];
    int argc = 0;
    snprintf(text, sizeof text, "%s", in);
    for (char *p = text; *p;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p)
            *p++ = '\0';
    }
    struct serve_args x;
    berth_err err;
    if (want[0] == '!') {
        assert_int_equal(serve_args_rewrite(&table, argc, argv, &x, &err), BERTH_EINVAL);
        assert_non_null(strstr(err.msg, want + 1));
        return;
    }
    assert_int_equal(serve_args_rewrite(&table, argc, argv, &x, &err), BERTH_OK);
    struct str got = { 0 };
    for (int i = 0; i < x.argc; i++)
        str_addf(&got, "%s%s", i ? " " : "", x.argv[i]);
    assert_null(x.argv[x.argc]);
    assert_string_equal(str_c(&got), want);
    assert_string_equal(str_c(&x.ignored), ignored);
    str_release(&got);
    serve_args_release(&x);
}

static void values_may_be_left_out(void **state)
{
    (void)state;
    becomes("--listen", "--listen=0.0.0.0,::", "");
    becomes("--listen --port 1", "--listen=0.0.0.0,:: --port 1", "");
    becomes("--listen 10.0.0.1 --port=1", "--listen=10.0.0.1 --port=1", "");
    becomes("--listen=::1", "--listen=::1", "");
    becomes("--enable-cors-header", "--enable-cors-header=*", "");
    becomes("--cache-ram", "--cache-ram=", "");
    becomes("--cache-ram 12.5", "--cache-ram=12.5", "");
    becomes("--cache-ram 4 64 --port 1", "--cache-ram=4,64 --port 1", "");
    becomes("--high-ram", "--cache-classic", "");
    becomes("--verbose --port 1", "--verbose=DEBUG --port 1", "");
    becomes("--verbose INFO --verbose DEBUG a.log", "--verbose=INFO --verbose=DEBUG,a.log", "");
    becomes("--disable-pinned-memory --port 1", "--pin-budget=0 --port 1", "");
    becomes("--disable-pinned-memory=9", "--pin-budget=0", ""); /* it has no value */
}

static void slips_are_guessed(void **state)
{
    (void)state;
    becomes("--highvrm", "!unknown option '--highvrm', did you mean '--highvram'?", "");
    becomes("--cuda-maloc=1", "!unknown option '--cuda-maloc', did you mean '--cuda-malloc'?", "");
    becomes("--prot 1", "--prot 1", ""); /* one of ours: args_parse() says so */
    becomes("--quite-unlike-anything", "--quite-unlike-anything", "");
}

static void several_values(void **state)
{
    (void)state;
    becomes("--extra-model-paths-config a.yaml b.yaml --port 1",
            "--extra-model-paths-config=a.yaml --extra-model-paths-config=b.yaml --port 1", "");
    becomes("--extra-model-paths-config=a --extra-model-paths-config b",
            "--extra-model-paths-config=a --extra-model-paths-config=b", "");
    becomes("--extra-model-paths-config", "!wants at least one file", "");
    becomes("--fast fp16_accumulation cublas_ops --port 1",
            "--fast=fp16_accumulation,cublas_ops --port 1", "");
    becomes("--fast --port 1", "--fast= --port 1", "");
    becomes("--fast=autotune", "--fast=autotune", "");
}

static void beginnings_of_names(void **state)
{
    (void)state;
    becomes("--lis", "--listen=0.0.0.0,::", "");
    becomes("--cache-n", "--cache-none", "");
    becomes("--preview-s 4", "--preview-size 4", "");
    becomes("--preview 4", "--preview 4",
            ""); /* two names: left for the reader to complain about */
    becomes("--nonsense", "--nonsense", "");
}

static void without_meaning(void **state)
{
    (void)state;
    becomes("--lowvram --oneapi-device-selector 1 --use-sage-attention --port 2", "--port 2",
            "--lowvram, --oneapi-device-selector, --use-sage-attention");
    becomes("--fp8_e8m0fnu-unet --fp8_e4m3fn-unet", "--fp8_e4m3fn-unet", "--fp8_e8m0fnu-unet");
    becomes("--oneapi-device-selector", "!--oneapi-device-selector wants a value", "");
    becomes("--oneapi-device-selector=1 plain", "plain", "--oneapi-device-selector");
}

static void survives_exhaustion(void **state)
{
    (void)state;
    char a[] = "--listen", b[] = "--fast", *argv[] = { a, b };
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        struct serve_args x;
        berth_err err;
        oom_after(k);
        s = serve_args_rewrite(&table, 2, argv, &x, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
        serve_args_release(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_may_be_left_out), cmocka_unit_test(slips_are_guessed),
        cmocka_unit_test(several_values),         cmocka_unit_test(beginnings_of_names),
        cmocka_unit_test(without_meaning),        cmocka_unit_test(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
