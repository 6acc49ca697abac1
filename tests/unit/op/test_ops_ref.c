/* The reference against numbers of PyTorch: float64 where it computes so, float32 for timesteps and
 * resizes, whose roundings are part of the result. Inputs are short sequences that both sides can
 * make. */
#include "op/ops.h"
#include "op/ops_impl.h"
#include "support/test.h"

#include <math.h>

static const float linear_y[] = { 1.3125f, -2.375f, -3.125f, 2.1875f, 0.6875f, 1.25f };
static const float conv_y[] = { 3.125f,   0.1875f, 1.3125f,  -0.625f, -2.75f, 3.375f,
                                -0.75f,   -0.375f, -0.5625f, 0.0625f, 2.75f,  -0.3125f,
                                -0.5625f, -1.375f, -0.875f,  1.3125f };
static const float attention_y[] = { -0.37047526f, 0.14134743f,  0.38712607f,   0.19511655f,
                                     -1.0567111f,  -0.30671105f, 0.09101011f,   0.8316222f,
                                     -1.4586424f,  -0.75896721f, -0.027480681f, 0.24505072f,
                                     -1.1270375f,  -0.37703755f, 0.14919071f,   0.89599878f,
                                     -1.7449262f,  -0.99590299f, -0.24687983f,  0.49749886f,
                                     0.72805282f,  1.4780528f,   -1.0278069f,   -0.27785485f };
static const float causal_y[] = {
    -1.75f,       -1,          -0.25f,        0.5f,         1.25f,         2,
    -1.5f,        -0.75f,      -1.5413949f,   -0.79139489f, -0.041394886f, 0.20199269f,
    -0.26915792f, 0.48084208f, -0.43658945f,  0.31341055f,  -1.4241742f,   -0.92672886f,
    -0.17672886f, 0.28708923f, 0.0042647977f, 0.7542648f,   -0.60260981f,  0.11113941f
};
static const float group_norm_y[] = { 0.72340798f,  -1.6814823f,  -0.30725929f, 0.17075907f,
                                      0.77198164f,  0.42842588f,  -1.460112f,   2.1472235f,
                                      0.085888939f, 0.15848187f,  -1.0439633f,  -0.35685177f,
                                      -1.6119599f,  -0.40132887f, 0.80930211f,  0.76482553f,
                                      0.46216778f,  0.15951004f,  1.1940361f,   -0.59701806f,
                                      -2.3880722f,  -0.74875752f, -0.15173947f, -1.1965211f };
static const float group_norm_silu_y[] = {
    0.48711185f,  -0.26382337f, -0.13021153f, 0.092651536f, 0.52799638f,   0.2594109f,
    -0.27515839f, 1.9226433f,   0.044787564f, 0.085506949f, -0.27183342f,  -0.14692368f,
    -0.26809583f, -0.16093011f, 0.56000531f,  0.52191731f,  0.28355302f,   0.086102428f,
    0.91637752f,  -0.21195706f, -0.20080531f, -0.24042012f, -0.070124536f, -0.27770617f
};
static const float channel_norm_y[] = { 0.54433105f,
                                        -1.3608276f,
                                        -0.81649658f,
                                        -0.20412415f,
                                        0.27216553f,
                                        0,
                                        -1.6329932f,
                                        1.2247449f,
                                        -1.2247449f,
                                        0.68041382f,
                                        -0.27216553f,
                                        0.81649658f,
                                        -1.3608276f,
                                        -0.81649658f,
                                        0.69282032f,
                                        0.27216553f,
                                        0,
                                        -0.23094011f,
                                        1.2247449f,
                                        -1.2247449f,
                                        -1.7320508f,
                                        -0.27216553f,
                                        0.81649658f,
                                        -0.57735027f };
