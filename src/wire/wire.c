/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: encoding and decoding. A decoder believes no length before it has compared it with what is left. */
#include "wire/wire.h"

#define PUT(at, value)                                                                                       \
    do {                                                                                                     \
        memcpy(at, &(value), sizeof(value));                                                                 \
        (at) += sizeof(value);                                                                               \
    } while (0)

#define GET(at, end, value)                                                                                  \
    do {                                                                                                     \
        if (pst_unlikely((size_t)((end) - (at)) < sizeof(value)))                                            \
            return -EPROTO;                                                                                  \
        memcpy(&(value), at, sizeof(value));                                                                 \
        (at) += sizeof(value);                                                                               \
    } while (0)

/* The fixed part of an operation: 24 bytes. */
struct op_fixed {
    uint8_t code;
    uint8_t copies;
    uint16_t key_bytes;
    uint16_t attr_bytes;
    uint16_t depth;
    uint32_t flags;
    uint32_t value_crc; /* or wait_ms */
    uint64_t bytes;
};
_Static_assert(sizeof(struct op_fixed) == 24, "op layout");

enum {
    REFERS = PST_WIRE_IF_GENERATION | PST_WIRE_UNLESS_GENERATION | PST_WIRE_FLOOR,
    OFFSETS = PST_WIRE_RANGE | PST_WIRE_TTL | PST_WIRE_IN_RESERVATION,
};

/* Whether if_generation, or what has its place, travels. */
static bool op_has_generation(uint32_t traits, uint32_t flags)
{
    return traits & PST_CODE_HANDLE || flags & REFERS;
}

/* Whether the offset, or what has its place, travels. */
static bool op_has_offset(uint32_t traits, uint32_t flags)
{
    return traits & PST_CODE_OFFSET || flags & OFFSETS;
}

/* The fixed part of a result: 16 bytes. */
struct result_fixed {
    int16_t result;
    uint8_t flags;
    uint8_t copies;
    uint32_t bytes;
    uint64_t generation;
};
_Static_assert(sizeof(struct result_fixed) == 16, "result layout");

static bool op_value_inline(uint32_t traits, uint32_t flags)
{
    return traits & PST_CODE_VALUE && !(flags & (PST_WIRE_VALUE_IN_BULK | PST_WIRE_IN_RESERVATION));
}

static uint8_t *put_bytes(uint8_t *at, const void *data, size_t len)
{
    if (len)
        memcpy(at, data, len);
    return at + len;
}

static size_t attrs_max(uint8_t code)
{
    return pst_code_of_role(code) ? PST_WIRE_QUESTION_BYTES_MAX : PST_WIRE_KEY_BYTES_MAX;
}

size_t pst_wire_op_bytes(const struct pst_wire_op *op)
{
    uint32_t traits = pst_code_traits(op->code);

    return sizeof(struct op_fixed) + (op_has_generation(traits, op->flags) ? 8 : 0) +
           (op_has_offset(traits, op->flags) ? 8 : 0) + op->key.len + op->attrs.len +
           (op_value_inline(traits, op->flags) ? op->bytes : 0);
}

uint8_t *pst_wire_put_op(uint8_t *at, const struct pst_wire_op *op)
{
    uint32_t traits = pst_code_traits(op->code);
    uint16_t key_bytes = (uint16_t)op->key.len, attr_bytes = (uint16_t)op->attrs.len;

    pst_assert(op->key.len <= PST_WIRE_KEY_BYTES_MAX);
    pst_assert(op->attrs.len <= attrs_max(op->code));
    pst_assert(op->copies == 0 || (op->code == PST_WIRE_PUT && op->copies <= PST_WIRE_COPIES_MAX));
    /* struct op_fixed member by member: copied whole, it would be read wider than it was just written, for
     * which a processor waits. */
    PUT(at, op->code);
    PUT(at, op->copies);
    PUT(at, key_bytes);
    PUT(at, attr_bytes);
    PUT(at, op->depth);
    PUT(at, op->flags);
    PUT(at, op->value_crc);
    PUT(at, op->bytes);
    if (op_has_generation(traits, op->flags))
        PUT(at, op->if_generation);
    if (op_has_offset(traits, op->flags))
        PUT(at, op->offset);
    at = put_bytes(at, op->key.data, op->key.len);
    at = put_bytes(at, op->attrs.data, op->attrs.len);
    if (op_value_inline(traits, op->flags)) {
        pst_assert(op->bytes <= PST_WIRE_INLINE_BYTES_MAX);
        at = put_bytes(at, op->value, op->bytes);
    }
    return at;
}

static int get_bytes(const uint8_t **at, const uint8_t *end, size_t len, struct pst_bytes *out)
{
    if ((size_t)(end - *at) < len)
        return -EPROTO;
    *out = (struct pst_bytes){*at, len};
    *at += len;
    return 0;
}

