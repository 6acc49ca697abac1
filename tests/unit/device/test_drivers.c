/* What driver.h asks of every driver: a new one is tested by being in devices.def. */
#include "contract.h"

static void slots_come_in_groups(void **state)
{
    (void)state;
    assert_non_null(dev_drivers()[0]);
    for (const struct dev_driver *const *p = dev_drivers(); *p; p++) {
        const struct dev_driver *d = *p;
        struct spec_name name;
        char text[DEV_NAME_MAX];
        berth_err err = { 0 };
        snprintf(text, sizeof text, "%s%s", d->name, d->indexed ? ":0" : "");
        assert_ok(spec_parse_name(text, strlen(text), &name, &err), err); /* can be asked for */
        assert_int_equal(name.indexed, d->indexed);
        assert_true(d->count && d->open && d->close && d->alloc && d->free && d->info);
        assert_int_equal(!d->host_access, !d->host_mark);
        assert_true(d->discard || (!d->restore && !d->discardable));
        assert_true(d->copy_h2d && d->copy_d2h && d->copy_d2d);
        assert_int_equal(!d->library_open, !d->library_close);
        assert_int_equal(!d->host_alloc, !d->host_free);
        bool async = d->stream_open != NULL;
        assert_true(async == !!d->stream_close && async == !!d->stream_sync &&
                    async == !!d->stream_wait && async == !!d->event_open &&
                    async == !!d->event_close && async == !!d->event_record &&
                    async == !!d->event_query && async == !!d->event_sync);
    }
}

/* Everything that can be opened here: the default set and one of each elastic driver. */
static struct devset *open_all(void)
{
    struct devset *set;
    struct spec spec = { .n = 0 };
    struct dev_env env = { 0 }; /* a real card too, where there is one */
    struct str text = { 0 };
    berth_err err = { 0 };
    assert_ok(devset_open(NULL, &env, &set, &err), err);
    for (size_t i = 0; i < devset_count(set); i++)
        str_addf(&text, "%s%s=64m", i ? "," : "", devset_at(set, i)->name);
    devset_close(set);
    for (const struct dev_driver *const *p = dev_drivers(); *p; p++)
        if ((*p)->elastic)
            str_addf(&text, ",%s%s=64m", (*p)->name, (*p)->indexed ? ":0" : "");
    assert_ok(spec_parse(str_c(&text), text.n, false, &spec, &err), err);
    str_release(&text);
    assert_ok(devset_open(&spec, &env, &set, &err), err);
    return set;
}

static void with_all(void (*check)(struct devset *set))
{
    struct devset *set = open_all();
    check(set);
    devset_close(set);
}

static void every_phys_is_sound(void **state)
{
    (void)state;
    with_all(a_phys_is_sound);
}

static void all_discard_and_restore(void **state)
{
    (void)state;
    with_all(discards_and_restores);
}

static void bytes_arrive_everywhere(void **state)
{
    (void)state;
    with_all(bytes_arrive);
}

static void no_copy_leaves_its_pin(void **state)
{
    (void)state;
    with_all(copies_stay_in_one_pin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_come_in_groups),    cmocka_unit_test(every_phys_is_sound),
        cmocka_unit_test(all_discard_and_restore), cmocka_unit_test(bytes_arrive_everywhere),
        cmocka_unit_test(no_copy_leaves_its_pin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