static const float channel_norm_silu_y[] = { 0.34446323f,
                                             -0.27775284f,
                                             -0.25026261f,
                                             -0.091681425f,
                                             0.15448781f,
                                             0,
                                             -0.26686495f,
                                             0.94660223f,
                                             -0.27814265f,
                                             0.45167982f,
                                             -0.11767772f,
                                             0.56623397f,
                                             -0.27775284f,
                                             -0.25026261f,
                                             0.46182989f,
                                             0.15448781f,
                                             0,
                                             -0.10219567f,
                                             0.94660223f,
                                             -0.27814265f,
                                             -0.26037131f,
                                             -0.11767772f,
                                             0.56623397f,
                                             -0.20758197f };
static const float layer_norm_y[] = { 0.69867571f,  0.81622524f,  1.0532416e-16f, 0.13245047f,
                                      0.96150678f,  -0.73770837f, 0.27356397f,    2.2991966f,
                                      -0.56967262f, -0.69058044f };
static const float rms_norm_y[] = {
    0.60302225f, 0.37688891f, 0.45226669f, 0.45226669f, 0.90453338f,
    -0,          -0.3131119f, 1.4090035f,  0.15655595f, -1.1741696f
};
static const float modulated_y[] = { -2.2650694f,  -0.13152887f, 1.7409656f,    -2.8494146f,
                                     0.82732246f,  0.3102414f,   -0.026115465f, 1.1265178f,
                                     -0.35000051f, 0.5f,         0.24999776f,   -0.74999936f,
                                     1.3383685f,   0.5f,         -3.4076443f,   1.557242f };
static const float linear_gelu_y[] = { 1.1880066f, -0.020455407f, -0.0024158749f,
                                       2.1563591f, 0.5184027f,    1.1177142f };
static const float gate_y[] = { -0.25f, 1.375f,  0.25f,    -0.625f, 1.375f, 0,
                                -1,     1.0625f, -0.0625f, -1.5f,   0.125f, -0.4375f };
static const float rope_q[] = { 0.64051209f, 0.40032006f, 0.48038407f,  0.48038407f, -1.2493891f,
                                0,           -1.8740837f, -0.46852092f, 0.54609936f, 0.056969411f,
                                0.97819898f, 0.46860979f, -0.8154888f,  -1.1404656f, -1.1805866f,
                                -0.712863f,  0.35665536f, 0.16322602f,  1.6616523f,  0.62669776f,
                                -0.6658238f, 1.1393226f,  -0.60091761f, -0.8310361f };
static const float rope_k[] = { 0.26490632f,
                                0.13245316f,
                                0,
                                0.26490632f,
                                -0.19528326f,
                                -0.6509442f,
                                0,
                                -0.6509442f,
                                -0.12338843f,
                                0.33132331f,
                                -0.017631659f,
                                0.14031785f,
                                0.27511517f,
                                -0.46278121f,
                                0.090054403f,
                                -0.71667904f,
                                -0.51003006f,
                                -0.055016227f,
                                0,
                                -0,
                                0.43805106f,
                                -0.11913088f,
                                -0.17256068f,
                                0.67580239f };
static const float silu_y[] = { -0.18964545f, -0.23840584f, -0.27363829f,
                                -0.26894142f, -0.18877033f, 0,
                                0.31122967f,  0.73105858f,  1.2263617f,
                                1.7615942f,   2.3103545f };
static const float gelu_y[] = { -0.015524163f, -0.045500264f, -0.1002108f,
                                -0.15865525f,  -0.15426877f,  0,
                                0.34573123f,   0.84134475f,   1.3997892f,
                                1.9544997f,    2.4844758f };
static const float gelu_tanh_y[] = { -0.015084266f, -0.045402306f, -0.10042842f,
                                     -0.15880801f,  -0.15428599f,  0,
                                     0.34571401f,   0.84119199f,   1.3995716f,
                                     1.9545977f,    2.4849157f };
static const float quick_gelu_y[] = { -0.034986165f, -0.064341377f, -0.1083378f,
                                      -0.15420423f,  -0.14961156f,  0,
                                      0.35038844f,   0.84579577f,   1.3916622f,
                                      1.9356586f,    2.4650138f };
