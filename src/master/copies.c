/* copies.c: writes on their way to copies, who those are, and the thread. See copies.h. */
#include "master/copies_priv.h"

enum {
    ASK_AGAIN_NS = 100000000,
    SLEEP_MS = 20,
    POLLS_MAX = 64, /* of one peer in a round */
};

bool copies_primary(const struct pst_copies *c, uint32_t slot)
{
    const struct pst_view_slot *s = c->view ? &c->view->slots[slot] : NULL;

    return s && s->state == PST_VIEW_SERVED && s->copies[0] == c->member &&
           c->view->members[c->member].epoch == c->epoch;
}

bool copies_ended(const struct pst_copies *c, uint64_t mark)
{
    return pst_list_empty(&c->underway) ||
           pst_list_first(&c->underway, struct pst_replica, link)->number > mark;
}

/* ---- peers ---- */

static void peer_close(struct peer *p)
{
    pst_assert(p->underway == 0);
    pst_channel_close(p->channel);
    *p = (struct peer){.epoch = 0};
}

static int peer_dial(struct pst_copies *c, struct peer *p, const char *address)
{
    struct pst_channel_options options = c->node;
    const char *fault;
    int r = pst_boot_address_parse(address, &options.address, &fault);

    options.connect_ms = options.timeout_ms = (uint32_t)c->settings.replica_ms;
    return r < 0 ? r : pst_channel_begin(&options, &p->channel, &fault);
}

struct peer *copies_peer(struct pst_copies *c, uint16_t member, uint64_t epoch)
{
    const struct pst_view_member *m = &c->view->members[member];
    struct peer *free_one = NULL;

    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &c->peers[i];

        if (p->epoch == epoch && !p->failed)
            return p;
        if (!p->epoch)
            free_one = p; /* failed ones are closed by who polls them: they may be the caller's caller */
    }
    if (!free_one || m->epoch != epoch || m->gone ||
        peer_dial(c, free_one, *m->address ? m->address : m->unix_path) < 0)
        return NULL;
    free_one->member = member;
    free_one->epoch = epoch;
    return free_one;
}

bool copies_self(struct pst_copies *c)
{
    struct pst_channel_options options = c->node;
    const char *fault;

    options.connect_ms = (uint32_t)pst_max(c->settings.replica_ms, 1000);
    options.timeout_ms = SEND_MS + (uint32_t)c->settings.replica_ms;
    return c->self.channel || pst_channel_begin(&options, &c->self.channel, &fault) == 0;
}

struct send *copies_send_new(struct peer *peer)
{
    struct send *send = calloc(1, sizeof(*send));

    if (send)
        send->peer = peer;
    return send;
}

void copies_submit(struct send *send, int shard)
{
    send->op.user = send;
    send->peer->underway++;
    pst_channel_submit(send->peer->channel, &send->op, shard, &send->peer->done);
}

static void send_free(struct send *send)
{
    free(send->flat);
    free(send);
}

/* ---- drops ---- */

void copies_drop(struct pst_copies *c, uint32_t slot, uint16_t member)
{
    struct slot *s = &c->slots[slot];

    s->dropped = member;
    s->dropped_epoch = c->view->slots[slot].epoch;
    c->changes_ns = 0;
}

/* A node that did not do what a copy does: it has none any more, of any slot. */
static void peer_failed(struct pst_copies *c, uint16_t member)
{
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        if (copies_primary(c, i) && pst_view_copy_at(&c->view->slots[i], member) > 0)
            copies_drop(c, i, member);
    }
}

static void add_change(struct pst_copies *c, uint32_t slot, uint16_t copy, uint64_t copy_epoch,
                       uint8_t change)
{
    if (c->change_count < PST_POOL_COPIES_MAX)
        c->changes[c->change_count++] = (struct pst_pool_copy){.epoch = c->epoch,
                                                               .slot_epoch = c->view->slots[slot].epoch,
                                                               .copy_epoch = copy_epoch,
                                                               .member = c->member,
                                                               .slot = (uint16_t)slot,
                                                               .copy = copy,
                                                               .change = change};
}

/* What the view should say and does not: told to the member, again until it does. */
static void ask_changes(struct pst_copies *c, uint64_t now_ns)
{
    uint32_t count;

    if (now_ns < c->changes_ns || !c->view)
        return;
    pthread_mutex_lock(&c->lock);
    c->change_count = 0;
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        struct slot *s = &c->slots[i];

        if (tidy_takes(c, i) && s->cleared_epoch == c->view->slots[i].epoch)
            add_change(c, i, c->member, c->epoch, PST_POOL_COPY_TAKE);
        if (!copies_primary(c, i))
            continue;
        if (s->phase == JOIN_ASKED && c->view->members[s->joining].epoch != s->join_epoch)
            s->phase = JOIN_NONE; /* it has ended, and will not join any more */
        if (s->dropped_epoch == c->view->slots[i].epoch)
            add_change(c, i, s->dropped, 0, PST_POOL_COPY_DROP);
        else if (lead_is_ready(c, i))
            add_change(c, i, s->heir, s->heir_epoch, PST_POOL_COPY_LEAD);
        else if (s->phase == JOIN_ASKED)
            add_change(c, i, s->joining, s->join_epoch, PST_POOL_COPY_JOIN);
    }
    count = c->change_count;
    pthread_mutex_unlock(&c->lock);
    c->changes_ns = now_ns + ASK_AGAIN_NS;
    if (count)
        pst_event_set(c->changed_fd);
}

