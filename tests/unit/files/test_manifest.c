/* SPDX-License-Identifier: Apache-2.0 */
/* test_manifest.c: which entries a manifest takes, entries as bytes, and files cut into chunks. */
#include "files/tree/chunk.h"
#include "files/tree/manifest.h"

#include "lib/cm.h"

#include <stdio.h>
#include <sys/mman.h>

static struct pst_entry folder(const char *path)
{
    return (struct pst_entry){.kind = PST_ENTRY_FOLDER, .mode = 0755, .path = path, .target = ""};
}

static struct pst_entry file(const char *path, uint64_t bytes)
{
    return (struct pst_entry){
        .kind = PST_ENTRY_FILE, .mode = 0644, .bytes = bytes, .path = path, .target = ""};
}

static struct pst_entry link_to(const char *path, const char *target)
{
    return (struct pst_entry){.kind = PST_ENTRY_LINK, .path = path, .target = target};
}

static int add(struct pst_manifest *m, struct pst_entry entry)
{
    return pst_manifest_add(m, &entry);
}

static void entries_come_in_their_order(void **state)
{
    struct pst_manifest m = {.entries = NULL};

    (void)state;
    assert_int_equal(add(&m, file("a", 1)), -EINVAL); /* the tree itself is first */
    assert_int_equal(add(&m, link_to("", "x")), -EINVAL);
    assert_int_equal(add(&m, folder("")), 0);
    assert_int_equal(add(&m, folder("")), -EINVAL);
    assert_int_equal(add(&m, folder("a")), 0);
    assert_int_equal(add(&m, file("a/x", 5)), 0);
    assert_int_equal(add(&m, file("a/x", 5)), -EINVAL);
    assert_int_equal(add(&m, file("a/w", 5)), -EINVAL);                /* behind its neighbour */
    assert_int_equal(add(&m, file("b/x", 5)), -EINVAL);                /* there is no such folder */
    assert_int_equal(add(&m, file("a/.penstock-x.tree", 5)), -EINVAL); /* what has not arrived */
    assert_int_equal(add(&m, link_to("b", "../../etc")), 0);
    assert_int_equal(add(&m, file("b/x", 5)), -EINVAL); /* a link is no folder */
    assert_int_equal(add(&m, file("a/y", 5)), -EINVAL); /* its folder was left */
    assert_int_equal(add(&m, file("c", 7)), 0);
    assert_int_equal(add(&m, file("c/x", 7)), -EINVAL);
    assert_int_equal(m.count, 5);
    assert_int_equal(m.file_count, 2);
    assert_int_equal(m.file_bytes, 12);
    pst_manifest_fini(&m);
    assert_int_equal(add(&m, file("", 3)), 0); /* a tree that is a file */
    assert_int_equal(add(&m, file("a", 3)), -EINVAL);
    pst_manifest_fini(&m);
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    static const char *const bad[] = {"..", ".", "/etc", "a/", "a//b", "a/../b", "a/..", "./a", "a/./b", "/"};
    struct pst_manifest m = {.entries = NULL};
    char longest[PST_ENTRY_TEXT_BYTES_MAX + 2];
    struct pst_entry entry;

    (void)state;
    assert_int_equal(add(&m, folder("")), 0);
    assert_int_equal(add(&m, folder("a")), 0);
    for (size_t i = 0; i < pst_count_of(bad); i++)
        assert_int_equal(add(&m, file(bad[i], 1)), -EINVAL);
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    assert_int_equal(add(&m, file(longest, 1)), -EINVAL);
    longest[256] = 0;
    assert_int_equal(add(&m, file(longest, 1)), -EINVAL); /* no file system has such a name */
    longest[255] = 0;
    assert_int_equal(add(&m, file(longest, 1)), 0);
    entry = file("y", UINT64_MAX);
    assert_int_equal(pst_manifest_add(&m, &entry), -EINVAL);
    entry = file("y", 1);
    entry.mode = 04755;
    assert_int_equal(pst_manifest_add(&m, &entry), -EINVAL);
    entry = file("y", 1);
    entry.kind = 4;
    assert_int_equal(pst_manifest_add(&m, &entry), -EINVAL);
    entry = folder("y");
    entry.bytes = 1;
    assert_int_equal(pst_manifest_add(&m, &entry), -EINVAL);
    assert_int_equal(add(&m, link_to("y", "")), -EINVAL);
    pst_manifest_fini(&m);
}