int pst_wire_get_op(const uint8_t **from, const uint8_t *end, struct pst_wire_op *op)
{
    const uint8_t *at = *from;
    struct op_fixed fixed;
    struct pst_bytes value = {NULL, 0};
    uint32_t traits;

    GET(at, end, fixed);
    traits = pst_code_traits(fixed.code);
    if (!traits || fixed.key_bytes > PST_WIRE_KEY_BYTES_MAX || fixed.attr_bytes > attrs_max(fixed.code))
        return -EPROTO;
    op->code = fixed.code;
    op->copies = fixed.copies;
    op->depth = fixed.depth;
    op->flags = fixed.flags;
    op->value_crc = fixed.value_crc;
    op->bytes = fixed.bytes;
    op->if_generation = 0;
    op->offset = 0;
    if (op_has_generation(traits, op->flags))
        GET(at, end, op->if_generation);
    if (op_has_offset(traits, op->flags))
        GET(at, end, op->offset);
    if (get_bytes(&at, end, fixed.key_bytes, &op->key) < 0 ||
        get_bytes(&at, end, fixed.attr_bytes, &op->attrs) < 0)
        return -EPROTO;
    if (op_value_inline(traits, op->flags) &&
        (op->bytes > PST_WIRE_INLINE_BYTES_MAX || get_bytes(&at, end, op->bytes, &value) < 0))
        return -EPROTO;
    op->value = value.data;
    pst_assert(at <= end);
    *from = at;
    return 0;
}

uint8_t *pst_wire_put_result(uint8_t *at, const struct pst_wire_result *result)
{
    pst_assert(result->attrs.len <= UINT16_MAX);
    /* struct result_fixed, member by member as well */
    PUT(at, result->result);
    PUT(at, result->flags);
    PUT(at, result->copies);
    PUT(at, result->bytes);
    PUT(at, result->generation);
    if (result->flags & (PST_WIRE_SIZE | PST_WIRE_DETAIL))
        PUT(at, result->value_bytes);
    if (result->flags & PST_WIRE_CRC)
        PUT(at, result->crc);
    if (result->flags & PST_WIRE_IN_BULK)
        PUT(at, result->bulk_bytes);
    if (result->flags & PST_WIRE_ATTRS) {
        uint16_t len = (uint16_t)result->attrs.len;

        PUT(at, len);
        at = put_bytes(at, result->attrs.data, len);
    }
    return put_bytes(at, result->data, result->bytes);
}

int pst_wire_get_result(const uint8_t **from, const uint8_t *end, struct pst_wire_result *result)
{
    const uint8_t *at = *from;
    struct result_fixed fixed;
    struct pst_bytes data;
    uint16_t attr_bytes = 0;

    GET(at, end, fixed);
    *result = (struct pst_wire_result){.result = fixed.result,
                                       .flags = fixed.flags,
                                       .copies = fixed.copies,
                                       .bytes = fixed.bytes,
                                       .generation = fixed.generation,
                                       .value_bytes = fixed.bytes};
    if (result->flags & (PST_WIRE_SIZE | PST_WIRE_DETAIL))
        GET(at, end, result->value_bytes);
    if (result->flags & PST_WIRE_CRC)
        GET(at, end, result->crc);
    if (result->flags & PST_WIRE_IN_BULK)
        GET(at, end, result->bulk_bytes);
    if (result->flags & PST_WIRE_ATTRS)
        GET(at, end, attr_bytes);
    if (get_bytes(&at, end, attr_bytes, &result->attrs) < 0 || get_bytes(&at, end, result->bytes, &data) < 0)
        return -EPROTO;
    result->data = data.data;
    pst_assert(at <= end);
    *from = at;
    return 0;
}

/* What stands behind the head of anything but BULK. */
static bool trace_fits(struct pst_bytes header, const struct pst_wire_head *head)
{
    struct pst_traceparent trace;

    pst_assert(header.len >= sizeof(*head));
    if (pst_likely(header.len == sizeof(*head)))
        return true;
    if (head->type != PST_WIRE_REQUEST || header.len != PST_WIRE_TRACED_BYTES)
        return false;
    memcpy(&trace, (const uint8_t *)header.data + sizeof(*head), sizeof(trace));
    return pst_traceparent_fits(&trace);
}

int pst_wire_get_head(struct pst_bytes header, struct pst_wire_head *head)
{
    if (header.len < sizeof(*head))
        return -EPROTO;
    memcpy(head, header.data, sizeof(*head));
    if (head->version < PST_WIRE_VERSION_OLDEST || head->version > PST_WIRE_VERSION ||
        head->type < PST_WIRE_HELLO || head->type > PST_WIRE_BULK)
        return -EPROTO;
    if (head->type != PST_WIRE_BULK)
        return head->count <= PST_WIRE_OPS_MAX && trace_fits(header, head) ? 0 : -EPROTO;
    if (head->count < 1 || head->count > PST_WIRE_PARTS_MAX)
        return -EPROTO;
    return header.len == sizeof(*head) + head->count * sizeof(struct pst_wire_part) ? 0 : -EPROTO;
}

struct pst_wire_part pst_wire_get_part(struct pst_bytes header, uint32_t index)
{
    struct pst_wire_part part;

    pst_assert(sizeof(struct pst_wire_head) + (index + 1) * sizeof(part) <= header.len);
    memcpy(&part, (const uint8_t *)header.data + sizeof(struct pst_wire_head) + index * sizeof(part),
           sizeof(part));
    return part;
}
