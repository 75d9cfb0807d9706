/* SPDX-License-Identifier: Apache-2.0 */
/* copies_channel.c: see copies_channel.h. */
#include "copies_channel.h"

#include <stdio.h>

struct way {
    int to; /* a node */
};

static char texts[USED][PARTITION_KEYS][24];
static uint64_t texts_seed;

uint32_t partition_of_used(uint32_t used)
{
    return used * (PST_PARTITIONS / USED) + 5;
}

void copies_find_texts(const struct pst_map *map)
{
    uint32_t left = USED * PARTITION_KEYS;

    if (texts_seed == map->seed)
        return;
    memset(texts, 0, sizeof(texts));
    for (uint32_t i = 0; left > 0; i++) {
        char text[24];
        uint32_t partition, used, key = 0;

        snprintf(text, sizeof(text), "h/%u", i);
        partition = pst_map_partition_of(map, (struct pst_bytes){text, strlen(text)});
        used = partition / (PST_PARTITIONS / USED);
        while (key < PARTITION_KEYS && *texts[used][key])
            key++;
        if (partition != partition_of_used(used) || key == PARTITION_KEYS)
            continue;
        memcpy(texts[used][key], text, sizeof(text));
        left--;
    }
    texts_seed = map->seed;
}

struct pst_bytes copies_text_of(uint32_t used, uint32_t key)
{
    return (struct pst_bytes){texts[used][key], strlen(texts[used][key])};
}

bool copies_find_key(struct pst_bytes text, uint32_t *used, uint32_t *key)
{
    for (uint32_t i = 0; i < USED * PARTITION_KEYS; i++) {
        struct pst_bytes one = copies_text_of(i / PARTITION_KEYS, i % PARTITION_KEYS);

        *used = i / PARTITION_KEYS;
        *key = i % PARTITION_KEYS;
        if (one.len == text.len && memcmp(one.data, text.data, text.len) == 0)
            return true;
    }
    return false;
}

static struct flight *flight_of(struct sender *sender, uint64_t id)
{
    for (uint32_t i = 0; i < sender->flight_count; i++)
        if (sender->flights[i].id == id)
            return &sender->flights[i];
    return NULL;
}

static struct asked *asked_of(const struct flight *flight)
{
    const struct penstock_op *op = &flight->send->op;
    struct asked *asked = calloc(1, sizeof(*asked));

    pst_assert(asked);
    asked->id = flight->id;
    asked->code = op->code;
    asked->flags = op->flags;
    asked->generation = op->generation_floor;
    if (op->code == PST_WIRE_COPY) {
        memcpy(&asked->head, op->attrs, sizeof(asked->head));
        memcpy(&asked->value, (const uint8_t *)op->attrs + sizeof(asked->head), sizeof(asked->value));
    } else if (op->code == PST_WIRE_COPY_CLEAR) {
        asked->partition_count = op->attr_bytes / sizeof(asked->partitions[0]);
        if (asked->partition_count)
            memcpy(asked->partitions, op->attrs, op->attr_bytes);
    }
    if (op->code == PST_WIRE_COPY || op->code == PST_WIRE_COPY_SEND) {
        bool found = copies_find_key((struct pst_bytes){op->key, op->key_bytes}, &asked->used, &asked->key);

        pst_assert(found);
    }
    return asked;
}

static void transmit(struct sender *sender, struct flight *flight)
{
    struct sim *s = sender->sim;
    const struct way *way = flight->send->peer->way;
    struct message *m = message_new(NODE_ASKED, sender->number, way->to);

    flight->again_ns = 0;
    m->asked = asked_of(flight);
    m->session = way->to == sender->number ? s->nodes[sender->number].process : 0;
    m->request = s->nodes[sender->number].process; /* to whom the answer goes */
    if (way->to == sender->number)
        send_after(s, m, MS / 20 + draw(s, MS / 2));
    else
        send(s, m);
}

static int way_open(void *ctx, const struct pst_map_member *member, void **out)
{
    struct sender *sender = ctx;
    struct way *way = calloc(1, sizeof(*way));
    uint32_t id = (uint32_t)sender->number + 1;

    pst_assert(way);
    if (member)
        memcpy(&id, member->id.bytes, sizeof(id));
    way->to = (int)id - 1;
    *out = way;
    return 0;
}

static void way_close(void *ctx, void *way)
{
    (void)ctx;
    free(way);
}

static void way_submit(void *ctx, struct send *send_one, int shard)
{
    struct sender *sender = ctx;
    const struct way *way = send_one->peer->way;
    uint64_t patience_ms = way->to == sender->number ? SELF_MS : REPLICA_MS;
    struct flight *flight = &sender->flights[sender->flight_count++];

    pst_assert(sender->flight_count <= FLIGHTS_MAX);
    *flight = (struct flight){.send = send_one,
                              .id = ++sender->id,
                              .deadline_ns = sender->sim->now_ns + patience_ms * MS,
                              .shard = shard};
    transmit(sender, flight);
}

static uint32_t way_shards(void *ctx, const void *way)
{
    (void)ctx;
    return way ? 1 : 0;
}

const struct copies_net copies_channel = {
    .open = way_open, .close = way_close, .submit = way_submit, .shards = way_shards};

void copies_land(struct sender *sender, struct flight *flight, int result)
{
    struct send *ended = flight->send;

    *flight = sender->flights[--sender->flight_count];
    ended->op.result = result;
    copies_ended_send(&sender->copies, ended);
}

void copies_tend_flights(struct sender *sender)
{
    uint64_t now_ns = sender->sim->now_ns;

    for (uint32_t i = 0; i < sender->flight_count; i++) {
        struct flight *flight = &sender->flights[i];
        bool writes = flight->send->op.code == PST_WIRE_COPY;

        if (now_ns >= flight->deadline_ns)
            copies_land(sender, &sender->flights[i--],
                        flight->again_ns ? PENSTOCK_BUSY
                        : writes         ? PENSTOCK_UNKNOWN
                                         : -ETIMEDOUT);
        else if (flight->again_ns && now_ns >= flight->again_ns)
            transmit(sender, flight);
    }
}

void copies_take_answer(struct sender *sender, const struct message *m)
{
    const struct asked *answer = m->asked;
    struct flight *flight = flight_of(sender, answer->id);
    struct penstock_op *op;
    struct message *tick;

    if (!flight || flight->again_ns)
        return;
    if (answer->result == BUSY) {
        flight->again_ns = sender->sim->now_ns + BUSY_MS * MS;
        tick = message_new(NODE_ARRIVED, sender->number, sender->number);
        tick->session = sender->sim->nodes[sender->number].process;
        send_after(sender->sim, tick, BUSY_MS * MS);
        return;
    }
    op = &flight->send->op;
    op->generation = answer->answered;
    op->value_bytes = answer->data_bytes;
    pst_assert(answer->data_bytes <= op->bytes || answer->data_bytes == 0);
    if (answer->data_bytes)
        memcpy(op->data, answer->data, answer->data_bytes);
    copies_land(sender, flight, answer->result);
}
