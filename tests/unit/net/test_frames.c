/* Convolutions over frames, held to their definition: paddings of zeros and of edges, steps in time
 * and space, frames from before. */
#include "toy_net.h"

#include <math.h>

#define IN 2
#define OUT 3
#define H 5
#define W 4
#define FRAMES_MAX 9

static const struct toy_tensor tensors[] = {
    { "three.weight", { 5, { OUT, IN, 3, 3, 3 } } },
    { "three.bias", { 1, { OUT } } },
    { "two.weight", { 5, { OUT, IN, 2, 2, 2 } } },
    { "two.bias", { 1, { OUT } } },
};

struct job {
    const char *layer;
    uint64_t side; /* of the filter, and its frames */
    uint64_t frames, before;
    struct net_frames how;
    const float *x, *old; /* [frames, IN, H, W] */
    float *out;
};

static uint64_t step_of(const struct job *j)
{
    return j->how.step ? j->how.step : 1;
}

static uint64_t results(const struct job *j)
{
    return j->how.from_first ? (j->frames - 1) / step_of(j) + 1 : j->frames / step_of(j);
}

static uint64_t side_of(const struct job *j, uint64_t n, uint64_t around)
{
    uint64_t stride = j->how.plane.stride ? j->how.plane.stride : 1;
    return (n + around - j->side) / stride + 1;
}

/* What is at a place, counted from the first frame and the upper left corner. */
static double at(const struct job *j, uint64_t c, int64_t f, int64_t y, int64_t x)
{
    const int64_t n = (int64_t)j->frames, had = (int64_t)j->before;
    if (f < -had && j->how.time == NET_ZEROS)
        return 0;
    f = f < -had ? -had : f;
    assert_true(f < n);
    if ((y < 0 || y >= H || x < 0 || x >= W) && j->how.space == NET_ZEROS)
        return 0;
    if (j->how.space == NET_MIRROR) {
        y = y < 0 ? -y : y >= H ? 2 * (H - 1) - y : y;
        x = x < 0 ? -x : x >= W ? 2 * (W - 1) - x : x;
    }
    y = y < 0 ? 0 : y >= H ? H - 1 : y;
    x = x < 0 ? 0 : x >= W ? W - 1 : x;
    const float *from = f < 0 ? j->old + (f + had) * IN * H * W : j->x + f * IN * H * W;
    return from[((int64_t)c * H + y) * W + x];
}

static double expected(const struct job *j, uint64_t r, uint64_t oc, uint64_t y, uint64_t x)
{
    const uint64_t k = j->side, stride = j->how.plane.stride ? j->how.plane.stride : 1;
    const int64_t first = j->how.from_first ? 0 : (int64_t)step_of(j) - 1;
    const int64_t last = first + (int64_t)(r * step_of(j));
    float bias, w;
    char name[32];
    snprintf(name, sizeof name, "%s.bias", j->layer);
    toy_value(name, &bias, 1, oc);
    snprintf(name, sizeof name, "%s.weight", j->layer);
    double sum = bias;
    for (uint64_t i = 0; i < IN * k * k * k; i++) {
        toy_value(name, &w, 1, oc * IN * k * k * k + i);
        sum += w * at(j, i / (k * k * k), last + (int64_t)(i / (k * k) % k) - (int64_t)k + 1,
                      (int64_t)(y * stride + i / k % k) - j->how.plane.top,
                      (int64_t)(x * stride + i % k) - j->how.plane.left);
    }
    return sum;
}

static void forward(struct net_run *r, void *user)
{
    const struct job *j = user;
    struct net_frames how = j->how;
    struct act x = net_input(r, &(struct shape) { 4, { j->frames, IN, H, W } }, j->x);
    if (j->before)
        how.before = net_input(r, &(struct shape) { 4, { j->before, IN, H, W } }, j->old);
    struct act y = net_conv3d(r, x, j->layer, how);
    net_drop(r, &x);
    net_drop(r, &how.before);
    net_output(r, y, j->out);
    net_drop(r, &y);
}

static void compare(struct toy *t, struct job j)
{
    static float x[FRAMES_MAX * IN * H * W], old[FRAMES_MAX * IN * H * W];
    static float out[FRAMES_MAX * OUT * (H + 2) * (W + 2)];
    const struct net_conv *c = &j.how.plane;
    const uint64_t h = side_of(&j, H, c->top + c->bottom), w = side_of(&j, W, c->left + c->right);
    berth_err err = { 0 };
    toy_value("x", x, ARRAY_LEN(x), 0);
    toy_value("old", old, ARRAY_LEN(old), 0);
    j.x = x;
    j.old = old;
    j.out = out;
    assert_ok(net_forward(t->net, forward, &j, &err), err);
    for (uint64_t i = 0; i < results(&j) * OUT * h * w; i++) {
        double want = expected(&j, i / (OUT * h * w), i / (h * w) % OUT, i / w % h, i % w);
        if (fabs(out[i] - want) > 1e-5)
            fail_msg("%s over %d frames behind %d, step %d: %zu is %g, not %g", j.layer,
                     (int)j.frames, (int)j.before, (int)j.how.step, (size_t)i, out[i], want);
    }
}

/* Every way to pad, with every number of frames and of frames before them. */
static void as_defined(void **state)
{
    static const struct net_conv halves = {
        .stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1
    };
    struct toy t;
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*",
             (struct toy_file) { .name = "frames",
                                 .weight = DT_F32,
                                 .param = DT_F32,
                                 .tensor = tensors,
                                 .n = ARRAY_LEN(tensors) });
    for (unsigned i = 0; i < 2 * 2 * 2 * 3 * 3 * 3; i++) {
        const uint32_t step = 1 + i / 72;
        struct job j = { .layer = "three",
                         .side = 3,
                         .before = i / 24 % 3,
                         .how = { .plane = i % 2 ? halves : NET_PAD1,
                                  .step = step,
                                  .from_first = i / 2 % 2,
                                  .time = (enum net_outside)(i / 4 % 2),
                                  .space = (enum net_outside)(i / 8 % 3) } };
        for (j.frames = 1; j.frames <= FRAMES_MAX; j.frames++)
            if (j.how.from_first || j.frames % step == 0)
                compare(&t, j);
    }
    /* as many frames as the filter has, one behind the other */
    for (uint64_t n = 1; n < 6; n++)
        compare(&t, (struct job) { .layer = "two",
                                   .side = 2,
                                   .frames = n,
                                   .how = { .plane = { .stride = 2 },
                                            .step = 2,
                                            .from_first = true,
                                            .time = NET_EDGE,
                                            .space = NET_EDGE } });
    toy_close(&t);
}

/* Frames that are no multiple of the step fit only where results begin with the first one. */
static void odd_frames_are_refused(void **state)
{
    static float x[3 * IN * H * W], out[3 * OUT * H * W];
    struct job j = { .layer = "three", .frames = 3, .how = { .plane = NET_PAD1, .step = 2 } };
    struct toy t;
    berth_err err = { 0 };
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*",
             (struct toy_file) { .name = "frames",
                                 .weight = DT_F32,
                                 .param = DT_F32,
                                 .tensor = tensors,
                                 .n = ARRAY_LEN(tensors) });
    j.x = x;
    j.out = out;
    assert_int_equal(net_forward(t.net, forward, &j, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "no such frames"));
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_defined),
        cmocka_unit_test(odd_frames_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
