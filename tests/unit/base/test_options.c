/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/options_desk.h"

static int set(struct desk *d, const char *name, const char *value)
{
    d->fault[0] = '\0';
    return pst_options_set(&table, &d->settings, name, value, d->fault);
}

static void presets_are_set(void **state)
{
    struct desk *d = *state;

    assert_null(d->settings.place);
    assert_string_equal(d->settings.mode, "calm");
    assert_int_equal(d->settings.page_size, 2 << 20);
    assert_int_equal(d->settings.shards, 4);
    assert_int_equal(d->settings.class_of.count, 0);
    assert_true(d->settings.pre_fault);
    assert_int_equal(d->settings.case_, 7);
}

static void strings_are_owned_and_replaced(void **state)
{
    struct desk *d = *state;
    char text[] = "/a/b";

    assert_int_equal(set(d, "place", text), 0);
    text[1] = 'x';
    assert_string_equal(d->settings.place, "/a/b");
    assert_int_equal(set(d, "place", "/c"), 0);
    assert_string_equal(d->settings.place, "/c");
    assert_int_equal(set(d, "place", ""), 0);
    assert_null(d->settings.place);
}

static void sizes_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"64K", 64 << 10},
        {"64k", 64 << 10},
        {"64KiB", 64 << 10},
        {"64KB", 64 << 10},
        {"2M", 2 << 20},
        {"2MiB", 2 << 20},
        {"3G", 3ull << 30},
        {"3GiB", 3ull << 30},
        {"5T", 5ull << 40},
        {"5TiB", 5ull << 40},
        {"0K", 0},
        {"010", 10},
        {"16777215T", 16777215ull << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",
                                      " 1",
                                      "1 ",
                                      "-1",
                                      "+1",
                                      "K",
                                      "1X",
                                      "1Ki",
                                      "1KiBs",
                                      "1iB",
                                      "1B",
                                      "1.5G",
                                      "0x10",
                                      "1KK",
                                      "1 K",
                                      "16777216T",
                                      "18446744073709551616",
                                      "99999999999999999999T"};
    uint64_t n;

    (void)state;
    for (size_t i = 0; i < pst_count_of(good); i++) {
        n = 1;
        if (pst_parse_size(good[i].text, &n) < 0 || n != good[i].bytes)
            fail_msg("'%s' is %llu", good[i].text, (unsigned long long)n);
    }
    for (size_t i = 0; i < pst_count_of(bad); i++) {
        if (pst_parse_size(bad[i], &n) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    }
}

static void sizes_are_bounded(void **state)
{
    struct desk *d = *state;

    assert_int_equal(set(d, "page_size", "64K"), 0);
    assert_int_equal(d->settings.page_size, 65536);
    assert_int_equal(set(d, "page_size", "1GiB"), 0);
    assert_int_equal(d->settings.page_size, 1 << 30);
    assert_int_equal(set(d, "page_size", "65535"), -EINVAL);
    assert_fault(d, "page_size: 65535 is outside of 65536 to 1073741824 bytes");
    assert_int_equal(set(d, "page_size", "2G"), -EINVAL);
    assert_fault(d, "page_size");
    assert_int_equal(set(d, "page_size", "much"), -EINVAL);
    assert_fault(d, "page_size: 'much' is not a size");
    assert_int_equal(set(d, "page_size", ""), -EINVAL);
    assert_int_equal(d->settings.page_size, 1 << 30); /* nothing wrong is kept */
}

static void numbers_are_bounded_and_have_no_units(void **state)
{
    static const char *const bad[] = {"",   "0", "257", "-1", "1K",
                                      "4x", "x", "1.0", " 3", "99999999999999999999"};
    struct desk *d = *state;

    assert_int_equal(set(d, "shards", "1"), 0);
    assert_int_equal(set(d, "shards", "256"), 0);
    for (size_t i = 0; i < pst_count_of(bad); i++) {
        assert_int_equal(set(d, "shards", bad[i]), -EINVAL);
        assert_fault(d, "shards: ");
        assert_fault(d, bad[i]);
    }
    assert_int_equal(d->settings.shards, 256);
}

