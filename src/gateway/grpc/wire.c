/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: frames of gRPC's and fields of protobuf's, read and written. */
#include "gateway/grpc/wire_priv.h"

/* ---- frames ---- */

struct pst_bytes proto_take(struct pst_bytes *input, uint64_t count)
{
    struct pst_bytes taken = {input->data, (size_t)pst_min(count, input->len)};

    *input = (struct pst_bytes){(const uint8_t *)input->data + taken.len, input->len - taken.len};
    return taken;
}

int frame_head(struct frame_reader *reader, struct pst_bytes *input)
{
    struct pst_bytes taken;

    pst_assert(reader->head_bytes < PROTO_FRAME_BYTES);
    taken = proto_take(input, PROTO_FRAME_BYTES - reader->head_bytes);
    if (taken.len)
        memcpy(reader->head + reader->head_bytes, taken.data, taken.len);
    reader->head_bytes += (uint8_t)taken.len;
    pst_assert(reader->head_bytes <= PROTO_FRAME_BYTES);
    if (reader->head_bytes < PROTO_FRAME_BYTES)
        return 0;
    reader->head_bytes = 0;
    reader->left = (uint32_t)reader->head[1] << 24 | (uint32_t)reader->head[2] << 16 |
                   (uint32_t)reader->head[3] << 8 | reader->head[4];
    return reader->head[0] ? -EOPNOTSUPP : 1;
}

void proto_frame_head(uint8_t out[PROTO_FRAME_BYTES], uint32_t bytes)
{
    out[0] = 0;
    out[1] = (uint8_t)(bytes >> 24);
    out[2] = (uint8_t)(bytes >> 16);
    out[3] = (uint8_t)(bytes >> 8);
    out[4] = (uint8_t)bytes;
}

/* ---- reading fields ---- */

int proto_take_varint(struct pst_bytes *in, uint64_t *out)
{
    const uint8_t *at = in->data;
    uint64_t value = 0;

    for (size_t i = 0; i < in->len && i < 10; i++) {
        value |= (uint64_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] & 0x80)
            continue;
        if (i == 9 && at[i] > 1)
            return -EINVAL; /* more than 64 bits */
        *in = (struct pst_bytes){at + i + 1, in->len - i - 1};
        *out = value;
        return 0;
    }
    return -EINVAL;
}

static int take_bytes(struct pst_bytes *in, uint64_t count, struct pst_bytes *out)
{
    if (count > in->len)
        return -EINVAL;
    *out = (struct pst_bytes){in->data, (size_t)count};
    *in = (struct pst_bytes){(const uint8_t *)in->data + count, in->len - (size_t)count};
    return 0;
}

int proto_next(struct pst_bytes *in, struct field *out)
{
    uint64_t tag, count;
    int r;

    if (in->len == 0)
        return 0;
    *out = (struct field){0};
    r = proto_take_varint(in, &tag);
    if (r < 0 || tag >> 3 == 0 || tag > UINT32_MAX)
        return -EINVAL;
    out->number = (uint32_t)(tag >> 3);
    out->type = tag & 7;
    switch (out->type) {
    case WIRE_VARINT:
        r = proto_take_varint(in, &out->value);
        break;
    case WIRE_64:
    case WIRE_32:
        r = take_bytes(in, out->type == WIRE_64 ? 8 : 4, &out->bytes);
        break;
    case WIRE_BYTES:
        r = proto_take_varint(in, &count);
        if (r == 0)
            r = take_bytes(in, count, &out->bytes);
        break;
    default: /* groups, which protobuf has given up */
        r = -EINVAL;
    }
    return r < 0 ? r : 1;
}

/* ---- writing fields ---- */

uint8_t *proto_put_varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

size_t proto_varint_bytes(uint64_t value)
{
    size_t bytes = 1;

    while (value >>= 7)
        bytes++;
    pst_assert(bytes >= 1 && bytes <= 10);
    return bytes;
}

uint8_t *proto_put_tag(uint8_t *at, uint32_t number, enum wire_type type)
{
    pst_assert(number > 0 && number < 16);
    return proto_put_varint(at, (uint64_t)number << 3 | type);
}

uint8_t *proto_put_bytes(uint8_t *at, uint32_t number, const void *data, size_t bytes)
{
    pst_assert(data || bytes == 0);
    at = proto_put_varint(proto_put_tag(at, number, WIRE_BYTES), bytes);
    if (bytes)
        memcpy(at, data, bytes);
    return at + bytes;
}

uint8_t *proto_put_number(uint8_t *at, uint32_t number, uint64_t value)
{
    return value ? proto_put_varint(proto_put_tag(at, number, WIRE_VARINT), value) : at;
}
