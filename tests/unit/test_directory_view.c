#include "cm.h"

#include "view_random.h"

enum { MEMBERS = 40, VIEWS = 40 };

static uint8_t *encoded(const struct pst_view *view, size_t *bytes)
{
    size_t cap = pst_view_bytes_max(view->members_max);
    uint8_t *to = malloc(cap);

    assert_non_null(to);
    assert_int_equal(pst_view_encode(view, to, cap - 1), 0);
    *bytes = pst_view_encode(view, to, cap);
    assert_true(*bytes > 0);
    return to;
}

static void a_view_reads_back_as_it_was(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < VIEWS; seed++) {
        struct pst_view *view = view_random(MEMBERS, seed), *read = NULL;
        size_t bytes;
        uint8_t *text = encoded(view, &bytes);

        assert_int_equal(pst_view_decode((struct pst_bytes){text, bytes}, MEMBERS, &read), 0);
        assert_memory_equal(read, view, sizeof(*view) + MEMBERS * sizeof(view->members[0]));
        pst_view_close(read);
        assert_int_equal(pst_view_decode((struct pst_bytes){text, bytes}, 1, &read), -E2BIG);
        free(text);
        pst_view_close(view);
    }
}

static void a_damaged_view_is_refused(void **state)
{
    struct pst_view *view = view_random(MEMBERS, 3), *read = NULL;
    size_t bytes;
    uint8_t *text = encoded(view, &bytes);

    (void)state;
    for (size_t at = 0; at < bytes; at += at < 4000 ? 1 : 997) {
        text[at] ^= 0x10;
        assert_true(pst_view_decode((struct pst_bytes){text, bytes}, MEMBERS, &read) < 0);
        text[at] ^= 0x10;
        assert_int_equal(pst_view_decode((struct pst_bytes){text, at}, MEMBERS, &read), -EBADMSG);
    }
    free(text);
    pst_view_close(view);
}

/* As someone who can compute a checksum would write it. */
static void expect_refused(struct pst_view *view)
{
    struct pst_view *read = NULL;
    size_t bytes;
    uint8_t *text = encoded(view, &bytes);

    assert_int_equal(pst_view_decode((struct pst_bytes){text, bytes}, MEMBERS, &read), -EBADMSG);
    free(text);
    pst_view_close(view);
}

static void what_no_directory_makes_is_refused(void **state)
{
    struct pst_view *view;

    (void)state;
    view = view_random(MEMBERS, 5);
    view->slots[9] =
        (struct pst_view_slot){.epoch = 1, .state = PST_VIEW_SERVED, .copy_count = 1, .copies = {MEMBERS}};
    expect_refused(view);
    view = view_random(MEMBERS, 5);
    view->slots[9] = (struct pst_view_slot){.epoch = 1, .base = 2};
    expect_refused(view);
    view = view_random(MEMBERS, 5);
    view->slots[9].state = view->slots[9].copy_count > 0 ? PST_VIEW_EMPTY : PST_VIEW_SERVED;
    expect_refused(view);
    view = view_random(MEMBERS, 5);
    view->epoch_next = 1;
    expect_refused(view);
}

static void the_longest_prefix_places_a_key(void **state)
{
    struct pst_view *view;

    (void)state;
    assert_int_equal(pst_view_open(1, 0, &view), 0);
    assert_null(pst_view_prefix_of(view, (struct pst_bytes){"a/b", 3}));
    view->prefixes[0] =
        (struct pst_view_prefix){.placement = PST_PLACE_HOME, .replicas = 2, .bytes = 2, .text = "a/"};
    view->prefixes[1] = (struct pst_view_prefix){.replicas = 3, .bytes = 4, .text = "a/b/"};
    view->prefix_count = 2;
    assert_int_equal(pst_view_prefix_of(view, (struct pst_bytes){"a/b", 3})->placement, PST_PLACE_HOME);
    assert_int_equal(pst_view_prefix_of(view, (struct pst_bytes){"a/b/c", 5})->placement, PST_PLACE_ANYWHERE);
    assert_null(pst_view_prefix_of(view, (struct pst_bytes){"b", 1}));
    assert_int_equal(pst_view_replicas(view), 2); /* anywhere has no slots */
    pst_view_close(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_reads_back_as_it_was),
        cmocka_unit_test(a_damaged_view_is_refused),
        cmocka_unit_test(what_no_directory_makes_is_refused),
        cmocka_unit_test(the_longest_prefix_places_a_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
