/* A store that is added as docs/adding.md says, in one file and one line, keeps the contract. */
#define STORES_DEF "unit/store/stub/stores.def"
#include "store/stores.c"

#include "unit/store/stub/stub.c"

#include "unit/store/contract.h"

static const char *new_stub(void)
{
    static int n;
    static char name[32];
    snprintf(name, sizeof name, "stub:%d", n++);
    return name;
}

/* The line is all it takes: the others are as they were. */
static void the_list(void **state)
{
    (void)state;
    size_t found = 0;
    assert_string_equal(store_backends[0]->name, "sqlite");
    for (size_t i = 0; store_backends[i]; i++)
        found += strcmp(store_backends[i]->name, "stub") == 0;
    assert_int_equal(found, 1);
    struct store *s = open_store(tmp_path("beside.db"));
    run_through(s, "a");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_list), CONTRACT_TESTS };
    contract_place = new_stub;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
