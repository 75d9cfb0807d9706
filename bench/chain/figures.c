/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures.c: a pipelined broadcast among simulated members: the code of `files/chain` decides, and this
 * program has the clock, the links and the store that members call. A link carries so many bits a second
 * either way; a member dies without a word, or joins late.
 *
 *     chain_figures MEMBERS BYTES BITS_PER_S LATENCY_US DEATHS LATE SEED     prints one JSON object
 *
 * Deaths are spread over the time that the broadcast would take; the last LATE members join at half of it.
 * The exit code is 1 if a living member lacks a piece, or if a dead one was not stepped over within 2 s.
 */
#include "files/chain/chain.h"
#include "files/chain/pieces.h"
#include "files/chain/turns.h"

#include <inttypes.h>
#include <stdio.h>

#define STEP_NS_MAX 2000000000ull

enum { JOIN_NS = 100000, MEMBERS_MAX = 10000, NOBODY = -1, HANDSHAKES = 3 };

enum what {
    JOIN,    /* a member's call reaches the store */
    REPORT,  /* the same: of its parent */
    PLACE,   /* the store's answer reaches the member: @other is its parent */
    CONNECT, /* the child @other, which has @piece pieces, reaches its parent */
    PIECE,   /* @piece reaches a member from @other */
    BEAT,
    TURN,  /* a member's link is free, or its beat may be due */
    CHECK, /* a member's parent may have been silent for too long */
    DIE,
};

struct event {
    uint64_t at_ns, number;
    enum what what;
    int node, other;
    uint32_t piece;
};

struct node {
    uint32_t rank, have;
    int parent, child; /* nodes; 0 is the source */
    struct pst_served served;
    uint64_t heard_ns, busy_ns, died_ns, done_ns;
    uint64_t lost_ns; /* when the parent died that it waits to replace; 0: none */
    bool joined, dead, wakes, reports;
};

static struct {
    uint32_t members, deaths, late;
    uint64_t bytes, bits_per_s, latency_ns;
    struct pst_pieces row;
    uint64_t starts[2];
    uint32_t pieces;
    struct pst_chain *chain;
    struct node nodes[MEMBERS_MAX + 1];
    int node_of[MEMBERS_MAX + 1]; /* by rank */
    struct event *heap;
    size_t count, room;
    uint64_t now_ns, events, seed, step_ns, steps;
} sim;

/* ---- what happens when ---- */

