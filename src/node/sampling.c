/* sampling.c: samplers, schedules, guiders and noise. Declared in full, so that workflows validate
 * and say at which node they stop; what computes them comes with the networks. */
#include "node/node_impl.h"

NOT_YET(KSampler, .category = "sampling", .module = "nodes",
        INS(SOCKET("model", "MODEL"), INT_IN("seed", 0, 0, U64_MAX, 0, .more = CONTROL),
            INT_IN("steps", 20, 1, 10000, 0),
            FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
            COMBO_IN("sampler_name", list_samplers), COMBO_IN("scheduler", list_schedulers),
            SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("latent_image", "LATENT"), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
        OUTS({ .type = "LATENT" }));

NOT_YET(KSamplerAdvanced, .display = "KSampler (Advanced)", .category = "sampling",
        .module = "nodes",
        INS(SOCKET("model", "MODEL"), COMBO_IN("add_noise", CHOICES("enable", "disable")),
            INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL),
            INT_IN("steps", 20, 1, 10000, 0),
            FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
            COMBO_IN("sampler_name", list_samplers), COMBO_IN("scheduler", list_schedulers),
            SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("latent_image", "LATENT"), INT_IN("start_at_step", 0, 0, 10000, 0),
            INT_IN("end_at_step", 10000, 0, 10000, 0),
            COMBO_IN("return_with_leftover_noise", CHOICES("disable", "enable"))),
        OUTS({ .type = "LATENT" }));

NOT_YET(SamplerCustom, .category = "sampling/custom_sampling", .module = MOD("custom_sampler"),
        .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), BOOL_IN("add_noise", true),
            INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL),
            FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
            SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("sampler", "SAMPLER"), SOCKET("sigmas", "SIGMAS"),
            SOCKET("latent_image", "LATENT")),
        OUTS({ .type = "LATENT", .name = "output" },
             { .type = "LATENT", .name = "denoised_output" }));

NOT_YET(SamplerCustomAdvanced, .category = "sampling/custom_sampling",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("noise", "NOISE"), SOCKET("guider", "GUIDER"), SOCKET("sampler", "SAMPLER"),
            SOCKET("sigmas", "SIGMAS"), SOCKET("latent_image", "LATENT")),
        OUTS({ .type = "LATENT", .name = "output" },
             { .type = "LATENT", .name = "denoised_output" }));

NOT_YET(KSamplerSelect, .category = "sampling/custom_sampling/samplers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(COMBO_IN("sampler_name", list_samplers)), OUTS({ .type = "SAMPLER" }));

NOT_YET(SamplerEulerAncestral, .category = "sampling/custom_sampling/samplers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(FLOAT_IN("eta", 1.0, 0.0, 100.0, 0.01, .round = "false"),
            FLOAT_IN("s_noise", 1.0, 0.0, 100.0, 0.01, .round = "false")),
        OUTS({ .type = "SAMPLER" }));

NOT_YET(SamplerDPMPP_2M_SDE, .category = "sampling/custom_sampling/samplers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(COMBO_IN("solver_type", CHOICES("midpoint", "heun")),
            FLOAT_IN("eta", 1.0, 0.0, 100.0, 0.01, .round = "false"),
            FLOAT_IN("s_noise", 1.0, 0.0, 100.0, 0.01, .round = "false"),
            COMBO_IN("noise_device", CHOICES("gpu", "cpu"))),
        OUTS({ .type = "SAMPLER" }));

NOT_YET(SamplerLMS, .category = "sampling/custom_sampling/samplers",
        .module = MOD("custom_sampler"), .flags = NODE_V3, INS(INT_IN("order", 4, 1, 100, 0)),
        OUTS({ .type = "SAMPLER" }));

NOT_YET(BasicGuider, .category = "sampling/custom_sampling/guiders",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), SOCKET("conditioning", "CONDITIONING")),
        OUTS({ .type = "GUIDER" }));

NOT_YET(CFGGuider, .category = "sampling/custom_sampling/guiders", .module = MOD("custom_sampler"),
        .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), SOCKET("positive", "CONDITIONING"),
            SOCKET("negative", "CONDITIONING"),
            FLOAT_IN("cfg", 8.0, 0.0, 100.0, 0.1, .round = "0.01")),
        OUTS({ .type = "GUIDER" }));

NOT_YET(DualCFGGuider, .category = "sampling/custom_sampling/guiders",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), SOCKET("cond1", "CONDITIONING"),
            SOCKET("cond2", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            FLOAT_IN("cfg_conds", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
            FLOAT_IN("cfg_cond2_negative", 8.0, 0.0, 100.0, 0.1, .round = "0.01"),
            COMBO_IN("style", CHOICES("regular", "nested"))),
        OUTS({ .type = "GUIDER" }));

