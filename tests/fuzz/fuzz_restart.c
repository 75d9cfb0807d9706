/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_restart.c: what a process finds in the arenas of another. A small store's memory is made once; an
 * input changes bytes of it, anywhere, and may put checksums right again, so that what they vouch for is
 * wrong. Whatever it comes to, the next store opens or says why not, serves no value with a checksum that is
 * not as it was put, and gives all of its pages back.
 */
#include "fuzz.h"

#include "base/clock.h"
#include "base/hash.h"
#include "store/evict_priv.h"
#include "store/keys.h"
#include "store/put.h"
#include "store/read.h"
#include "store/record_mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PAGE_BYTES = 64 << 10, PAGES = 12, KEYS = 24, CHANGES_MAX = 64 };

static char folder[] = "/dev/shm/pst-fuzz-XXXXXX";
static char path[64];
static uint8_t *image;
static size_t image_bytes;
static uint64_t offsets[KEYS]; /* of the records */
static uint32_t check_seed;

void __wrap_pst_random(void *out, size_t len);
void __wrap_pst_random(void *out, size_t len)
{
    static uint64_t x = 1;
    uint8_t *at = out;

    while (len-- > 0)
        *at++ = (uint8_t)((x = x * 6364136223846793005ull + 1442695040888963407ull) >> 56);
}

static int open_store(struct pst_store **out, uint32_t shards)
{
    const char *prefix = "c", *fault = NULL;
    struct pst_store_options options = {
        .arenas = {.bytes = PAGE_BYTES * PAGES,
                   .page_bytes = PAGE_BYTES,
                   .arena_bytes = PAGE_BYTES * PAGES,
                   .folder = folder,
                   .name = "f"},
        .shard_count = shards,
        .watermark_percent = 100,
        .cache_prefixes = &prefix,
        .cache_prefix_count = 1,
    };
    int r = pst_store_open(&options, out, &fault);

    pst_assert(r == 0 || *fault);
    return r;
}

static struct pst_lookup lookup_of(const struct pst_shard *s, uint32_t i, char name[16])
{
    snprintf(name, 16, "%c%u", i % 2 ? 'c' : 'k', i);
    return pst_shard_lookup(s, (struct pst_bytes){name, strlen(name)});
}

/* Every shape of a value: inside of its record, in a reservation, in pages with a tail. */
static void value_of(uint32_t i, uint8_t **value, size_t *bytes)
{
    static const size_t sizes[] = {10, 300, 2048, 3000, 20000, 66000};

    *bytes = sizes[i % pst_count_of(sizes)];
    *value = malloc(*bytes);
    pst_assert(*value);
    memset(*value, (int)i + 1, *bytes);
}

static void put_all(struct pst_shard *s)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        struct pst_put put = {.depth = PST_DEPTH_NONE, .flags = PST_PUT_CHECKSUM};
        struct pst_answer answer;
        uint8_t *value;
        char name[16];

        value_of(i, &value, &put.value_bytes);
        put.lookup = lookup_of(s, i, name);
        put.value_crc = pst_crc32c(0, value, put.value_bytes);
        if (pst_shard_put(s, &put, value, pst_now_ns(), &answer) == 0)
            offsets[i] = pst_record_offset(s, pst_shard_find(s, &put.lookup));
        free(value);
    }
}

static void remove_files(void)
{
    unlink(path);
    rmdir(folder);
}

static void make_image(void)
{
    struct pst_store *store;
    int fd, r;

    pst_assert(mkdtemp(folder));
    atexit(remove_files);
    snprintf(path, sizeof(path), "%s/penstock-f-0.kept", folder);
    r = open_store(&store, 1);
    pst_assert(r == 0);
    put_all(pst_store_shard(store, 0));
    check_seed = store->check_seed;
    image_bytes = store->arenas.stride;
    pst_store_close(store);
    image = malloc(image_bytes);
    fd = open(path, O_RDONLY);
    pst_assert(image && fd >= 0 && pread(fd, image, image_bytes, 0) == (ssize_t)image_bytes);
    close(fd);
}

