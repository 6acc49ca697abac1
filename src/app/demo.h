/* demo: where the model lies that came with this binary (--demo). */
#ifndef APP_DEMO_H
#define APP_DEMO_H

#include "base/err.h"
#include "base/str.h"

/* The folder with DEMO_MODEL, into *out: $BERTH_DATA_DIR/demo, share/berth/demo of the prefix this
 * binary is installed in, assets/demo of the tree it was built in. BERTH_ENOTFOUND lists them. */
#define DEMO_MODEL "berth-demo.safetensors"
berth_status demo_find(struct str *out, berth_err *err);

#endif
