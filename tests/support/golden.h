/* golden: reference numbers, in tests/golden/data or in the folder that BERTH_GOLDEN_DIR names. A
 * test whose numbers are missing there fails. */
#ifndef SUPPORT_GOLDEN_H
#define SUPPORT_GOLDEN_H

const char *golden_dir(void);
const char *golden_path(const char *name); /* valid until the 16th call after this one */

#endif
