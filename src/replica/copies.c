/* SPDX-License-Identifier: Apache-2.0 */
/* copies.c: writes on their way to copies, and who those are. Decides alone: time and the ends of messages
 * come in by copies_turn() and copies_ended_send(), messages go out by `net`. See copies.h. */
#include "replica/copies_priv.h"

#include "base/fault.h"
#include "wire/pool_member.h"

enum { ASK_AGAIN_NS = 100000000 };

bool copies_primary(const struct pst_copies *c, uint32_t partition)
{
    const struct pst_map_partition *s = c->map ? &c->map->partitions[partition] : NULL;

    pst_assert(partition < PST_PARTITIONS);
    return s && s->state == PST_MAP_SERVED && s->replicas[0] == c->member &&
           c->map->members[c->member].epoch == c->epoch;
}

bool copies_ended(const struct pst_copies *c, uint64_t mark)
{
    return pst_list_empty(&c->underway) ||
           pst_list_first(&c->underway, struct pst_replica, link)->number > mark;
}

/* ---- what the pool map should say ---- */

/* A node that did not do what a copy does: it has none any more, of any partition. */
static void peer_failed(struct pst_copies *c, uint16_t member)
{
    pst_assert(c->map && member < c->map->members_max);
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        if (copies_primary(c, i) && pst_map_replica_at(&c->map->partitions[i], member) > 0)
            partition_move(c, i, EVENT_COPY_FAILS, member, 0);
    }
}

static void add_change(struct pst_copies *c, uint32_t partition, uint16_t copy, uint64_t copy_epoch,
                       uint8_t change)
{
    pst_assert(c->change_count <= PST_POOL_COPIES_MAX);
    pst_assert(change <= PST_POOL_COPY_REFUSE);
    if (c->change_count < PST_POOL_COPIES_MAX)
        c->changes[c->change_count++] =
            (struct pst_pool_copy){.epoch = c->epoch,
                                   .partition_epoch = c->map->partitions[partition].epoch,
                                   .copy_epoch = copy_epoch,
                                   .member = c->member,
                                   .partition = (uint16_t)partition,
                                   .copy = copy,
                                   .change = change};
}

static void add_changes_of(struct pst_copies *c, uint32_t partition)
{
    const struct partition *s = &c->partitions[partition];

    pst_assert(s->seen_epoch == c->map->partitions[partition].epoch);
    pst_assert(s->state < PARTITION_STATES);
    if (tidy_takes(c, partition) && s->cleared_epoch == c->map->partitions[partition].epoch)
        add_change(c, partition, c->member, c->epoch, PST_POOL_COPY_TAKE);
    if (tidy_takes(c, partition) && s->refused_epoch == c->map->partitions[partition].epoch)
        add_change(c, partition, c->member, c->epoch, PST_POOL_COPY_REFUSE);
    if (!copies_primary(c, partition))
        return;
    if ((partition_feeds(s) || s->state == PARTITION_CLEARS) &&
        copies_member_epoch(c, s->other) != s->other_epoch)
        partition_move(c, partition, EVENT_NEWCOMER_ENDS, s->other, s->other_epoch);
    if (partition_waits(s) || s->state == PARTITION_SPOILT)
        add_change(c, partition, s->other, 0, PST_POOL_COPY_DROP);
    else if (partition_leads(s) && lead_is_ready(c, partition))
        add_change(c, partition, s->other, s->other_epoch, PST_POOL_COPY_LEAD);
    else if (s->state == PARTITION_ASKED)
        add_change(c, partition, s->other, s->other_epoch, PST_POOL_COPY_JOIN);
}

/* What the pool map should say and does not: told to the member, again until it does. */
static void ask_changes(struct pst_copies *c, uint64_t now_ns)
{
    uint32_t count;

    if (now_ns < c->changes_ns || !c->map)
        return;
    pthread_mutex_lock(&c->lock);
    c->change_count = 0;
    for (uint32_t i = 0; i < PST_PARTITIONS; i++)
        add_changes_of(c, i);
    count = c->change_count;
    pthread_mutex_unlock(&c->lock);
    c->changes_ns = now_ns + ASK_AGAIN_NS;
    if (count)
        pst_event_set(c->changed_fd);
}

/* ---- writes ---- */

