/* SPDX-License-Identifier: Apache-2.0 */
/* peer_redis.c: the redis side, RESP2 spelled by hand. */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

static const char *const redis_heads[] = {
    [PEER_GET] = "*2\r\n$3\r\nGET\r\n$16\r\n",
    [PEER_EXISTS] = "*2\r\n$6\r\nEXISTS\r\n$16\r\n",
    [PEER_SET] = "*3\r\n$3\r\nSET\r\n$16\r\n",
};

static size_t redis_request(char *out, enum peer_op op, const char *key, const char *value,
                            size_t value_bytes)
{
    char *end = peer_append(out, redis_heads[op], strlen(redis_heads[op]));

    end = peer_append(end, key, PEER_KEY_BYTES);
    end = peer_append(end, "\r\n", 2);
    if (op == PEER_SET) {
        *end++ = '$';
        end = peer_append_number(end, value_bytes);
        end = peer_append(end, "\r\n", 2);
        end = peer_append(end, value, value_bytes);
        end = peer_append(end, "\r\n", 2);
    }
    return (size_t)(end - out);
}

static long redis_reply(const char *in, size_t in_bytes, enum peer_op op, uint64_t *misses)
{
    size_t line_bytes = peer_line(in, in_bytes);
    size_t whole_bytes;
    long value_bytes;

    if (line_bytes == 0)
        return PEER_REPLY_PARTIAL;
    if (op == PEER_SET)
        return in[0] == '+' ? (long)line_bytes : PEER_REPLY_MALFORMED;
    if (op == PEER_EXISTS) {
        *misses += in[1] == '0';
        return in[0] == ':' ? (long)line_bytes : PEER_REPLY_MALFORMED;
    }
    if (in[0] != '$')
        return PEER_REPLY_MALFORMED;
    value_bytes = strtol(in + 1, NULL, 10);
    if (value_bytes < 0) {
        ++*misses;
        return (long)line_bytes;
    }
    whole_bytes = line_bytes + (size_t)value_bytes + 2;
    return whole_bytes <= in_bytes ? (long)whole_bytes : PEER_REPLY_PARTIAL;
}

int main(int argc, char **argv)
{
    static const struct peer_protocol redis = {.request = redis_request, .reply = redis_reply};

    return peer_main(argc, argv, &redis);
}
