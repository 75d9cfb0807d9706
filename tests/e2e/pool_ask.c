/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_ask.c: asks a pool's master one question and prints the answer as a line of JSON, for the tests in
 * Python, also questions that no member would ask.
 *
 *     pool_ask ADDRESS [SECRET-FILE] -- QUESTION...
 */
#include "base/clock.h"
#include "base/options.h"
#include "call/call_priv.h"
#include "pool/map.h"
#include "wire/pool.h"
#include "wire/pool_block.h"
#include "wire/pool_key.h"
#include "wire/pool_member.h"
#include "wire/pool_share.h"

#include <inttypes.h>
#include <stdio.h>

enum { MS = 10000, ROOM = 60 << 10 };

static struct pst_channel *channel;
static uint8_t question[PST_WIRE_QUESTION_BYTES_MAX], answer[ROOM];
static struct pst_map *view;

static int fail(const char *what, int r)
{
    printf("{\"error\":\"%s\",\"result\":%d}\n", what, r);
    return 1;
}

static struct penstock_op ask(uint8_t code, size_t bytes, struct penstock_op op)
{
    struct pst_op_list done = {0};

    op.code = code;
    op.attrs = question;
    op.attr_bytes = (uint16_t)bytes;
    op.data = answer;
    op.bytes = ROOM;
    pst_channel_submit(channel, &op, 0, &done);
    pst_channel_flush(channel);
    while (!done.count)
        pst_channel_poll(channel);
    return op;
}

static int read_view(void)
{
    static uint8_t bytes[16 << 20];
    struct pst_pool_map head = {.map_bytes = 1};
    uint64_t version = 0;

    for (uint64_t at = 0; at < head.map_bytes;) {
        struct penstock_op op = ask(PST_POOL_MAP, 0, (struct penstock_op){.offset = at});
        uint64_t piece = op.value_bytes - sizeof(head);

        if (op.result)
            return op.result;
        if (at && op.generation != version) {
            at = 0; /* another one meanwhile */
            continue;
        }
        version = op.generation;
        memcpy(&head, answer, sizeof(head));
        pst_assert(piece > 0 && at + piece <= sizeof(bytes));
        memcpy(bytes + at, answer + sizeof(head), piece);
        at += piece;
    }
    return pst_map_decode((struct pst_bytes){bytes, head.map_bytes}, PST_MAP_MEMBERS_MAX, &view);
}

static struct pst_hash128 hash_of(const char *key)
{
    return pst_hash128(key, strlen(key), view->seed);
}

static struct pst_pool_asker asker_of_view(void)
{
    struct pst_pool_asker asker = {.host = {0}};

    memcpy(asker.pool, &view->pool, sizeof(asker.pool));
    return asker;
}

static void print_hex(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("%02x", bytes[i]);
}

static void read_hex(const char *text, uint8_t *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;

        pst_assert(sscanf(text + 2 * i, "%2x", &byte) == 1);
        to[i] = (uint8_t)byte;
    }
}

static void end_result(const struct penstock_op *op)
{
    printf("\"generation\":%" PRIu64 ",\"result\":%d}\n", op->generation, op->result);
}

/* ---- questions ---- */

static void ask_map(char **args)
{
    const char *gap = "";

    (void)args;
    printf("{\"version\":%" PRIu64 ",\"term\":%" PRIu64 ",\"members\":[", view->version, view->term);
    for (uint32_t i = 0; i < PST_MAP_MEMBERS_MAX; i++) {
        const struct pst_map_member *m = &view->members[i];

        if (!m->epoch || m->gone)
            continue;
        printf("%s{\"member\":%u,\"epoch\":%" PRIu64 ",\"address\":\"%s\",\"tags\":\"%s\",\"kept\":%" PRIu64
               ",\"id\":\"",
               gap, i, m->epoch, m->address, m->tags, m->kept_epoch);
        print_hex(m->id.bytes, sizeof(m->id.bytes));
        printf("\"}");
        gap = ",";
    }
    printf("],\"result\":0}\n");
}

