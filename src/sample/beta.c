/* beta.c: quantiles of the beta distribution, in double, to 1e-12 (what scipy.stats.beta.ppf
 * gives).
 *
 * I_x(a, b) comes from its continued fraction, evaluated from the side where that converges fast;
 * the quantile from Newton's steps inside a bracket that halves whenever they lead nowhere. */
#include "sample/sigmas.h"

#include <float.h>
#include <math.h>

static double log_gamma(double x)
{
    int sign; /* lgamma() would put it into a global */
    return lgamma_r(x, &sign);
}

/* ln of the beta function. */
static double log_beta(double a, double b)
{
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b);
}

static double away_from_zero(double x)
{
    return fabs(x) < 1e-300 ? 1e-300 : x;
}

/* The continued fraction by Lentz's method. */
static double fraction(double x, double a, double b)
{
    double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), f = d;
    for (int m = 1; m <= 10000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        f *= d * c;
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        f *= d * c;
        if (fabs(d * c - 1) < 2 * DBL_EPSILON)
            break;
    }
    return f;
}

/* I_x(a, b); y is 1 - x, exact where x is near 1. */
static double cumulative(double x, double y, double a, double b, double lnb)
{
    if (x <= 0)
        return 0;
    if (y <= 0)
        return 1;
    double front = exp(a * log(x) + b * log(y) - lnb);
    return x < (a + 1) / (a + b + 2) ? front * fraction(x, a, b) / a
                                     : 1 - front * fraction(y, b, a) / b;
}

/* p <= 1/2 of the mass: x from below, where a small x keeps its digits. */
static double lower_quantile(double p, double a, double b)
{
    double lnb = log_beta(a, b), lo = 0, hi = 1;
    double x = exp((log(p * a) + lnb) / a); /* exact for small x */
    if (!(x > 0 && x < a / (a + b)))
        x = a / (a + b);
    for (int i = 0; i < 200; i++) {
        double at = cumulative(x, 1 - x, a, b, lnb) - p;
        if (at > 0)
            hi = x;
        else
            lo = x;
        double slope = exp((a - 1) * log(x) + (b - 1) * log1p(-x) - lnb);
        double next = x - at / slope;
        if (!(next > lo && next < hi))
            next = lo + (hi - lo) / 2;
        if (fabs(next - x) <= 1e-15 * x || next == lo || next == hi)
            return next;
        x = next;
    }
    return x;
}

double beta_quantile(double p, double a, double b)
{
    if (p <= 0)
        return 0;
    if (p >= 1)
        return 1;
    if (p == 0.5 && a == b)
        return 0.5; /* symmetric; a bit less would round to another level */
    return p <= 0.5 ? lower_quantile(p, a, b) : 1 - lower_quantile(1 - p, b, a);
}
