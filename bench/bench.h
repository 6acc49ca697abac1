/* bench: what the benchmark programs share. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline double bench_now_ms(void)
{
    return (double)clock_mono_ns(clock_system()) / 1e6;
}

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static inline double bench_median(double *v, size_t n) /* sorts v */
{
    qsort(v, n, sizeof *v, bench_by_value);
    return v[n / 2];
}

/* Every program takes --json and --help. -1: go on; else the exit code. */
static inline int bench_args(int argc, char **argv, const char *usage, bool *json)
{
    *json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            *json = true;
            continue;
        }
        bool help = strcmp(argv[i], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    return -1;
}

#endif