/* ---- writes ---- */

static void attempt(struct pst_copies *c, struct pst_replica *replica);

/* Nothing of it is underway. */
static void settle(struct pst_copies *c, struct pst_replica *replica)
{
    if (replica->lost || (replica->waits && c->quit))
        replica->done(replica, PENSTOCK_UNKNOWN);
    else if (replica->again)
        attempt(c, replica);
    else if (replica->waits)
        pst_list_push_back(&c->waiting, &replica->queue);
    else
        replica->done(replica, replica->refusal);
}

static bool is_refusal(int result)
{
    return result == -ENOSPC || result == -EFBIG || result == -EDQUOT || result == -ENOMEM ||
           result == -EOPNOTSUPP;
}

/* One of a write's sends has failed, or could not be. */
static void write_failed(struct pst_copies *c, struct pst_replica *replica, uint32_t slot,
                         uint64_t slot_epoch, uint16_t member, int result)
{
    const struct pst_view_slot *s = &c->view->slots[slot];

    if (slot == PST_SLOTS) {
        replica->refusal = result < 0 ? result : -EAGAIN;
        return;
    }
    if (!copies_primary(c, slot) || s->epoch != slot_epoch) {
        replica->again = true; /* under the view that is */
        return;
    }
    if (pst_view_copy_at(s, member) < 0) {
        if (result == -EOPNOTSUPP && replica->writes[0].what == PST_REPLICA_SEND &&
            replica->writes[0].durable) {
            replica->writes[0].durable = false; /* who joins has no SSD, and promises nothing */
            replica->again = true;
            return;
        }
        join_fail(c, slot);
        /* Once it was asked to join it may be counted: not before the slot has another epoch is it not. */
        replica->waits |= c->slots[slot].dropped_epoch == s->epoch;
        return;
    }
    if (is_refusal(result) && s->copy_count == 2 && replica->write_count == 1) {
        replica->refusal = result;
        return;
    }
    replica->waits = true;
    if (is_refusal(result))
        copies_drop(c, slot, member);
    else if (result != -ESTALE)
        peer_failed(c, member);
    else
        pst_gate_may_copy(c->gate, slot, slot_epoch + 1); /* it has heard of that one */
}

static void write_ended(struct pst_copies *c, struct send *send)
{
    struct pst_replica *replica = send->replica;

    if (send->op.result != 0)
        write_failed(c, replica, send->slot, send->slot_epoch, send->peer->member, send->op.result);
    if (--replica->sends == 0)
        settle(c, replica);
}

static int fill_send(struct send *send, const struct pst_replica_write *write)
{
    struct penstock_op *op = &send->op;
    uint8_t *to;

    send->head = (struct pst_wire_copy){.slot_epoch = send->slot_epoch,
                                        .generation = write->generation,
                                        .expires_ms = write->expires_ms,
                                        .crc = write->crc,
                                        .what = write->what == PST_REPLICA_DELETE ? PST_WIRE_COPIED_DELETE
                                                                                  : PST_WIRE_COPIED_PUT,
                                        .checksum = write->checksum};
    _Static_assert(offsetof(struct send, attrs) == offsetof(struct send, head) + sizeof(send->head),
                   "one piece");
    pst_assert(write->attrs.len <= ATTRS_MAX);
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
                       const struct pst_replica_write *write, uint32_t slot, uint16_t member,
                       uint64_t member_epoch)
{
    struct peer *peer = copies_peer(c, member, member_epoch);
    uint64_t slot_epoch = slot < PST_SLOTS ? c->view->slots[slot].epoch : 0;
    struct send *send = peer ? copies_send_new(peer) : NULL;

    if (send) {
        send->replica = replica;
        send->slot = slot;
        send->slot_epoch = slot_epoch;
        send->ended = write_ended;
    }
    if (!send || fill_send(send, write) < 0) {
        if (send)
            send_free(send);
        write_failed(c, replica, slot, slot_epoch, member, -ECONNREFUSED);
        return;
    }
    replica->sends++;
    copies_submit(send, -1); /* by its key, as soon as it is known who serves that */
}