static void flags_know_a_few_words(void **state)
{
    static const char *const words[] = {"yes", "no", "true", "false", "1", "0", "on", "off"};
    static const char *const bad[] = {"", "YES", "y", "2", "yes "};
    struct desk *d = *state;

    for (size_t i = 0; i < pst_count_of(words); i++) {
        assert_int_equal(set(d, "pre_fault", words[i]), 0);
        assert_int_equal(d->settings.pre_fault, i % 2 == 0);
    }
    for (size_t i = 0; i < pst_count_of(bad); i++) {
        assert_int_equal(set(d, "pre_fault", bad[i]), -EINVAL);
        assert_fault(d, "pre_fault: ");
    }
}

static void lists_grow_to_their_bound(void **state)
{
    struct desk *d = *state;
    char item[16];

    for (int i = 0; i < PST_STRINGS_MAX; i++) {
        snprintf(item, sizeof(item), "p%d=cache", i);
        assert_int_equal(set(d, "class_of", item), 0);
        assert_int_equal(d->settings.class_of.count, i + 1);
        assert_string_equal(d->settings.class_of.items[i], item);
    }
    assert_int_equal(set(d, "class_of", "more"), -EINVAL);
    assert_fault(d, "class_of: more than 64");
    assert_int_equal(d->settings.class_of.count, PST_STRINGS_MAX);
}

/* A source's list is its own, whether it says one item, several or that there is none. */
static void lists_are_those_of_the_last_source(void **state)
{
    struct desk *d = *state;
    struct pst_strings *list = &d->settings.class_of;

    for (int i = 0; i < 2; i++) {
        pst_options_next_source(&table, &d->settings);
        assert_int_equal(list->count, i ? 2 : 0); /* until the source says something */
        assert_int_equal(set(d, "class_of", "a"), 0);
        assert_int_equal(set(d, "class_of", "b"), 0);
        assert_int_equal(list->count, 2);
        assert_string_equal(list->items[1], "b");
    }
    pst_options_next_source(&table, &d->settings);
    assert_int_equal(set(d, "class_of", ""), 0);
    assert_int_equal(list->count, 0);
    pst_options_next_source(&table, &d->settings);
    assert_int_equal(set(d, "shards", "5"), 0);
    pst_options_next_source(&table, &d->settings);
    assert_int_equal(d->settings.shards, 5); /* what is no list stays until it is said again */
}

static void flags_say_how_much_they_took(void **state)
{
    static const struct {
        const char *argv[3];
        int result;
        const char *fault;
    } cases[] = {
        {{"--shards", "9"}, 2, NULL},
        {{"--shards=9", "8"}, 1, NULL},
        {{"--pre-fault", "no"}, 1, NULL}, /* is yes alone; "no" is the next argument */
        {{"--pre-fault=no"}, 1, NULL},
        {{"--place", "--shards"}, 2, NULL},
        {{"--mood"}, 1, NULL},
        {{"--mood", "3"}, 1, NULL},
        {{"shards"}, 0, NULL},
        {{"-shards"}, 0, NULL},
        {{"-"}, 0, NULL},
        {{"--"}, -ENOENT, "unknown option '--'"},
        {{"--="}, -ENOENT, "unknown option '--='"},
        {{"--shard", "9"}, -ENOENT, "unknown option '--shard'"},
        {{"--shards"}, -EINVAL, "option '--shards' needs a value"},
        {{"--shards="}, -EINVAL, "shards: '' is not a number"},
        {{"--pre-fault=maybe"}, -EINVAL, "pre_fault: 'maybe' is not yes or no"},
    };
    struct desk *d = *state;

    for (size_t i = 0; i < pst_count_of(cases); i++) {
        d->fault[0] = '\0';
        assert_int_equal(
            pst_options_set_flag(&table, &d->settings, (char *const *)(uintptr_t)cases[i].argv, d->fault),
            cases[i].result);
        if (cases[i].fault)
            assert_string_equal(d->fault, cases[i].fault);
    }
    assert_int_equal(d->settings.shards, 9);
    assert_false(d->settings.pre_fault);
    assert_string_equal(d->settings.place, "--shards");
    assert_int_equal(d->settings.mood, 0);
}