static const float relu_y[] = { 0, 0, 0, 0, 0, 0, 0.5f, 1, 1.5f, 2, 2.5f };
static const float tanh_y[] = { -0.9866143f, -0.96402758f, -0.90514825f, -0.76159416f, -0.46211716f,
                                0,           0.46211716f,  0.76159416f,  0.90514825f,  0.96402758f,
                                0.9866143f };
static const float sigmoid_y[] = { 0.07585818f, 0.11920292f, 0.18242552f, 0.26894142f,
                                   0.37754067f, 0.5f,        0.62245933f, 0.73105858f,
                                   0.81757448f, 0.88079708f, 0.92414182f };
static const float geglu_y[] = {
    0.084985257f, 1.0516809f, 0, 0.13206222f, 0.25929842f, 0.038567192f
};
static const float timestep_y[] = { 1,
                                    1,
                                    1,
                                    1,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0,
                                    0.99964982f,
                                    0.80745506f,
                                    -0.84446979f,
                                    0.54114354f,
                                    -0.026460752f,
                                    -0.5899291f,
                                    -0.53560317f,
                                    0.84093022f,
                                    0,
                                    0.21943997f,
                                    -0.17824593f,
                                    0.98472655f,
                                    0.99984688f,
                                    -0.97562599f,
                                    0.98398596f,
                                    0.17410813f,
                                    0.017499104f,
                                    0 };
static const float nearest_y[] = { -0.5f,  -0.5f,  1.25f,  1.25f,  0.25f, 0.25f, -0.75f,
                                   -0.5f,  -0.5f,  1.25f,  1.25f,  0.25f, 0.25f, -0.75f,
                                   1,      1,      0,      0,      -1,    -1,    0.75f,
                                   1,      1,      0,      0,      -1,    -1,    0.75f,
                                   -0.25f, -0.25f, -1.25f, -1.25f, 0.5f,  0.5f,  -0.5f };
static const float nearest2_y[] = { -0.5f,  -0.5f,  1.25f,  1.25f,  0.25f, 0.25f, -0.75f, -0.75f,
                                    -0.5f,  -0.5f,  1.25f,  1.25f,  0.25f, 0.25f, -0.75f, -0.75f,
                                    1,      1,      0,      0,      -1,    -1,    0.75f,  0.75f,
                                    1,      1,      0,      0,      -1,    -1,    0.75f,  0.75f,
                                    -0.25f, -0.25f, -1.25f, -1.25f, 0.5f,  0.5f,  -0.5f,  -0.5f,
                                    -0.25f, -0.25f, -1.25f, -1.25f, 0.5f,  0.5f,  -0.5f,  -0.5f };
static const float bilinear_y[] = { -0.2083333f,  0.75f,        -0.58333349f, 0.20833337f,
                                    0.24999997f,  -0.16666661f, 0.83333331f,  -0.5f,
                                    0.45833361f,  0.08333312f,  -0.42500001f, -0.016666755f,
                                    -0.41666669f, -0.375f,      -0.33333349f };
static const float circular_y[] = { 0.5f,  -0.5f,  -0.25f, -1.25f, 0.5f,  -0.5f,  -0.25f,
                                    0.25f, -0.75f, -0.5f,  1.25f,  0.25f, -0.75f, -0.5f,
                                    -1,    0.75f,  1,      0,      -1,    0.75f,  1,
                                    0.5f,  -0.5f,  -0.25f, -1.25f, 0.5f,  -0.5f,  -0.25f,
                                    0.25f, -0.75f, -0.5f,  1.25f,  0.25f, -0.75f, -0.5f,
                                    -1,    0.75f,  1,      0,      -1,    0.75f,  1 };

enum { ROOM = 256 };
static float room[12][ROOM]; /* operands, in order of use */
static size_t rooms;

