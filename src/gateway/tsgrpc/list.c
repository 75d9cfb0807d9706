/* SPDX-License-Identifier: Apache-2.0 */
/* list.c: List. A message of entries is made when the last one has been sent, so that a slow reader costs
 * one. */
#include "gateway/tsgrpc/tsgrpc_priv.h"

enum { PAGE_BYTES = 32 << 10 };

struct listing {
    struct list_request request; /* its bytes are in st->request */
    struct penstock_list *list;
    uint8_t page[PAGE_BYTES];
};

static struct listing *listing_of(const struct stream *st)
{
    return st->own;
}

static void list_requested(struct stream *st, struct pst_bytes message)
{
    struct listing *l = st->own = malloc(sizeof(*l));

    if (l)
        memset(l, 0, offsetof(struct listing, page));
    if (!l)
        stream_fail(st, STATUS_EXHAUSTED, "out of memory");
    else if (proto_list_request(message, &l->request) < 0)
        stream_fail(st, STATUS_INVALID, "not a ListRequest");
    else if (l->request.end.len && pst_bytes_compare(l->request.start, l->request.end) >= 0)
        stream_answer(st, true);
    else
        turn_await(&st->door->lists, st);
}

static void list_turn(struct stream *st)
{
    struct listing *l = st->own;
    const struct penstock_list_options options = {.size = sizeof(options),
                                                  .start = l->request.start.data,
                                                  .start_bytes = l->request.start.len,
                                                  .end = l->request.end.data,
                                                  .end_bytes = l->request.end.len};
    int r;

    pst_assert(l && !l->list);
    pst_assert(st->state == STREAM_WORKING);
    r = penstock_list_open(st->door->store, &options, &l->list);
    if (r)
        stream_fail_result(st, r, l->request.start);
    else
        stream_answer(st, false);
}

static size_t put_entry(const struct listing *l, const struct penstock_entry *entry, uint8_t *out)
{
    uint64_t skip = pst_min(l->request.strip_bytes, entry->key_bytes);
    struct pst_bytes key = {(const uint8_t *)entry->key + skip, entry->key_bytes - skip};

    pst_assert(entry->key_bytes <= PST_KEY_BYTES_MAX);
    return proto_entry(out, key, entry->value_bytes);
}

static void list_more(struct stream *st)
{
    struct listing *l = st->own;
    struct penstock_entry entry;
    size_t at = 0;
    int r = 1;

    pst_assert(l->list);
    pst_assert(st->body_left == 0); /* what is in the page has been sent */
    while (r == 1 && PAGE_BYTES - at >= PROTO_ENTRY_BYTES_MAX) {
        r = penstock_list_next(l->list, &entry);
        if (r == 1)
            at += put_entry(l, &entry, l->page + at);
    }
    if (r != 0 && r != 1) {
        stream_fail_result(st, r, l->request.start);
        return;
    }
    pst_assert(at <= PAGE_BYTES);
    if (r == 0)
        stream_last(st);
    if (at == 0)
        return;
    proto_frame_head(st->head, (uint32_t)at);
    st->head_bytes = PROTO_FRAME_BYTES;
    st->body = l->page;
    st->body_left = at;
}

static bool list_drop(struct stream *st)
{
    if (st->own)
        penstock_list_close(listing_of(st)->list);
    free(st->own);
    st->own = NULL;
    return true;
}

const struct method method_list = {
    .name = "List",
    .request = list_requested,
    .more = list_more,
    .turn = list_turn,
    .drop = list_drop,
};
