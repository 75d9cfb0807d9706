/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: the side that asks. */
#include "files/carry/carry_priv.h"

_Static_assert((int)PST_CARRY_NAME_BYTES_MAX + 3 * (int)PST_CARRY_FILTERS_MAX +
                       (int)PST_CARRY_FILTER_BYTES_MAX + 1024 <
                   (int)LINK_GREETING_BYTES_MAX,
               "a greeting has room for a name and all filters");

int carry_greet(struct link *link, enum carry_operation operation, const char *name,
                const struct pst_carry_options *options)
{
    uint8_t challenge[LINK_CHALLENGE_BYTES] = {0}, proof[LINK_PROOF_BYTES] = {0};
    struct pst_reader frame;
    enum link_type type;
    size_t left = PST_CARRY_FILTER_BYTES_MAX;
    uint64_t version;
    int r = link_receive(link, LINK_CHALLENGE, &type, &frame);

    pst_assert(link->out_bytes == 0);
    if (r < 0)
        return r;
    version = pst_read_number(&frame, 2);
    pst_read_copy(&frame, challenge, sizeof(challenge));
    if (frame.bad || version != PST_CARRY_VERSION)
        return link_fail(link, -EPROTONOSUPPORT, "the server speaks version %u of trees, this client %d",
                         (unsigned)version, PST_CARRY_VERSION);
    if (strlen(name) > PST_CARRY_NAME_BYTES_MAX || options->filters.count > PST_CARRY_FILTERS_MAX)
        return link_fail(link, -ENAMETOOLONG, "the name is too long, or there are too many filters");
    if (options->token.len)
        link_proof(options->token, challenge, name, proof);
    if (link_take_key(link, challenge) < 0)
        return link->error;
    link_put_number(link, PST_CARRY_VERSION, 2);
    link_put_number(link, operation, 1);
    link_put_number(link, options->flags & CARRY_FLAGS, 1);
    link_put(link, proof, sizeof(proof));
    link_put_text(link, name);
    for (uint32_t i = 0; operation == CARRY_GET && i < options->filters.count; i++) {
        const struct pst_filter *filter = &options->filters.list[i];
        size_t bytes = strlen(filter->pattern);

        if (bytes > left)
            return link_fail(link, -E2BIG, "the filters are too long");
        link_put_number(link, filter->takes, 1);
        link_put_number(link, bytes, 2);
        link_put(link, filter->pattern, bytes);
        left -= bytes;
    }
    r = link_send(link, LINK_HELLO);
    return r < 0 ? r : link_receive(link, LINK_ACCEPT, &type, &frame);
}

static int client_run(int fd, enum carry_operation operation, const char *name,
                      const struct pst_carry_place *place, const struct pst_carry_options *options,
                      struct pst_arrival_result *result, char fault[PST_FAULT_BYTES])
{
    struct pst_arrival_result got = {0};
    struct carry_share share = {.budget = NULL};
    struct link link;
    int r = link_open(&link, fd, options->stall_ms ? options->stall_ms : PST_CARRY_STALL_MS, fault);

    pst_assert(operation == CARRY_PUT || operation == CARRY_GET);
    if (r == 0)
        r = carry_greet(&link, operation, name, options);
    link_trust(&link);
    if (r == 0)
        r = operation == CARRY_PUT ? carry_send(&link, &share, place, options, &got)
                                   : carry_receive(&link, &share, place, options, &got);
    link_close(&link);
    if (r == 0)
        *result = got;
    return r;
}

int pst_carry_put(int fd, const struct pst_carry_place *from, const char *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result,
                  char fault[PST_FAULT_BYTES])
{
    return client_run(fd, CARRY_PUT, to, from, options, result, fault);
}

int pst_carry_get(int fd, const char *from, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result,
                  char fault[PST_FAULT_BYTES])
{
    return client_run(fd, CARRY_GET, from, to, options, result, fault);
}