/* To whoever holds the slot by this view, and to who joins. */
static void send_all(struct pst_copies *c, struct pst_replica *replica, const struct pst_replica_write *write)
{
    uint32_t slot = pst_gate_slot_of(c->gate, write->key);
    const struct pst_view_slot *s;

    if (replica->addressed) {
        if (slot < PST_SLOTS || replica->member >= c->view->members_max)
            replica->refusal = -ESTALE;
        else
            send_write(c, replica, write, slot, replica->member, c->view->members[replica->member].epoch);
    }
    if (slot == PST_SLOTS || replica->addressed)
        return;
    if (!copies_primary(c, slot)) {
        replica->lost = true;
        return;
    }
    s = &c->view->slots[slot];
    if (lead_stops(c, slot, replica) && replica->write_count == 1) {
        replica->refusal = -ESTALE; /* another has it in a moment */
        return;
    }
    if ((c->slots[slot].dropped_epoch == s->epoch || lead_stops(c, slot, replica)) &&
        write->what != PST_REPLICA_SEND) {
        replica->waits = true;
        return;
    }
    replica->copies = (uint8_t)pst_min(replica->copies, s->copy_count);
    for (uint32_t i = 1; i < s->copy_count && write->what != PST_REPLICA_SEND; i++)
        send_write(c, replica, write, slot, s->copies[i], c->view->members[s->copies[i]].epoch);
    if (c->slots[slot].phase != JOIN_NONE)
        send_write(c, replica, write, slot, c->slots[slot].joining, c->slots[slot].join_epoch);
}

static void attempt(struct pst_copies *c, struct pst_replica *replica)
{
    replica->lost = replica->waits = replica->again = false;
    replica->refusal = 0;
    replica->copies = PST_VIEW_COPIES_MAX;
    replica->sends = 1;
    if (!c->view || c->quit)
        replica->lost = true;
    for (uint32_t i = 0; i < replica->write_count && !replica->lost; i++)
        send_all(c, replica, &replica->writes[i]);
    if (--replica->sends == 0)
        settle(c, replica);
}

/* ---- views ---- */

static void follow_view(struct pst_copies *c)
{
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *s = &c->view->slots[i];
        bool changed = c->slots[i].seen_epoch != s->epoch, lead;

        c->slots[i].seen_epoch = s->epoch;
        join_follow_view(c, i, changed);
        tidy_follow_view(c, i);
        lead = lead_follow_view(c, i);
        if (!lead && pst_gate_held(c->gate, i) && copies_primary(c, i) && s->copy_count > 1)
            copies_drop(c, i, s->copies[1]); /* it may have more than this node, or less */
        else if (!lead)
            pst_gate_hold(c->gate, i, false);
        pst_gate_copy(c->gate, i,
                      copies_primary(c, i) && (s->copy_count > 1 || c->slots[i].phase != JOIN_NONE));
    }
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &c->peers[i];

        p->failed |= p->epoch && c->view->members[p->member].epoch != p->epoch;
    }
}

