/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_master.c: questions to a pool's master, out of codes, members and bytes that the input names, some of
 * them right. Whatever is asked, the answer keeps to its room and decodes, and the master goes on.
 */
#include "fuzz.h"

#include "master/master.h"
#include "master/stored.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"
#include "wire/pool_share.h"

#include <stdio.h>

enum { MEMBERS = 8, SHARES = 2, QUESTIONS_MAX = 64, ROOM = 64 << 10 };

static struct pst_master *master;
static struct pst_id pool;
static char folder[] = "/dev/shm/penstock-fuzz-XXXXXX";

static void close_master(void)
{
    static const char *const names[] = {"map", "map.lock", "map.new"};
    char path[64];

    master = pst_master_close(master);
    for (size_t i = 0; i < pst_count_of(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* As the file of the pool map says. */
static void learn_pool(const char *path)
{
    static uint8_t bytes[1 << 20];
    struct pst_map *map = NULL;
    struct pst_bytes stored = {.data = bytes};
    FILE *file = fopen(path, "r");

    pst_assert(file);
    stored.len = fread(bytes, 1, sizeof(bytes), file);
    pst_assert(pst_stored_take_end(&stored) > 0 && pst_map_decode(stored, MEMBERS, &map) == 0);
    pool = map->pool;
    pst_map_close(map);
    fclose(file);
}

static void open_master(void)
{
    static struct pst_master_settings settings = {
        .blocks_max = 1024, .block_hits_max = 1024, .block_hit_ttl_ms = 10};
    static char path[64];
    char fault[PST_FAULT_BYTES];

    pst_assert(mkdtemp(folder) && atexit(close_master) == 0);
    snprintf(path, sizeof(path), "%s/map", folder);
    pst_directory_preset(&settings.directory);
    settings.directory.members_max = MEMBERS;
    settings.directory.directory_shards = SHARES;
    settings.directory.entries_max = settings.directory.reservations_max = 1024;
    settings.pool_map = path;
    pst_assert(pst_master_open(&settings, NULL, NULL, NULL, &master, fault) == 0);
    learn_pool(path);
}

/* The beginning of a question that a member asks of, with its number and epoch where they belong. */
static size_t put_right(struct fuzz *in, uint8_t code, uint8_t *to)
{
    struct pst_pool_heartbeat beat = {.epoch = fuzz_below(in, 16), .sequence = fuzz_below(in, 16)};
    struct pst_pool_join join = {.start = fuzz_below(in, 4), .address = "a:1"};
    struct pst_pool_member member = {.epoch = fuzz_below(in, 16),
                                     .member = (uint16_t)fuzz_below(in, MEMBERS)};
    struct pst_pool_repair repair = {
        .epoch = member.epoch, .member = member.member, .repair = 1ull << 32 | fuzz_below(in, 16)};
    struct pst_pool_share share = {.start = fuzz_below(in, 4), .share = (uint8_t)fuzz_below(in, SHARES + 1)};

    join.id[0] = (uint8_t)fuzz_below(in, 4);
    memcpy(join.pool, &pool, fuzz_below(in, 2) ? sizeof(pool) : 0);
    memcpy(beat.pool, &pool, sizeof(pool));
    memcpy(member.pool, &pool, sizeof(pool));
    member.ends = (uint8_t)fuzz_below(in, 4);
    memcpy(repair.pool, &pool, sizeof(pool));
    beat.member = member.member;
    beat.flags = (uint16_t)fuzz_below(in, 4);
    beat.share_last = SHARES - 1;
    memcpy(share.pool, &pool, fuzz_below(in, 2) ? sizeof(pool) : 0);
    snprintf(share.address, sizeof(share.address), "a:%u", fuzz_below(in, 3));
    if (code == PST_POOL_SHARE) {
        memcpy(to, &share, sizeof(share));
        return sizeof(share);
    }
    if (code == PST_POOL_JOIN)
        return pst_pool_put_join(to, &join);
    if (code == PST_POOL_HEARTBEAT)
        return pst_pool_put_heartbeat(to, &beat, NULL);
    if (code == PST_POOL_LEAVE || code == PST_POOL_SUSPECT) {
        memcpy(to, &member, sizeof(member));
        return sizeof(member);
    }
    if (code == PST_POOL_REPAIR) {
        memcpy(to, &repair, sizeof(repair));
        return sizeof(repair);
    }
    if (code == PST_POOL_DRAIN) {
        struct pst_pool_drain drain = {.id = {join.id[0]}, .drains = (uint8_t)fuzz_below(in, 2)};

        memcpy(to, &drain, sizeof(drain));
        return sizeof(drain);
    }
    memcpy(to, &pool, sizeof(pool));
    if (code == PST_POOL_COPIES || code == PST_POOL_MAP)
        return sizeof(pool);
    memset(to + sizeof(pool), 0, PST_POOL_ID_BYTES);
    to[sizeof(pool)] = join.id[0];
    return sizeof(pool) + PST_POOL_ID_BYTES;
}

static void check(const struct pst_wire_op *op, const uint8_t *answer, const struct pst_wire_result *result)
{
    const uint8_t *at = answer, *end = answer + result->bytes;
    struct pst_pool_route route;
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    struct pst_pool_beat beat;

    if (op->code == PST_POOL_HEARTBEAT && result->bytes)
        pst_assert(pst_pool_get_beat((struct pst_bytes){answer, result->bytes}, &beat, wants) == 0);
    while ((op->code == PST_POOL_LOCATE || op->code == PST_POOL_PLACE || op->code == PST_POOL_REPAIR) &&
           result->result == 0 && at < end)
        pst_assert(pst_pool_get_route(&at, end, &route) == 0);
}

static void ask(struct fuzz *in)
{
    struct pst_wire_op op = {.code = (uint8_t)(PST_WIRE_ROLE_FIRST + fuzz_below(in, 32))};
    struct pst_wire_result result = {.result = 0};
    size_t room = fuzz_below(in, 2) ? ROOM : fuzz_below(in, 600), right, more;
    uint8_t *answer = malloc(room ? room : 1), *question = malloc(1024), *exact;

    pst_assert(answer && question);
    op.flags = fuzz_below(in, 2) ? PST_WIRE_HIT : 0;
    op.known_version = fuzz_below(in, 4);
    op.offset = fuzz_number(in, fuzz_below(in, 2) ? 8 : 1);
    right = fuzz_below(in, 2) ? put_right(in, op.code, question) : 0;
    more = pst_min(fuzz_below(in, 256), in->left);
    memcpy(question + right, in->at, more);
    in->at += more;
    in->left -= more;
    exact = malloc(right + more ? right + more : 1);
    pst_assert(exact);
    memcpy(exact, question, right + more);
    op.attrs = (struct pst_bytes){exact, right + more};
    pst_master_carry_out(master, &op, 0, answer, room, &result);
    pst_assert(result.bytes <= room);
    check(&op, answer, &result);
    free(exact);
    free(question);
    free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};

    if (!master)
        open_master();
    for (int i = 0; i < QUESTIONS_MAX && in.left > 0; i++)
        ask(&in);
    return 0;
}