static void attempt(struct pst_copies *c, struct pst_replica *replica);
static void send_round(struct pst_copies *c, struct pst_replica *replica);

static void come_to(struct pst_replica *replica, enum pst_replica_fate fate)
{
    pst_assert(fate <= PST_REPLICA_LOST);
    if (fate > replica->fate)
        replica->fate = fate;
}

/* Nothing of it is underway. What the copies have goes to newcomers, which may be counted later: what any
 * copy may still refuse must not be there. */
static void settle(struct pst_copies *c, struct pst_replica *replica)
{
    pst_assert(replica->sends == 0);
    pst_assert(pst_list_empty(&replica->queue));
    if (replica->fate == PST_REPLICA_HELD && !replica->to_joining) {
        replica->to_joining = true;
        send_round(c, replica);
        return;
    }
    pst_assert(replica->copies > 0 && replica->copies <= PST_MAP_REPLICAS_MAX);
    switch (replica->fate) {
    case PST_REPLICA_HELD:
        replica->done(replica, 0);
        break;
    case PST_REPLICA_REFUSED:
        replica->done(replica, replica->refusal);
        break;
    case PST_REPLICA_AGAIN:
        attempt(c, replica);
        break;
    case PST_REPLICA_WAITS:
        if (!c->quit) {
            pst_list_push_back(&c->waiting, &replica->queue);
            break;
        }
        /* fall through */
    case PST_REPLICA_LOST:
        replica->done(replica, PENSTOCK_UNKNOWN);
    }
}

static void refuse(struct pst_replica *replica, int result)
{
    pst_assert(result < 0);
    replica->refusal = result;
    come_to(replica, PST_REPLICA_REFUSED);
}

/* Who is none of the copies did not take it. */
static void newcomer_failed(struct pst_copies *c, struct pst_replica *replica, uint32_t partition,
                            uint16_t member, int result)
{
    const struct partition *s = &c->partitions[partition];

    pst_assert(result != 0);
    pst_assert(replica->write_count > 0);
    if (result == -EOPNOTSUPP && replica->writes[0].what == PST_REPLICA_SEND && replica->writes[0].durable) {
        replica->writes[0].durable = false; /* it has no SSD, and promises nothing */
        come_to(replica, PST_REPLICA_AGAIN);
        return;
    }
    if (s->other == member)
        partition_move(c, partition, EVENT_NEWCOMER_FAILS, member, s->other_epoch);
    if (partition_waits(s))
        come_to(replica, PST_REPLICA_WAITS);
}

/* One of a write's sends has failed, or could not be. */
static void write_failed(struct pst_copies *c, struct pst_replica *replica, uint32_t partition,
                         uint64_t partition_epoch, uint16_t member, int result)
{
    const struct pst_map_partition *s = partition < PST_PARTITIONS ? &c->map->partitions[partition] : NULL;

    pst_assert(partition <= PST_PARTITIONS);
    pst_assert(result != 0);
    if (!s) {
        refuse(replica, result < 0 ? result : -EAGAIN);
    } else if (!copies_primary(c, partition) || s->epoch != partition_epoch) {
        come_to(replica, PST_REPLICA_AGAIN); /* under the pool map that is */
    } else if (pst_map_replica_at(s, member) < 0) {
        newcomer_failed(c, replica, partition, member, result);
    } else if (copies_is_refusal(result) && s->replica_count == 2 && replica->write_count == 1) {
        refuse(replica, result);
    } else {
        come_to(replica, PST_REPLICA_WAITS);
        if (copies_is_refusal(result))
            partition_move(c, partition, EVENT_COPY_FAILS, member, 0);
        else if (result != -ESTALE)
            peer_failed(c, member);
        else
            pst_serving_may_replicate(c->serving, partition,
                                      partition_epoch + 1); /* it has heard of that one */
    }
}

static void write_ended(struct pst_copies *c, struct send *send)
{
    struct pst_replica *replica = send->replica;

    pst_assert(replica->sends > 0);
    pst_assert(replica->fate <= PST_REPLICA_LOST);
    if (send->op.result != 0)
        write_failed(c, replica, send->partition, send->partition_epoch, send->peer->member, send->op.result);
    if (--replica->sends == 0)
        settle(c, replica);
}