static void take_all(struct pst_copies *c)
{
    struct pst_list inbox;
    struct pst_pool_want wants[PST_POOL_WANT_COUNT_MAX];
    uint32_t want_count;
    bool viewed;

    pst_list_init(&inbox);
    pthread_mutex_lock(&c->lock);
    viewed = c->next != NULL;
    if (viewed) {
        pst_view_close(c->view);
        c->view = c->next;
        c->member = c->next_member;
        c->epoch = c->next_epoch;
        c->next = NULL;
    }
    c->quit = c->stopping;
    want_count = c->want_count;
    memcpy(wants, c->wants, want_count * sizeof(wants[0]));
    c->want_count = 0;
    if (viewed)
        follow_view(c);
    /* Another view is what they wait for; that it has come must not depend on having seen each. */
    if (viewed || c->quit || pst_now_ns() >= c->again_ns) {
        c->again_ns = pst_now_ns() + ASK_AGAIN_NS;
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

int pst_copies_view(struct pst_copies *c, const struct pst_view *view, uint16_t member, uint64_t epoch)
{
    struct pst_view *copy, *known;

    if (pst_view_open(view->members_max, view->seed, &copy) < 0)
        return -ENOMEM;
    if (pst_view_open(view->members_max, view->seed, &known) < 0) {
        pst_view_close(copy);
        return -ENOMEM;
    }
    pst_view_copy(copy, view);
    pst_view_copy(known, view);
    pthread_mutex_lock(&c->lock); /* the thread looks at one view and what is held by it at a time */
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *s = &view->slots[i];
        const struct pst_view_slot *before = c->known ? &c->known->slots[i] : NULL;
        bool ours = s->state == PST_VIEW_SERVED && s->copies[0] == member;
        bool was = before && before->state == PST_VIEW_SERVED && before->copies[0] == c->known_member &&
                   c->known_member == member && c->known_epoch == epoch;

        if (!ours || s->copy_count < 2)
            continue;
        pst_gate_copy(c->gate, i, true);
        if (c->known_epoch == epoch && lead_was_handed(c, s, before))
            pst_gate_hold(c->gate, i, false);
        else if (!was && s->base != s->epoch)
            pst_gate_hold(c->gate, i, true);
    }
    pst_view_close(c->known);
    c->known = known;
    c->known_member = member;
    c->known_epoch = epoch;
    pst_view_close(c->next);
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
    count = c->change_count;
    memcpy(changes, c->changes, count * sizeof(*changes));
    c->change_count = 0;
    pthread_mutex_unlock(&c->lock);
    return count;
}

/* ---- shards ---- */

void pst_copies_replicate(struct pst_copies *c, struct pst_replica *replica)
{
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
    pst_list_remove(&replica->link);
    pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ---- */

static bool poll_peer(struct pst_copies *c, struct peer *p, struct pollfd *fd, int *sleep_ms)
{
    struct penstock_op *op;
    bool busy = false;
    int r;

    *fd = (struct pollfd){.fd = -1};
    if (!p->channel)
        return false;
    pst_channel_flush(p->channel);
    for (int i = 0; i < POLLS_MAX && pst_channel_poll(p->channel); i++)
        busy = true;
    while (p->done.count && (op = pst_op_list_pop(&p->done))) {
        struct send *send = op->user;

        p->underway--;
        /* Whether it was done is not known, and an old message may come after a new one. */
        p->failed |= send->replica && op->result < 0 && !is_refusal(op->result) && op->result != -ESTALE;
        p->failed |= op->result == PENSTOCK_UNKNOWN;
        send->ended(c, send);
        send_free(send);
        busy = true;
    }
    if (p->failed && p->underway == 0 && p != &c->self && c->join.peer != p) {
        peer_close(p);
        return busy;
    }
    pst_channel_flush(p->channel);
    r = pst_channel_arm(p->channel);
    fd->fd = pst_channel_fd(p->channel);
    fd->events = POLLIN;
    if (r < 0)
        *sleep_ms = r == -EAGAIN ? 0 : 1;
    return busy;
}

static uint32_t underway(const struct pst_copies *c)
{
    uint32_t count = c->self.underway;

    for (uint32_t i = 0; i < PEERS_MAX; i++)
        count += c->peers[i].underway;
    return count;
}

static void *copies_main(void *arg)
{
    struct pst_copies *c = arg;
    struct pollfd fds[PEERS_MAX + 2];

    pst_assert(c->gate && c->changed_fd >= 0);
    while (!c->quit || underway(c) > 0) {
        int sleep_ms = SLEEP_MS;
        bool busy = false;

        pst_event_clear(c->wake_fd);
        take_all(c);
        join_step(c, pst_now_ns());
        tidy_step(c, pst_now_ns());
        for (uint32_t i = 0; i < PEERS_MAX; i++)
            busy |= poll_peer(c, &c->peers[i], &fds[i], &sleep_ms);
        busy |= poll_peer(c, &c->self, &fds[PEERS_MAX], &sleep_ms);
        ask_changes(c, pst_now_ns());
        fds[PEERS_MAX + 1] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
        if (!busy)
            poll(fds, PEERS_MAX + 2, sleep_ms);
    }
    take_all(c);
    return NULL;
}

int pst_copies_open(const struct pst_copies_settings *settings, const struct pst_channel_options *node,
                    struct pst_gate *gate, int wake_fd, struct pst_copies **out)
{
    struct pst_copies *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    c->settings = *settings;
    c->node = *node;
    c->gate = gate;
    c->changed_fd = wake_fd;
    pthread_mutex_init(&c->lock, NULL);
    pst_list_init(&c->inbox);
    pst_list_init(&c->underway);
    pst_list_init(&c->waiting);
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = c->wake_fd < 0 ? -errno : -pthread_create(&c->thread, NULL, copies_main, c);
    c->running = r == 0;
    if (r < 0) {
        pst_copies_close(c);
        return r;
    }
    *out = c;
    return 0;
}

void pst_copies_stop(struct pst_copies *c)
{
    if (!c || !c->running)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_mutex_unlock(&c->lock);
    pst_event_set(c->wake_fd);
    pthread_join(c->thread, NULL);
    c->running = false;
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        peer_close(&c->peers[i]);
    peer_close(&c->self);
}

struct pst_copies *pst_copies_close(struct pst_copies *c)
{
    if (!c)
        return NULL;
    pst_copies_stop(c);
    pst_assert(pst_list_empty(&c->underway));
    pst_view_close(c->view);
    pst_view_close(c->next);
    pst_view_close(c->known);
    pst_close_fd(&c->wake_fd);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}
