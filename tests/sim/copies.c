/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c: in place of home.c, a node's part in the partitions that clients use as the product does it: its
 * serving and its sender of copies (src/master) run here with a simulated clock and network. What is ours is
 * around them: a store of a few keys with a lock each, which carries operations out as src/node does (copy.c,
 * commit.c), and a channel (copies_channel.h). A message is carried out once.
 *
 * Some nodes have no SSD, and refuse what is to be durable; in some runs nodes have no room now and then.
 */
#include "copies_channel.h"

#include "base/fault.h"
#include "wire/pool_member.h"

#include <stdio.h>

const uint64_t home_quiet_ms = 240000;

/* ---- what a run is like ---- */

static uint64_t trait(const struct sim *s, uint64_t what)
{
    return pst_hash64(&s->seed, sizeof(s->seed), what);
}

static bool has_disk(const struct sim *s, int number)
{
    return trait(s, 1) % 2 || trait(s, 100 + (uint64_t)number) % 3;
}

bool home_promises(const struct sim *s, int number)
{
    return has_disk(s, number);
}

enum left home_left(const struct sim *s, int number, enum left left)
{
    return left == LEFT_DISK && !has_disk(s, number) ? LEFT_NOTHING : left;
}

/* ---- the serving ---- */

/* Its lease is by a clock that does not run here. */
static int ask_serving(const struct sim *s, const struct node *n, uint32_t used, uint32_t key,
                       int (*allows)(const struct pst_serving *serving, struct pst_bytes key))
{
    const struct pst_map *map = node_map(n);
    bool holds = map && (s->plant == PLANT_no_lease ||
                         (n->epoch && pst_lease_holds(&n->lease, map->version, node_now(s, n))));

    if (!map)
        return BUSY;
    pst_serving_lease(n->sender->serving, holds ? UINT64_MAX : 0);
    return allows(n->sender->serving, copies_text_of(used, key));
}

static int may_serve(const struct sim *s, const struct node *n, uint32_t used, uint32_t key)
{
    return ask_serving(s, n, used, key, pst_serving_allows);
}

bool home_serves(const struct sim *s, const struct node *n, uint32_t used)
{
    return n->up && n->epoch && s->now_ns >= n->frozen_until_ns && may_serve(s, n, used, 0) == 0;
}

void home_follow_map(struct sim *s, struct node *n)
{
    const struct pst_map *map = node_map(n);
    int r;

    (void)s;
    if (!n->epoch)
        return; /* it asks again when it is a member */
    copies_find_texts(map);
    r = pst_copies_map(&n->sender->copies, map, n->member, n->epoch);
    pst_assert(r == 0);
    r = pst_serving_map(n->sender->serving, map, n->member, n->epoch);
    pst_assert(r == 0);
}

void home_wanted(struct sim *s, int number, const struct pst_heartbeat_answer *answer)
{
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];

    pst_assert(answer->want_count <= PST_POOL_WANT_COUNT_MAX);
    for (uint32_t i = 0; i < answer->want_count; i++)
        wants[i] = (struct pst_pool_want){.partition_epoch = answer->wants[i].partition_epoch,
                                          .member_epoch = answer->wants[i].member_epoch,
                                          .partition = answer->wants[i].partition,
                                          .member = answer->wants[i].member,
                                          .leads = answer->wants[i].leads};
    if (s->nodes[number].sender->copies.known)
        pst_copies_wants(&s->nodes[number].sender->copies, wants, answer->want_count);
}

static void ask_for_changes(struct sim *s, int number)
{
    struct pst_pool_copy changes[PST_POOL_COPIES_MAX];
    struct node *n = &s->nodes[number];
    uint32_t count = pst_copies_changes(&n->sender->copies, changes);
    struct message *m;

    if (count == 0 || !n->epoch)
        return;
    m = message_new(TO_CHANGES, number, MASTER);
    m->session = n->process;
    m->change_count = count;
    m->changes = calloc(count, sizeof(*m->changes));
    pst_assert(m->changes);
    for (uint32_t i = 0; i < count; i++) {
        m->changes[i] = (struct pst_copy_request){.member = changes[i].member,
                                                  .epoch = changes[i].epoch,
                                                  .change = (enum pst_copy_change)changes[i].change,
                                                  .partition = changes[i].partition,
                                                  .partition_epoch = changes[i].partition_epoch,
                                                  .copy = changes[i].copy,
                                                  .copy_epoch = changes[i].copy_epoch};
        s->counts.hand_overs += changes[i].change == PST_POOL_COPY_LEAD;
        if (changes[i].change == PST_POOL_COPY_DROP)
            s->drop_ns = s->now_ns;
    }
    send(s, m);
}

