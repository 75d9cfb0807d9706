/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: ReportMetrics: what clients count themselves. */
#include "gateway/umbp/umbp_priv.h"

static void metrics_requested(struct stream *st, struct pst_bytes message)
{
    static const struct key_fields fields = {.name = 1, .keys = 2};
    struct key_request request;
    struct answer answer = {0};

    if (umbp_decoded(st, umbp_read_keys(message, &fields, &request)))
        answer_send(st, &answer);
}

const struct method method_report_metrics = {
    .name = "ReportMetrics", .request = metrics_requested, .drop = answer_drop};