static void paths_are_found(void **state)
{
    static const char *const paths[] = {"", "a", "a/\001", "a/b", "a/b/c", "a\001", "a b", "ab", "b"};
    struct pst_manifest m = {.entries = NULL};

    (void)state;
    for (size_t i = 0; i < pst_count_of(paths); i++)
        assert_int_equal(add(&m, folder(paths[i])), 0);
    for (size_t i = 0; i < pst_count_of(paths); i++)
        assert_ptr_equal(pst_manifest_find(&m, paths[i]), &m.entries[i]);
    assert_null(pst_manifest_find(&m, "a/"));
    assert_null(pst_manifest_find(&m, "a/b/c/d"));
    assert_null(pst_manifest_find(&m, "c"));
    pst_manifest_fini(&m);
}

static void depth_is_bounded(void **state)
{
    struct pst_manifest m = {.entries = NULL};
    char path[2 * PST_ENTRY_DEPTH_MAX + 4] = "";
    int r = add(&m, folder(""));

    (void)state;
    for (int depth = 1; r == 0; depth++) {
        snprintf(path + strlen(path), sizeof(path) - strlen(path), "%sd", depth > 1 ? "/" : "");
        r = add(&m, folder(path));
        assert_true(depth <= PST_ENTRY_DEPTH_MAX + 1);
    }
    assert_int_equal(r, -E2BIG);
    pst_manifest_fini(&m);
}

static void bytes_of_all_are_bounded(void **state)
{
    struct pst_manifest m = {.entries = NULL};

    (void)state;
    assert_int_equal(add(&m, folder("")), 0);
    assert_int_equal(add(&m, file("a", INT64_MAX - 5)), 0);
    assert_int_equal(add(&m, file("b", 6)), -E2BIG);
    assert_int_equal(add(&m, file("b", 5)), 0);
    assert_int_equal(m.file_bytes, INT64_MAX);
    pst_manifest_fini(&m);
}

static void entries_as_bytes(void **state)
{
    const struct pst_entry all[] = {folder(""), file("a b\n", 1ull << 40), link_to("l", "/no/where")};
    uint8_t wire[PST_ENTRY_WIRE_BYTES_MAX];

    (void)state;
    for (size_t i = 0; i < pst_count_of(all); i++) {
        size_t bytes = pst_entry_encode(&all[i], wire);
        struct pst_entry_texts texts;
        struct pst_entry got;

        for (size_t cut = 0; cut <= bytes; cut++) {
            struct pst_reader r = {.at = wire, .left = cut};

            pst_entry_decode(&r, &texts, &got);
            assert_int_equal(r.bad, cut < bytes);
        }
        assert_int_equal(got.kind, all[i].kind);
        assert_int_equal(got.mode, all[i].mode);
        assert_int_equal(got.bytes, all[i].bytes);
        assert_int_equal(got.modified_ns, all[i].modified_ns);
        assert_string_equal(got.path, all[i].path);
        assert_string_equal(got.target, all[i].target);
    }
}

/* RFC 8439, 2.5.2. */
static void digests_are_poly1305(void **state)
{
    static const uint8_t key[PST_DIGEST_KEY_BYTES] = {
        0x85, 0xd6, 0xbe, 0x78, 0x57, 0x55, 0x6d, 0x33, 0x7f, 0x44, 0x52, 0xfe, 0x42, 0xd5, 0x06, 0xa8,
        0x01, 0x03, 0x80, 0x8a, 0xfb, 0x0d, 0xb2, 0xfd, 0x4a, 0xbf, 0xf6, 0xaf, 0x41, 0x49, 0xf5, 0x1b};
    static const uint8_t tag[PST_DIGEST_BYTES] = {0xa8, 0x06, 0x1d, 0xc1, 0x30, 0x51, 0x36, 0xc6,
                                                  0xc2, 0x2b, 0x8b, 0xaf, 0x0c, 0x01, 0x27, 0xa9};
    static const char text[] = "Cryptographic Forum Research Group";
    struct pst_digester *digester = pst_digester_open(key);
    struct pst_digest digest;

    (void)state;
    assert_non_null(digester);
    for (int again = 0; again < 2; again++) { /* one key for many chunks */
        pst_digest_of(digester, text, sizeof(text) - 1, &digest);
        assert_memory_equal(digest.bytes, tag, sizeof(tag));
    }
    pst_digester_close(digester);
}

