/* lists.c: choices and outputs that more than one family declares. */
#include "node/node_impl.h"

const char *const list_samplers[] = {
    "euler",
    "euler_cfg_pp",
    "euler_ancestral",
    "euler_ancestral_cfg_pp",
    "heun",
    "heunpp2",
    "exp_heun_2_x0",
    "exp_heun_2_x0_sde",
    "dpm_2",
    "dpm_2_ancestral",
    "lms",
    "dpm_fast",
    "dpm_adaptive",
    "dpmpp_2s_ancestral",
    "dpmpp_2s_ancestral_cfg_pp",
    "dpmpp_sde",
    "dpmpp_sde_gpu",
    "dpmpp_2m",
    "dpmpp_2m_cfg_pp",
    "dpmpp_2m_sde",
    "dpmpp_2m_sde_gpu",
    "dpmpp_2m_sde_heun",
    "dpmpp_2m_sde_heun_gpu",
    "dpmpp_3m_sde",
    "dpmpp_3m_sde_gpu",
    "ddpm",
    "lcm",
    "ipndm",
    "ipndm_v",
    "deis",
    "res_multistep",
    "res_multistep_cfg_pp",
    "res_multistep_ancestral",
    "res_multistep_ancestral_cfg_pp",
    "gradient_estimation",
    "gradient_estimation_cfg_pp",
    "er_sde",
    "seeds_2",
    "seeds_3",
    "sa_solver",
    "sa_solver_pece",
    "ddim",
    "uni_pc",
    "uni_pc_bh2",
    NULL,
};

const char *const list_schedulers[] = {
    "simple", "sgm_uniform", "karras",           "exponential", "ddim_uniform",
    "beta",   "normal",      "linear_quadratic", "kl_optimal",  NULL,
};

const char *const list_resize_image[] = {
    "nearest-exact", "bilinear", "area", "bicubic", "lanczos", NULL,
};
const char *const list_resize_latent[] = {
    "nearest-exact", "bilinear", "area", "bicubic", "bislerp", NULL,
};
const char *const list_crop[] = { "disabled", "center", NULL };

const struct node_output out_image[1] = { { .type = "IMAGE" } };
const struct node_output out_mask[1] = { { .type = "MASK" } };
const struct node_output out_latent[1] = { { .type = "LATENT" } };
const struct node_output out_image_mask[2] = { { .type = "IMAGE" }, { .type = "MASK" } };