static int fill_send(struct send *send, const struct pst_replica_write *write)
{
    struct penstock_op *op = &send->op;
    uint8_t *to;

    send->head = (struct pst_wire_copy){.partition_epoch = send->partition_epoch,
                                        .generation = write->generation,
                                        .expires_ms = write->expires_ms,
                                        .crc = write->crc,
                                        .what = write->what == PST_REPLICA_DELETE ? PST_WIRE_COPIED_DELETE
                                                                                  : PST_WIRE_COPIED_PUT,
                                        .checksum = write->checksum,
                                        .copies = write->copies};
    _Static_assert(offsetof(struct send, attrs) == offsetof(struct send, head) + sizeof(send->head),
                   "one piece");
    pst_assert(write->attrs.len <= PST_ATTR_BYTES_MAX);
    pst_assert(write->key.len <= PST_KEY_BYTES_MAX);
    pst_assert(write->what <= PST_REPLICA_SEND);
    pst_assert(write->piece_count >= 0);
    if (write->attrs.len)
        memcpy(send->attrs, write->attrs.data, write->attrs.len);
    *op = (struct penstock_op){.code = PST_WIRE_COPY,
                               .flags = write->durable ? PST_WIRE_DURABLE : 0,
                               .key = write->key.data,
                               .key_bytes = (uint16_t)write->key.len,
                               .attrs = &send->head,
                               .attr_bytes = (uint16_t)(sizeof(send->head) + write->attrs.len),
                               .bytes = write->value_bytes,
                               .depth = write->depth,
                               .iov = write->pieces,
                               .iov_count = (uint32_t)write->piece_count};
    if (write->piece_count <= 1) {
        op->iov = NULL;
        op->data = write->piece_count ? write->pieces[0].iov_base : NULL;
    } else if (write->piece_count > PST_OP_PIECES_MAX) {
        send->flat = to = malloc(write->value_bytes);
        if (!to)
            return -ENOMEM;
        for (int i = 0; i < write->piece_count; to += write->pieces[i++].iov_len)
            memcpy(to, write->pieces[i].iov_base, write->pieces[i].iov_len);
        op->iov = NULL;
        op->data = send->flat;
    }
    return 0;
}

static void send_write(struct pst_copies *c, struct pst_replica *replica,
                       const struct pst_replica_write *write, uint32_t partition, uint16_t member,
                       uint64_t member_epoch)
{
    bool busy;
    struct peer *peer = copies_peer(c, member, member_epoch, &busy);
    uint64_t partition_epoch = partition < PST_PARTITIONS ? c->map->partitions[partition].epoch : 0;
    struct send *send = peer ? copies_send_new(peer) : NULL;

    pst_assert(partition <= PST_PARTITIONS);
    pst_assert(replica->sends > 0);
    if (busy) {
        come_to(replica, PST_REPLICA_WAITS);
        return;
    }
    if (send) {
        send->replica = replica;
        send->partition = partition;
        send->partition_epoch = partition_epoch;
        send->ended = write_ended;
    }
    if (!send || fill_send(send, write) < 0) {
        copies_send_free(send);
        write_failed(c, replica, partition, partition_epoch, member, -ECONNREFUSED);
        return;
    }
    replica->sends++;
    replica->sent = true;
    if (pst_traceparent_is(&replica->trace))
        pst_op_set_trace(&send->op, &replica->trace);
    copies_submit(c, send, -1); /* by its key, as soon as it is known who serves that */
}

/* A value that may lie anywhere, to who is told to have it. */
static void send_addressed(struct pst_copies *c, struct pst_replica *replica,
                           const struct pst_replica_write *write, uint32_t partition)
{
    uint64_t epoch = copies_member_epoch(c, replica->member);

    if (partition < PST_PARTITIONS || !epoch)
        refuse(replica, -ESTALE);
    else
        send_write(c, replica, write, partition, replica->member, epoch);
}