struct cuts {
    size_t count;
    uint64_t ends[4096];
};

static int note_cut(void *ctx, uint64_t at, const uint8_t *data, size_t bytes)
{
    struct cuts *cuts = ctx;

    (void)data;
    assert_int_equal(at, cuts->count ? cuts->ends[cuts->count - 1] : 0);
    assert_true(bytes > 0 && bytes <= PST_CHUNK_BYTES_MAX && cuts->count < pst_count_of(cuts->ends));
    cuts->ends[cuts->count++] = at + bytes;
    return 0;
}

/* Bytes that look random, the same each time. */
static void fill(uint8_t *data, size_t bytes)
{
    uint64_t x = 88172645463325252ull;

    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (uint8_t)x;
    }
}

static int file_with(const uint8_t *data, size_t bytes)
{
    int fd = memfd_create("chunks", MFD_CLOEXEC);

    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    return fd;
}

static void cuts_follow_the_content(void **state)
{
    enum { BYTES = 20 << 20, INSERTED = 1234 };
    uint8_t *data = malloc(BYTES + INSERTED);
    static struct cuts before, after;
    size_t shared = 0;
    int fd;

    (void)state;
    before.count = after.count = 0;
    assert_non_null(data);
    fill(data, BYTES);
    fd = file_with(data, BYTES);
    assert_int_equal(pst_chunks_of(fd, BYTES, true, note_cut, &before), 0);
    assert_int_equal(before.ends[before.count - 1], BYTES);
    assert_true(before.count > BYTES / PST_CHUNK_BYTES_MAX && before.count < BYTES / PST_CHUNK_BYTES_MIN);
    assert_int_equal(pst_chunks_of(fd, BYTES + 1, true, note_cut, &(struct cuts){0}), -ESTALE);
    close(fd);
    memmove(data + 1000000 + INSERTED, data + 1000000, BYTES - 1000000);
    fd = file_with(data, BYTES + INSERTED);
    assert_int_equal(pst_chunks_of(fd, BYTES + INSERTED, true, note_cut, &after), 0);
    close(fd);
    for (size_t i = 0, j = 0; i < after.count; i++) {
        while (j < before.count && before.ends[j] + INSERTED < after.ends[i])
            j++;
        shared += j < before.count && before.ends[j] + INSERTED == after.ends[i];
    }
    assert_true(shared > before.count * 9 / 10); /* all but those in front of what was put in, and one */
    free(data);
}

static void cuts_at_their_places(void **state)
{
    uint8_t data[3 * 65536 + 7] = {0};
    struct cuts cuts = {0};
    int fd = file_with(data, sizeof(data));

    (void)state;
    assert_int_equal(pst_chunks_of(fd, sizeof(data), false, note_cut, &cuts), 0);
    assert_int_equal(cuts.count, 4);
    assert_int_equal(cuts.ends[2], 3 * PST_CHUNK_BYTES);
    cuts.count = 0;
    assert_int_equal(pst_chunks_of(fd, sizeof(data), true, note_cut, &cuts), 0); /* nothing but zeros */
    assert_int_equal(cuts.ends[cuts.count - 1], sizeof(data));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_come_in_their_order),
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
        cmocka_unit_test(paths_are_found),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(bytes_of_all_are_bounded),
        cmocka_unit_test(entries_as_bytes),
        cmocka_unit_test(digests_are_poly1305),
        cmocka_unit_test(cuts_follow_the_content),
        cmocka_unit_test(cuts_at_their_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
