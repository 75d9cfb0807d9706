/* SPDX-License-Identifier: Apache-2.0 */
/* reply.h: answers of routes in JSON. A worker's thread, within ops.answer(). */
#ifndef PST_WEB_REPLY_H
#define PST_WEB_REPLY_H

#include "http/json.h"
#include "web/web.h"

#include <stdarg.h>

/* Answers with @json, which is taken over; NULL: there was no memory for it. */
void pst_web_reply_json(struct pst_web_answer *answer, int status, struct pst_json *json);
/* {"detail": text} */
void pst_web_reply_detail(struct pst_web_answer *answer, int status, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