/* join ID START KEPT: as a process that has all of that epoch */
static void ask_join(char **args)
{
    struct pst_pool_join join = {.start = strtoull(args[1], NULL, 10),
                                 .kept_epoch = strtoull(args[2], NULL, 10),
                                 .address = "127.0.0.1:1"};
    struct penstock_op op;

    memcpy(join.pool, &view->pool, sizeof(join.pool));
    read_hex(args[0], join.id, sizeof(join.id));
    op = ask(PST_POOL_JOIN, pst_pool_put_join(question, &join), (struct penstock_op){0});
    printf("{");
    end_result(&op);
}

/* partitions: how many are in which state, and have how many copies */
static void ask_partitions(char **args)
{
    uint32_t states[3] = {0}, copies[PST_MAP_REPLICAS_MAX + 1] = {0}, lost = 0;

    (void)args;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        states[view->partitions[i].state]++;
        copies[view->partitions[i].replica_count]++;
        lost += view->partitions[i].lost;
    }
    printf("{\"empty\":%u,\"served\":%u,\"incomplete\":%u,\"lost\":%u,\"copies\":[%u,%u,%u,%u,%u],\"result\":"
           "0}\n",
           states[PST_MAP_EMPTY], states[PST_MAP_SERVED], states[PST_MAP_INCOMPLETE], lost, copies[0],
           copies[1], copies[2], copies[3], copies[4]);
}

/* partition KEY: the members that have it, its primary first */
static void ask_partition(char **args)
{
    const struct pst_map_partition *partition =
        &view->partitions[pst_map_partition_of(view, (struct pst_bytes){args[0], strlen(args[0])})];

    printf("{\"epoch\":%" PRIu64 ",\"state\":%u,\"lost\":%d,\"copies\":[", partition->epoch, partition->state,
           partition->lost);
    for (uint32_t i = 0; i < partition->replica_count; i++)
        printf("%s%u", i ? "," : "", partition->replicas[i]);
    printf("],\"result\":0}\n");
}

static void print_routes(const struct penstock_op *op)
{
    const uint8_t *at = answer, *end = at + op->value_bytes;
    struct pst_pool_route route;
    const char *gap = "";

    printf("{\"routes\":[");
    while (!op->result && at < end && pst_pool_get_route(&at, end, &route) == 0) {
        printf("%s{\"status\":%u,\"places\":[", gap, route.status);
        for (uint32_t i = 0; i < route.place_count; i++)
            printf("%s{\"member\":%u,\"tier\":%u,\"generation\":%" PRIu64 "}", i ? "," : "",
                   route.places[i].member, route.places[i].tier, route.places[i].generation);
        printf("]}");
        gap = ",";
    }
    printf("],");
    end_result(op);
}

/* shares KEY...: the share of the directory that each falls to */
static void ask_shares(char **args)
{
    printf("{\"shares\":[");
    for (uint32_t i = 0; args[i]; i++) {
        struct pst_hash128 hash = hash_of(args[i]);

        printf("%s%u", i ? "," : "", pst_map_share_of(&hash, view->share_count));
    }
    printf("],\"result\":0}\n");
}

/* share NUMBER START ADDRESS: the asker has it */
static void ask_share(char **args)
{
    struct pst_pool_share share = {.share = (uint8_t)atoi(args[0]), .start = strtoull(args[1], NULL, 10)};
    struct penstock_op op;

    memcpy(share.pool, &view->pool, sizeof(share.pool));
    snprintf(share.address, sizeof(share.address), "%s", args[2]);
    memcpy(question, &share, sizeof(share));
    op = ask(PST_POOL_SHARE, sizeof(share), (struct penstock_op){0});
    printf("{");
    end_result(&op);
}

/* locate KEY... */
static void ask_locate(char **args)
{
    struct pst_hash128 keys[PST_POOL_LOCATE_MAX];
    const struct pst_pool_asker asker = asker_of_view();
    struct penstock_op op;
    uint32_t count = 0;

    for (; args[count]; count++)
        keys[count] = hash_of(args[count]);
    op = ask(PST_POOL_LOCATE,
             pst_pool_put_items(question, &asker, sizeof(asker), keys, sizeof(keys[0]), count),
             (struct penstock_op){0});
    print_routes(&op);
}