static void names_take_both_dashes(void **state)
{
    static const char *const unknown[] = {"",          "pagesize", "page_siz", "page_sizes", "page size",
                                          "Page_Size", "_",        "-",        "case__"};
    struct desk *d = *state;

    assert_int_equal(set(d, "page-size", "1M"), 0);
    assert_int_equal(set(d, "page_size", "1M"), 0);
    assert_int_equal(set(d, "case", "1"), 0);
    assert_int_equal(d->settings.case_, 1);
    for (size_t i = 0; i < pst_count_of(unknown); i++) {
        char want[64];

        snprintf(want, sizeof(want), "unknown option '%s'", unknown[i]);
        assert_int_equal(set(d, unknown[i], "1"), -ENOENT);
        assert_string_equal(d->fault, want);
    }
}

static void pairs_are_cut_at_the_first_equals(void **state)
{
    struct desk *d = *state;
    char long_name[200];

    assert_int_equal(pst_options_set_pair(&table, &d->settings, "class-of=kv/=cache", d->fault), 0);
    assert_string_equal(d->settings.class_of.items[0], "kv/=cache");
    assert_int_equal(pst_options_set_pair(&table, &d->settings, "shards", d->fault), -EINVAL);
    assert_fault(d, "'shards' is not name=value");
    assert_int_equal(pst_options_set_pair(&table, &d->settings, "colour=red", d->fault), -ENOENT);
    assert_fault(d, "unknown option 'colour'");
    memset(long_name, 'a', sizeof(long_name));
    memcpy(long_name + sizeof(long_name) - 3, "=1", 3);
    assert_int_equal(pst_options_set_pair(&table, &d->settings, long_name, d->fault), -EINVAL);
}