/* Element i is ((i * a + b) mod m - m / 2) / d. */
static struct view seq(struct shape s, int a, int b, int m, float d)
{
    struct view v;
    berth_err err;
    assert_true(rooms < sizeof room / sizeof *room);
    float *x = room[rooms++];
    for (int i = 0; i < ROOM; i++)
        x[i] = (float)((i * a + b) % m - m / 2) / d;
    assert_ok(view_init(DT_F32, &s, x, sizeof room[0], &v, &err), err);
    return v;
}

static struct view values(struct shape s) /* the usual input */
{
    return seq(s, 7, 3, 11, 4);
}

#define S1(a) ((struct shape) { 1, { a } })
#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })
#define S4(a, b, c, d) ((struct shape) { 4, { a, b, c, d } })

static _Alignas(OP_SCRATCH_ALIGN) char scratch[4096];
static const struct op_env env = { .scratch = scratch, .scratch_bytes = sizeof scratch };

#define assert_is(v, want, tol) near_all(#want, &(v), want, sizeof(want) / sizeof *(want), tol)
static void near_all(const char *name, const struct view *v, const float *want, size_t n,
                     double tol)
{
    rooms = 0;
    assert_int_equal(op_count(v), n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)op_f32(v)[i] - (double)want[i]) <= tol))
            fail_msg("%s: element %zu is %.9g, not %.9g", name, i, (double)op_f32(v)[i],
                     (double)want[i]);
}