void home_changed(struct sim *s, int number, const struct message *m)
{
    (void)m;
    if (s->nodes[number].epoch)
        node_fetch(s, number);
}

void home_turn(struct sim *s, int number)
{
    struct sender *sender = s->nodes[number].sender;

    copies_tend_flights(sender);
    copies_turn(&sender->copies, s->now_ns, s->now_ns);
    ask_for_changes(s, number);
    if (s->nodes[number].epoch && pst_serving_behind(sender->serving))
        node_fetch(s, number);
}

/* ---- what others ask of a node's store ---- */

static void keep(struct home *home, uint32_t key, struct value value, bool durable)
{
    if (value.number > home->values[key].number)
        home->values[key] = value;
    if (durable && home->values[key].number > home->disk[key].number)
        home->disk[key] = home->values[key];
}

static int carry_copy(struct sim *s, int number, const struct asked *asked)
{
    struct node *n = &s->nodes[number];
    struct sender *sender = n->sender;
    struct home *home = &n->homes[asked->used];
    bool durable = asked->flags & PST_WIRE_DURABLE, there;
    int r = pst_serving_may_replicate(
        sender->serving, pst_serving_partition_of(sender->serving, copies_text_of(asked->used, asked->key)),
        asked->head.partition_epoch);

    if (r != 0)
        return r;
    there = home->values[asked->key].number >= asked->head.generation;
    if (durable && !has_disk(s, number))
        return -EOPNOTSUPP;
    if (!there && s->now_ns < s->quiet_ns && trait(s, 2) % 2 && draw(s, 20) == 0)
        return -ENOSPC;
    keep(home, asked->key, asked->value, durable);
    sender->generation = pst_max(sender->generation, asked->head.generation);
    return 0;
}

static void forget(struct home *home)
{
    memset(home->values, 0, sizeof(home->values));
    memset(home->disk, 0, sizeof(home->disk));
    home->sparse = false;
}

static int carry_clear(struct sim *s, int number, struct asked *asked)
{
    struct node *n = &s->nodes[number];
    struct sender *sender = n->sender;
    struct pst_wire_sweep swept = {.done = 1};
    int r = 0;

    for (uint32_t i = 0; i < asked->partition_count && r == 0; i++)
        if (asked->partitions[i].partition_epoch)
            r = pst_serving_may_replicate(sender->serving, asked->partitions[i].partition,
                                          asked->partitions[i].partition_epoch);
    if (r != 0)
        return r;
    if (asked->flags & PST_WIRE_FLOOR) {
        sender->generation = pst_max(sender->generation, asked->generation);
        asked->answered = sender->generation;
    }
    for (uint32_t i = 0; i < asked->partition_count; i++) {
        uint32_t used = asked->partitions[i].partition / (PST_PARTITIONS / USED);
        bool of_another = asked->partitions[i].partition_epoch > 0;

        if (partition_of_used(used) != asked->partitions[i].partition ||
            (!of_another && !pst_serving_stranded(sender->serving, copies_text_of(used, 0))))
            continue;
        if (s->plant != PLANT_old_copy)
            forget(&n->homes[used]);
        if (of_another)
            n->homes[used].data_epoch = asked->partitions[i].partition_epoch;
    }
    if (asked->partition_count) {
        asked->data_bytes = sizeof(swept);
        memcpy(asked->data, &swept, sizeof(swept));
    }
    return 0;
}