static void send_to_newcomer(struct pst_copies *c, struct pst_replica *replica,
                             const struct pst_replica_write *write, uint32_t partition)
{
    const struct partition *s = &c->partitions[partition];

    pst_assert(replica->to_joining || pst_fault(PST_FAULT_copies_one_round));
    if (c->map->partitions[partition].epoch != write->partition_epoch)
        come_to(replica, PST_REPLICA_AGAIN); /* the newcomer may be a copy now */
    else if (partition_feeds(s))
        send_write(c, replica, write, partition, s->other, s->other_epoch);
    else if (partition_waits(s) && write->what != PST_REPLICA_SEND)
        come_to(replica, PST_REPLICA_WAITS); /* a newcomer that it was to go to may be counted */
}

static void send_to_copies(struct pst_copies *c, struct pst_replica *replica, struct pst_replica_write *write,
                           uint32_t partition)
{
    const struct pst_map_partition *s = &c->map->partitions[partition];

    pst_assert(s->replica_count >= 1 && s->replica_count <= PST_MAP_REPLICAS_MAX);
    pst_assert(!replica->to_joining);
    write->partition_epoch = s->epoch;
    if (write->what == PST_REPLICA_SEND)
        return;
    replica->copies = (uint8_t)pst_min(replica->copies, s->replica_count);
    for (uint32_t i = 1; i < s->replica_count; i++)
        send_write(c, replica, write, partition, s->replicas[i], copies_member_epoch(c, s->replicas[i]));
}

/* To whoever holds its partition by this pool map, or to who is to join those. */
static void send_one(struct pst_copies *c, struct pst_replica *replica, struct pst_replica_write *write)
{
    uint32_t partition = pst_serving_partition_of(c->serving, write->key);

    if (replica->addressed) {
        if (!replica->to_joining)
            send_addressed(c, replica, write, partition);
        return;
    }
    if (partition == PST_PARTITIONS)
        return;
    if (!replica->to_joining)
        send_to_copies(c, replica, write, partition);
    if (replica->to_joining || pst_fault(PST_FAULT_copies_one_round))
        send_to_newcomer(c, replica, write, partition);
}

/* Whether a write may be sent by this pool map; if not, its fate says why. */
static void may_send(const struct pst_copies *c, struct pst_replica *replica,
                     const struct pst_replica_write *write)
{
    uint32_t partition = pst_serving_partition_of(c->serving, write->key);

    if (partition == PST_PARTITIONS || replica->addressed)
        return;
    if (!copies_primary(c, partition)) {
        if (replica->sent)
            come_to(replica, PST_REPLICA_LOST);
        else
            refuse(replica, -ESTALE);
    } else if (replica->to_joining) {
        return;
    } else if (lead_stops(c, partition, replica) && !replica->sent) {
        refuse(replica, -ESTALE); /* another has it in a moment */
    } else if (write->what != PST_REPLICA_SEND &&
               (lead_stops(c, partition, replica) || partition_waits(&c->partitions[partition]))) {
        come_to(replica, PST_REPLICA_WAITS);
    }
}

/* A commit's writes are sent if all of them may be: else nodes would have a part of it. */
static void send_round(struct pst_copies *c, struct pst_replica *replica)
{
    bool may;

    pst_assert(replica->sends == 0);
    pst_assert(replica->write_count > 0);
    replica->sends = 1;
    for (uint32_t i = 0; i < replica->write_count && replica->fate < PST_REPLICA_LOST; i++)
        may_send(c, replica, &replica->writes[i]);
    may = replica->fate == PST_REPLICA_HELD;
    for (uint32_t i = 0; may && i < replica->write_count && replica->fate < PST_REPLICA_LOST; i++)
        send_one(c, replica, &replica->writes[i]);
    if (--replica->sends == 0)
        settle(c, replica);
}

static void attempt(struct pst_copies *c, struct pst_replica *replica)
{
    pst_assert(replica->number > 0);
    pst_assert(replica->sends == 0);
    pst_assert(pst_list_empty(&replica->queue));
    replica->fate = c->map && !c->quit ? PST_REPLICA_HELD : PST_REPLICA_LOST;
    replica->to_joining = false;
    replica->copies = PST_MAP_REPLICAS_MAX;
    send_round(c, replica);
}

/* ---- pool maps ---- */

