/* op.c: an operation's life and memory, the same for every kind of store. */
#include "call/call_priv.h"

#include "base/hash.h"

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
    pst_assert(list->count > 0 && list->last);
    list->first = op->reserved[OP_NEXT];
    if (!list->first)
        list->last = NULL;
    list->count--;
    pst_assert((list->count == 0) == (list->first == NULL));
    return op;
}

static bool check_attrs(const struct penstock_op *op)
{
    if (!op->attrs)
        return true;
    if (op->code == PENSTOCK_SLOT_COMMIT)
        return op->attr_bytes <= PST_WIRE_KEY_BYTES_MAX;
    return op->attr_bytes <= PENSTOCK_ATTR_BYTES_MAX ||
           (op->code != PENSTOCK_PUT && op->code != PENSTOCK_RESERVE);
}

static bool check_get(const struct penstock_op *op)
{
    if (op->flags & PENSTOCK_WAIT && op->flags & PENSTOCK_UNLESS_GENERATION)
        return false; /* one member holds the time and the generation */
    if (op->flags & PENSTOCK_RANGE && op->flags & PENSTOCK_FROM_END)
        return op->offset > 0 && op->offset <= INT64_MAX;
    return true;
}

static int check_op(const struct penstock_op *op, int shard)
{
    uint64_t sum = 0;

    if (!pst_op_public(op))
        return (shard >= 0 || op->code == PST_WIRE_COPY) && pst_wire_code_known(op->code) ? 0 : -EINVAL;
    if (op->code == 0 || op->key_bytes == 0 || !op->key)
        return -EINVAL;
    if (op->key_bytes > PENSTOCK_KEY_BYTES_MAX)
        return -ENAMETOOLONG;
    if (op->code == PENSTOCK_GET && !check_get(op))
        return -EINVAL;
    if (op->iov_count > PST_OP_PIECES_MAX || op->flags & PST_WIRE_VALUE_IN_BULK || !check_attrs(op))
        return -EINVAL;
    if (op->code == PENSTOCK_RESERVE)
        return op->data ? 0 : -EINVAL;
    if (op->code > PENSTOCK_GET && op->code != PENSTOCK_SLOT_WRITE)
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
    if (op->code == PST_WIRE_VIEW)
        op->if_generation = sent->if_generation; /* its session */
    op->value_bytes = sent->value_bytes;
    op->generation = sent->generation;
    pst_op_end(op, result);
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

uint64_t pst_op_wait_ms(const struct penstock_op *op, uint64_t preset_ms)
{
    if (!pst_wire_waits(op->code, op->flags))
        return 0;
    if (op->code == PST_WIRE_WATCH_NEXT)
        return op->offset;
    return op->wait_ms ? pst_min(op->wait_ms, INT32_MAX) : preset_ms;
}

bool pst_op_orphaned(const struct penstock_op *op, int *result)
{
    if (op->code != PST_WIRE_RELEASE && op->code != PST_WIRE_WATCH_NEXT && op->code != PST_WIRE_WATCH_CLOSE)
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
    return op->reserved[OP_DONE_LIST];
}

uint64_t pst_op_range_offset(const struct penstock_op *op)
{
    pst_assert(op->code == PENSTOCK_GET);
    return op->flags & PENSTOCK_FROM_END ? -op->offset : pst_min(op->offset, (uint64_t)INT64_MAX);
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