#define CALL(op, ...)                                                                              \
    do {                                                                                           \
        berth_err err_;                                                                            \
        assert_ok(op_##op(&env, &(struct op_##op) { __VA_ARGS__ }, &err_), err_);                  \
    } while (0)

static void products(void **state)
{
    (void)state;
    struct view y = values(S2(3, 2));
    CALL(linear, .x = values(S2(3, 4)), .w = seq(S2(2, 4), 5, 2, 13, 4),
         .bias = seq(S1(2), 3, 1, 5, 4), .y = y);
    assert_is(y, linear_y, 1e-6);
    y = values(S2(3, 2));
    CALL(linear, .x = values(S2(3, 4)), .w = seq(S2(2, 4), 5, 2, 13, 4),
         .bias = seq(S1(2), 3, 1, 5, 4), .y = y, .after = OP_AFTER_GELU_TANH);
    assert_is(y, linear_gelu_y, 1e-6);
    /* The same product the other way: y = x . w^T needs no bias then. */
    struct view z = values(S3(1, 3, 2)), zero = seq(S1(2), 0, 0, 1, 1);
    struct view x = values(S3(1, 3, 4)), w = seq(S3(1, 2, 4), 5, 2, 13, 4);
    CALL(matmul, .a = x, .b = w, .y = z, .b_transposed = true);
    struct view u = values(S2(3, 2));
    CALL(linear, .x = values(S2(3, 4)), .w = seq(S2(2, 4), 5, 2, 13, 4), .bias = zero, .y = u);
    assert_memory_equal(op_f32(&u), op_f32(&z), 6 * sizeof(float));
    rooms = 0;

    y = values(S4(1, 4, 2, 2));
    CALL(conv2d, .x = values(S4(1, 4, 4, 3)), .w = seq(S4(4, 2, 3, 2), 5, 2, 13, 4),
         .bias = seq(S1(4), 3, 1, 5, 4), .y = y, .stride = 2, .groups = 2, .left = 1, .bottom = 2);
    assert_is(y, conv_y, 1e-6);
}

static void attention(void **state)
{
    (void)state;
    struct view y = values(S4(1, 3, 2, 4));
    CALL(attention, .q = seq(S4(1, 3, 2, 4), 7, 3, 11, 2), .k = seq(S4(1, 5, 2, 4), 5, 2, 13, 2),
         .v = seq(S4(1, 5, 2, 4), 3, 1, 17, 4), .mask = seq(S4(1, 1, 3, 5), 4, 1, 7, 2), .y = y);
    assert_is(y, attention_y, 1e-6);
    y = values(S4(1, 3, 2, 4));
    CALL(attention, .q = seq(S4(1, 3, 2, 4), 7, 3, 11, 2), .k = seq(S4(1, 3, 2, 4), 5, 2, 13, 2),
         .v = seq(S4(1, 3, 2, 4), 3, 1, 17, 4), .y = y, .causal = true, .scale = 0.25f);
    assert_is(y, causal_y, 1e-6);
}

/* Each of two heads of k and v for two of q, keys from before, a window: as attention with the
 * heads copied, and everything that is not seen hidden by a mask. */
static void shared_attention(void **state)
{
    (void)state;
    enum { T = 3, KEYS = 6, H = 4, G = 2, D = 4, PAST = 3, WINDOW = 3 };
    struct shape q = S4(1, T, H, D);
    struct view k = seq(S4(1, KEYS, G, D), 5, 2, 13, 2), v = seq(S4(1, KEYS, G, D), 3, 1, 17, 4);
    struct view wide_k = values(S4(1, KEYS, H, D)), wide_v = values(S4(1, KEYS, H, D));
    struct view mask = values(S4(1, 1, T, KEYS)), y = values(q), want = values(q);
    for (size_t i = 0; i < KEYS * H * D; i++) {
        size_t of = i / (H * D) * G * D + i / D % H / (H / G) * D + i % D;
        op_f32(&wide_k)[i] = op_f32(&k)[of];
        op_f32(&wide_v)[i] = op_f32(&v)[of];
    }
    for (size_t i = 0; i < T * KEYS; i++) {
        size_t own = PAST + i / KEYS, key = i % KEYS;
        op_f32(&mask)[i] = key <= own && key + WINDOW > own ? 0 : -INFINITY;
    }
    CALL(attention, .q = seq(q, 7, 3, 11, 2), .k = k, .v = v, .y = y, .causal = true, .past = PAST,
         .window = WINDOW);
    CALL(attention, .q = seq(q, 7, 3, 11, 2), .k = wide_k, .v = wide_v, .y = want, .mask = mask);
    near_all("as a mask says it", &y, op_f32(&want), T * H * D, 1e-7);
}

static void norms(void **state)
{
    (void)state;
    struct shape s = S3(2, 4, 3);
    struct view y = values(s);
    CALL(group_norm, .x = values(s), .w = seq(S1(4), 5, 2, 13, 4), .b = seq(S1(4), 3, 1, 5, 4),
         .y = y, .groups = 2, .eps = 1e-5f);
    assert_is(y, group_norm_y, 1e-6);
    y = values(s);
    CALL(group_norm, .x = values(s), .w = seq(S1(4), 5, 2, 13, 4), .b = seq(S1(4), 3, 1, 5, 4),
         .y = y, .groups = 2, .eps = 1e-5f, .silu = true);
    assert_is(y, group_norm_silu_y, 1e-6);
    y = values(s);
    CALL(channel_norm, .x = values(s), .w = seq(S1(4), 5, 2, 13, 4), .y = y, .eps = 1e-12f);
    assert_is(y, channel_norm_y, 1e-6);
    y = values(s);
    CALL(channel_norm, .x = values(s), .w = seq(S1(4), 5, 2, 13, 4), .y = y, .eps = 1e-12f,
         .silu = true);
    assert_is(y, channel_norm_silu_y, 1e-6);
    y = values(S2(2, 5));
    CALL(row_norm, .x = values(S2(2, 5)), .w = seq(S1(5), 5, 2, 13, 4), .b = seq(S1(5), 3, 1, 5, 4),
         .y = y, .eps = 1e-5f);
    assert_is(y, layer_norm_y, 1e-6);
    y = values(S2(2, 5));
    CALL(row_norm, .x = values(S2(2, 5)), .w = seq(S1(5), 5, 2, 13, 4), .y = y, .eps = 1e-6f,
         .rms = true);
    assert_is(y, rms_norm_y, 1e-6);
    struct view w = seq(S1(5), 5, 2, 13, 4);
    for (size_t i = 0; i < 5; i++)
        op_f32(&w)[i] -= 1;
    y = values(S2(2, 5));
    CALL(row_norm, .x = values(S2(2, 5)), .w = w, .y = y, .eps = 1e-6f, .rms = true,
         .from_one = true);
    assert_is(y, rms_norm_y, 1e-6);
}

/* What Flux does with its modulation vector and its positions. */
static void modulation(void **state)
{
    (void)state;
    berth_err err;
    struct shape s = S3(2, 2, 4);
    struct view y = values(s), vec = seq(S2(2, 8), 5, 2, 13, 4), scale, shift;
    assert_ok(view_slice(&vec, 1, 0, 4, &shift, &err), err);
    assert_ok(view_slice(&vec, 1, 4, 8, &scale, &err), err);
    CALL(row_norm, .x = values(s), .y = y, .scale = scale, .shift = shift, .eps = 1e-6f);
    assert_is(y, modulated_y, 2e-6);
    y = values(S3(2, 2, 3));
    CALL(gate, .x = y, .z = seq(S3(2, 2, 3), 5, 2, 13, 4), .gate = seq(S2(2, 3), 3, 1, 5, 4),
         .y = y);
    assert_is(y, gate_y, 1e-6);

    struct shape heads = S4(1, 3, 2, 4);
    struct view q = values(heads), k = seq(heads, 5, 2, 13, 4), table = values(S3(3, 2, 2));
    for (size_t i = 0; i < 6; i++) { /* angles of position * 1 and 1/8 */
        double angle = (double)(i / 2) * (i % 2 ? 0.125 : 1);
        op_f32(&table)[2 * i] = (float)cos(angle);
        op_f32(&table)[2 * i + 1] = (float)sin(angle);
    }
    CALL(qk_rope, .q = q, .k = k, .wq = seq(S1(4), 5, 2, 13, 4), .wk = seq(S1(4), 3, 1, 5, 4),
         .table = table, .eps = 1e-6f);
    assert_is(q, rope_q, 1e-6);
    assert_is(k, rope_k, 1e-6);
    /* Without weights the length of a pair stays. */
    q = values(heads), k = seq(heads, 5, 2, 13, 4), table = values(S3(3, 2, 2));
    for (size_t i = 0; i < 6; i++)
        op_f32(&table)[2 * i] = 0, op_f32(&table)[2 * i + 1] = 1;
    struct view was = values(heads);
    CALL(qk_rope, .q = q, .k = k, .table = table);
    for (size_t i = 0; i < 24; i += 2) {
        assert_true(op_f32(&q)[i] == -op_f32(&was)[i + 1]);
        assert_true(op_f32(&q)[i + 1] == op_f32(&was)[i]);
    }
    rooms = 0;
}

/* Pairs half a head apart are adjacent ones in another order; k has one head where q has two. */
static void rotated_halves(void **state)
{
    (void)state;
    struct shape heads = S4(1, 3, 2, 4), one = S4(1, 3, 1, 4);
    struct view q = values(heads), k = seq(one, 5, 2, 13, 4), table = values(S3(3, 2, 2));
    struct view adjacent = values(heads), other = values(heads), w = seq(S1(4), 5, 2, 13, 4);
    struct view turned = values(S1(4));
    static const size_t place[] = { 0, 2, 1, 3 }; /* of each in a head of adjacent pairs */
    for (size_t i = 0; i < 24; i++)
        op_f32(&adjacent)[i / 4 * 4 + place[i % 4]] = op_f32(&q)[i];
    for (size_t i = 0; i < 4; i++) {
        op_f32(&turned)[place[i]] = op_f32(&w)[i];
        op_f32(&w)[i] -= 1;
    }
    CALL(qk_rope, .q = q, .k = k, .wq = w, .wk = w, .table = table, .eps = 1e-6f, .halves = true,
         .from_one = true);
    CALL(qk_rope, .q = adjacent, .k = other, .wq = turned, .wk = turned, .table = table,
         .eps = 1e-6f);
    float want[24];
    for (size_t i = 0; i < 24; i++)
        want[i] = op_f32(&adjacent)[i / 4 * 4 + place[i % 4]];
    assert_is(q, want, 1e-6);
}

static void functions(void **state)
{
    (void)state;
    static const struct {
        enum op_unary_kind kind;
        const float *want;
    } all[] = { { OP_SILU, silu_y },           { OP_GELU, gelu_y },
                { OP_GELU_TANH, gelu_tanh_y }, { OP_QUICK_GELU, quick_gelu_y },
                { OP_RELU, relu_y },           { OP_TANH, tanh_y },
                { OP_SIGMOID, sigmoid_y } };
    assert_int_equal(sizeof all / sizeof *all, OP_UNARY_COUNT);
    for (size_t i = 0; i < OP_UNARY_COUNT; i++) {
        struct view x = seq(S1(11), 1, 0, 11, 2);
        CALL(unary, .kind = all[i].kind, .x = x, .y = x);
        near_all("unary", &x, all[i].want, 11, 1e-6);
    }
    struct view y = values(S2(2, 3));
    CALL(geglu, .x = values(S2(2, 6)), .y = y);
    assert_is(y, geglu_y, 1e-6);
}

static void arithmetic(void **state)
{
    (void)state;
    static const float b[] = { 10, 20 };
    static const float plus[] = { 6, 7, 13, 14 }, minus[] = { -4, -3, -7, -6 },
                       times[] = { 5, 10, 30, 40 },
                       silu_times[] = { 3.6552929f, 8.8079708f, 28.577224f, 39.280552f },
                       leaks[] = { 1, 2, 3, 4 };
    static const float *const want[OP_BINARY_COUNT] = { plus, minus, times, silu_times, leaks };
    for (int kind = OP_ADD; kind < OP_BINARY_COUNT; kind++) {
        struct view a = values(S3(1, 2, 2)), with = values(S3(1, 2, 1));
        for (size_t i = 0; i < 4; i++)
            op_f32(&a)[i] = (float)i + 1;
        memcpy(with.data, b, sizeof b);
        CALL(binary, .kind = (enum op_binary_kind)kind, .a = a, .b = with, .y = a, .scale = 0.5f);
        near_all("binary", &a, want[kind], 4, kind == OP_SILU_MUL ? 1e-7 : 0);
    }
    static const float below[] = { -8, 3, 0, -2 }, leaked[] = { -40, 3, 0, -20 };
    struct view a = values(S3(1, 2, 2)), with = values(S3(1, 2, 1));
    memcpy(a.data, below, sizeof below);
    memcpy(with.data, b, sizeof b);
    CALL(binary, .kind = OP_LEAK, .a = a, .b = with, .y = a, .scale = 0.5f);
    near_all("binary", &a, leaked, 4, 0);
}

static void moving(void **state)
{
    (void)state;
    static const float t[] = { 0, 999, 17.5f };
    struct view y = values(S2(3, 9)), x = values(S1(3));
    memcpy(x.data, t, sizeof t);
    CALL(timestep, .t = x, .y = y);
    assert_is(y, timestep_y, 1e-6);
    y = values(S4(1, 1, 5, 7));
    CALL(resize2d, .kind = OP_NEAREST, .x = values(S4(1, 1, 3, 4)), .y = y);
    assert_is(y, nearest_y, 0);
    y = values(S4(1, 1, 6, 8));
    CALL(resize2d, .kind = OP_NEAREST, .x = values(S4(1, 1, 3, 4)), .y = y);
    assert_is(y, nearest2_y, 0);
    y = values(S4(1, 1, 5, 3));
    CALL(resize2d, .kind = OP_BILINEAR, .x = values(S4(1, 1, 3, 4)), .y = y);
    assert_is(y, bilinear_y, 1e-6);
    y = values(S4(1, 1, 6, 7));
    CALL(pad2d, .x = values(S4(1, 1, 3, 4)), .y = y, .top = 1, .left = 2, .kind = OP_PAD_CIRCULAR);
    assert_is(y, circular_y, 0);
}

/* y[j, i] = x[i, j]; two operands side by side; zeros around; rows by number. */
static void places(void **state)
{
    (void)state;
    berth_err err;
    struct view x = values(S2(2, 3)), t, y = values(S2(3, 2)), z = values(S2(2, 5));
    assert_ok(view_permute(&x, (int[]) { 1, 0 }, &t, &err), err);
    CALL(copy, .x = t, .y = y);
    for (size_t i = 0; i < 6; i++)
        assert_true(op_f32(&y)[i % 3 * 2 + i / 3] == op_f32(&x)[i]);
    struct view both[] = { x, values(S2(2, 2)) };
    CALL(concat, .x = both, .n = 2, .axis = 1, .y = z);
    for (size_t i = 0; i < 10; i++)
        assert_true(op_f32(&z)[i] == (i % 5 < 3 ? op_f32(&x)[i / 5 * 3 + i % 5]
                                                : op_f32(&both[1])[i / 5 * 2 + i % 5 - 3]));
    struct view p = values(S2(4, 4));
    CALL(pad2d, .x = x, .y = p, .top = 1, .left = 1);
    for (size_t i = 0; i < 16; i++) {
        bool inside = i / 4 - 1 < 2 && i % 4 - 1 < 3;
        assert_true(op_f32(&p)[i] == (inside ? op_f32(&x)[(i / 4 - 1) * 3 + i % 4 - 1] : 0));
    }
    p = values(S2(5, 6));
    CALL(pad2d, .x = x, .y = p, .top = 2, .left = 1, .kind = OP_PAD_EDGE);
    for (size_t i = 0; i < 30; i++) {
        size_t row = i / 6 < 3 ? 0 : 1, column = i % 6 < 1 ? 0 : i % 6 < 4 ? i % 6 - 1 : 2;
        assert_true(op_f32(&p)[i] == op_f32(&x)[row * 3 + column]);
    }
    p = values(S2(4, 6));
    CALL(pad2d, .x = x, .y = p, .top = 1, .left = 2, .kind = OP_PAD_REFLECT);
    for (size_t i = 0; i < 24; i++) {
        const size_t row[] = { 1, 0, 1, 0 }, column[] = { 2, 1, 0, 1, 2, 1 };
        assert_true(op_f32(&p)[i] == op_f32(&x)[row[i / 6] * 3 + column[i % 6]]);
    }
    rooms = 0;
    struct view table = values(S2(4, 3)), rows = seq(S2(2, 3), 1, 0, 2, 1);
    int32_t id[] = { 3, 1 };
    struct view ids;
    struct shape two = S1(2);
    assert_ok(view_init(DT_I32, &two, id, sizeof id, &ids, &err), err);
    CALL(embedding, .table = table, .ids = ids, .y = rows);
    assert_memory_equal(op_f32(&rows), op_f32(&table) + 9, 3 * sizeof(float));
    assert_memory_equal(op_f32(&rows) + 3, op_f32(&table) + 3, 3 * sizeof(float));
    rooms = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),       cmocka_unit_test(attention),
        cmocka_unit_test(norms),          cmocka_unit_test(shared_attention),
        cmocka_unit_test(rotated_halves), cmocka_unit_test(functions),
        cmocka_unit_test(arithmetic),     cmocka_unit_test(moving),
        cmocka_unit_test(places),         cmocka_unit_test(modulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