static int carry_list(struct sim *s, int number, struct asked *asked)
{
    for (uint32_t i = 0; i < USED * PARTITION_KEYS; i++) {
        struct pst_bytes text = copies_text_of(i / PARTITION_KEYS, i % PARTITION_KEYS);
        const struct value *value = &s->nodes[number].homes[i / PARTITION_KEYS].values[i % PARTITION_KEYS];
        struct pst_wire_entry entry = {
            .generation = value->number, .value_bytes = KEY_BYTES, .key_bytes = (uint16_t)text.len};

        if (value->number == 0)
            continue;
        pst_assert(asked->data_bytes + sizeof(entry) + text.len <= DATA_BYTES);
        memcpy(asked->data + asked->data_bytes, &entry, sizeof(entry));
        memcpy(asked->data + asked->data_bytes + sizeof(entry), text.data, text.len);
        asked->data_bytes += sizeof(entry) + text.len;
    }
    asked->answered = 1;
    return 0;
}

static void answer(struct sim *s, int number, struct message *m, int result)
{
    struct message *back = message_new(NODE_ANSWERS, number, m->from);

    m->asked->result = result;
    back->asked = malloc(sizeof(*back->asked));
    pst_assert(back->asked);
    *back->asked = *m->asked;
    back->session = m->request;
    if (m->from == number)
        send_after(s, back, MS / 20 + draw(s, MS / 2));
    else
        send(s, back);
}

/* ---- writes ---- */

static void go_on_later(const struct change *c)
{
    struct sender *sender = c->sender;
    struct message *m = message_new(NODE_ARRIVED, sender->number, sender->number);

    m->session = sender->sim->nodes[sender->number].process;
    m->home.attempt = c->number;
    send_after(sender->sim, m, draw(sender->sim, c->waits ? 50 * MS : MS));
}

static void arrived(struct pst_replica *replica, int result)
{
    struct change *c = pst_container_of(replica, struct change, replica);

    pst_assert(c->busy && c->sent);
    c->verdict = result;
    if (!c->sender->ends)
        go_on_later(c);
}

static void apply(struct sim *s, int number, const struct change *c)
{
    for (; c; c = c->with)
        keep(&s->nodes[number].homes[c->used], c->key, c->value, is_durable(c->value));
}

static void show(struct sim *s, int number, const struct change *c)
{
    struct message *told = message_new(TOLD_WRITE, number, c->client);

    apply(s, number, c);
    for (const struct change *each = c; each; each = each->with)
        check_written(s, number, each->used, each->key, each->value);
    told->request = c->request;
    told->home.values[0] = c->value;
    send(s, told);
}

/* As src/node/commit: 0 it is to be told, BUSY it is done and nobody is told, else it is not known. */
static int may_answer(const struct sim *s, int number, const struct change *c)
{
    int allowed = 0;

    for (; c; c = c->with) {
        int r = ask_serving(s, &s->nodes[number], c->used, c->key, pst_serving_allows_answer);

        if (r != 0 && r != BUSY)
            return r;
        allowed = r ? r : allowed;
    }
    return allowed;
}

static void decide(struct sim *s, int number, struct change *c)
{
    struct sender *sender = s->nodes[number].sender;
    int allowed = c->keeps ? 0 : may_answer(s, number, c);

    if (c->keeps) {
        answer(s, number, c->asked, c->verdict);
        message_drop(c->asked);
    } else if (c->verdict == 0 && allowed == 0) {
        show(s, number, c);
    } else if (c->verdict == 0 && allowed == BUSY) {
        apply(s, number, c); /* as all copies have it */
    } else if (c->verdict < 0) {
        struct message *told = message_new(TOLD_REFUSED, number, c->client);

        for (const struct change *each = c; each; each = each->with)
            check_refused(s, each->value);
        told->request = c->request;
        send(s, told);
    }
    if (c->sent)
        pst_copies_replicated(&sender->copies, &c->replica);
    if (c->with)
        c->with->busy = false;
    c->busy = false;
}

static void lock(struct sender *sender, struct change *c, uint32_t used, uint32_t key)
{
    pst_assert(!c->busy);
    c->sender = sender;
    c->busy = true;
    c->sent = c->keeps = c->waits = false;
    c->number = ++sender->change_number;
    c->used = used;
    c->key = key;
    c->with = NULL;
    c->verdict = 0;
}

