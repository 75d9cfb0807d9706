/*
 * report.h: a node's side of heartbeats: which keys came and went, in order, one message at a time. Pure, one
 * thread. The queue of events is bounded: what does not fit makes a full report, which walks through what the
 * node has, piece by piece, while events go on.
 */
#ifndef PST_REPORT_H
#define PST_REPORT_H

#include "directory/directory.h"

struct pst_report;

/*
 * Writes up to @room of the keys that the node has to tell of as PST_EVENT_ADD, going on where the last call
 * ended, or with @again from the beginning. A key that is there throughout has to come; others may. *@ended:
 * there are no more. Return: their number, which may be 0 before the end, too.
 */
typedef uint32_t (*pst_report_walk)(void *ctx, bool again, struct pst_event *to, uint32_t room, bool *ended);

/* @events_max: in the queue; @message_max: in one message, up to PST_HEARTBEAT_EVENTS_MAX. Return: 0 or
 * -ENOMEM. */
int pst_report_open(uint32_t events_max, uint32_t message_max, pst_report_walk walk, void *ctx,
                    struct pst_report **out);
struct pst_report *pst_report_close(struct pst_report *report);

/* A membership begins: with a full report. */
void pst_report_join(struct pst_report *report, uint16_t member, uint64_t epoch);
/* A key came or went. */
void pst_report_event(struct pst_report *report, const struct pst_event *event);
/* Events were lost before they came here: the report has to be full. */
void pst_report_lost(struct pst_report *report);
/*
 * The heartbeat to send: the last one, unchanged, while it has not been answered. Valid until the next call.
 * @sent_ns: when it was first made, from which a lease counts.
 */
const struct pst_heartbeat *pst_report_next(struct pst_report *report,
                                            const struct pst_tier_use tiers[PST_POOL_TIERS], uint64_t now_ns,
                                            uint64_t *sent_ns);
/*
 * An answer has come, with what pst_directory_heartbeat() returned. Return: 0; -EAGAIN it is to no heartbeat
 * that waits, and says nothing; -ESTALE register again.
 */
int pst_report_answered(struct pst_report *report, uint64_t sequence, int result,
                        const struct pst_heartbeat_answer *answer);
/* Whether there is more to say than waits for the next beat. */
bool pst_report_is_behind(const struct pst_report *report);

#endif