/* place BYTES KEY... */
static void ask_place(char **args)
{
    struct pst_pool_want_place wanted[PST_POOL_PLACE_MAX] = {0};
    const struct pst_pool_asker asker = asker_of_view();
    struct penstock_op op;
    uint32_t count = 0;

    for (; args[count + 1]; count++)
        wanted[count] = (struct pst_pool_want_place){
            .key = hash_of(args[count + 1]), .bytes = strtoull(args[0], NULL, 10), .replicas = 1};
    op = ask(PST_POOL_PLACE,
             pst_pool_put_items(question, &asker, sizeof(asker), wanted, sizeof(wanted[0]), count),
             (struct penstock_op){0});
    print_routes(&op);
}

/* beat MEMBER EPOCH SEQUENCE FLAGS */
static void ask_beat(char **args)
{
    struct pst_pool_heartbeat beat = {.member = (uint16_t)atoi(args[0]),
                                      .epoch = strtoull(args[1], NULL, 10),
                                      .sequence = strtoull(args[2], NULL, 10),
                                      .flags = (uint16_t)atoi(args[3])};
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    struct pst_pool_beat said = {.sync = 0};
    struct penstock_op op;

    memcpy(beat.pool, &view->pool, sizeof(beat.pool));
    op = ask(PST_POOL_HEARTBEAT, pst_pool_put_heartbeat(question, &beat, NULL), (struct penstock_op){0});

    pst_pool_get_beat((struct pst_bytes){answer, op.value_bytes}, &said, wants);
    printf("{\"next\":%" PRIu64 ",\"sync\":%u,", said.sequence_next, said.sync);
    end_result(&op);
}

/* stranger POOL: a member of that one */
static void ask_stranger(char **args)
{
    struct pst_pool_heartbeat beat = {.epoch = 1, .sequence = 1};
    struct penstock_op op;

    read_hex(args[0], beat.pool, sizeof(beat.pool));
    op = ask(PST_POOL_HEARTBEAT, pst_pool_put_heartbeat(question, &beat, NULL), (struct penstock_op){0});
    printf("{");
    end_result(&op);
}

/* report|revoke ID TIER SCOPE HASH... */
static void ask_blocks(uint8_t code, char **args)
{
    struct pst_hash128 hashes[PST_POOL_REPORT_MAX];
    struct pst_pool_blocks head = {.tier = (uint8_t)atoi(args[1]), .scope = (uint8_t)atoi(args[2])};
    struct penstock_op op;
    uint32_t count = 0;

    read_hex(args[0], head.id, sizeof(head.id));
    for (; args[3 + count]; count++)
        hashes[count] = hash_of(args[3 + count]);
    op = ask(code, pst_pool_put_items(question, &head, sizeof(head), hashes, sizeof(hashes[0]), count),
             (struct penstock_op){0});
    printf("{");
    end_result(&op);
}

static void ask_report(char **args)
{
    ask_blocks(PST_POOL_REPORT, args);
}

static void ask_revoke(char **args)
{
    ask_blocks(PST_POOL_REVOKE, args);
}

static size_t put_hashes(char **args)
{
    struct pst_hash128 hashes[PST_POOL_MATCH_MAX];
    uint32_t count = 0;

    for (; args[count]; count++)
        hashes[count] = hash_of(args[count]);
    return pst_pool_put_items(question, NULL, 0, hashes, sizeof(hashes[0]), count);
}

/* match HASH..., each a hit */
static void ask_match(char **args)
{
    struct penstock_op op =
        ask(PST_POOL_MATCH, put_hashes(args), (struct penstock_op){.flags = PST_WIRE_HIT});

    printf("{\"nodes\":[");
    for (size_t at = 0; !op.result && at + sizeof(struct pst_pool_match) <= op.value_bytes;
         at += sizeof(struct pst_pool_match)) {
        struct pst_pool_match match;

        memcpy(&match, answer + at, sizeof(match));
        printf("%s{\"id\":\"", at ? "," : "");
        print_hex(match.id, sizeof(match.id));
        printf("\",\"count\":%u,\"tiers\":[", match.hash_count);
        for (uint32_t i = 0; i < PST_POOL_BLOCK_TIERS; i++)
            printf("%s%" PRIu64, i ? "," : "", match.tiers[i][0]);
        printf("]}");
    }
    printf("],");
    end_result(&op);
}

