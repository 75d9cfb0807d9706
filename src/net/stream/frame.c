/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c: what the head of a frame may say. */
#include "net/stream/stream_priv.h"

int stream_head_check(const struct stream_head *head)
{
    static const struct {
        uint32_t header_max, body_min, body_max;
        uint64_t value_min, value_max;
        bool has_id;
    } rows[] = {
        [STREAM_EAGER] = {PST_NET_HEADER_BYTES_MAX, 0, PST_NET_EAGER_BYTES_MAX, 0, 0, false},
        [STREAM_BULK] = {PST_NET_HEADER_BYTES_MAX, 0, 0, 1, STREAM_BULK_BYTES_MAX, true},
        [STREAM_GO] = {0, 0, 0, 0, UINT64_MAX, true},
        [STREAM_REFUSED] = {0, 0, 0, 0, 0, true},
        [STREAM_BODY] = {0, 1, STREAM_BODY_BYTES_MAX, 0, 0, true},
    };

    if (head->type < STREAM_EAGER || head->type >= pst_count_of(rows) || head->zero != 0)
        return -EPROTO;
    if (head->header_bytes > rows[head->type].header_max || head->body_bytes < rows[head->type].body_min ||
        head->body_bytes > rows[head->type].body_max)
        return -EPROTO;
    if (head->value < rows[head->type].value_min || head->value > rows[head->type].value_max)
        return -EPROTO;
    return rows[head->type].has_id || head->id == 0 ? 0 : -EPROTO;
}
