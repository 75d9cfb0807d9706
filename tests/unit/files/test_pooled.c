/* SPDX-License-Identifier: Apache-2.0 */
/* test_pooled.c: trees as values: the same tree comes back, its pieces cover its files, and bytes that are
 * no tree are refused. */
#include "files/pooled/pooled.h"

#include "lib/cm.h"

#include <stdio.h>

enum { CHUNK_BYTES = 36, ROOT_BYTES = 44, VERSION_AT = 7, LIST_BYTES_MAX = 4096 };

struct bytes {
    uint8_t data[LIST_BYTES_MAX];
    size_t count;
};

static int bytes_add(void *ctx, const void *data, size_t count)
{
    struct bytes *bytes = ctx;

    assert_true(count <= sizeof(bytes->data) - bytes->count);
    memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
    return 0;
}

static void add(struct pst_pooled *tree, enum pst_entry_kind kind, const char *path, uint64_t bytes)
{
    struct pst_entry entry = {.kind = kind,
                              .mode = kind == PST_ENTRY_LINK ? 0 : 0750,
                              .bytes = bytes,
                              .modified_ns = -5,
                              .path = path,
                              .target = kind == PST_ENTRY_LINK ? "../x" : ""};

    assert_int_equal(pst_manifest_add(&tree->m, &entry), 0);
}

static void add_chunk(struct pst_pooled_chunks *chunks, uint32_t bytes)
{
    struct pst_pooled_chunk chunk = {.bytes = bytes};

    memset(chunk.sha256, (int)bytes, sizeof(chunk.sha256));
    assert_int_equal(pst_pooled_chunks_add(chunks, &chunk), 0);
}

/* Two small files in one chunk, one with holes, an empty one, and a link. */
static void make_tree(struct pst_pooled *tree)
{
    *tree = (struct pst_pooled){.holes = NULL};
    add(tree, PST_ENTRY_FOLDER, "", 0);
    add(tree, PST_ENTRY_FILE, "a", 10);
    add(tree, PST_ENTRY_FOLDER, "b", 0);
    add(tree, PST_ENTRY_FILE, "b/empty", 0);
    add(tree, PST_ENTRY_LINK, "b/link", 0);
    add(tree, PST_ENTRY_FILE, "b/sparse", 1000);
    add(tree, PST_ENTRY_FILE, "c", 20);
    assert_int_equal(pst_pooled_hole_add(tree, &(struct pst_pooled_hole){5, 0, 100}), 0);
    assert_int_equal(pst_pooled_hole_add(tree, &(struct pst_pooled_hole){5, 150, 850}), 0);
    add_chunk(&tree->chunks, 30);
    add_chunk(&tree->chunks, 50);
}

/* Return: the root, for free(). */
static uint8_t *encode(const struct pst_pooled *tree, struct bytes *list, size_t *root_bytes)
{
    struct pst_pooled_chunks parts = {.list = NULL};
    struct pst_pooled_chunk part = {.bytes = 0};
    uint8_t *root;

    list->count = 0;
    assert_int_equal(pst_pooled_encode(tree, bytes_add, list), 0);
    part.bytes = (uint32_t)list->count;
    pst_sha256(list->data, list->count, part.sha256);
    assert_int_equal(pst_pooled_chunks_add(&parts, &part), 0);
    assert_int_equal(pst_pooled_root_encode(tree, &parts, &root, root_bytes), 0);
    pst_pooled_chunks_fini(&parts);
    return root;
}

/* What becomes of a root and a list. */
static int decode(const uint8_t *root, size_t root_bytes, const uint8_t *list, size_t list_bytes)
{
    struct pst_pooled_root said = {.entry_count = 0};
    struct pst_pooled tree = {.holes = NULL};
    int r = pst_pooled_root_decode(root, root_bytes, &said);

    if (r == 0)
        r = pst_pooled_decode(&said, list, list_bytes, &tree);
    pst_pooled_fini(&tree);
    pst_pooled_root_fini(&said);
    return r;
}

