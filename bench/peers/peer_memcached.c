/* SPDX-License-Identifier: Apache-2.0 */
/* peer_memcached.c: the memcached side, in its meta protocol: one reply to each request, so it pipelines like
 * RESP. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

static size_t memcached_request(char *out, enum peer_op op, const char *key, const char *value,
                                size_t value_bytes)
{
    char *end = peer_append(out, op == PEER_SET ? "ms " : "mg ", 3);

    end = peer_append(end, key, PEER_KEY_BYTES);
    if (op == PEER_GET)
        end = peer_append(end, " v", 2);
    if (op == PEER_SET) {
        *end++ = ' ';
        end = peer_append_number(end, value_bytes);
    }
    end = peer_append(end, "\r\n", 2);
    if (op == PEER_SET) {
        end = peer_append(end, value, value_bytes);
        end = peer_append(end, "\r\n", 2);
    }
    return (size_t)(end - out);
}

static long memcached_reply(const char *in, size_t in_bytes, enum peer_op op, uint64_t *misses)
{
    size_t line_bytes = peer_line(in, in_bytes);
    size_t whole_bytes;

    if (line_bytes == 0)
        return PEER_REPLY_PARTIAL;
    if (memcmp(in, "EN", 2) == 0 && op != PEER_SET) {
        ++*misses;
        return (long)line_bytes;
    }
    if (op != PEER_GET)
        return memcmp(in, "HD", 2) == 0 ? (long)line_bytes : PEER_REPLY_MALFORMED;
    if (memcmp(in, "VA ", 3) != 0)
        return PEER_REPLY_MALFORMED;
    whole_bytes = line_bytes + strtoul(in + 3, NULL, 10) + 2;
    return whole_bytes <= in_bytes ? (long)whole_bytes : PEER_REPLY_PARTIAL;
}

int main(int argc, char **argv)
{
    static const struct peer_protocol memcached = {.request = memcached_request, .reply = memcached_reply};

    return peer_main(argc, argv, &memcached);
}