static void prepare(struct sim *s, int number, struct change *c, bool durable, uint8_t what)
{
    struct sender *sender = s->nodes[number].sender;
    uint32_t count = 0;

    c->waits = false;
    c->keeps = what == PST_REPLICA_SEND;
    c->sent = c->keeps;
    for (struct change *each = c; each; each = each->with) {
        struct pst_bytes text = copies_text_of(each->used, each->key);

        c->sent |= pst_serving_has_replicas(sender->serving, text);
        c->writes[count++] =
            (struct pst_replica_write){.key = text,
                                       .attrs = {&each->value, sizeof(each->value)},
                                       .generation = each->value.number,
                                       .what = what,
                                       .durable = c->keeps ? durable : is_durable(each->value)};
    }
    c->replica = (struct pst_replica){.writes = c->writes, .write_count = count, .done = arrived};
    if (c->sent)
        pst_copies_replicate(&sender->copies, &c->replica);
    else
        decide(s, number, c);
}

static struct value next_value(struct sim *s, int number, uint32_t used, uint32_t key)
{
    struct node *n = &s->nodes[number];

    /* Who has no SSD would never join while others are told to be durable: in the end none is. */
    if (!has_disk(s, number) || (s->now_ns >= s->quiet_ns && trait(s, 1) % 2 == 0))
        s->value_id += is_durable((struct value){.id = s->value_id + 1});
    n->sender->generation = pst_max(n->sender->generation + 1, n->homes[used].values[key].number + 1);
    return (struct value){n->sender->generation, ++s->value_id,
                          node_map(n)->partitions[partition_of_used(used)].epoch};
}

static bool may_write(const struct sim *s, const struct node *n, uint32_t used, uint32_t key)
{
    return n->epoch && may_serve(s, n, used, key) == 0 && !n->sender->changes[used][key].busy;
}

static void ask_write(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct change *c = &n->sender->changes[m->home.used][m->home.key];
    uint32_t used = (uint32_t)draw(s, USED), key = (uint32_t)draw(s, PARTITION_KEYS);

    if (!may_write(s, n, m->home.used, m->home.key))
        return;
    lock(n->sender, c, m->home.used, m->home.key);
    c->value = next_value(s, number, c->used, c->key);
    c->client = m->from;
    c->request = m->request;
    if (draw(s, 2) == 0 && may_write(s, n, used, key)) { /* a commit of both */
        c->with = &n->sender->changes[used][key];
        lock(n->sender, c->with, used, key);
        c->with->value = next_value(s, number, used, key);
        c->waits = true;
        go_on_later(c);
        return;
    }
    prepare(s, number, c, false, PST_REPLICA_PUT);
}

static int carry_send(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];
    const struct home *home = &n->homes[m->asked->used];
    struct change *c = &n->sender->changes[m->asked->used][m->asked->key];

    if (c->busy)
        return BUSY;
    if (home->values[m->asked->key].number == 0)
        return PENSTOCK_MISS;
    lock(n->sender, c, m->asked->used, m->asked->key);
    c->value = home->values[m->asked->key];
    c->asked = m;
    m->refs++;
    prepare(s, number, c, home->disk[m->asked->key].number > 0, PST_REPLICA_SEND);
    return -EINPROGRESS;
}

static void ask_read(struct sim *s, int number, const struct message *m)
{
    struct node *n = &s->nodes[number];
    struct message *told;

    if (!n->epoch || may_serve(s, n, m->home.used, m->home.key) != 0)
        return;
    if (!n->sender->changes[m->home.used][m->home.key].busy)
        check_read(s, number, m->home.used, m->home.key);
    told = message_new(TOLD_READ, number, m->from);
    told->request = m->request;
    told->home.values[0] = n->homes[m->home.used].values[m->home.key];
    if (told->home.values[0].number == 0)
        told->home.told =
            node_map(n)->partitions[partition_of_used(m->home.used)].lost ? TOLD_LOST : TOLD_MISS;
    send(s, told);
}

/* ---- messages ---- */

static void carry_out(struct sim *s, int number, struct message *m)
{
    struct asked *asked = m->asked;
    int r = 0;

    if (asked->done)
        return;
    asked->done = true;
    switch (asked->code) {
    case PST_WIRE_COPY:
        r = carry_copy(s, number, asked);
        break;
    case PST_WIRE_COPY_CLEAR:
        r = carry_clear(s, number, asked);
        break;
    case PST_WIRE_LIST:
        r = carry_list(s, number, asked);
        break;
    default:
        r = carry_send(s, number, m);
    }
    if (r != -EINPROGRESS)
        answer(s, number, m, r);
}

