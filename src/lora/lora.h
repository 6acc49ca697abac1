/* lora: adapter files, seen by residency as struct res_adapter (merge/adapter.h).
 *
 * Words    base name  what stands before the suffix in a file: "lora_unet_conv_in" of
 *                     "lora_unet_conv_in.lora_up.weight"
 *          names      which base names mean which tensor of a model; built from the model's own
 *                     tensors (model/lora_names.h), handed in as data
 *          factors    up, down and, for convolutions taken apart twice, mid; LoHa has two pairs,
 *                     LoKr two matrices of which each may be a pair
 * Flow     lora_open(): index the file, sort its tensors by base name and suffix, look every base
 *          name of `names` up -> targets: tensor of the model -> tensors of this file. Factors stay
 *          in the file until terms() is asked for one tensor; then they are checked against its
 *          shape and converted to F32.
 * Kinds    pairs of up and down under all names in use (LoRA, LoCon), with alpha and mid; LoHa, with
 *          alpha and t1, t2; LoKr, whole or of factors, with alpha and t2; OFT; all of these as
 *          DoRA; diff, diff_b, w_norm, b_norm (differences of weights and biases), set_weight. Of one
 *          target the later kind wins, in this order, and the later base name in the order of
 *          `names`. GLoRA, BOFT, DoRA as PEFT saves it and reshape_weight are refused by name,
 *          and control LoRAs of Flux where they widen the model's input.
 * Unknown  Tensors that belong to no base name are ignored, with one warning that counts them; a
 *          file none of whose tensors has a suffix of these is no adapter and refused. A
 *          diff whose shape is not the weight's is ignored with a warning, as ComfyUI does; factors
 *          that do not fit are an error.
 * Trust    Files come from strangers: the index checked where their bytes are, the rest meets its
 *          limits in terms().
 * Threads  lora_open() any; the adapter as merge/adapter.h says.
 * Files    lora.c doors, targets; lora_bases.c suffixes; lora_forms.c files that call them
 *          otherwise; lora_factors.c tensors -> products; lora_lokr.c Kronecker's; lora_oft.c
 *          rotations; lora_dora.c sizes; lora_terms.c products -> terms; lora_impl.h. */
#ifndef LORA_LORA_H
#define LORA_LORA_H

#include "base/log.h"
#include "format/weights.h"
#include "merge/adapter.h"

/* Opens the file and finds out what it changes; reads no factors.
 *   names  borrowed for the call       log  borrowed for the adapter's life; NULL: silent
 *   out    owned, one reference (res_adapter_unref()); NULL on error
 * BERTH_EUNSUPPORTED: a kind we do not merge, naming it and the tensor; else as weights_open(). */
berth_status lora_open(const char *path, const struct lora_names *names, const struct log *log,
                       struct res_adapter **out, berth_err *err);

/* What was found, for people. */
struct lora_info {
    size_t targets; /* places in the model it changes, rows of a tensor counted each */
    size_t tensors; /* of the file */
    size_t unknown; /* of these, belong to nothing */
};
struct lora_info lora_info(const struct res_adapter *a); /* a: from lora_open() */

#endif
