/* later: nodes of ComfyUI that workflows may have and this build cannot compute yet: other families
 * of models, shaders. Declared in full, so that such a workflow
 * validates and says at which node it stops. */
#include "node/node_impl.h"

NOT_YET(CLIPTextEncodeSD3, .category = "advanced/conditioning", V3("sd3"),
        INS(SOCKET("clip", "CLIP"),
            TEXT_IN("clip_l", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("clip_g", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("t5xxl", NULL, .no_default = true, .more = PROMPT_TEXT),
            COMBO_IN("empty_padding", CHOICES("none", "empty_prompt"))),
        OUT_OF("CONDITIONING"));

/* A shader is a program in a language of its own, which nothing here compiles. */
NOT_YET(GLSLShader, .display = "GLSL Shader", .category = "image/shader", .module = MOD("glsl"),
        .flags = NODE_V3 | NODE_EXPERIMENTAL | NODE_INTERMEDIATE,
        INS(TEXT_IN("fragment_shader",
                    "#version 300 es\nprecision highp float;\n\nuniform sampler2D u_image0;\n"
                    "uniform vec2 u_resolution;\n\nin vec2 v_texCoord;\n"
                    "layout(location = 0) out vec4 fragColor0;\n\nvoid main() {\n"
                    "    fragColor0 = texture(u_image0, v_texCoord);\n}\n",
                    .more = MULTILINE),
            DYNCOMBO_IN("size_mode", WITH(CHOICE0("from_input"),
                                          CHOICE("custom", INT_IN("width", 512, 1, MAX_SIDE, 0),
                                                 INT_IN("height", 512, 1, MAX_SIDE, 0)))),
            AUTOGROW_IN("images", "image", 1, 5, SOCKET("image", "IMAGE")),
            AUTOGROW_IN("floats", "u_float", 0, 20,
                        FLOAT_IN("float", 0.0, 0, 0, 0, .no_range = true, .more = FORCE_INPUT)),
            AUTOGROW_IN("ints", "u_int", 0, 20,
                        INT_IN("int", 0, 0, 0, 0, .no_range = true, .more = FORCE_INPUT)),
            AUTOGROW_IN("bools", "u_bool", 0, 10, BOOL_IN("bool", false, .more = FORCE_INPUT)),
            AUTOGROW_IN(
                "curves", "u_curve", 0, 4,
                SOCKET("curve", "CURVE",
                       .more = "\"default\":{\"points\":[[0.0,0.0],[1.0,1.0]],\"interpolation\":"
                               "\"monotone_cubic\"},\"socketless\":true,\"forceInput\":true"))),
        OUTS({ .type = "IMAGE", .name = "IMAGE0" }, { .type = "IMAGE", .name = "IMAGE1" },
             { .type = "IMAGE", .name = "IMAGE2" }, { .type = "IMAGE", .name = "IMAGE3" }));
