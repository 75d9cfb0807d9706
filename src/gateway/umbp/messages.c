/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: requests of the service UMBPMaster, decoded. */
#include "gateway/umbp/messages_priv.h"

#include "base/utf8.h"

/* ---- names and keys ---- */

/* Numbers of a repeated field that lie in one. Return: how many, -EINVAL. */
static int64_t count_packed(struct pst_bytes packed)
{
    int64_t count = 0;
    uint64_t value;

    for (; packed.len > 0; count++)
        if (proto_take_varint(&packed, &value) < 0)
            return -EINVAL;
    return count;
}

static int take_size_field(const struct field *field, struct key_request *out)
{
    int64_t count = field->type == WIRE_BYTES ? count_packed(field->bytes) : field->type == WIRE_VARINT;

    pst_assert(out->fields && field->number == out->fields->sizes);
    if (count < 0)
        return -EINVAL;
    out->size_count = (uint32_t)pst_min(out->size_count + (uint64_t)count, UINT32_MAX);
    return 0;
}

int umbp_read_keys(struct pst_bytes message, const struct key_fields *fields, struct key_request *out)
{
    struct key_request request = {.fields = fields, .message = message};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, fields->name, WIRE_BYTES))
            request.name = field.bytes;
        else if (proto_is(&field, fields->keys, WIRE_BYTES))
            request.key_count++;
        else if (proto_is(&field, fields->excluded, WIRE_BYTES))
            request.excluded_count++;
        else if (proto_is(&field, fields->number, WIRE_VARINT))
            request.number = field.value;
        else if (field.number == fields->sizes && take_size_field(&field, &request) < 0)
            return -EINVAL;
    }
    if (r < 0)
        return r;
    if (request.key_count > UMBP_KEYS_MAX || request.excluded_count > UMBP_EXCLUDED_MAX)
        return -E2BIG;
    *out = request;
    return 0;
}

bool umbp_next_text(struct pst_bytes *at, uint32_t number, struct pst_bytes *out)
{
    struct field field;
    int r;

    pst_assert(number > 0);
    while ((r = proto_next(at, &field)) > 0) {
        if (!proto_is(&field, number, WIRE_BYTES))
            continue;
        *out = field.bytes;
        return true;
    }
    pst_assert(r == 0); /* it was checked */
    return false;
}

bool umbp_next_size(struct size_reader *at, uint32_t number, uint64_t *out)
{
    struct field field;
    int r;

    pst_assert(number > 0);
    while (at->packed.len == 0) {
        r = proto_next(&at->message, &field);
        pst_assert(r >= 0); /* it was checked, as below */
        if (r == 0)
            return false;
        if (proto_is(&field, number, WIRE_BYTES))
            at->packed = field.bytes;
        if (!proto_is(&field, number, WIRE_VARINT))
            continue;
        *out = field.value;
        return true;
    }
    r = proto_take_varint(&at->packed, out);
    pst_assert(r == 0);
    return true;
}

/* ---- nodes ---- */

/* A TierCapacity: what is there, and what is free of it. */
static int take_tier(struct pst_bytes message, struct pst_tier_use tiers[PST_POOL_TIERS])
{
    uint64_t tier = 0, total = 0, available = 0;
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_VARINT))
            tier = field.value;
        else if (proto_is(&field, 2, WIRE_VARINT))
            total = field.value;
        else if (proto_is(&field, 3, WIRE_VARINT))
            available = field.value;
    }
    if (r == 0 && tier >= PST_POOL_HBM && tier < PST_POOL_TIERS)
        tiers[tier] = (struct pst_tier_use){total, total > available ? total - available : 0};
    return r;
}

static bool is_line(struct pst_bytes text)
{
    const uint8_t *at = text.data;

    for (size_t i = 0; i < text.len; i++)
        if (at[i] < 0x20)
            return false;
    return pst_is_utf8(text);
}

/* Return: 0, -EINVAL it is no line, or there is no room for it. */
static int take_tag(struct pst_bytes tag, char tags[PST_GUEST_TAGS_BYTES_MAX], size_t *bytes)
{
    pst_assert(*bytes <= PST_GUEST_TAGS_BYTES_MAX);
    if (tag.len >= PST_GUEST_TAGS_BYTES_MAX - *bytes || !is_line(tag))
        return -EINVAL;
    if (tag.len > 0)
        memcpy(tags + *bytes, tag.data, tag.len);
    tags[*bytes + tag.len] = '\0';
    *bytes += tag.len + 1;
    return 0;
}