NOT_YET(RandomNoise, .category = "sampling/custom_sampling/noise", .module = MOD("custom_sampler"),
        .flags = NODE_V3, INS(INT_IN("noise_seed", 0, 0, U64_MAX, 0, .more = CONTROL)),
        OUTS({ .type = "NOISE" }));

NOT_YET(DisableNoise, .category = "sampling/custom_sampling/noise", .module = MOD("custom_sampler"),
        .flags = NODE_V3, OUTS({ .type = "NOISE" }));

NOT_YET(AddNoise, .category = "_for_testing/custom_sampling/noise", .module = MOD("custom_sampler"),
        .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(SOCKET("model", "MODEL"), SOCKET("noise", "NOISE"), SOCKET("sigmas", "SIGMAS"),
            SOCKET("latent_image", "LATENT")),
        OUTS({ .type = "LATENT" }));

NOT_YET(BasicScheduler, .category = "sampling/custom_sampling/schedulers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), COMBO_IN("scheduler", list_schedulers),
            INT_IN("steps", 20, 1, 10000, 0), FLOAT_IN("denoise", 1.0, 0.0, 1.0, 0.01)),
        OUTS({ .type = "SIGMAS" }));

NOT_YET(SDTurboScheduler, .category = "sampling/custom_sampling/schedulers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), INT_IN("steps", 1, 1, 10, 0),
            FLOAT_IN("denoise", 1.0, 0, 1.0, 0.01)),
        OUTS({ .type = "SIGMAS" }));

NOT_YET(BetaSamplingScheduler, .category = "sampling/custom_sampling/schedulers",
        .module = MOD("custom_sampler"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), INT_IN("steps", 20, 1, 10000, 0),
            FLOAT_IN("alpha", 0.6, 0.0, 50.0, 0.01, .round = "false"),
            FLOAT_IN("beta", 0.6, 0.0, 50.0, 0.01, .round = "false")),
        OUTS({ .type = "SIGMAS" }));

NOT_YET(ModelSamplingFlux, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"), FLOAT_IN("max_shift", 1.15, 0.0, 100.0, 0.01),
            FLOAT_IN("base_shift", 0.5, 0.0, 100.0, 0.01), INT_IN("width", 1024, 16, MAX_SIDE, 8),
            INT_IN("height", 1024, 16, MAX_SIDE, 8)),
        OUTS({ .type = "MODEL" }));

NOT_YET(ModelSamplingSD3, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 3.0, 0.0, 100.0, 0.01)),
        OUTS({ .type = "MODEL" }));

NOT_YET(ModelSamplingAuraFlow, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 1.73, 0.0, 100.0, 0.01)),
        OUTS({ .type = "MODEL" }));

NOT_YET(ModelSamplingDiscrete, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"),
            COMBO_IN("sampling", CHOICES("eps", "v_prediction", "lcm", "x0", "img_to_img")),
            BOOL_IN("zsnr", false)),
        OUTS({ .type = "MODEL" }));

NOT_YET(ModelSamplingContinuousEDM, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"),
            COMBO_IN("sampling",
                     CHOICES("v_prediction", "edm", "edm_playground_v2.5", "eps", "cosmos_rflow")),
            FLOAT_IN("sigma_max", 120.0, 0.0, 1000.0, 0.001, .round = "false"),
            FLOAT_IN("sigma_min", 0.002, 0.0, 1000.0, 0.001, .round = "false")),
        OUTS({ .type = "MODEL" }));

NOT_YET(ModelSamplingLTXV, .category = "advanced/model", .module = MOD("lt"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), FLOAT_IN("max_shift", 2.05, 0.0, 100.0, 0.01),
            FLOAT_IN("base_shift", 0.95, 0.0, 100.0, 0.01),
            SOCKET("latent", "LATENT", .optional = true)),
        OUTS({ .type = "MODEL" }));

NOT_YET(RescaleCFG, .category = "advanced/model", .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"), FLOAT_IN("multiplier", 0.7, 0.0, 1.0, 0.01)),
        OUTS({ .type = "MODEL" }));

NOT_YET(FreeU_V2, .category = "model_patches/unet", .module = MOD("freelunch"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), FLOAT_IN("b1", 1.3, 0.0, 10.0, 0.01),
            FLOAT_IN("b2", 1.4, 0.0, 10.0, 0.01), FLOAT_IN("s1", 0.9, 0.0, 10.0, 0.01),
            FLOAT_IN("s2", 0.2, 0.0, 10.0, 0.01)),
        OUTS({ .type = "MODEL" }));

NOT_YET(DifferentialDiffusion, .display = "Differential Diffusion", .category = "_for_testing",
        .module = MOD("differential_diffusion"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(SOCKET("model", "MODEL"), FLOAT_IN("strength", 1.0, 0.0, 1.0, 0.01, .optional = true)),
        OUTS({ .type = "MODEL" }));
