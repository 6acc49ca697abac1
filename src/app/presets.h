/* presets: built-in models on the command line, for synth and plan. */
#pragma once

#include "app/app.h"
#include "model/preset.h"

/* "unknown WHAT 'name'", with the nearest of at(0), at(1), ... up to NULL, or all of them. Returns
 * APP_USAGE. */
int app_unknown(struct app *a, const char *what, const char *name, const char *(*at)(size_t i));
/* *out NULL, and APP_USAGE: there is no such preset. */
int app_preset(struct app *a, const char *name, const struct preset **out);
/* Safetensors if it stores the type, else the first format that does. */
const struct weights_writer *app_format_of(enum dtype t);