static void take_arrival(struct sim *s, int number, uint64_t change)
{
    for (uint32_t i = 0; i < USED * PARTITION_KEYS; i++) {
        struct change *c = &s->nodes[number].sender->changes[i / PARTITION_KEYS][i % PARTITION_KEYS];

        if (!c->busy || c->number != change)
            continue;
        if (!c->waits)
            decide(s, number, c);
        else
            prepare(s, number, c, false, PST_REPLICA_PUT);
        return;
    }
}

void home_take(struct sim *s, int number, struct message *m)
{
    struct node *n = &s->nodes[number];

    if (m->session && m->session != n->process)
        return;
    switch (m->kind) {
    case NODE_ASKED:
        carry_out(s, number, m);
        break;
    case NODE_ANSWERS:
        copies_take_answer(n->sender, m);
        break;
    case NODE_ARRIVED:
        take_arrival(s, number, m->home.attempt);
        break;
    case ASK_WRITE:
        ask_write(s, number, m);
        break;
    case ASK_READ:
        ask_read(s, number, m);
        break;
    default:
        pst_assert(false); /* a message for a node */
    }
}

/* ---- life ---- */

static void arm_plant(const struct sim *s)
{
    int r = pst_faults_arm(s->plant == PLANT_one_round ? "copies_one_round:per_million=1000000" : "");

    pst_assert(r == 0);
}

void home_start(struct sim *s, int number)
{
    struct node *n = &s->nodes[number];
    struct pst_copies_settings settings = {.replica_ms = REPLICA_MS,
                                           .repair_bytes = 2000ull << trait(s, 3) % 10};
    int r;

    arm_plant(s);
    n->sender = calloc(1, sizeof(*n->sender));
    pst_assert(n->sender);
    n->sender->sim = s;
    n->sender->number = number;
    n->sender->generation = s->now_ns;
    n->sender->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pst_assert(n->sender->changed_fd >= 0);
    r = pst_serving_open(&n->sender->serving);
    pst_assert(r == 0);
    r = copies_init(&n->sender->copies, &settings, n->sender->serving, n->sender->changed_fd, &copies_channel,
                    n->sender);
    pst_assert(r == 0);
}

void home_stop(struct sim *s, int number)
{
    struct sender *sender = s->nodes[number].sender;

    if (!sender)
        return;
    sender->ends = true;
    copies_stop(&sender->copies);
    while (sender->flight_count > 0)
        copies_land(sender, &sender->flights[0], PENSTOCK_UNKNOWN);
    copies_turn(&sender->copies, s->now_ns, s->now_ns);
    for (uint32_t i = 0; i < USED * PARTITION_KEYS; i++) {
        struct change *c = &sender->changes[i / PARTITION_KEYS][i % PARTITION_KEYS];

        if (!c->busy || !c->sent)
            continue;
        if (c->keeps)
            message_drop(c->asked);
        pst_copies_replicated(&sender->copies, &c->replica);
    }
    copies_close_peers(&sender->copies);
    copies_fini(&sender->copies);
    pst_serving_close(sender->serving);
    pst_close_fd(&sender->changed_fd);
    free(sender);
    s->nodes[number].sender = NULL;
}

void home_leave(struct node *n)
{
    (void)n; /* its lease has ended, and its pool map goes on */
}

void home_crash(struct home *home, enum left left)
{
    struct home next = {.data_epoch = home->data_epoch, .sparse = home->sparse};

    memcpy(next.disk, home->disk, sizeof(next.disk));
    memcpy(next.values, left == LEFT_ALL ? home->values : home->disk, sizeof(next.values));
    next.sparse |= left == LEFT_DISK;
    *home = left == LEFT_NOTHING ? (struct home){.data_epoch = 0} : next;
}

void home_take_up(struct sim *s, int number)
{
    (void)s; /* copies_tidy.c asks */
    (void)number;
}

void home_step(struct sim *s, int number, uint32_t used)
{
    (void)s;
    (void)number;
    (void)used;
}
