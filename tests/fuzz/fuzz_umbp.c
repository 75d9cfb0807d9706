/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_umbp.c: what mori's clients say: a request that passes its check is read to its end, one by one, and
 * nothing of it lies outside; and guests take whatever it reports. */
#include "fuzz.h"

#include "gateway/umbp/umbp_priv.h"

static void touch(struct pst_bytes bytes, struct pst_bytes message)
{
    const uint8_t *at = bytes.data, *begin = message.data;
    volatile uint8_t last = 0;

    if (bytes.len == 0)
        return;
    pst_assert(at >= begin && at + bytes.len <= begin + message.len);
    last = at[bytes.len - 1];
    (void)last;
}

static void read_keys(struct pst_bytes message, const struct key_fields *fields)
{
    struct pst_bytes at = message, text;
    struct size_reader sizes = {.message = message};
    struct key_request request;
    uint32_t count = 0;
    uint64_t size;
    int r = umbp_read_keys(message, fields, &request);

    pst_assert(r == 0 || r == -EINVAL || r == -E2BIG);
    if (r < 0)
        return;
    touch(request.name, message);
    while (fields->keys && umbp_next_text(&at, fields->keys, &text)) {
        touch(text, message);
        count++;
    }
    pst_assert(count == request.key_count);
    for (count = 0; fields->sizes && umbp_next_size(&sizes, fields->sizes, &size);)
        count++;
    pst_assert(!fields->sizes || count == request.size_count);
}

static void read_register(struct pst_bytes message, struct pst_guests *guests)
{
    char tags[PST_GUEST_TAGS_BYTES_MAX];
    struct pst_guest_register request;

    if (umbp_read_register(message, &request, tags) < 0)
        return;
    touch(request.name, message);
    touch(request.peer_address, message);
    (void)pst_guests_register(guests, &request, 1);
}

static void take_beat(struct pst_guests *guests, struct pst_bytes message, const struct heartbeat *beat)
{
    struct pst_bytes at = message;
    struct bundle_event event;
    struct bundle bundle;

    pst_guests_tiers(guests, 0, beat->tiers);
    pst_guests_key_counts(guests, 0, beat->keys);
    if (beat->full)
        pst_guests_sync_begin(guests, 0);
    while (umbp_next_bundle(&at, &bundle)) {
        bool takes = beat->full || pst_guests_bundle(guests, 0, bundle.sequence) == 0;

        while (umbp_next_event(&bundle, &event)) {
            touch(event.key, message);
            if (takes && event.removed)
                pst_guests_remove(guests, 0, event.key, event.tier);
            else if (takes)
                pst_guests_add(guests, 0, event.key, event.tier, event.bytes);
            pst_assert(!takes || event.removed || event.key.len == 0 || event.tier < 1 || event.tier > 3 ||
                       event.key.len > PST_GUEST_KEY_BYTES_MAX || pst_guests_has(guests, event.key) ||
                       pst_guests_totals(guests)->dropped > 0);
        }
    }
    if (beat->full)
        pst_guests_sync_end(guests, 0, beat->baseline);
}

static void read_heartbeat(struct pst_bytes message, struct pst_guests *guests)
{
    const struct pst_guest_register one = {.name = pst_bytes_of("one")};
    struct heartbeat beat;

    if (umbp_read_heartbeat(message, &beat) < 0)
        return;
    touch(beat.name, message);
    pst_assert(pst_guests_register(guests, &one, 1) == 0);
    take_beat(guests, message, &beat);
    take_beat(guests, message, &beat);
}

/* Whatever is taken is a line that a reader of metrics takes. */
static void read_sample(struct pst_bytes message, struct pst_guests *guests)
{
    const struct pst_guest_register one = {.name = pst_bytes_of("one")};
    struct pst_sample sample = {.kind = PST_SAMPLE_GAUGE};

    if (!umbp_read_sample(message, &sample))
        return;
    pst_assert(memchr(sample.name, '\0', sizeof(sample.name)) &&
               memchr(sample.help, '\0', sizeof(sample.help)));
    pst_assert(memchr(sample.labels, '\0', sizeof(sample.labels)));
    pst_assert(!strpbrk(sample.name, " \n{\"") && !strchr(sample.help, '\n') && !strchr(sample.labels, '\n'));
    pst_assert(pst_guests_register(guests, &one, 1) == 0);
    pst_guests_sample(guests, 0, &sample);
    pst_guests_sample(guests, 0, &sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct key_fields fields[] = {{.keys = 1, .name = 2, .number = 3, .excluded = 4},
                                               {.name = 1, .keys = 2, .sizes = 3, .excluded = 4},
                                               {.keys = 1, .number = 2},
                                               {.name = 1, .number = 2}};
    const struct pst_guest_settings settings = {
        .umbp_nodes = 4, .umbp_keys = 1024, .umbp_ttl_ms = 100, .umbp_heartbeat_ms = 10};
    const struct pst_external_settings external = {.nodes_max = 4, .entries_max = 16, .hits_max = 16};
    struct fuzz in = {data, bytes};
    uint32_t which = fuzz_below(&in, pst_count_of(fields) + 3);
    struct pst_external *blocks;
    struct pst_guests *guests;
    struct pst_bytes message;
    uint8_t *tight;

    pst_assert(pst_external_open(&external, &blocks) == 0);
    pst_assert(pst_guests_open(&settings, blocks, 0, 1, 0, &guests) == 0);
    tight = fuzz_take(&in, SIZE_MAX, &message.len);
    message.data = tight;
    if (which < pst_count_of(fields))
        read_keys(message, &fields[which]);
    else if (which == pst_count_of(fields))
        read_register(message, guests);
    else if (which == pst_count_of(fields) + 2)
        read_sample(message, guests);
    else
        read_heartbeat(message, guests);
    free(tight);
    pst_guests_tick(guests, 1000000);
    pst_guests_close(guests);
    pst_external_close(blocks);
    return 0;
}