static void a_tree_comes_back(void **state)
{
    struct pst_pooled_root said = {.entry_count = 0};
    struct pst_pooled tree, other = {.holes = NULL};
    struct bytes list, again;
    size_t root_bytes, again_bytes;
    uint8_t *root, *root_again;

    (void)state;
    make_tree(&tree);
    root = encode(&tree, &list, &root_bytes);
    assert_int_equal(root_bytes, ROOT_BYTES + CHUNK_BYTES);
    assert_int_equal(pst_pooled_root_decode(root, root_bytes, &said), 0);
    assert_int_equal(said.file_count, 4);
    assert_int_equal(said.file_bytes, 1030);
    assert_int_equal(said.data_bytes, 80);
    assert_int_equal(pst_pooled_decode(&said, list.data, list.count, &other), 0);
    assert_int_equal(other.m.count, tree.m.count);
    assert_string_equal(other.m.entries[4].target, "../x");
    assert_int_equal(other.hole_count, 2);
    root_again = encode(&other, &again, &again_bytes);
    assert_int_equal(again.count, list.count);
    assert_memory_equal(again.data, list.data, list.count);
    assert_memory_equal(root_again, root, root_bytes);
    free(root);
    free(root_again);
    pst_pooled_root_fini(&said);
    pst_pooled_fini(&other);
    pst_pooled_fini(&tree);
}

static void pieces_cover_the_files(void **state)
{
    static const struct pst_pooled_piece expected[] = {
        {1, 0, 0, 0, 10},   {5, PST_POOLED_HOLE, 0, 0, 100},   {5, 0, 10, 100, 20},
        {5, 1, 0, 120, 30}, {5, PST_POOLED_HOLE, 0, 150, 850}, {6, 1, 30, 0, 20},
    };
    struct pst_pooled tree;
    struct pst_pooled_walk walk = {.tree = &tree};
    struct pst_pooled_piece piece;

    (void)state;
    make_tree(&tree);
    for (size_t i = 0; i < pst_count_of(expected); i++) {
        assert_true(pst_pooled_walk_next(&walk, &piece));
        assert_int_equal(piece.entry, expected[i].entry);
        assert_int_equal(piece.chunk, expected[i].chunk);
        assert_int_equal(piece.chunk_offset, expected[i].chunk_offset);
        assert_int_equal(piece.at, expected[i].at);
        assert_int_equal(piece.bytes, expected[i].bytes);
    }
    assert_false(pst_pooled_walk_next(&walk, &piece));
    pst_pooled_fini(&tree);
}

static void cut_off_bytes_are_refused(void **state)
{
    struct pst_pooled tree;
    struct bytes list;
    size_t root_bytes;
    uint8_t *root;

    (void)state;
    make_tree(&tree);
    root = encode(&tree, &list, &root_bytes);
    for (size_t i = 0; i < root_bytes; i++)
        assert_int_equal(decode(root, i, list.data, list.count), -EBADMSG);
    for (size_t i = 0; i < list.count; i++)
        assert_int_equal(decode(root, root_bytes, list.data, i), -EBADMSG);
    assert_int_equal(decode(root, root_bytes, list.data, list.count + 1), -EBADMSG);
    free(root);
    pst_pooled_fini(&tree);
}

