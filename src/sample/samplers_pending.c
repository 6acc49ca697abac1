/* samplers_pending.c: the ones on their way. */
#include "sample/march.h"

static berth_status pending(struct march *m, berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "%s is not there yet", m->how->name);
}
const struct sampler sampler_exp_heun_2_x0 = { .name = "exp_heun_2_x0", .run = pending };
const struct sampler sampler_exp_heun_2_x0_sde = { .name = "exp_heun_2_x0_sde", .run = pending };
const struct sampler sampler_dpm_2 = { .name = "dpm_2", .run = pending };
const struct sampler sampler_dpm_2_ancestral = { .name = "dpm_2_ancestral", .run = pending };
const struct sampler sampler_lms = { .name = "lms", .run = pending };
const struct sampler sampler_dpm_fast = { .name = "dpm_fast", .run = pending };
const struct sampler sampler_dpm_adaptive = { .name = "dpm_adaptive", .run = pending };
const struct sampler sampler_dpmpp_2s_ancestral = { .name = "dpmpp_2s_ancestral", .run = pending };
const struct sampler sampler_dpmpp_2s_ancestral_cfg_pp = { .name = "dpmpp_2s_ancestral_cfg_pp",
                                                           .run = pending };
const struct sampler sampler_dpmpp_sde = { .name = "dpmpp_sde", .run = pending };
const struct sampler sampler_dpmpp_sde_gpu = { .name = "dpmpp_sde_gpu", .run = pending };
const struct sampler sampler_dpmpp_2m = { .name = "dpmpp_2m", .run = pending };
const struct sampler sampler_dpmpp_2m_cfg_pp = { .name = "dpmpp_2m_cfg_pp", .run = pending };
const struct sampler sampler_dpmpp_2m_sde = { .name = "dpmpp_2m_sde", .run = pending };
const struct sampler sampler_dpmpp_2m_sde_gpu = { .name = "dpmpp_2m_sde_gpu", .run = pending };
const struct sampler sampler_dpmpp_2m_sde_heun = { .name = "dpmpp_2m_sde_heun", .run = pending };
const struct sampler sampler_dpmpp_2m_sde_heun_gpu = { .name = "dpmpp_2m_sde_heun_gpu",
                                                       .run = pending };
const struct sampler sampler_dpmpp_3m_sde = { .name = "dpmpp_3m_sde", .run = pending };
const struct sampler sampler_dpmpp_3m_sde_gpu = { .name = "dpmpp_3m_sde_gpu", .run = pending };
const struct sampler sampler_ipndm = { .name = "ipndm", .run = pending };
const struct sampler sampler_ipndm_v = { .name = "ipndm_v", .run = pending };
const struct sampler sampler_deis = { .name = "deis", .run = pending };
const struct sampler sampler_res_multistep = { .name = "res_multistep", .run = pending };
const struct sampler sampler_res_multistep_cfg_pp = { .name = "res_multistep_cfg_pp",
                                                      .run = pending };
const struct sampler sampler_res_multistep_ancestral = { .name = "res_multistep_ancestral",
                                                         .run = pending };
const struct sampler sampler_res_multistep_ancestral_cfg_pp = {
    .name = "res_multistep_ancestral_cfg_pp", .run = pending
};
const struct sampler sampler_gradient_estimation = { .name = "gradient_estimation",
                                                     .run = pending };
const struct sampler sampler_gradient_estimation_cfg_pp = { .name = "gradient_estimation_cfg_pp",
                                                            .run = pending };
const struct sampler sampler_er_sde = { .name = "er_sde", .run = pending };
const struct sampler sampler_seeds_2 = { .name = "seeds_2", .run = pending };
const struct sampler sampler_seeds_3 = { .name = "seeds_3", .run = pending };
const struct sampler sampler_sa_solver = { .name = "sa_solver", .run = pending };
const struct sampler sampler_sa_solver_pece = { .name = "sa_solver_pece", .run = pending };
const struct sampler sampler_uni_pc = { .name = "uni_pc", .run = pending };
const struct sampler sampler_uni_pc_bh2 = { .name = "uni_pc_bh2", .run = pending };
