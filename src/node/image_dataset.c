/* image_dataset.c: lists of pictures for training: cut, resized, shuffled, without doubles. */
#include "base/mt19937.h"
#include "node/node_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define IMAGES_OUT OUTS({ .type = "IMAGE", .name = "images" })
#define LIST_OUT OUTS({ .type = "IMAGE", .name = "images", .is_list = true })
#define LIST_FLAGS NODE_V3 | NODE_EXPERIMENTAL | NODE_INPUT_IS_LIST

/* numpy's generator with a seed as the nodes have it. */
static void seed_numpy(struct mt19937 *g, uint64_t seed)
{
    mt19937_init(g, (uint32_t)(seed % UINT32_MAX));
}

/* A number from 0 to most: numpy draws bits until they make one. */
static uint32_t draw(struct mt19937 *g, uint32_t most)
{
    uint32_t mask = most, v;
    for (unsigned by = 1; by < 32; by *= 2)
        mask |= mask >> by;
    do
        v = most ? mt19937_u32(g) & mask : 0;
    while (v > most);
    return v;
}

/* ---- parts, through 8 bits ---- */

static float through_8bit(float v)
{
    v *= 255.0f;
    return (v > 0.0f ? (v < 255.0f ? (float)(int)v : 255.0f) : 0.0f) / 255.0f;
}

static berth_status in_part_size(struct node_call *c, struct htensor **t, struct part *p,
                                 berth_err *err)
{
    uint64_t w, h;
    if (in_image(c, "images", t, err) || in_u64(c, "width", &w, err) ||
        in_u64(c, "height", &h, err))
        return err->code;
    if (!w || !h)
        return err_set(err, BERTH_EINVAL, "a part of %" PRIu64 "x%" PRIu64, w, h);
    p->w = w < dim(*t, 2) ? (size_t)w : dim(*t, 2);
    p->h = h < dim(*t, 1) ? (size_t)h : dim(*t, 1);
    return BERTH_OK;
}

static berth_status give_part(struct node_call *c, const struct htensor *t, struct part p,
                              berth_err *err)
{
    struct htensor *o;
    if (image_tensor(dim(t, 0), p.h, p.w, dim(t, 3), &o, err))
        return err->code;
    copy_part(t->data, dim(t, 1), dim(t, 2), dim(t, 3), dim(t, 0), p, o->data);
    for (size_t i = 0, n = htensor_count(o); i < n; i++)
        o->data[i] = through_8bit(o->data[i]);
    return out_tensor(c, 0, o, err);
}

