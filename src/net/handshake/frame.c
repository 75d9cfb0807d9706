/* SPDX-License-Identifier: Apache-2.0 */
/* frame.c: the bootstrap's frames to and from bytes. Pure; every length is checked before it is used. */
#include "net/handshake/handshake_priv.h"

#include "base/reader.h"

static int read_end(const struct pst_reader *r)
{
    return r->bad || r->left > 0 ? -EPROTO : 0;
}

struct writer {
    uint8_t *at;
    size_t left;
};

static void write_copy(struct writer *w, const void *data, size_t n)
{
    pst_assert(n <= w->left);
    memcpy(w->at, data, n);
    w->at += n;
    w->left -= n;
}

static void write_number(struct writer *w, uint64_t n, size_t bytes)
{
    pst_assert(bytes <= w->left);
    pst_assert(bytes <= sizeof(n));
    for (size_t i = 0; i < bytes; i++)
        w->at[i] = (uint8_t)(n >> 8 * i);
    w->at += bytes;
    w->left -= bytes;
}

int boot_frame_parse(const uint8_t *data, size_t len, size_t max, struct boot_frame *out)
{
    struct pst_reader r = {.at = data, .left = len};
    uint32_t magic = BOOT_MAGIC, bytes;

    pst_assert(max >= BOOT_HEAD_BYTES && max <= BOOT_FRAME_WELCOME_MAX);
    /* The first wrong byte is enough: whoever speaks something else may never send twelve. */
    if (memcmp(data, &magic, pst_min(len, sizeof(magic))) != 0)
        return -EPROTO;
    if (len < BOOT_HEAD_BYTES)
        return 0;
    pst_read_number(&r, sizeof(magic));
    out->version = (uint16_t)pst_read_number(&r, 2);
    out->type = (uint16_t)pst_read_number(&r, 2);
    bytes = (uint32_t)pst_read_number(&r, 4);
    if (bytes > max - BOOT_HEAD_BYTES)
        return -EPROTO;
    out->bytes = bytes;
    out->body = r.at;
    pst_assert((size_t)(out->body - data) == BOOT_HEAD_BYTES);
    return bytes > r.left ? 0 : (int)(BOOT_HEAD_BYTES + bytes);
}

void boot_frame_head(uint8_t out[BOOT_HEAD_BYTES], uint16_t version, enum boot_type type, uint32_t body_bytes)
{
    struct writer w = {.at = out, .left = BOOT_HEAD_BYTES};

    pst_assert(body_bytes <= BOOT_FRAME_WELCOME_MAX - BOOT_HEAD_BYTES);
    write_number(&w, BOOT_MAGIC, 4);
    write_number(&w, version, 2);
    write_number(&w, type, 2);
    write_number(&w, body_bytes, 4);
    pst_assert(w.left == 0);
}

void boot_hello_encode(const struct boot_hello *hello, uint8_t out[BOOT_HELLO_BYTES])
{
    struct writer w = {.at = out, .left = BOOT_HELLO_BYTES};

    write_number(&w, hello->flags, 4);
    write_number(&w, hello->identity.uid, 4);
    write_number(&w, hello->identity.pid_ns, 8);
    write_number(&w, hello->identity.ipc_ns, 8);
    write_copy(&w, hello->identity.boot_id, BOOT_ID_BYTES);
    write_copy(&w, hello->nonce, BOOT_NONCE_BYTES);
    pst_assert(w.left == 0);
}

int boot_hello_decode(const struct boot_frame *frame, struct boot_hello *out)
{
    struct pst_reader r = {.at = frame->body, .left = frame->bytes};

    pst_assert(frame->type == BOOT_HELLO);
    out->flags = (uint32_t)pst_read_number(&r, 4);
    out->identity.uid = (uint32_t)pst_read_number(&r, 4);
    out->identity.pid_ns = pst_read_number(&r, 8);
    out->identity.ipc_ns = pst_read_number(&r, 8);
    pst_read_copy(&r, out->identity.boot_id, BOOT_ID_BYTES);
    pst_read_copy(&r, out->nonce, BOOT_NONCE_BYTES);
    return read_end(&r);
}

