/* device_options: which devices there are and how much of them is used, for the commands that open
 * them. */
#pragma once

#include "app/app.h"

struct device_options {
    const char *devices, *ram, *pin;
    const char *only_cards, *first_card; /* by ComfyUI's names */
};

#define CARD_OPTIONS(o)                                                                            \
    opt_text("cuda-device", "N", "see only this card (or these: 2,0; all: all); first is cuda:0",  \
             &(o)->only_cards),                                                                    \
        opt_text("default-device", "N", "this card is cuda:0, the others follow",                  \
                 &(o)->first_card)
#define BUDGET_OPTIONS(o)                                                                          \
    opt_text("ram-budget", "SIZE", "most host memory to hold, e.g. 16g", &(o)->ram),               \
        opt_text("pin-budget", "SIZE",                                                             \
                 "most pinned host memory for weights; 0: none (default: a quarter)", &(o)->pin)
#define DEVICE_OPTIONS(o)                                                                          \
    opt_text("devices", "SPEC", "what to place models on, e.g. cpu=16g,cuda:0=20g (default: all)", \
             &(o)->devices),                                                                       \
        CARD_OPTIONS(o), BUDGET_OPTIONS(o)

/* Fills in what the options say: devices, cards and budgets. Of --cuda-device and --default-device
 * the first counts, as in ComfyUI. A --ram-budget without a unit is refused if it is below 1 MiB:
 * the unit was forgotten. Returns APP_OK, or APP_USAGE with what was wrong said. */
int app_devices(struct app *a, const struct device_options *o, struct app_ctx_args *out);