static berth_status center_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    struct part p;
    if (in_part_size(c, &t, &p, err))
        return err->code;
    p.x = (dim(t, 2) - p.w) / 2;
    p.y = (dim(t, 1) - p.h) / 2;
    return give_part(c, t, p, err);
}
NODE_CLASS(CenterCropImages, .display = "Crop Image (Center)", .category = "image/transform",
           .module = MOD("dataset"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "Cuts pictures to a size around their middle.",
           INS(SOCKET("images", "IMAGE"), INT_IN("width", 512, 1, 8192, 0),
               INT_IN("height", 512, 1, 8192, 0)),
           IMAGES_OUT, .run = center_run);

/* Every frame has the seed for itself, hence all the same part. */
static berth_status random_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    struct part p;
    struct mt19937 g;
    uint64_t seed;
    if (in_part_size(c, &t, &p, err) || in_u64(c, "seed", &seed, err))
        return err->code;
    seed_numpy(&g, seed);
    p.x = draw(&g, (uint32_t)(dim(t, 2) - p.w));
    p.y = draw(&g, (uint32_t)(dim(t, 1) - p.h));
    return give_part(c, t, p, err);
}
NODE_CLASS(RandomCropImages, .display = "Crop Image (Random)", .category = "image/transform",
           .module = MOD("dataset"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
           .description = "Cuts pictures to a size, somewhere.",
           INS(SOCKET("images", "IMAGE"), INT_IN("width", 512, 1, 8192, 0),
               INT_IN("height", 512, 1, 8192, 0), INT_IN("seed", 0, 0, U64_MAX, 0)),
           IMAGES_OUT, .run = random_run);

/* ---- by an edge ---- */

struct edge { /* own */
    const char *name;
    bool longer;
};

static berth_status edge_run(struct node_call *c, berth_err *err)
{
    const struct edge *e = c->cls->own;
    struct htensor *t, *o;
    uint64_t size;
    if (in_image(c, "images", &t, err) || in_u64(c, e->name, &size, err))
        return err->code;
    if (!size || size > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "'%s' is %" PRIu64, e->name, size);
    size_t w = dim(t, 2), h = dim(t, 1), nw = size, nh = size;
    if (e->longer ? w > h : w < h)
        nh = (size_t)((double)h * ((double)size / (double)w));
    else
        nw = (size_t)((double)w * ((double)size / (double)h));
    return scale_image(c, t, nw, nh, "lanczos", false, &o, err) ? err->code
                                                                : out_tensor(c, 0, o, err);
}
#define EDGE_NODE(c, shown, input, def, is_longer)                                                 \
    NODE_CLASS(c, .display = shown, .category = "image/transform", .module = MOD("dataset"),       \
               .flags = NODE_V3 | NODE_EXPERIMENTAL | NODE_DEPRECATED,                             \
               INS(SOCKET("images", "IMAGE"), INT_IN(input, def, 1, 8192, 0)), IMAGES_OUT,         \
               .run = edge_run, .own = &(const struct edge) { input, is_longer })
EDGE_NODE(ResizeImagesByLongerEdge, "Resize Images by Longer Edge (DEPRECATED)", "longer_edge",
          1024, true);
EDGE_NODE(ResizeImagesByShorterEdge, "Resize Images by Shorter Edge (DEPRECATED)", "shorter_edge",
          512, false);

/* ---- lists ---- */

static berth_status give_one(struct node_call *c, const struct image_list *l, size_t i,
                             berth_err *err)
{
    size_t at;
    const struct htensor *t = image_list_at(l, i, &at);
    struct htensor *o;
    return tensor_slice(t, at, 1, &o, err) ? err->code : out_tensor(c, 0, o, err);
}

static berth_status merge_run(struct node_call *c, berth_err *err)
{
    struct image_list l;
    berth_status s = in_images(c, "images", &l, err);
    for (size_t i = 0; !s && i < l.n; i++)
        s = give_one(c, &l, i, err);
    return s;
}
NODE_CLASS(MergeImageLists, .display = "Merge Image Lists (DEPRECATED)", .category = "image/batch",
           .module = MOD("dataset"), .flags = LIST_FLAGS | NODE_DEPRECATED,
           INS(SOCKET("images", "IMAGE")), LIST_OUT, .run = merge_run);

/* 0 .. n - 1 in the order of numpy.random.permutation(); free() it. */
static berth_status permutation(uint64_t seed, size_t n, size_t **out, berth_err *err)
{
    struct mt19937 g;
    size_t *at = *out = calloc(n ? n : 1, sizeof *at);
    if (!at || n > UINT32_MAX)
        return err_set(err, at ? BERTH_ELIMIT : BERTH_ENOMEM, "an order of %zu pictures", n);
    for (size_t i = 0; i < n; i++)
        at[i] = i;
    seed_numpy(&g, seed);
    for (size_t i = n; i-- > 1;) {
        size_t k = draw(&g, (uint32_t)i), was = at[i];
        at[i] = at[k];
        at[k] = was;
    }
    return BERTH_OK;
}

static berth_status shuffle_run(struct node_call *c, berth_err *err)
{
    struct image_list l;
    uint64_t seed;
    size_t *order;
    if (in_images(c, "images", &l, err) || in_u64(c, "seed", &seed, err))
        return err->code;
    berth_status s = permutation(seed, l.n, &order, err);
    for (size_t i = 0; !s && i < l.n; i++)
        s = give_one(c, &l, order[i], err);
    free(order);
    return s;
}
NODE_CLASS(ShuffleDataset, .display = "Shuffle Images List", .category = "image/batch",
           .module = MOD("dataset"), .flags = LIST_FLAGS,
           INS(SOCKET("images", "IMAGE"), INT_IN("seed", 0, 0, U64_MAX, 0)), LIST_OUT,
           .run = shuffle_run);

/* Items of both lists, as they are, in one order. */
static berth_status shuffle_pairs_run(struct node_call *c, berth_err *err)
{
    const struct values *images = &c->in[node_input_index(c->cls, "images")];
    const struct values *texts = &c->in[node_input_index(c->cls, "texts")];
    uint64_t seed;
    size_t *order;
    if (in_u64(c, "seed", &seed, err))
        return err->code;
    if (texts->n < images->n)
        return err_set(err, BERTH_EINVAL, "%zu pictures and %zu texts", images->n, texts->n);
    berth_status s = permutation(seed, images->n, &order, err);
    for (size_t i = 0; !s && i < images->n; i++) {
        s = out_value(c, 0, value_ref(images->at[order[i]]), err);
        if (!s)
            s = out_value(c, 1, value_ref(texts->at[order[i]]), err);
    }
    free(order);
    return s;
}
NODE_CLASS(ShuffleImageTextDataset, .display = "Shuffle Pairs of Image-Text",
           .category = "image/batch", .module = MOD("dataset"), .flags = LIST_FLAGS,
           INS(SOCKET("images", "IMAGE"),
               TEXT_IN("texts", NULL, .no_default = true, .more = FORCE_INPUT),
               INT_IN("seed", 0, 0, U64_MAX, 0)),
           OUTS({ .type = "IMAGE", .name = "images", .is_list = true },
                { .type = "STRING", .name = "texts", .is_list = true }),
           .run = shuffle_pairs_run);

/* ---- ImageDeduplication: 64 bits for each picture, of what is brighter than its mean ---- */

static berth_status hash_of(struct node_call *c, const struct htensor *t, size_t at, uint64_t *out,
                            berth_err *err)
{
    struct htensor *one, *small = NULL;
    struct image im = { 0 }, grey = { 0 };
    unsigned sum = 0;
    if (tensor_slice(t, at, 1, &one, err))
        return err->code;
    berth_status s = scale_image(c, one, 8, 8, "lanczos", false, &small, err);
    if (!s)
        s = image_8bit(small, 0, &im, err);
    if (!s)
        s = image_convert(&im, 1, &grey, err);
    for (int i = 0; !s && i < 64; i++)
        sum += grey.px[i];
    *out = 0;
    for (int i = 0; !s && i < 64; i++)
        *out |= (uint64_t)(grey.px[i] * 64u > sum) << i;
    htensor_unref(one);
    htensor_unref(small);
    image_release(&im);
    image_release(&grey);
    return s;
}

static bool is_new(const uint64_t *kept, size_t n, uint64_t hash, double threshold)
{
    for (size_t i = 0; i < n; i++)
        if (1.0 - __builtin_popcountll(kept[i] ^ hash) / 64.0 >= threshold)
            return false;
    return true;
}

static berth_status deduplicate_run(struct node_call *c, berth_err *err)
{
    struct image_list l;
    double threshold;
    size_t n = 0;
    if (in_images(c, "images", &l, err) || in_f64(c, "similarity_threshold", &threshold, err))
        return err->code;
    uint64_t *kept = calloc(l.n ? l.n : 1, sizeof *kept), hash = 0;
    berth_status s = kept ? BERTH_OK : err_set(err, BERTH_ENOMEM, "hashes of %zu pictures", l.n);
    for (size_t i = 0; !s && i < l.n; i++) {
        size_t at;
        const struct htensor *t = image_list_at(&l, i, &at);
        s = hash_of(c, t, at, &hash, err);
        if (s || !is_new(kept, n, hash, threshold))
            continue;
        kept[n++] = hash;
        s = give_one(c, &l, i, err);
    }
    free(kept);
    return s;
}
NODE_CLASS(ImageDeduplication, .display = "Deduplicate Images", .category = "image/batch",
           .module = MOD("dataset"), .flags = LIST_FLAGS,
           .description = "Leaves out pictures that look like one before.",
           INS(SOCKET("images", "IMAGE"),
               FLOAT_IN("similarity_threshold", 0.95, 0.0, 1.0, 0, .more = ADVANCED)),
           LIST_OUT, .run = deduplicate_run);