static void follow_map(struct pst_copies *c)
{
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *s = &c->map->partitions[i];
        bool led = partition_follow_map(c, i);

        tidy_follow_map(c, i);
        if (!led && pst_serving_held(c->serving, i) && copies_primary(c, i) && s->replica_count > 1)
            partition_move(c, i, EVENT_COPY_FAILS, s->replicas[1],
                           0); /* it may have more than this node, or less */
        else if (!led)
            pst_serving_hold(c->serving, i, false);
        pst_serving_set_replicas(c->serving, i,
                                 copies_primary(c, i) &&
                                     (s->replica_count > 1 || c->partitions[i].state != PARTITION_SHARED));
    }
    copies_peers_follow_map(c);
}

static void take_all(struct pst_copies *c)
{
    struct pst_list inbox;
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    uint32_t want_count;
    bool maped;

    pst_list_init(&inbox);
    pthread_mutex_lock(&c->lock);
    pst_assert(c->want_count <= PST_POOL_WANT_COUNT_MAX);
    pst_assert(!c->quit || c->stopping);
    maped = c->next != NULL;
    if (maped) {
        pst_map_close(c->map);
        c->map = c->next;
        c->member = c->next_member;
        c->epoch = c->next_epoch;
        c->next = NULL;
        pst_assert(c->epoch > 0);
        pst_assert(c->member < c->map->members_max);
    }
    c->quit = c->stopping;
    want_count = c->want_count;
    memcpy(wants, c->wants, want_count * sizeof(wants[0]));
    c->want_count = 0;
    if (maped)
        follow_map(c);
    /* Another pool map is what they wait for; that it has come must not depend on having seen each. */
    if (maped || c->quit || c->now_ns >= c->again_ns) {
        c->again_ns = c->now_ns + ASK_AGAIN_NS;
        while (!pst_list_empty(&c->waiting)) {
            struct pst_list *first = c->waiting.next;

            pst_list_remove(first);
            pst_list_push_back(&inbox, first);
        }
    }
    while (!pst_list_empty(&c->inbox)) {
        struct pst_list *first = c->inbox.next;

        pst_list_remove(first);
        pst_list_push_back(&inbox, first);
    }
    pthread_mutex_unlock(&c->lock);
    join_take_wants(c, wants, want_count);
    lead_take_wants(c, wants, want_count);
    while (!pst_list_empty(&inbox)) {
        struct pst_replica *replica = pst_list_first(&inbox, struct pst_replica, queue);

        pst_list_remove(&replica->queue);
        attempt(c, replica);
    }
}

int pst_copies_map(struct pst_copies *c, const struct pst_map *map, uint16_t member, uint64_t epoch)
{
    struct pst_map *copy, *known;

    pst_assert(epoch > 0);
    pst_assert(member < map->members_max);
    if (pst_map_open(map->members_max, map->seed, &copy) < 0)
        return -ENOMEM;
    if (pst_map_open(map->members_max, map->seed, &known) < 0) {
        pst_map_close(copy);
        return -ENOMEM;
    }
    pst_map_copy(copy, map);
    pst_map_copy(known, map);
    pthread_mutex_lock(&c->lock); /* the thread looks at one pool map and what is held by it at a time */
    for (uint32_t i = 0; i < PST_PARTITIONS; i++) {
        const struct pst_map_partition *s = &map->partitions[i];
        const struct pst_map_partition *before = c->known ? &c->known->partitions[i] : NULL;
        bool ours = s->state == PST_MAP_SERVED && s->replicas[0] == member;
        bool goes_on = before && before->state == PST_MAP_SERVED && c->known_member == member &&
                       c->known_epoch == epoch && pst_map_lineage(before->epoch) == pst_map_lineage(s->epoch);

        if (!ours || s->replica_count < 2)
            continue;
        pst_serving_set_replicas(c->serving, i, true);
        if (goes_on && before->replicas[0] != member) /* it was handed over */
            pst_serving_hold(c->serving, i, false);
        else if (!goes_on && s->base != s->epoch)
            pst_serving_hold(c->serving, i, true);
    }
    pst_map_close(c->known);
    c->known = known;
    c->known_member = member;
    c->known_epoch = epoch;
    pst_map_close(c->next);
    c->next = copy;
    c->next_member = member;
    c->next_epoch = epoch;
    pthread_mutex_unlock(&c->lock);
    pst_event_set(c->wake_fd);
    return 0;
}