/* A root whose numbers are not those of its list. */
static void other_numbers_are_refused(void **state)
{
    struct pst_pooled tree;
    struct bytes list;
    size_t root_bytes;
    uint8_t *root;

    (void)state;
    make_tree(&tree);
    root = encode(&tree, &list, &root_bytes);
    for (size_t i = 0; i < ROOT_BYTES; i++) {
        for (int bit = 0; bit < 8; bit++) {
            root[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(decode(root, root_bytes, list.data, list.count),
                             (i == VERSION_AT && bit > 0) || (i > VERSION_AT && i <= VERSION_AT + 4)
                                 ? -EPROTONOSUPPORT /* a later version, or a flag of one */
                                 : -EBADMSG);
            root[i] ^= (uint8_t)(1 << bit);
        }
    }
    assert_int_equal(decode(root, root_bytes, list.data, list.count), 0);
    free(root);
    pst_pooled_fini(&tree);
}

/* Replaces a path of the list by another one as long. */
static int decode_with_path(const char *path, const char *other)
{
    size_t path_bytes = strlen(path), root_bytes;
    struct pst_pooled tree;
    struct bytes list;
    uint8_t *root, *at;
    int r;

    make_tree(&tree);
    root = encode(&tree, &list, &root_bytes);
    at = memmem(list.data, list.count, path, path_bytes);
    assert_non_null(at);
    assert_int_equal(strlen(other), path_bytes);
    memcpy(at, other, path_bytes);
    r = decode(root, root_bytes, list.data, list.count);
    free(root);
    pst_pooled_fini(&tree);
    return r;
}

static void no_path_leads_outside(void **state)
{
    (void)state;
    assert_int_equal(decode_with_path("b/sparse", "b/sparsf"), 0);
    assert_int_equal(decode_with_path("b/sparse", "../parse"), -EBADMSG);
    assert_int_equal(decode_with_path("b/sparse", "/bsparse"), -EBADMSG);
    assert_int_equal(decode_with_path("b/sparse", "b//parse"), -EBADMSG);
    assert_int_equal(decode_with_path("b/sparse", "b/link/e"), -EBADMSG);
    assert_int_equal(decode_with_path("b/sparse", "b/aparse"), -EBADMSG); /* not in its order */
}

static void holes_lie_in_files(void **state)
{
    static const struct pst_pooled_hole wrong[] = {
        {5, 140, 10},            /* in front of the last one */
        {5, 1000, 1},            /* behind the file's end */
        {6, 0, 21},              /* longer than the file */
        {6, 15, UINT64_MAX - 2}, /* past all numbers */
        {6, 3, 0},               /* nothing */
        {2, 0, 1},               /* of a folder */
        {7, 0, 1},               /* of no entry */
        {1, 0, 1},               /* of an entry in front of the last one's */
    };
    struct pst_pooled tree;

    (void)state;
    make_tree(&tree);
    for (size_t i = 0; i < pst_count_of(wrong); i++)
        assert_int_equal(pst_pooled_hole_add(&tree, &wrong[i]), -EBADMSG);
    assert_int_equal(tree.hole_count, 2);
    assert_int_equal(pst_pooled_hole_add(&tree, &(struct pst_pooled_hole){6, 15, 5}), 0);
    pst_pooled_fini(&tree);
}

static void chunks_have_a_length(void **state)
{
    struct pst_pooled_chunks chunks = {.list = NULL};
    struct pst_pooled_chunk chunk = {.bytes = 0};

    (void)state;
    assert_int_equal(pst_pooled_chunks_add(&chunks, &chunk), -EBADMSG);
    chunk.bytes = PST_CHUNK_BYTES_MAX + 1;
    assert_int_equal(pst_pooled_chunks_add(&chunks, &chunk), -EBADMSG);
    chunk.bytes = PST_CHUNK_BYTES_MAX;
    assert_int_equal(pst_pooled_chunks_add(&chunks, &chunk), 0);
    assert_int_equal(chunks.bytes, PST_CHUNK_BYTES_MAX);
    pst_pooled_chunks_fini(&chunks);
}

static void keys_of_chunks(void **state)
{
    struct pst_pooled_chunk chunk = {.bytes = 3};
    uint8_t digest[PST_SHA256_BYTES];
    char key[PST_POOLED_KEY_BYTES + 1];

    (void)state;
    pst_sha256("abc", 3, chunk.sha256);
    pst_pooled_key(&chunk, key);
    assert_string_equal(key, "chunk/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(pst_pooled_key_parse(key, strlen(key), digest));
    assert_memory_equal(digest, chunk.sha256, sizeof(digest));
    assert_false(pst_pooled_key_parse(key, strlen(key) - 1, digest));
    key[10] = 'A';
    assert_false(pst_pooled_key_parse(key, strlen(key), digest));
    assert_false(pst_pooled_key_parse("chunk/", 6, digest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_comes_back),         cmocka_unit_test(pieces_cover_the_files),
        cmocka_unit_test(cut_off_bytes_are_refused), cmocka_unit_test(other_numbers_are_refused),
        cmocka_unit_test(no_path_leads_outside),     cmocka_unit_test(holes_lie_in_files),
        cmocka_unit_test(chunks_have_a_length),      cmocka_unit_test(keys_of_chunks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