static bool is_sooner(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void plan(uint64_t after_ns, enum what what, int node, int other, uint32_t piece)
{
    struct event event = {sim.now_ns + after_ns, sim.events++, what, node, other, piece};
    size_t at = sim.count++;

    if (sim.count > sim.room) {
        sim.room = 2 * sim.room + 1024;
        sim.heap = realloc(sim.heap, sim.room * sizeof(*sim.heap));
        pst_assert(sim.heap);
    }
    for (; at > 0 && is_sooner(&event, &sim.heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim.heap[at] = sim.heap[(at - 1) / 2];
    sim.heap[at] = event;
}

static struct event take(void)
{
    struct event first = sim.heap[0], last = sim.heap[--sim.count];
    size_t at = 0;

    for (size_t below = 1; below < sim.count; below = 2 * at + 1) {
        if (below + 1 < sim.count && is_sooner(&sim.heap[below + 1], &sim.heap[below]))
            below++;
        if (!is_sooner(&sim.heap[below], &last))
            break;
        sim.heap[at] = sim.heap[below];
        at = below;
    }
    sim.heap[at] = last;
    return first;
}

static uint64_t now_ms(void)
{
    return sim.now_ns / 1000000;
}

static uint64_t draw(uint64_t below)
{
    sim.seed ^= sim.seed << 13;
    sim.seed ^= sim.seed >> 7;
    sim.seed ^= sim.seed << 17;
    return sim.seed % below;
}

/* ---- a member towards its child ---- */

static void wake(int at, uint64_t after_ns)
{
    if (!sim.nodes[at].wakes)
        plan(after_ns, TURN, at, NOBODY, 0);
    sim.nodes[at].wakes = true;
}

static void send_piece(int at)
{
    struct node *node = &sim.nodes[at];
    uint64_t takes_ns = pst_piece_length(&sim.row, node->served.next) * 8000000000ull / sim.bits_per_s;

    plan(takes_ns + sim.latency_ns, PIECE, node->child, at, node->served.next++);
    node->busy_ns = sim.now_ns + takes_ns;
    plan(takes_ns, TURN, at, NOBODY, 1);
}

static void serve(int at)
{
    struct node *node = &sim.nodes[at];
    uint32_t wait_ms = 0;

    if (node->dead || node->child == NOBODY || node->busy_ns > sim.now_ns)
        return;
    switch (pst_serve_turn(&node->served, node->have, sim.pieces, now_ms(), &wait_ms)) {
    case PST_SERVE_PIECE:
        node->served.said_ms = now_ms();
        send_piece(at);
        break;
    case PST_SERVE_BEAT:
        node->served.said_ms = now_ms();
        plan(sim.latency_ns, BEAT, node->child, at, 0);
        wake(at, PST_CHAIN_BEAT_MS * 1000000ull);
        break;
    case PST_SERVE_WAIT:
        wake(at, wait_ms * 1000000ull);
        break;
    case PST_SERVE_END:
        break;
    }
}

/* ---- a member towards its parent ---- */

/* Its parent was heard. */
static void hear(struct node *node)
{
    node->heard_ns = sim.now_ns;
    if (node->lost_ns) {
        sim.step_ns = pst_max(sim.step_ns, sim.now_ns - node->lost_ns);
        sim.steps++;
        node->lost_ns = 0;
    }
}

static void on_piece(int at, int from, uint32_t piece)
{
    struct node *node = &sim.nodes[at];

    if (node->dead || node->parent != from || piece != node->have)
        return;
    hear(node);
    node->have++;
    if (node->have == sim.pieces) {
        node->done_ns = sim.now_ns;
        pst_assert(pst_chain_progress(sim.chain, node->rank, (uint64_t)at, node->have, true, now_ms()) == 0);
    }
    serve(at);
}

static void on_check(int at)
{
    struct node *node = &sim.nodes[at];
    uint32_t patience_ms = pst_parent_patience_ms(node->heard_ns / 1000000, now_ms());

    if (node->dead || node->have == sim.pieces)
        return;
    if (patience_ms == 0 && !node->reports) {
        node->reports = true;
        plan(sim.latency_ns, REPORT, at, node->parent, 0);
    }
    plan((patience_ms ? patience_ms : PST_CHAIN_BEAT_MS) * 1000000ull, CHECK, at, NOBODY, 0);
}

static void on_place(int at, int parent)
{
    struct node *node = &sim.nodes[at];

    node->reports = false;
    if (node->dead)
        return;
    node->parent = parent;
    node->heard_ns = sim.now_ns;
    plan(HANDSHAKES * sim.latency_ns, CONNECT, parent, at, node->have);
}

static void on_connect(int at, int child, uint32_t has)
{
    struct node *node = &sim.nodes[at];

    if (node->dead)
        return;
    node->child = child;
    node->served =
        (struct pst_served){.next = has, .said_ms = now_ms() - pst_min(now_ms(), PST_CHAIN_BEAT_MS)};
    serve(at);
}

/* ---- the store ---- */

static void answer_place(int at)
{
    struct pst_chain_place place;

    pst_chain_place(sim.chain, sim.nodes[at].rank, &place);
    plan(sim.latency_ns, PLACE, at, sim.node_of[place.parent_rank], 0);
}

static void on_join(int at)
{
    const struct pst_chain_address address = {"10.0.0.1", 1};
    struct node *node = &sim.nodes[at];

    pst_assert(pst_chain_join(sim.chain, (uint64_t)at, &address, now_ms(), &node->rank) == 0);
    node->joined = true;
    sim.node_of[node->rank] = at;
    node->heard_ns = sim.now_ns;
    answer_place(at);
    plan(PST_CHAIN_SILENCE_MS * 1000000ull, CHECK, at, NOBODY, 0);
}

static void on_report(int at, int parent)
{
    struct node *node = &sim.nodes[at];

    pst_assert(sim.nodes[parent].dead); /* nobody who lives is reported */
    pst_assert(pst_chain_report(sim.chain, node->rank, (uint64_t)at, sim.nodes[parent].rank, PST_CHAIN_SILENT,
                                now_ms()) == 0);
    node->lost_ns = pst_max(sim.nodes[parent].died_ns, node->heard_ns);
    answer_place(at);
}

/* ---- all of it ---- */

static void happen(const struct event *event)
{
    struct node *node = &sim.nodes[event->node];

    switch (event->what) {
    case JOIN:
        on_join(event->node);
        break;
    case REPORT:
        on_report(event->node, event->other);
        break;
    case PLACE:
        on_place(event->node, event->other);
        break;
    case CONNECT:
        on_connect(event->node, event->other, event->piece);
        break;
    case PIECE:
        on_piece(event->node, event->other, event->piece);
        break;
    case CHECK:
        on_check(event->node);
        break;
    case BEAT:
        if (!node->dead && node->parent == event->other)
            hear(node);
        break;
    case TURN:
        node->wakes &= event->piece == 1; /* not the one that was planned by wake() */
        serve(event->node);
        break;
    case DIE:
        node->dead = true;
        node->died_ns = sim.now_ns;
        break;
    }
}

static void prepare(void)
{
    uint64_t whole_ns = sim.bytes * 8000000000ull / sim.bits_per_s;

    sim.starts[1] = sim.bytes;
    sim.row = (struct pst_pieces){sim.starts, 1, pst_piece_bytes(sim.members + 1, sim.bytes)};
    pst_assert(sim.row.piece_bytes > 0);
    sim.pieces = pst_pieces_count(&sim.row);
    sim.chain = pst_chain_open();
    pst_assert(sim.chain);
    sim.nodes[0] = (struct node){.have = sim.pieces, .parent = NOBODY, .child = NOBODY};
    for (uint32_t i = 1; i <= sim.members; i++) {
        sim.nodes[i] = (struct node){.parent = NOBODY, .child = NOBODY};
        plan(i > sim.members - sim.late ? whole_ns / 2 + i * JOIN_NS : i * JOIN_NS, JOIN, (int)i, NOBODY, 0);
    }
    for (uint32_t i = 0; i < sim.deaths; i++)
        plan(whole_ns / 10 + draw(whole_ns), DIE, 1 + (int)draw(sim.members), NOBODY, 0);
}

/* Return: when the last living member had the tree; 0: one has it not. */
static uint64_t last_done_ns(void)
{
    uint64_t last_ns = 0;

    for (uint32_t i = 1; i <= sim.members; i++) {
        if (!sim.nodes[i].dead && !sim.nodes[i].done_ns)
            return 0;
        last_ns = pst_max(last_ns, sim.nodes[i].done_ns);
    }
    return last_ns;
}

int main(int argc, char **argv)
{
    uint64_t numbers[8] = {0}, last_ns;

    for (int i = 1; i < argc && i < 8; i++)
        numbers[i] = strtoull(argv[i], NULL, 10);
    if (argc != 8 || numbers[1] == 0 || numbers[1] > MEMBERS_MAX || numbers[2] == 0 || numbers[3] == 0 ||
        numbers[6] > numbers[1] || numbers[7] == 0) {
        fprintf(stderr, "usage: chain_figures MEMBERS BYTES BITS_PER_S LATENCY_US DEATHS LATE SEED\n");
        return 2;
    }
    sim.members = (uint32_t)numbers[1];
    sim.bytes = numbers[2];
    sim.bits_per_s = numbers[3];
    sim.latency_ns = numbers[4] * 1000;
    sim.deaths = (uint32_t)numbers[5];
    sim.late = (uint32_t)numbers[6];
    sim.seed = numbers[7];
    prepare();
    while (sim.count > 0 && !last_done_ns()) {
        for (int i = 0; i < 10000 && sim.count > 0; i++) {
            struct event event = take();

            sim.now_ns = event.at_ns;
            happen(&event);
        }
    }
    last_ns = last_done_ns();
    printf("{\"seconds\": %.6f, \"bound_s\": %.6f, \"piece_bytes\": %" PRIu32 ", \"events\": %" PRIu64
           ", \"stepped_over\": %" PRIu64 ", \"step_s_max\": %.3f}\n",
           (double)last_ns / 1e9, (double)sim.bytes * 8 / (double)sim.bits_per_s, sim.row.piece_bytes,
           sim.events, sim.steps, (double)sim.step_ns / 1e9);
    sim.chain = pst_chain_close(sim.chain);
    free(sim.heap);
    return last_ns > 0 && sim.step_ns <= STEP_NS_MAX ? 0 : 1;
}
