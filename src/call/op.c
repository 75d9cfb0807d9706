/* SPDX-License-Identifier: Apache-2.0 */
/* op.c: an operation's life and memory, the same for every kind of store. */
#include "call/call_priv.h"

#include "base/hash.h"

#define X(code, number, word, traits)                                                                        \
    _Static_assert((int)PENSTOCK_##code == (int)PST_WIRE_##code, "one code, here and on the wire");
PST_PUBLIC_CODES(X)
#undef X

#define SAME(flag)                                                                                           \
    _Static_assert((int)PENSTOCK_##flag == (int)PST_WIRE_##flag, "one flag, here and on the wire")
SAME(IF_ABSENT);
SAME(IF_GENERATION);
SAME(CHECKSUM);
SAME(TTL);
SAME(EXACT);
SAME(UNLESS_GENERATION);
SAME(DURABLE);
SAME(REPLACE);
SAME(RANGE);
SAME(FROM_END);
SAME(WAIT);

void pst_op_list_wake(const struct pst_op_list *list)
{
    if (list->wake_fd)
        pst_event_set(list->wake_fd);
}

void pst_op_list_push(struct pst_op_list *list, struct penstock_op *op)
{
    pst_assert((list->count == 0) == (list->last == NULL));
    op->reserved[OP_NEXT] = NULL;
    if (list->last)
        list->last->reserved[OP_NEXT] = op;
    else
        list->first = op;
    list->last = op;
    list->count++;
    pst_op_list_wake(list);
}

struct penstock_op *pst_op_list_pop(struct pst_op_list *list)
{
    struct penstock_op *op = list->first;

    if (!op)
        return NULL;
    pst_assert(list->count > 0);
    pst_assert(list->last);
    list->first = op->reserved[OP_NEXT];
    if (!list->first)
        list->last = NULL;
    list->count--;
    pst_assert((list->count == 0) == (list->first == NULL));
    return op;
}

void pst_op_list_prepend(struct pst_op_list *list, const struct pst_op_list *first)
{
    if (!first->count)
        return;
    pst_assert(first->last && !first->last->reserved[OP_NEXT]);
    first->last->reserved[OP_NEXT] = list->first;
    list->first = first->first;
    if (!list->last)
        list->last = first->last;
    list->count += first->count;
    pst_assert(list->count >= first->count);
}

static bool check_attrs(const struct penstock_op *op)
{
    if (!op->attrs)
        return true;
    if (op->code == PENSTOCK_RESERVATION_COMMIT)
        return op->attr_bytes <= PST_WIRE_KEY_BYTES_MAX;
    return op->attr_bytes <= PENSTOCK_ATTR_BYTES_MAX ||
           (op->code != PENSTOCK_PUT && op->code != PENSTOCK_RESERVE);
}

/* A flag that means nothing to the code is a mistake, whoever made it. */
static bool check_flags(const struct penstock_op *op)
{
    return !(op->flags & ~pst_wire_may(op->code, false)) &&
           (op->code != PENSTOCK_GET || pst_wire_get_fits(op->flags, op->offset));
}

static int check_op(const struct penstock_op *op, int shard)
{
    uint64_t sum = 0;

    if (!pst_op_public(op))
        return (shard >= 0 || op->code == PST_WIRE_COPY || op->code == PST_WIRE_COMMIT) &&
                       pst_code_traits(op->code)
                   ? 0
                   : -EINVAL;
    if (op->key_bytes == 0 || !op->key)
        return -EINVAL;
    if (op->key_bytes > PENSTOCK_KEY_BYTES_MAX)
        return -ENAMETOOLONG;
    if (!check_flags(op))
        return -EINVAL;
    if (op->iov_count > PST_OP_PIECES_MAX || !check_attrs(op))
        return -EINVAL;
    if (op->code == PENSTOCK_RESERVE)
        return op->reservation && !op->iov ? 0 : -EINVAL;
    if (op->code != PENSTOCK_GET && !pst_code_has(op->code, PST_CODE_VALUE))
        return 0;
    if (!op->iov)
        return op->data || op->bytes == 0 ? 0 : -EINVAL;
    for (uint32_t i = 0; i < op->iov_count; i++) {
        if (pst_add_overflows(sum, op->iov[i].iov_len, &sum))
            return -EINVAL;
    }
    return sum == op->bytes ? 0 : -EINVAL;
}

int pst_op_begin(struct penstock_op *op, int shard, struct pst_op_list *done)
{
    pst_assert(shard < (1 << OP_SHARD_BITS) - 1);
    op->reserved[OP_DONE_LIST] = done;
    op->reserved[OP_DEADLINE] = NULL;
    op->reserved[OP_SHARD] = (void *)(uintptr_t)(shard + 1);
    op->result = 0;
    op->value_bytes = 0;
    op->generation = 0;
    op->error_detail = (struct penstock_error_detail){0};
    return check_op(op, shard);
}

void pst_op_end(struct penstock_op *op, int result)
{
    pst_assert(op->reserved[OP_DONE_LIST]);
    op->result = result;
    op->reserved[OP_COPIES] = (void *)(uintptr_t)(result == 0);
    pst_op_list_push(op->reserved[OP_DONE_LIST], op);
}

void pst_op_set_deadline(struct penstock_op *op, uint64_t ns)
{
    op->reserved[OP_DEADLINE] = (void *)(uintptr_t)ns;
}

uint64_t pst_op_deadline(const struct penstock_op *op)
{
    return (uint64_t)(uintptr_t)op->reserved[OP_DEADLINE];
}

void pst_op_end_as(struct penstock_op *op, const struct penstock_op *sent, int result, uint32_t copies)
{
    uintptr_t shard = (uintptr_t)op->reserved[OP_SHARD] & ((1 << OP_SHARD_BITS) - 1);

    pst_assert(op != sent);
    op->reserved[OP_SHARD] = (void *)(uintptr_t)(pst_op_request(sent) << OP_SHARD_BITS | shard);
    if (op->code == sent->code)
        op->attr_bytes = sent->attr_bytes;
    op->value_bytes = sent->value_bytes;
    op->generation = sent->generation;
    op->error_detail = sent->error_detail;
    pst_op_end(op, result);
    if (op->code == PST_WIRE_VIEW)
        pst_op_set_session(op, pst_op_session(sent));
    else
        pst_op_set_copies(op, copies);
}

void pst_op_set_copies(struct penstock_op *op, uint32_t copies)
{
    op->reserved[OP_COPIES] = (void *)(uintptr_t)copies;
}

uint32_t pst_op_copies(const struct penstock_op *op)
{
    return (uint32_t)(uintptr_t)op->reserved[OP_COPIES];
}

void pst_op_set_session(struct penstock_op *op, uint64_t session)
{
    pst_assert(op->code == PST_WIRE_VIEW);
    op->reserved[OP_SESSION] = (void *)(uintptr_t)session;
}

uint64_t pst_op_session(const struct penstock_op *op)
{
    pst_assert(op->code == PST_WIRE_VIEW);
    return (uint64_t)(uintptr_t)op->reserved[OP_SESSION];
}

uint64_t pst_op_wait_ms(const struct penstock_op *op, uint64_t preset_ms)
{
    if (!pst_wire_waits(op->code, op->flags))
        return 0;
    if (op->code == PST_WIRE_WATCH_NEXT)
        return op->wait_ms;
    return op->wait_ms ? pst_min(op->wait_ms, INT32_MAX) : preset_ms;
}

bool pst_op_orphaned(const struct penstock_op *op, int *result)
{
    if (op->code != PST_WIRE_WATCH_NEXT && (pst_op_public(op) || !pst_code_has(op->code, PST_CODE_RETURNS)))
        return false;
    *result = op->code == PST_WIRE_WATCH_NEXT ? -ECONNRESET : 0;
    return true;
}

uint64_t pst_op_request(const struct penstock_op *op)
{
    return (uint64_t)(uintptr_t)op->reserved[OP_SHARD] >> OP_SHARD_BITS;
}

struct pst_op_list *pst_op_done_list(const struct penstock_op *op)
{
    pst_assert(op->reserved[OP_DONE_LIST]);
    return op->reserved[OP_DONE_LIST];
}

uint64_t pst_op_range_offset(const struct penstock_op *op)
{
    pst_assert(op->code == PENSTOCK_GET);
    return pst_wire_range_offset(op->flags, op->offset);
}

int pst_op_pieces(const struct penstock_op *op, uint64_t offset, uint64_t bytes, struct iovec *iov,
                  int iov_max)
{
    uint64_t at = 0, end = offset + bytes;
    int count = 0;

    pst_assert(end >= offset && end <= op->bytes);
    if (!op->iov) {
        if (iov_max < 1)
            return -E2BIG;
        iov[0] = (struct iovec){(uint8_t *)op->data + offset, bytes};
        return 1;
    }
    for (uint32_t i = 0; i < op->iov_count && at < end; i++) {
        uint64_t len = op->iov[i].iov_len, from = pst_max(at, offset), to = pst_min(at + len, end);

        if (from < to) {
            if (count == iov_max)
                return -E2BIG;
            iov[count++] = (struct iovec){(uint8_t *)op->iov[i].iov_base + (from - at), to - from};
        }
        at += len;
    }
    pst_assert(at >= end); /* the pieces are as long as the value */
    return count;
}

void pst_op_copy_in(const struct penstock_op *op, uint64_t offset, const void *from, uint64_t bytes)
{
    struct iovec pieces[PST_OP_PIECES_MAX];
    const uint8_t *at = from;
    int count;

    if (bytes == 0)
        return;
    if (pst_likely(!op->iov)) {
        memcpy((uint8_t *)op->data + offset, from, bytes);
        return;
    }
    count = pst_op_pieces(op, offset, bytes, pieces, PST_OP_PIECES_MAX);
    pst_assert(count > 0); /* no operation has more pieces than fit */
    for (int i = 0; i < count; at += pieces[i++].iov_len)
        memcpy(pieces[i].iov_base, at, pieces[i].iov_len);
}

void pst_op_copy_out(const struct penstock_op *op, uint64_t offset, void *to, uint64_t bytes)
{
    struct iovec pieces[PST_OP_PIECES_MAX];
    uint8_t *at = to;
    int count;

    pst_assert(offset + bytes >= bytes && offset + bytes <= op->bytes);
    if (bytes == 0)
        return;
    if (pst_likely(!op->iov)) {
        memcpy(to, (const uint8_t *)op->data + offset, bytes);
        return;
    }
    count = pst_op_pieces(op, offset, bytes, pieces, PST_OP_PIECES_MAX);
    pst_assert(count > 0);
    for (int i = 0; i < count; at += pieces[i++].iov_len)
        memcpy(at, pieces[i].iov_base, pieces[i].iov_len);
}

uint32_t pst_op_crc(const struct penstock_op *op, uint64_t bytes)
{
    struct iovec pieces[PST_OP_PIECES_MAX];
    int count = pst_op_pieces(op, 0, bytes, pieces, PST_OP_PIECES_MAX);
    uint32_t crc = 0;

    pst_assert(count >= 0); /* no operation has more pieces than fit */
    for (int i = 0; i < count; i++)
        crc = pst_crc32c(crc, pieces[i].iov_base, pieces[i].iov_len);
    return crc;
}
