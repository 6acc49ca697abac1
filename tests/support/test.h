/* test: cmocka with the headers it wants, in the order it wants them. */
#ifndef SUPPORT_TEST_H
#define SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

/* Fails with the error's own text. */
#define assert_ok(call, err)                                                                       \
    do {                                                                                           \
        if ((call) != BERTH_OK)                                                                    \
            fail_msg("%s: %s (%s:%d)", #call, (err).msg, (err).file ? (err).file : "?",            \
                     (err).line);                                                                  \
    } while (0)

/* The call must fail with `want` and its message must contain `text`. */
#define assert_fails(call, err, want, text)                                                        \
    do {                                                                                           \
        berth_status got_ = (call);                                                                \
        if (got_ != (want) || !strstr((err).msg, (text)))                                          \
            fail_msg("%s: got %s '%s', wanted %s with '%s'", #call, berth_status_name(got_),       \
                     got_ ? (err).msg : "", berth_status_name(want), (text));                      \
    } while (0)

#endif