void boot_attach_encode(uint64_t token, uint32_t shard, uint8_t out[BOOT_ATTACH_BYTES - BOOT_MAC_BYTES])
{
    struct writer w = {.at = out, .left = BOOT_ATTACH_BYTES - BOOT_MAC_BYTES};

    write_number(&w, token, 8);
    write_number(&w, shard, 4);
    write_number(&w, 0, 4);
    pst_assert(w.left == 0);
}

int boot_attach_decode(const struct boot_frame *frame, uint64_t *token, uint32_t *shard)
{
    struct pst_reader r = {.at = frame->body, .left = frame->bytes};
    uint8_t mac[BOOT_MAC_BYTES];
    uint64_t zero;
    int error;

    pst_assert(frame->type == BOOT_ATTACH);
    pst_read_copy(&r, mac, sizeof(mac));
    *token = pst_read_number(&r, 8);
    *shard = (uint32_t)pst_read_number(&r, 4);
    zero = pst_read_number(&r, 4);
    error = read_end(&r);
    return error == 0 && zero != 0 ? -EPROTO : error;
}

void boot_challenge_encode(const struct boot_challenge *challenge, uint8_t out[BOOT_CHALLENGE_BYTES])
{
    struct writer w = {.at = out, .left = BOOT_CHALLENGE_BYTES};

    write_number(&w, challenge->flags, 4);
    write_copy(&w, challenge->nonce, BOOT_NONCE_BYTES);
    pst_assert(w.left == 0);
}

int boot_challenge_decode(const struct boot_frame *frame, struct boot_challenge *out)
{
    struct pst_reader r = {.at = frame->body, .left = frame->bytes};

    pst_assert(frame->type == BOOT_CHALLENGE);
    out->flags = (uint32_t)pst_read_number(&r, 4);
    pst_read_copy(&r, out->nonce, BOOT_NONCE_BYTES);
    return read_end(&r);
}

void boot_refused_encode(enum boot_refusal code, uint8_t out[4])
{
    struct writer w = {.at = out, .left = 4};

    pst_assert(code >= BOOT_REFUSED_VERSION && code < BOOT_REFUSED_COUNT);
    write_number(&w, code, 4);
    pst_assert(w.left == 0);
}

int boot_refused_decode(const struct boot_frame *frame, const char **fault)
{
    static const struct {
        int error;
        const char *text;
    } refusals[] = {
        [BOOT_REFUSED_VERSION] = {-EPROTONOSUPPORT, "the node speaks another version"},
        [BOOT_REFUSED_NO_SECRET] = {-EACCES, "the node wants a secret"},
        [BOOT_REFUSED_WRONG_SECRET] = {-EACCES, "wrong secret"},
        [BOOT_REFUSED_BUSY] = {-EBUSY, "the node has no room for another session"},
        [BOOT_REFUSED_FAILED] = {-ECONNRESET, "the node could not open the session"},
        [BOOT_REFUSED_UCX] = {-EPROTONOSUPPORT, "the node has another UCX"},
        [BOOT_REFUSED_NO_TLS] = {-EPROTO, "the node speaks no TLS"},
        [BOOT_REFUSED_PLAIN] = {-EACCES, "the node wants TLS"},
        [BOOT_REFUSED_TRANSPORT] = {-EPROTONOSUPPORT, "the node does not offer the transport"},
    };
    struct pst_reader r = {.at = frame->body, .left = frame->bytes};
    uint64_t code = pst_read_number(&r, 4);

    _Static_assert(pst_count_of(refusals) == BOOT_REFUSED_COUNT, "each code has its meaning");

    if (r.bad || code == 0 || code >= pst_count_of(refusals)) {
        *fault = "not a penstock node";
        return -EPROTO;
    }
    *fault = refusals[code].text;
    return refusals[code].error;
}

