/* attr: the few compiler attributes we use, under one name each. */
#pragma once

#define WARN_UNUSED __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
