/* golden: reference numbers, in BERTH_GOLDEN_DIR or ../shared/golden beside the source tree. */
#ifndef SUPPORT_GOLDEN_H
#define SUPPORT_GOLDEN_H

const char *golden_dir(void);              /* NULL when the folder is not there */
const char *golden_path(const char *name); /* good until the 16th next call */

/* Skips the running cmocka test, saying why, when the folder is not there. */
#define golden_or_skip()                                                                           \
    do {                                                                                           \
        if (!golden_dir()) {                                                                       \
            print_message("skipped: no golden numbers; set BERTH_GOLDEN_DIR to their folder\n");   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
