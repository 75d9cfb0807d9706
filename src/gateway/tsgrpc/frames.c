/* SPDX-License-Identifier: Apache-2.0 */
/* frames.c: messages that come in pieces: Write's, whose value is passed on as it comes. */
#include "gateway/tsgrpc/proto_priv.h"

enum { FIELD_KEY = 1, FIELD_CONDITION = 2, FIELD_PART = 3 };

enum write_step {
    STEP_HEAD,   /* in a frame's head */
    STEP_TAG,    /* in a field's tag, or between fields */
    STEP_LENGTH, /* in the length of its bytes */
    STEP_VARINT, /* in a number, which is skipped */
    STEP_BODY,   /* in its bytes */
};

/* Return: 1 the number is whole, 0 @input is used up, -EINVAL it does not end, or the message does before it.
 */
static int varint(struct write_reader *w, struct pst_bytes *input)
{
    while (input->len) {
        uint8_t byte;

        if (w->frame.left == 0 || w->varint_bytes == 10)
            return -EINVAL;
        byte = *(const uint8_t *)proto_take(input, 1).data;
        pst_assert(w->varint_bytes < 10);
        w->frame.left--;
        if (w->varint_bytes == 9 && byte > 1)
            return -EINVAL;
        w->varint |= (uint64_t)(byte & 0x7f) << (7 * w->varint_bytes++);
        if (!(byte & 0x80)) {
            w->varint_bytes = 0;
            return 1;
        }
    }
    return 0;
}

static uint64_t varint_taken(struct write_reader *w)
{
    uint64_t value = w->varint;

    pst_assert(w->varint_bytes == 0);
    w->varint = 0;
    return value;
}

static int begin_body(struct write_reader *w, uint64_t bytes, bool skipped)
{
    bool first = w->messages == 0;

    if (bytes > w->frame.left)
        return -EINVAL;
    w->field = skipped || (!first && w->field != FIELD_PART) ? 0 : w->field;
    w->field_left = bytes;
    w->step = STEP_BODY;
    /* The key that the store was told with the first bytes of a value stays the key. */
    if (w->part_seen && (w->field == FIELD_KEY || w->field == FIELD_CONDITION))
        return -EINVAL;
    if (w->field == FIELD_KEY) {
        w->key_bytes = 0;
        return bytes > PST_KEY_BYTES_MAX ? -ENAMETOOLONG : 0;
    }
    if (w->field == FIELD_CONDITION)
        w->condition_bytes = 0;
    if (w->field == FIELD_PART) {
        /* The last of several would count, but the first has been passed on. */
        if (w->part_seen)
            return -EINVAL;
        w->part_seen = true;
    }
    return 0;
}

static int begin_field(struct write_reader *w)
{
    uint64_t tag = varint_taken(w);

    pst_assert(w->step == STEP_TAG);
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return -EINVAL;
    w->field = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0:
        w->step = STEP_VARINT;
        return 0;
    case 1:
        return begin_body(w, 8, true);
    case 2:
        w->step = STEP_LENGTH;
        return 0;
    case 5:
        return begin_body(w, 4, true);
    default:
        return -EINVAL;
    }
}

/* Return: 1 a piece of the value, 0. */
static int body(struct write_reader *w, struct pst_bytes *input, struct pst_bytes *piece)
{
    struct pst_bytes taken;

    pst_assert(w->field_left <= w->frame.left);
    pst_assert(w->step == STEP_BODY);
    taken = proto_take(input, w->field_left);
    w->field_left -= taken.len;
    w->frame.left -= (uint32_t)taken.len;
    if (w->field_left == 0)
        w->step = STEP_TAG;
    if (taken.len == 0)
        return 0;
    if (w->field == FIELD_KEY) {
        pst_assert(w->key_bytes + taken.len <= sizeof(w->key));
        memcpy(w->key + w->key_bytes, taken.data, taken.len);
        w->key_bytes += (uint32_t)taken.len;
        pst_assert(w->key_bytes <= sizeof(w->key));
    }
    if (w->field == FIELD_CONDITION) {
        uint64_t room = sizeof(w->condition) - pst_min(w->condition_bytes, sizeof(w->condition));

        if (room)
            memcpy(w->condition + w->condition_bytes, taken.data, pst_min(room, taken.len));
        w->condition_bytes += (uint32_t)taken.len;
    }
    if (w->field == FIELD_PART)
        *piece = taken;
    return w->field == FIELD_PART;
}

static int head(struct write_reader *w, struct pst_bytes *input)
{
    int r = frame_head(&w->frame, input);

    pst_assert(w->step == STEP_HEAD);
    if (r > 0) {
        w->step = STEP_TAG;
        w->part_seen = false;
    }
    return r;
}

static bool message_ended(const struct write_reader *w)
{
    return w->step == STEP_TAG && w->varint_bytes == 0 && w->frame.left == 0;
}

int write_next(struct write_reader *w, struct pst_bytes *input, struct pst_bytes *piece)
{
    int r = 0;

    *piece = (struct pst_bytes){NULL, 0};
    while (input->len && r >= 0) {
        switch ((enum write_step)w->step) {
        case STEP_HEAD:
            r = head(w, input);
            break;
        case STEP_TAG:
            r = varint(w, input);
            if (r > 0)
                r = begin_field(w);
            break;
        case STEP_LENGTH:
            r = varint(w, input);
            if (r > 0)
                r = begin_body(w, varint_taken(w), false);
            break;
        case STEP_VARINT:
            r = varint(w, input);
            if (r > 0) {
                varint_taken(w);
                w->step = STEP_TAG;
            }
            break;
        case STEP_BODY:
            r = body(w, input, piece);
            break;
        }
        if (r >= 0 && w->step == STEP_BODY && w->field_left == 0)
            w->step = STEP_TAG; /* bytes of which there are none */
        if (r >= 0 && message_ended(w)) {
            w->messages++;
            w->step = STEP_HEAD;
        }
        if (r > 0 && piece->len)
            return 1;
    }
    return r < 0 ? r : 0;
}

bool write_whole(const struct write_reader *w)
{
    return w->messages > 0 && w->step == STEP_HEAD && w->frame.head_bytes == 0;
}

struct generation write_condition(const struct write_reader *w)
{
    if (w->condition_bytes > sizeof(w->condition))
        return (struct generation){.kind = GENERATION_FOREIGN};
    return proto_generation((struct pst_bytes){w->condition, w->condition_bytes});
}
