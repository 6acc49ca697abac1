/* cards: options about which NVIDIA cards are seen, by ComfyUI's names. */
#ifndef APP_CARDS_H
#define APP_CARDS_H

#include "app/app.h"

struct card_options {
    const char *only, *first;
};

#define CARD_OPTIONS(o)                                                                            \
    opt_text("cuda-device", "N", "see only this card (or these: 2,0); first is cuda:0",            \
             &(o)->only),                                                                          \
        opt_text("default-device", "N", "this card is cuda:0, the others follow", &(o)->first)

#define CARDS_TEXT_MAX 64
/* What they come to, for app_ctx_args.cards: NULL, or buf. Of two, --cuda-device counts, as in
 * ComfyUI. Returns APP_OK, or APP_USAGE with what was wrong said. */
int app_cards(struct app *a, const struct card_options *o, char buf[CARDS_TEXT_MAX],
              const char **out);

#endif
