/* SPDX-License-Identifier: Apache-2.0 */
/* masters.c: the masters of a member's pool: of several, the one that leads is found by asking the next. */
#include "member/member_priv.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/ms.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    SLEEP_MS = 20,       /* while an answer is awaited, so that deadlines are looked at */
    OWN_FDS = 3,         /* of a nap */
    ALONE_MS_MAX = 1000, /* a master that does not want us */
};

void pst_member_say(const struct pst_member *m, const char *text)
{
    char line[PST_FAULT_BYTES + 300];

    snprintf(line, sizeof(line), "pool: %s", text);
    if (m->log)
        m->log(m->log_ctx, line);
}

void pst_member_trouble(struct pst_member *m, int result, const char *format, ...)
{
    char address[280], text[PST_FAULT_BYTES], line[PST_FAULT_BYTES + 290], *told = m->told[m->master_at];
    va_list args;

    pst_assert(m->master_at < m->master_count);
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    pst_boot_address_print(&m->masters[m->master_at], address, sizeof(address));
    snprintf(line, sizeof(line), "master %.250s: %s", address, text);
    pst_ready_fails(&m->ready, result, line);
    _Static_assert(sizeof(m->told[0]) >= sizeof(text), "what was told");
    if (strcmp(text, told) == 0)
        return;
    memcpy(told, text, sizeof(text));
    pst_member_say(m, line);
}

void pst_member_nap(struct pst_member *m, int fd, uint64_t ms)
{
    struct pollfd fds[OWN_FDS + PST_MAP_SHARES_MAX] = {{.fd = m->stop_fd, .events = POLLIN},
                                                       {.fd = m->changed_fd, .events = POLLIN},
                                                       {.fd = fd, .events = POLLIN}};
    uint64_t now_ns = pst_now_ns(), until_ns = pst_deadline_ns(now_ns, pst_min(ms, 60000));
    int own;

    do { /* what goes on with the other shares ends no nap */
        uint64_t left_ms = (until_ns - now_ns + 999999) / 1000000;

        pst_tellers_turn(m);
        poll(fds, OWN_FDS + pst_tellers_arm(m, fds + OWN_FDS, &left_ms), (int)left_ms);
        own = fds[0].revents | fds[1].revents | fds[2].revents;
        now_ns = pst_now_ns();
    } while (!own && now_ns < until_ns);
}

void pst_member_hang_up(struct pst_member *m)
{
    pst_assert(m->channel && m->master_at < m->master_count);
    m->channel = pst_channel_close(m->channel);
    m->master_at = (m->master_at + 1) % m->master_count;
}

bool pst_member_dial(struct pst_member *m)
{
    const char *fault = "";
    int r;

    pst_assert(!m->channel && m->master_at < m->master_count);
    m->options.address = m->masters[m->master_at];
    r = pst_channel_open(&m->options, &m->channel, &fault);
    if (r == 0)
        return true;
    m->counters->masters_unreached++;
    pst_member_trouble(m, r, "%s", *fault ? fault : strerror(-r));
    m->master_at = (m->master_at + 1) % m->master_count;
    return false;
}

/* Whatever there is to tell meanwhile. */
static void leave_alone(struct pst_member *m)
{
    struct pollfd end = {.fd = m->stop_fd, .events = POLLIN};

    pst_member_hang_up(m);
    m->alone_ms = (uint32_t)pst_min(m->alone_ms + RETRY_MS, ALONE_MS_MAX);
    poll(&end, 1, (int)m->alone_ms);
}

void pst_member_is_late(struct pst_member *m)
{
    pst_member_trouble(m, PST_POOL_STANDBY, "it does not know that another master has led since");
    leave_alone(m);
}

void pst_member_map_of_before(struct pst_member *m)
{
    char name[PST_ID_TEXT_BYTES];

    pst_id_print(&m->identity.pool, name);
    pst_member_trouble(m, -EBADMSG,
                       "its pool map is older than this node's, and names former owners of partitions: "
                       "restore the last one, or begin with an empty one and --adopt=%s",
                       name);
    leave_alone(m);
}

void pst_member_other_pool(struct pst_member *m)
{
    char name[PST_ID_TEXT_BYTES];

    pst_id_print(&m->identity.pool, name);
    m->counters->joins_refused++;
    pst_member_trouble(
        m, -EXDEV,
        "it is another pool's, and this node has values of pool %s. If the master lost its pool map, "
        "restore the "
        "file, or start it with --adopt=%s; if the node is to change pools, start it empty",
        name, name);
    leave_alone(m);
}

/* Its answer is the leader's address, if it knows one. */
static void master_stands_by(struct pst_member *m, const struct penstock_op *op)
{
    int bytes = (int)pst_min(op->value_bytes, PST_POOL_ADDRESS_BYTES);

    _Static_assert((int)PST_POOL_ADDRESS_BYTES <= (int)sizeof(m->answer), "an address in an answer");
    pst_member_trouble(m, op->result, "it does not lead%s%.*s", bytes ? "; the pool's master is " : "", bytes,
                       (const char *)m->answer);
    leave_alone(m);
}

int pst_member_ask(struct pst_member *m, struct penstock_op *op, size_t bytes)
{
    int shard = (int)(m->self.start % pst_channel_shards(m->channel)); /* one, so that order stays */
    struct pst_op_list done = {0};

    pst_assert(m->channel && bytes <= sizeof(m->question));
    op->attrs = m->question;
    op->attr_bytes = (uint16_t)bytes;
    op->data = m->answer;
    op->bytes = sizeof(m->answer);
    pst_channel_submit(m->channel, op, shard, &done);
    pst_channel_flush(m->channel);
    while (!done.count) {
        pst_channel_wait(m->channel, &done, SLEEP_MS);
        pst_tellers_turn(m);
    }
    pst_assert(done.count == 1);
    if (op->result == -EXDEV) {
        pst_member_other_pool(m);
        return -ECONNRESET;
    }
    if (op->result == PST_POOL_STANDBY) {
        master_stands_by(m, op);
        return -ECONNRESET;
    }
    if (op->result == -ETIMEDOUT || op->result == -ECONNRESET || op->result == -ECONNREFUSED ||
        op->result == -EHOSTUNREACH || op->result == -EPROTO || op->result == -EPROTONOSUPPORT ||
        op->result == -EACCES || op->result == PENSTOCK_BUSY) {
        pst_member_trouble(m, op->result, "%s", penstock_result_text(op->result));
        pst_member_hang_up(m);
        return -ECONNRESET;
    }
    m->alone_ms = 0;
    return op->result;
}