int umbp_read_register(struct pst_bytes message, struct pst_guest_register *out,
                       char tags[PST_GUEST_TAGS_BYTES_MAX])
{
    struct pst_guest_register request = {0};
    struct field field;
    size_t tag_bytes = 0;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES))
            request.name = field.bytes;
        else if (proto_is(&field, 2, WIRE_BYTES))
            request.node_address = field.bytes;
        else if (proto_is(&field, 3, WIRE_BYTES))
            r = take_tier(field.bytes, request.tiers);
        else if (proto_is(&field, 4, WIRE_BYTES))
            request.peer_address = field.bytes;
        else if (proto_is(&field, 13, WIRE_BYTES))
            r = take_tag(field.bytes, tags, &tag_bytes);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    request.tags = (struct pst_bytes){tags, tag_bytes};
    /* Others, who are told of them, read nothing else. */
    if (!is_line(request.name) || !is_line(request.node_address) || !is_line(request.peer_address))
        return -EINVAL;
    *out = request;
    return 0;
}

/* A TierKvCount. */
static int take_count(struct pst_bytes message, uint64_t keys[PST_POOL_TIERS])
{
    uint64_t tier = 0, count = 0;
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_VARINT))
            tier = field.value;
        else if (proto_is(&field, 2, WIRE_VARINT))
            count = field.value;
    }
    if (r == 0 && tier < PST_POOL_TIERS)
        keys[tier] = count;
    return r;
}

/* A KvEvent; @out may be NULL. */
static int read_event(struct pst_bytes message, struct bundle_event *out)
{
    struct bundle_event event = {0};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_VARINT))
            event.removed = field.value == 1;
        else if (proto_is(&field, 2, WIRE_BYTES))
            event.key = field.bytes;
        else if (proto_is(&field, 3, WIRE_VARINT))
            event.tier = (uint32_t)pst_min(field.value, PST_POOL_TIERS);
        else if (proto_is(&field, 4, WIRE_VARINT))
            event.bytes = field.value;
    }
    if (r == 0 && out)
        *out = event;
    return r;
}

/* Its number, which may stand behind its events; and whether all of them are well. */
static int read_bundle(struct pst_bytes message, uint64_t *sequence)
{
    struct field field;
    int r;

    *sequence = 0;
    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_VARINT))
            *sequence = field.value;
        else if (proto_is(&field, 2, WIRE_BYTES) && (r = read_event(field.bytes, NULL)) < 0)
            return r;
    }
    return r;
}

static int take_heartbeat_field(const struct field *field, struct heartbeat *out)
{
    uint64_t sequence;

    if (proto_is(field, 1, WIRE_BYTES))
        out->name = field->bytes;
    else if (proto_is(field, 2, WIRE_BYTES))
        return read_bundle(field->bytes, &sequence);
    else if (proto_is(field, 3, WIRE_VARINT))
        out->full = field->value != 0;
    else if (proto_is(field, 4, WIRE_BYTES))
        return take_tier(field->bytes, out->tiers);
    else if (proto_is(field, 6, WIRE_VARINT))
        out->baseline = field->value;
    else if (proto_is(field, 7, WIRE_BYTES)) {
        out->counts_keys = true;
        return take_count(field->bytes, out->keys);
    }
    return 0;
}

int umbp_read_heartbeat(struct pst_bytes message, struct heartbeat *out)
{
    struct heartbeat beat = {.message = message};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        r = take_heartbeat_field(&field, &beat);
        if (r < 0)
            return r;
    }
    if (r == 0)
        *out = beat;
    return r;
}

bool umbp_next_bundle(struct pst_bytes *at, struct bundle *out)
{
    int r;

    pst_assert(at->data || at->len == 0);
    if (!umbp_next_text(at, 2, &out->at))
        return false;
    r = read_bundle(out->at, &out->sequence);
    pst_assert(r == 0); /* it was checked */
    return true;
}

bool umbp_next_event(struct bundle *bundle, struct bundle_event *out)
{
    struct pst_bytes message;
    int r;

    pst_assert(bundle->at.data || bundle->at.len == 0);
    if (!umbp_next_text(&bundle->at, 2, &message))
        return false;
    r = read_event(message, out);
    pst_assert(r == 0); /* it was checked */
    return true;
}
