/* SPDX-License-Identifier: Apache-2.0 */
/* proto.c: requests of one message, and answers. */
#include "gateway/tsgrpc/proto_priv.h"

struct generation proto_generation(struct pst_bytes bytes)
{
    const uint8_t *at = bytes.data;
    struct generation out = {.kind = GENERATION_FOREIGN};

    if (bytes.len == 0)
        return (struct generation){.kind = GENERATION_UNKNOWN};
    if (bytes.len == 1 && at[0] == 2)
        return (struct generation){.kind = GENERATION_ABSENT};
    if (bytes.len == PROTO_GENERATION_BYTES && at[0] == 0) {
        memcpy(&out.number, at + 1, sizeof(out.number));
        out.kind = out.number ? GENERATION_VALUE : GENERATION_FOREIGN;
    }
    return out;
}

bool generation_equal(struct generation a, struct generation b)
{
    return a.kind == b.kind && a.kind != GENERATION_FOREIGN && a.number == b.number;
}

static int read_byte_range(struct pst_bytes in, struct read_request *out)
{
    struct field field;
    int r;

    out->min = out->max = 0;
    while ((r = proto_next(&in, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_VARINT))
            out->min = (int64_t)field.value;
        else if (proto_is(&field, 2, WIRE_VARINT))
            out->max = (int64_t)field.value;
    }
    return r;
}

int proto_read_request(struct pst_bytes message, struct read_request *out)
{
    struct read_request request = {.max = -1};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES))
            request.key = field.bytes;
        else if (proto_is(&field, 2, WIRE_BYTES))
            request.if_not_equal = proto_generation(field.bytes);
        else if (proto_is(&field, 3, WIRE_BYTES))
            request.if_equal = proto_generation(field.bytes);
        else if (proto_is(&field, 5, WIRE_BYTES) && (r = read_byte_range(field.bytes, &request)) < 0)
            return r;
    }
    if (r == 0)
        *out = request;
    return r;
}

static int read_key_range(struct pst_bytes in, struct pst_bytes *start, struct pst_bytes *end)
{
    struct field field;
    int r;

    while ((r = proto_next(&in, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES))
            *start = field.bytes;
        else if (proto_is(&field, 2, WIRE_BYTES))
            *end = field.bytes;
    }
    return r;
}

int proto_delete_request(struct pst_bytes message, struct delete_request *out)
{
    struct delete_request request = {0};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES)) {
            request.key = field.bytes;
        } else if (proto_is(&field, 2, WIRE_BYTES)) {
            request.ranged = true;
            r = read_key_range(field.bytes, &request.start, &request.end);
            if (r < 0)
                return r;
        } else if (proto_is(&field, 3, WIRE_BYTES)) {
            request.if_equal = proto_generation(field.bytes);
        }
    }
    if (r == 0)
        *out = request;
    return r;
}

int proto_list_request(struct pst_bytes message, struct list_request *out)
{
    struct list_request request = {0};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES)) {
            r = read_key_range(field.bytes, &request.start, &request.end);
            if (r < 0)
                return r;
        } else if (proto_is(&field, 2, WIRE_VARINT)) {
            request.strip_bytes = field.value;
        }
    }
    if (r == 0)
        *out = request;
    return r;
}

int proto_range(const struct read_request *request, uint64_t value_bytes, uint64_t *offset, uint64_t *bytes)
{
    int64_t size = (int64_t)value_bytes, min = request->min, max = request->max;

    pst_assert(value_bytes <= INT64_MAX);
    if (max == -1)
        max = size;
    if (min < 0)
        min = min < -size ? -1 : size + min;
    if (min < 0 || min > max || max > size)
        return -ERANGE;
    *offset = (uint64_t)min;
    *bytes = (uint64_t)(max - min);
    pst_assert(*offset <= value_bytes);
    pst_assert(*bytes <= value_bytes - *offset);
    return 0;
}

/* ---- writing ---- */

/* Field 2 of every answer but a listing's: a generation and the time at which it was current. */
static uint8_t *put_generation(uint8_t *at, struct generation generation, uint64_t wall_ns)
{
    uint8_t raw[PROTO_GENERATION_BYTES] = {0}, stamp[24], both[48], *stamp_end = stamp, *end = both;

    pst_assert(generation.kind != GENERATION_FOREIGN);
    if (generation.kind == GENERATION_ABSENT) {
        raw[0] = 2;
        end = proto_put_bytes(end, 1, raw, 1);
    } else if (generation.kind == GENERATION_VALUE) {
        memcpy(raw + 1, &generation.number, sizeof(generation.number));
        end = proto_put_bytes(end, 1, raw, sizeof(raw));
    }
    stamp_end = proto_put_number(stamp_end, 1, wall_ns / 1000000000);
    stamp_end = proto_put_number(stamp_end, 2, wall_ns % 1000000000);
    end = proto_put_bytes(end, 2, stamp, (size_t)(stamp_end - stamp));
    pst_assert(stamp_end <= stamp + sizeof(stamp));
    pst_assert(end <= both + sizeof(both));
    return proto_put_bytes(at, 2, both, (size_t)(end - both));
}

/* A frame around what lies behind its place, and a part of @part_bytes that follows. */
static size_t close_frame(uint8_t *out, const uint8_t *end, uint32_t part_bytes)
{
    size_t bytes = (size_t)(end - out);

    pst_assert(bytes >= PROTO_FRAME_BYTES && bytes <= PROTO_HEAD_BYTES_MAX);
    proto_frame_head(out, (uint32_t)(bytes - PROTO_FRAME_BYTES) + part_bytes);
    return bytes;
}

static uint8_t *put_part_tag(uint8_t *at, uint32_t part_bytes)
{
    return part_bytes ? proto_put_varint(proto_put_tag(at, 4, WIRE_BYTES), part_bytes) : at;
}

size_t proto_read_head(uint8_t out[PROTO_HEAD_BYTES_MAX], struct generation generation, uint64_t wall_ns,
                       enum read_state state, uint32_t part_bytes)
{
    uint8_t *end = put_generation(out + PROTO_FRAME_BYTES, generation, wall_ns);

    end = proto_put_number(end, 3, state);
    return close_frame(out, put_part_tag(end, part_bytes), part_bytes);
}

size_t proto_part_head(uint8_t out[PROTO_HEAD_BYTES_MAX], uint32_t part_bytes)
{
    pst_assert(part_bytes > 0);
    return close_frame(out, put_part_tag(out + PROTO_FRAME_BYTES, part_bytes), part_bytes);
}

size_t proto_written(uint8_t out[PROTO_HEAD_BYTES_MAX], struct generation generation, uint64_t wall_ns)
{
    return close_frame(out, put_generation(out + PROTO_FRAME_BYTES, generation, wall_ns), 0);
}

size_t proto_entry(uint8_t *out, struct pst_bytes key, uint64_t value_bytes)
{
    size_t size_bytes = value_bytes ? 1 + proto_varint_bytes(value_bytes) : 0;
    uint8_t *end;

    pst_assert(key.len <= PST_KEY_BYTES_MAX);
    end = proto_put_varint(proto_put_tag(out, 2, WIRE_BYTES),
                           1 + proto_varint_bytes(key.len) + key.len + size_bytes);
    end = proto_put_number(proto_put_bytes(end, 1, key.data, key.len), 2, value_bytes);
    pst_assert(end - out <= PROTO_ENTRY_BYTES_MAX);
    return (size_t)(end - out);
}