size_t boot_welcome_bytes(const struct pst_boot_welcome *welcome)
{
    size_t bytes = BOOT_WELCOME_FIXED_BYTES;

    pst_assert(welcome->shard_count >= 1 && welcome->shard_count <= PST_BOOT_SHARDS_MAX);
    for (uint32_t i = 0; i < welcome->shard_count; i++)
        bytes += 2 + welcome->shards[i].bytes;
    return bytes + (welcome->grant[0] ? 1 + strlen(welcome->grant) : 0);
}

void boot_welcome_encode(const struct pst_boot_welcome *welcome, uint8_t *out, size_t bytes)
{
    struct writer w = {.at = out, .left = bytes};

    pst_assert(welcome->arena_count <= PST_BOOT_ARENAS_MAX);
    write_number(&w, welcome->token, 8);
    write_number(&w, welcome->partition_seed, 8);
    write_number(&w, welcome->page_bytes, 8);
    write_number(&w, welcome->arena_bytes, 8);
    write_number(&w, welcome->value_bytes_max, 8);
    write_number(&w, welcome->shard_count, 4);
    write_number(&w, welcome->arena_count, 4);
    write_number(&w, welcome->same_host, 4);
    for (uint32_t i = 0; i < welcome->shard_count; i++) {
        pst_assert(welcome->shards[i].bytes <= PST_NET_ADDRESS_BYTES_MAX);
        write_number(&w, welcome->shards[i].bytes, 2);
        write_copy(&w, welcome->shards[i].data, welcome->shards[i].bytes);
    }
    if (welcome->grant[0]) {
        write_number(&w, strlen(welcome->grant), 1);
        write_copy(&w, welcome->grant, strlen(welcome->grant));
    }
    pst_assert(w.left == 0);
}

/* The rest of a welcome: nothing, or a name for people to read. */
static void read_grant(struct pst_reader *r, char grant[PST_BOOT_GRANT_BYTES_MAX + 1])
{
    uint64_t bytes;

    memset(grant, 0, PST_BOOT_GRANT_BYTES_MAX + 1);
    if (r->bad || !r->left)
        return;
    bytes = pst_read_number(r, 1);
    if (bytes == 0 || bytes > PST_BOOT_GRANT_BYTES_MAX || bytes != r->left) {
        r->bad = true;
        return;
    }
    pst_read_copy(r, grant, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        r->bad |= grant[i] <= 0x20 || grant[i] >= 0x7f;
}

int boot_welcome_decode(const uint8_t *body, size_t bytes, struct pst_boot_welcome *out)
{
    struct pst_reader r = {.at = body, .left = bytes};
    uint32_t same_host;

    out->token = pst_read_number(&r, 8);
    out->partition_seed = pst_read_number(&r, 8);
    out->page_bytes = pst_read_number(&r, 8);
    out->arena_bytes = pst_read_number(&r, 8);
    out->value_bytes_max = pst_read_number(&r, 8);
    out->shard_count = (uint32_t)pst_read_number(&r, 4);
    out->arena_count = (uint32_t)pst_read_number(&r, 4);
    same_host = (uint32_t)pst_read_number(&r, 4);
    if (r.bad || out->shard_count < 1 || out->shard_count > PST_BOOT_SHARDS_MAX ||
        out->arena_count > PST_BOOT_ARENAS_MAX || same_host > 1)
        return -EPROTO;
    if (out->page_bytes == 0 || out->page_bytes > BOOT_RANGE_BYTES_MAX)
        return -EPROTO;
    /* What views will map: arenas side by side, in a range of addresses that a process has. */
    if (out->arena_count > 0 && (out->arena_bytes == 0 || out->arena_bytes % 4096 ||
                                 out->arena_bytes > BOOT_RANGE_BYTES_MAX / out->arena_count))
        return -EPROTO;
    out->same_host = same_host;
    for (uint32_t i = 0; i < out->shard_count; i++) {
        uint64_t address_bytes = pst_read_number(&r, 2);

        if (r.bad || address_bytes < 1 || address_bytes > PST_NET_ADDRESS_BYTES_MAX)
            return -EPROTO;
        out->shards[i].bytes = (uint16_t)address_bytes;
        pst_read_copy(&r, out->shards[i].data, address_bytes);
    }
    read_grant(&r, out->grant);
    return read_end(&r);
}
