/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: events in a ring, and the one message that is underway. */
#include "pool/report.h"

enum { REPORT_MAGIC = 0x2b90e6f3 };

struct pst_report {
    uint32_t magic;
    uint32_t first, count, max; /* of the ring */
    uint32_t message_max;
    pst_report_walk walk;
    void *ctx;
    uint64_t sent_ns;
    bool underway;
    bool sync; /* a full report has to begin */
    bool walking;
    uint16_t share, share_last;
    struct pst_heartbeat message;
    struct pst_event events[PST_HEARTBEAT_EVENTS_MAX];
    struct pst_event ring[];
};

int pst_report_open(uint32_t events_max, uint32_t message_max, pst_report_walk walk, void *ctx,
                    struct pst_report **out)
{
    struct pst_report *report = calloc(1, sizeof(*report) + events_max * sizeof(report->ring[0]));

    pst_assert(events_max > 0);
    pst_assert(message_max > 1 && message_max <= PST_HEARTBEAT_EVENTS_MAX);
    if (!report)
        return -ENOMEM;
    report->magic = REPORT_MAGIC;
    report->max = events_max;
    report->message_max = message_max;
    report->walk = walk;
    report->ctx = ctx;
    *out = report;
    return 0;
}

struct pst_report *pst_report_close(struct pst_report *report)
{
    pst_assert(!report || report->magic == REPORT_MAGIC);
    free(report);
    return NULL;
}

void pst_report_join(struct pst_report *report, uint16_t member, uint64_t epoch)
{
    pst_assert(report->magic == REPORT_MAGIC);
    pst_assert(epoch > 0);
    /* Else it was told twice, and its heartbeats count on. An older pool map may bring an epoch again. */
    if (report->message.epoch != epoch || report->message.member != member)
        report->message = (struct pst_heartbeat){.member = member, .epoch = epoch};
    report->underway = report->walking = false;
    report->sync = true;
}

void pst_report_of_share(struct pst_report *report, uint16_t share, uint16_t share_last)
{
    pst_assert(report->magic == REPORT_MAGIC);
    pst_assert(share <= share_last);
    report->sync |= share != report->share || share_last != report->share_last;
    report->share = share;
    report->share_last = share_last;
}

void pst_report_event(struct pst_report *report, const struct pst_event *event)
{
    pst_assert(report->first < report->max);
    pst_assert(report->magic == REPORT_MAGIC);
    pst_assert(report->count <= report->max);
    if (report->sync) /* the report reads what is there then */
        return;
    if (report->count == report->max) {
        report->sync = true;
        return;
    }
    report->ring[(report->first + report->count++) % report->max] = *event;
}

void pst_report_lost(struct pst_report *report)
{
    pst_assert(report->magic == REPORT_MAGIC);
    report->sync = true;
}

static void take_ring(struct pst_report *report, uint32_t room)
{
    pst_assert(report->first < report->max);
    pst_assert(room <= report->message_max);
    while (report->count > 0 && report->message.event_count < room) {
        report->events[report->message.event_count++] = report->ring[report->first];
        report->first = (report->first + 1) % report->max;
        report->count--;
    }
    pst_assert(report->count <= report->max);
    pst_assert(report->first < report->max);
}

static void take_walk(struct pst_report *report, bool again)
{
    uint32_t room = report->message_max - report->message.event_count;
    bool ended = false;
    uint32_t count;

    pst_assert(report->message.event_count < report->message_max);
    pst_assert(!report->underway);
    count = report->walk(report->ctx, again, report->events + report->message.event_count, room, &ended);
    pst_assert(count <= room);
    report->message.event_count += count;
    report->walking = !ended;
    if (ended)
        report->message.flags |= PST_HEARTBEAT_END;
    pst_assert(report->message.event_count <= report->message_max);
}

const struct pst_heartbeat *pst_report_next(struct pst_report *report,
                                            const struct pst_tier_use tiers[PST_POOL_TIERS], uint64_t now_ns,
                                            uint64_t *sent_ns)
{
    bool again = report->sync;

    pst_assert(report->magic == REPORT_MAGIC);
    pst_assert(report->message.epoch > 0);
    if (!report->underway) {
        report->message.sequence++;
        report->message.flags = again ? PST_HEARTBEAT_BEGIN : 0;
        report->message.share = report->share;
        report->message.share_last = report->share_last;
        report->message.events = report->events;
        report->message.event_count = 0;
        memcpy(report->message.tiers, tiers, sizeof(report->message.tiers));
        if (again)
            report->count = 0;
        report->sync = false;
        report->walking |= again;
        /* Half of a message is the walk's, so that a full report ends. */
        take_ring(report, report->walking ? report->message_max / 2 : report->message_max);
        if (report->walking)
            take_walk(report, again);
        report->sent_ns = now_ns;
        report->underway = true;
    }
    pst_assert(report->message.event_count <= report->message_max);
    pst_assert(report->message.sequence > 0);
    *sent_ns = report->sent_ns;
    return &report->message;
}

int pst_report_answered(struct pst_report *report, uint64_t sequence, int result,
                        const struct pst_heartbeat_answer *answer)
{
    pst_assert(report->magic == REPORT_MAGIC);
    if (!report->underway || sequence != report->message.sequence)
        return -EAGAIN;
    pst_assert(report->message.sequence > 0);
    report->underway = false;
    if (result == -ESTALE)
        return -ESTALE;
    /* From the past, and not the answer to this one that was lost: another has spoken in this name. */
    report->sync |= result == -EALREADY && answer->sequence_next != sequence + 1;
    report->sync |= answer->sync || result == -EINVAL;
    report->message.sequence = pst_max(sequence + 1, answer->sequence_next) - 1;
    return 0;
}

bool pst_report_is_behind(const struct pst_report *report)
{
    pst_assert(report->magic == REPORT_MAGIC);
    pst_assert(report->count <= report->max);
    return report->sync || report->walking || report->count > 0;
}