/* Where a change falls: in a record, a descriptor, the notes, the header, or anywhere. */
static size_t place(struct fuzz *in, uint8_t what)
{
    size_t header = image_bytes - 4096, notes = header - PST_ARENA_NOTES_BYTES;

    switch (what % 8) {
    case 0:
        return notes + fuzz_below(in, 256);
    case 1:
        return header + fuzz_below(in, 300);
    case 2:
        return (size_t)PAGE_BYTES * PAGES + fuzz_below(in, PAGES * sizeof(struct pst_page_desc));
    case 3:
        return fuzz_below(in, (uint32_t)image_bytes);
    default:
        return offsets[fuzz_below(in, KEYS)] + fuzz_below(in, 160);
    }
}

/* As far as there is a record to be put right. Return: whether there was. */
static bool put_right(uint8_t *bytes, uint64_t offset)
{
    struct pst_record *r = (struct pst_record *)(void *)(bytes + offset);
    size_t body_at = pst_record_body_at(r->flags, r->key_bytes, r->attr_bytes);

    if (!offset || body_at > 8192 || offset + body_at + 8192 > (size_t)PAGE_BYTES * PAGES)
        return false;
    if (r->flags & PST_RECORD_EXTERNAL ? pst_record_external(r)->run_count > 500 : r->value_bytes > 4096)
        return false;
    r->check = pst_record_check(r, check_seed, offset);
    return true;
}

/* Return: whether checksums vouch for something else than what was put. */
static bool change(struct fuzz *in, uint8_t *bytes)
{
    bool forged = false;

    for (int i = 0; i < CHANGES_MAX && in->left > 0; i++) {
        uint8_t what = (uint8_t)fuzz_number(in, 1);
        size_t at = place(in, what);

        if (what & 16)
            forged |= put_right(bytes, offsets[fuzz_below(in, KEYS)]);
        else
            bytes[at] ^= (uint8_t)fuzz_number(in, 1);
    }
    return forged;
}

static void read_all(struct pst_store *store, bool forged)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t n = 0; n < pst_store_shard_count(store); n++) {
            struct pst_shard *s = pst_store_shard(store, n);
            char name[16];
            struct pst_lookup lookup = lookup_of(s, i, name);
            struct pst_record *r = pst_shard_find(s, &lookup);
            struct iovec piece;

            if (!r || pst_record_verify(s, r) < 0)
                continue;
            for (uint64_t at = 0; pst_record_piece(s, r, at, r->value_bytes - at, &piece);
                 at += piece.iov_len) {
                for (size_t k = 0; k < piece.iov_len; k++)
                    pst_assert(((uint8_t *)piece.iov_base)[k] == i + 1 || forged);
            }
        }
    }
}

static void clear(struct pst_store *store)
{
    const struct pst_range all = {0};
    struct pst_store_stat stat;
    uint8_t buf[PST_SWEEP_BYTES_MAX];

    for (uint32_t n = 0; n < pst_store_shard_count(store); n++) {
        struct pst_shard *s = pst_store_shard(store, n);

        put_all(s);
        while (pst_shard_evict(s, pst_now_ns()))
            ;
        while (s->stat.keys > 0)
            pst_shard_sweep(s, &all, false, pst_now_ns(), buf);
    }
    pst_store_stat(store, &stat);
    pst_assert(stat.pages_used == store->restored.held);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    struct pst_store *store;
    uint64_t kept[KEYS];
    uint32_t shards;
    uint8_t *copy;
    bool forged;
    int fd;

    if (!image)
        make_image();
    copy = malloc(image_bytes);
    pst_assert(copy);
    memcpy(copy, image, image_bytes);
    memcpy(kept, offsets, sizeof(kept));
    shards = 1 + fuzz_below(&in, 3);
    forged = change(&in, copy);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    pst_assert(fd >= 0 && pwrite(fd, copy, image_bytes, 0) == (ssize_t)image_bytes);
    close(fd);
    free(copy);
    if (open_store(&store, shards) == 0) {
        read_all(store, forged);
        clear(store);
        pst_store_close(store);
    }
    memcpy(offsets, kept, sizeof(kept));
    return 0;
}