/* A fault is never longer than its room, whatever was typed. */
static void faults_fit(void **state)
{
    struct desk *d = *state;
    char huge[3000];

    memset(huge, 'z', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_int_equal(set(d, "shards", huge), -EINVAL);
    assert_in_range(strlen(d->fault), 1, PST_FAULT_BYTES - 1);
    assert_int_equal(set(d, huge, "1"), -ENOENT);
    assert_in_range(strlen(d->fault), 1, PST_FAULT_BYTES - 1);
}

static void environment_is_read(void **state)
{
    struct desk *d = *state;

    setenv("PENSTOCK_PAGE_SIZE", "128K", 1);
    setenv("PENSTOCK_PLACE", "/there", 1);
    setenv("PENSTOCK_PRE_FAULT", "off", 1);
    setenv("PENSTOCK_CASE", "3", 1);
    assert_int_equal(pst_options_environment(&table, &d->settings, d->fault), 0);
    assert_int_equal(d->settings.page_size, 128 << 10);
    assert_string_equal(d->settings.place, "/there");
    assert_false(d->settings.pre_fault);
    assert_int_equal(d->settings.case_, 3);
    assert_int_equal(d->settings.shards, 4);
    setenv("PENSTOCK_SHARDS", "none", 1);
    assert_int_equal(pst_options_environment(&table, &d->settings, d->fault), -EINVAL);
    assert_fault(d, "shards: 'none' is not a number");
    unsetenv("PENSTOCK_PAGE_SIZE");
    unsetenv("PENSTOCK_PLACE");
    unsetenv("PENSTOCK_PRE_FAULT");
    unsetenv("PENSTOCK_CASE");
    unsetenv("PENSTOCK_SHARDS");
}

static void assert_share(struct desk *d, const char *text, int expected)
{
    setenv("OTHERS_SHARE", text, 1);
    d->settings.shards = 4;
    d->fault[0] = '\0';
    assert_int_equal(pst_options_aliases(&table, &d->settings, d->fault), expected < 0 ? expected : 0);
    assert_int_equal(d->settings.shards, expected < 0 ? 4 : expected);
    unsetenv("OTHERS_SHARE");
}

static void aliases_are_read(void **state)
{
    struct desk *d = *state;

    setenv("OTHERS_PAGE", "131072", 1);
    setenv("OTHERS_CLASS", "a/=cache", 1);
    assert_int_equal(pst_options_aliases(&table, &d->settings, d->fault), 0);
    assert_int_equal(d->settings.page_size, 128 << 10);
    assert_int_equal(d->settings.class_of.count, 1);
    setenv("PENSTOCK_PAGE_SIZE", "256K", 1);
    setenv("PENSTOCK_CLASS_OF", "b/=cache", 1);
    assert_int_equal(pst_options_environment(&table, &d->settings, d->fault), 0);
    assert_int_equal(d->settings.page_size, 256 << 10);
    assert_int_equal(d->settings.class_of.count, 1);
    assert_string_equal(d->settings.class_of.items[0], "b/=cache");
    unsetenv("PENSTOCK_PAGE_SIZE");
    unsetenv("PENSTOCK_CLASS_OF");
    setenv("OTHERS_PAGE", "", 1); /* not set */
    setenv("OTHERS_CLASS", "", 1);
    assert_int_equal(pst_options_aliases(&table, &d->settings, d->fault), 0);
    setenv("OTHERS_PAGE", "two", 1);
    assert_int_equal(pst_options_aliases(&table, &d->settings, d->fault), -EINVAL);
    assert_fault(d, "OTHERS_PAGE: page_size: 'two' is not a size");
    unsetenv("OTHERS_PAGE");
    unsetenv("OTHERS_CLASS");
}

static void aliases_may_count_in_larger_units(void **state)
{
    static const char *const bad[] = {
        ".9", "-1", "1,5", "0.5 ", "0.5K", "1e2", "0", "2.57", "184467440737095517", "184467440737095516.9"};
    struct desk *d = *state;

    assert_share(d, "0.9", 90);
    assert_share(d, "0.959999", 95);
    assert_share(d, "00.050000", 5);
    assert_share(d, "2", 200);
    assert_share(d, "1.", 100);
    for (size_t i = 0; i < pst_count_of(bad); i++) {
        assert_share(d, bad[i], -EINVAL);
        assert_fault(d, "OTHERS_SHARE: ");
    }
}

static int read_file(struct desk *d, const char *text)
{
    write_file(d, text, strlen(text), 0644);
    d->fault[0] = '\0';
    return pst_options_file(&table, &d->settings, d->path, d->fault);
}

static void files_are_read(void **state)
{
    struct desk *d = *state;

    assert_int_equal(read_file(d, "# all of it\n"
                                  "\n"
                                  "   \t \n"
                                  "shards = 9   # nine\n"
                                  "  page-size=4M\r\n"
                                  "class_of = a/=cache\n"
                                  "class_of = b/=cache\n"
                                  "place = /with blanks/in it\n"
                                  "case = 2"),
                     0);
    assert_int_equal(d->settings.shards, 9);
    assert_int_equal(d->settings.page_size, 4 << 20);
    assert_int_equal(d->settings.class_of.count, 2);
    assert_string_equal(d->settings.class_of.items[1], "b/=cache");
    assert_string_equal(d->settings.place, "/with blanks/in it");
    assert_int_equal(d->settings.case_, 2);
    assert_int_equal(read_file(d, ""), 0);
}

static void bad_lines_are_named(void **state)
{
    struct desk *d = *state;
    char want[200];

    assert_int_equal(read_file(d, "# one\n\nshards = 3\nshards = 1000\n"), -EINVAL);
    snprintf(want, sizeof(want), "%s:4: shards: 1000 is outside of 1 to 256", d->path);
    assert_fault(d, want);
    assert_int_equal(read_file(d, "shards = 3\ncolour = red\n"), -ENOENT);
    snprintf(want, sizeof(want), "%s:2: unknown option 'colour'", d->path);
    assert_fault(d, want);
    assert_int_equal(read_file(d, "shards 3\n"), -EINVAL);
    snprintf(want, sizeof(want), "%s:1: 'shards 3' is not name = value", d->path);
    assert_fault(d, want);
    assert_int_equal(read_file(d, "= 3\n"), -ENOENT);
    unlink(d->path);
    assert_int_equal(pst_options_file(&table, &d->settings, d->path, d->fault), -ENOENT);
    assert_fault(d, d->path);
    assert_int_equal(pst_options_file(&table, &d->settings, d->folder, d->fault), -EISDIR);
    assert_fault(d, d->folder);
}

/* The end of a line that is too long is not taken for a line of its own. */
static void long_lines_are_refused(void **state)
{
    struct desk *d = *state;
    char text[6000], want[160];

    memset(text, ' ', sizeof(text));
    memcpy(text, "# ", 2);
    memcpy(text + 4500, "shards = 77\n", 13);
    assert_int_equal(read_file(d, text), -EINVAL);
    snprintf(want, sizeof(want), "%s:1: ", d->path);
    assert_fault(d, want);
    assert_int_equal(d->settings.shards, 4);
}

static void help_and_print_show_every_row(void **state)
{
    struct desk *d = *state;
    char *help = NULL, printed[1024];
    size_t len = 0;
    FILE *out = open_memstream(&help, &len);

    pst_options_help(&table, out);
    fclose(out);
    for (size_t i = 0; i < table.count; i++) {
        assert_non_null(strstr(help, table.rows[i].text));
        assert_non_null(strstr(help, table.rows[i].unit));
    }
    assert_non_null(strstr(help, "--page-size "));
    assert_non_null(strstr(help, "--case "));
    assert_non_null(strstr(help, "[2M] (OTHERS_PAGE)\n"));
    assert_non_null(strstr(help, "[4] (OTHERS_SHARE times 100)\n"));
    free(help);

    assert_int_equal(set(d, "place", "/p"), 0);
    assert_int_equal(set(d, "class_of", "a=cache"), 0);
    assert_int_equal(set(d, "class_of", "b=keep"), 0);
    pst_options_print(&table, &d->settings, printed, sizeof(printed));
    assert_string_equal(printed,
                        "place=/p mode=calm page_size=2097152 shards=4 class_of=a=cache class_of=b=keep "
                        "pre_fault=yes mood=1 case=7");
}

static void print_stays_in_its_room(void **state)
{
    struct desk *d = *state;
    char whole[1024];

    assert_int_equal(set(d, "class_of", "a=cache"), 0);
    pst_options_print(&table, &d->settings, whole, sizeof(whole));
    for (size_t cap = 1; cap <= strlen(whole) + 1; cap++) {
        char *exact = malloc(cap);

        pst_options_print(&table, &d->settings, exact, cap);
        assert_int_equal(strlen(exact), cap - 1);
        assert_memory_equal(exact, whole, cap - 1);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(presets_are_set),
        DESK_TEST(strings_are_owned_and_replaced),
        DESK_TEST(sizes_have_units),
        DESK_TEST(sizes_are_bounded),
        DESK_TEST(numbers_are_bounded_and_have_no_units),
        DESK_TEST(flags_know_a_few_words),
        DESK_TEST(lists_grow_to_their_bound),
        DESK_TEST(lists_are_those_of_the_last_source),
        DESK_TEST(flags_say_how_much_they_took),
        DESK_TEST(names_take_both_dashes),
        DESK_TEST(pairs_are_cut_at_the_first_equals),
        DESK_TEST(faults_fit),
        DESK_TEST(environment_is_read),
        DESK_TEST(aliases_are_read),
        DESK_TEST(aliases_may_count_in_larger_units),
        DESK_TEST(files_are_read),
        DESK_TEST(bad_lines_are_named),
        DESK_TEST(long_lines_are_refused),
        DESK_TEST(help_and_print_show_every_row),
        DESK_TEST(print_stays_in_its_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