/* hits HASH... */
static void ask_hits(char **args)
{
    struct penstock_op op = ask(PST_POOL_HITS, put_hashes(args), (struct penstock_op){0});

    printf("{\"hits\":[");
    for (size_t at = 0; !op.result && at < op.value_bytes; at += 4) {
        uint32_t hits;

        memcpy(&hits, answer + at, sizeof(hits));
        printf("%s%u", at ? "," : "", hits);
    }
    printf("],");
    end_result(&op);
}

/* raw CODE BYTES: the pool, and then 0xff */
static void ask_raw(char **args)
{
    size_t bytes = strtoull(args[1], NULL, 10);
    struct penstock_op op;

    memset(question, 0xff, bytes);
    if (view)
        memcpy(question, &view->pool, pst_min(bytes, sizeof(view->pool)));
    op = ask((uint8_t)atoi(args[0]), bytes, (struct penstock_op){0});
    printf("{");
    end_result(&op);
}

/* oversized OPS: a request that says it has so many; what the node did to the session */
static void ask_oversized(char **args)
{
    struct pst_wire_head head = {.type = PST_WIRE_REQUEST,
                                 .version = (uint8_t)channel->welcome.version,
                                 .count = (uint16_t)atoi(args[0]),
                                 .request = CALLS_MAX + 5, /* a number that none had */
                                 .token = channel->welcome.token,
                                 .timeout_ms = MS};
    uint64_t end_ns = pst_now_ns() + MS * 1000000ull;
    int r = pst_peer_send(channel->peers[0], (struct pst_bytes){&head, sizeof(head)},
                          (struct pst_bytes){"", 1}, NULL);

    pst_assert(r >= 0);
    while (channel->state == CHANNEL_UP && pst_now_ns() < end_ns)
        pst_channel_poll(channel);
    printf("{\"ended\":%d}\n", channel->state != CHANNEL_UP);
}

static const struct {
    const char *name;
    void (*run)(char **args);
} questions[] = {
    {"map", ask_map},
    {"join", ask_join},
    {"partitions", ask_partitions},
    {"partition", ask_partition},
    {"shares", ask_shares},
    {"share", ask_share},
    {"locate", ask_locate},
    {"place", ask_place},
    {"beat", ask_beat},
    {"report", ask_report},
    {"revoke", ask_revoke},
    {"match", ask_match},
    {"hits", ask_hits},
    {"raw", ask_raw},
    {"stranger", ask_stranger},
    {"oversized", ask_oversized},
};

int main(int argc, char **argv)
{
    struct pst_channel_options options = {.connect_ms = MS, .timeout_ms = MS};
    uint8_t secret[PST_BOOT_SECRET_BYTES_MAX];
    char text[PST_FAULT_BYTES];
    const char *fault = "";
    int at = 2, r;

    pst_assert(argc > 3 && pst_boot_address_parse(argv[1], &options.address, &fault) == 0);
    if (strcmp(argv[at], "--") != 0) {
        r = pst_secret_read(argv[at++], secret, sizeof(secret), text);
        pst_assert(r > 0);
        options.secret = (struct pst_bytes){secret, (size_t)r};
        options.fabric_trusted = true; /* it may be asked from elsewhere */
    }
    r = pst_channel_open(&options, &channel, &fault);
    if (r < 0)
        return fail(fault, r);
    r = read_view();
    if (r && strcmp(argv[at + 1], "raw") != 0 && strcmp(argv[at + 1], "oversized") != 0)
        r = fail("no view", r);
    for (size_t i = 0; r <= 0 && i < pst_count_of(questions); i++) {
        if (strcmp(questions[i].name, argv[at + 1]) == 0)
            questions[i].run(argv + at + 2);
    }
    pst_map_close(view);
    pst_channel_close(channel);
    return 0;
}
