/* Samplers whose prompts bring control nets: what is for none of their models is refused with the
 * prompt, from headers alone. */
#include "support/loader_rig.h"

#include "graph/graph.h"

#define PROMPT                                                                                     \
    "{\"1\": {\"class_type\": \"CheckpointLoaderSimple\", \"inputs\": "                            \
    "{\"ckpt_name\": \"sd.safetensors\"}},"                                                        \
    "\"2\": {\"class_type\": \"CLIPTextEncode\", \"inputs\": {\"text\": \"\", \"clip\": "          \
    "[\"1\", 1]}},"                                                                                \
    "\"3\": {\"class_type\": \"ControlNetLoader\", \"inputs\": {\"control_net_name\": \"%s\"}},"   \
    "\"4\": {\"class_type\": \"EmptyImage\", \"inputs\": {\"width\": 64, \"height\": 64, "         \
    "\"batch_size\": 1, \"color\": 0}},"                                                           \
    "\"5\": {\"class_type\": \"ControlNetApplyAdvanced\", \"inputs\": {\"positive\": [\"2\", 0], " \
    "\"negative\": [\"2\", 0], \"control_net\": [\"3\", 0], \"image\": [\"4\", 0], "               \
    "\"strength\": 1.0, \"start_percent\": 0.0, \"end_percent\": 1.0}},"                           \
    "\"6\": {\"class_type\": \"EmptyLatentImage\", \"inputs\": {\"width\": 64, \"height\": 64, "   \
    "\"batch_size\": 1}},"                                                                         \
    "\"7\": {\"class_type\": \"KSampler\", \"inputs\": {\"model\": [\"1\", 0], \"positive\": "     \
    "[\"5\", 0], \"negative\": [\"5\", 1], \"latent_image\": [\"6\", 0], \"seed\": 1, \"steps\": " \
    "1, "                                                                                          \
    "\"cfg\": 1.0, \"sampler_name\": \"euler\", \"scheduler\": \"normal\", \"denoise\": 1.0}},"    \
    "\"8\": {\"class_type\": \"PreviewAny\", \"inputs\": {\"source\": [\"7\", 0]}}}"

/* A prompt whose sampler would bring a model and a control net of different families together. */
static void prompts_of_two_families_are_refused(void **state)
{
    static const char *const net[] = { "net.safetensors", "xl.safetensors" };
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=1g");
    rig_preset(&r, "checkpoints/sd.safetensors", "sd15-tiny");
    rig_preset(&r, "controlnet/net.safetensors", "controlnet-sd15-tiny");
    rig_preset(&r, "controlnet/xl.safetensors", "controlnet-sdxl-tiny");
    for (size_t i = 0; i < 2; i++) {
        char text[4096];
        struct validation v = { 0 };
        berth_err err = { 0 };
        snprintf(text, sizeof text, PROMPT, net[i]);
        json_t *prompt = json_loads(text, 0, NULL);
        assert_non_null(prompt);
        assert_ok(graph_validate(&r.env, prompt, NULL, &v, &err), err);
        char *said = json_dumps(v.node_errors, 0);
        if (v.ok != (i == 0))
            fail_msg("%s: %s", net[i], said);
        if (i == 1) {
            assert_non_null(json_object_get(v.node_errors, "7"));
            assert_non_null(strstr(said, "xl.safetensors"));
            assert_non_null(strstr(said, "texts of width 128"));
        }
        free(said);
        validation_release(&v);
        json_decref(prompt);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(prompts_of_two_families_are_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