void pst_copies_wants(struct pst_copies *c, const struct pst_pool_want *wants, uint32_t count)
{
    pst_assert(count <= PST_POOL_WANT_COUNT_MAX);
    pthread_mutex_lock(&c->lock);
    memcpy(c->wants, wants, count * sizeof(*wants));
    c->want_count = count;
    pthread_mutex_unlock(&c->lock);
    if (count)
        pst_event_set(c->wake_fd);
}

bool pst_copies_may_send(struct pst_copies *c, uint64_t bytes, uint64_t now_ns)
{
    bool may;

    pthread_mutex_lock(&c->lock);
    may = now_ns >= c->pace_ns;
    if (may)
        c->pace_ns = now_ns + bytes * 1000000000 / c->settings.repair_bytes;
    pthread_mutex_unlock(&c->lock);
    return may;
}

uint32_t pst_copies_changes(struct pst_copies *c, struct pst_pool_copy changes[PST_POOL_COPIES_MAX])
{
    uint32_t count;

    pthread_mutex_lock(&c->lock);
    pst_assert(c->change_count <= PST_POOL_COPIES_MAX);
    count = c->change_count;
    memcpy(changes, c->changes, count * sizeof(*changes));
    c->change_count = 0;
    pthread_mutex_unlock(&c->lock);
    return count;
}

/* ---- shards ---- */

void pst_copies_replicate(struct pst_copies *c, struct pst_replica *replica)
{
    pst_assert(replica->done);
    pst_assert(replica->writes);
    pst_assert(replica->sends == 0);
    pst_list_init(&replica->queue);
    pthread_mutex_lock(&c->lock);
    replica->number = ++c->number;
    pst_list_push_back(&c->underway, &replica->link);
    if (!c->stopping) {
        pst_list_push_back(&c->inbox, &replica->queue);
        replica = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    if (replica)
        replica->done(replica, PENSTOCK_UNKNOWN);
    else
        pst_event_set(c->wake_fd);
}

void pst_copies_replicated(struct pst_copies *c, struct pst_replica *replica)
{
    pthread_mutex_lock(&c->lock);
    pst_assert(replica->sends == 0);
    pst_assert(!pst_list_empty(&replica->link));
    pst_list_remove(&replica->link);
    pthread_mutex_unlock(&c->lock);
}

bool pst_copies_idle(struct pst_copies *c)
{
    bool idle;

    pst_assert(c->serving);
    pst_assert(c->net);
    pthread_mutex_lock(&c->lock);
    idle = pst_list_empty(&c->underway);
    pthread_mutex_unlock(&c->lock);
    return idle;
}

/* ---- a turn ---- */

void copies_turn(struct pst_copies *c, uint64_t now_ns, uint64_t wall_ns)
{
    pst_assert(now_ns >= c->now_ns);
    c->now_ns = now_ns;
    c->wall_ns = wall_ns;
    take_all(c);
    join_step(c, now_ns);
    tidy_step(c, now_ns);
    copies_close_failed(c);
    ask_changes(c, now_ns);
}

/* ---- life ---- */

int copies_init(struct pst_copies *c, const struct pst_copies_settings *settings, struct pst_serving *serving,
                int changed_fd, const struct copies_net *net, void *net_ctx)
{
    pst_assert(settings->repair_bytes > 0);
    pst_assert(serving);
    pst_assert(!c->net);
    c->settings = *settings;
    c->net = net;
    c->net_ctx = net_ctx;
    c->serving = serving;
    c->changed_fd = changed_fd;
    pthread_mutex_init(&c->lock, NULL);
    pst_list_init(&c->inbox);
    pst_list_init(&c->underway);
    pst_list_init(&c->waiting);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c->wake_fd < 0 ? -errno : 0;
}

void copies_stop(struct pst_copies *c)
{
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    pst_event_set(c->wake_fd);
}

void copies_fini(struct pst_copies *c)
{
    pst_assert(pst_list_empty(&c->underway));
    pst_assert(copies_underway(c) == 0);
    pst_assert(pst_list_empty(&c->inbox));
    pst_assert(pst_list_empty(&c->waiting));
    pst_map_close(c->map);
    pst_map_close(c->next);
    pst_map_close(c->known);
    pst_close_fd(&c->wake_fd);
    pthread_mutex_destroy(&c->lock);
}
