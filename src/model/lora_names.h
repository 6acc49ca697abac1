/* lora_names: what adapter files call the tensors of a model.
 *
 *     lora_names_file(&t, w, part, err)     all networks of a file, or of a part
 *     lora_open(..., &(struct lora_names) lora_table_names(&t), ...)
 *     lora_table_release(&t)
 *
 * A name stands for a tensor's key (arch.h), not for its name in the file: an adapter opened on a
 * checkpoint fits the same network in a file of its own.
 *
 * The list is made from the tensors that the model's file has, never by taking an adapter's names
 * apart: once dots are underscores a name can be read in many ways, and only the model knows which
 * is meant. One list may cover several networks of a checkpoint; one adapter then patches them all.
 *
 * Names   of W = "<root><path>.weight"
 *         diffusion   diffusion_model.<path>, lora_unet_<path_>; other parameters by full name; and
 *           SD, SDXL  by the diffusers name q: lora_unet_<q_>, lycoris_<q_>, q and unet.<q> with
 *                     .processor (lora.md 2)
 *           Flux      transformer.<q>, lycoris_<q_>, lora_transformer_<q_>, <q>; q, k, v and the
 *                     mlp are rows of one tensor; linear1_qkv. In files of diffusers' names it is
 *                     the other way round: each takes rows of the change
 *         CLIP        text_encoders.<key>; lora_te*_, text_encoder*.  per layer; text_projection
 *         T5          text_encoders.<key>, text_encoders.transformer.<path>; lora_te*_<path_>, by
 *                     HF's path even where the file has llama.cpp's
 * Threads one owner while it is built; read-only afterwards.
 * Files   lora_names.c the list, names that many have; lora.c in the folder of each network;
 *         lora_names_impl.h. */
#pragma once

#include "base/arena.h"
#include "base/vec.h"
#include "format/weights.h"
#include "merge/adapter.h"

struct lora_table { /* zeroed is empty */
    struct arena mem;
    struct vec at;                   /* struct lora_name */
    const struct block_alias *alias; /* of the network that is being added */
    bool bad;                        /* memory ran out: sticky, the adding calls report it */
};

/* One network. BERTH_EUNSUPPORTED: of a family whose adapters we do not know. */
struct arch_net;
berth_status lora_names_net(struct lora_table *t, const struct weights *w,
                            const struct arch_net *net, berth_err *err);

/* Numbers of a text encoder in adapter files. */
enum {
    LORA_TE = 1,  /* lora_te_, text_encoder. */
    LORA_TE1 = 2, /* lora_te1_ */
    LORA_TE2 = 4, /* lora_te2_, text_encoder_2. */
    LORA_TE3 = 8, /* lora_te3_ */
};

/* All networks of a file, or those of this part (NULL or "": all), by what they are (arch_nets()).
 * BERTH_EUNSUPPORTED: none is of a family whose adapters we know. */
berth_status lora_names_file(struct lora_table *t, const struct weights *w, const char *part,
                             berth_err *err);

struct lora_names lora_table_names(const struct lora_table *t); /* borrowed until t changes */
void lora_table_release(struct lora_table *t);
