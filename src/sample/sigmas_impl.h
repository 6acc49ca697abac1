/* sigmas_impl: for msampling.c and schedules.c alone. */
#ifndef SAMPLE_SIGMAS_IMPL_H
#define SAMPLE_SIGMAS_IMPL_H

#include <stddef.h>

/* The x for which the regularised incomplete beta function I_x(a, b) is p; a, b > 0, 0 <= p <=
 * 1. */
double beta_quantile(double p, double a, double b);

#endif
