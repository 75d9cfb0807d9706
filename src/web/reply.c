/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: a tree of values, or a line of text, as an answer's body. */
#include "web/reply.h"

#include "base/error.h"

#include <stdio.h>

void pst_web_reply_json(struct pst_web_answer *answer, int status, struct pst_json *json)
{
    char *text = json ? pst_json_print(json) : NULL;

    pst_assert(status >= 200 && status < 600);
    pst_json_free(json);
    free(answer->text);
    answer->status = text ? status : 500;
    answer->text = text;
}

void pst_web_reply_detail(struct pst_web_answer *answer, int status, const char *format, va_list arguments)
{
    struct pst_json *json = pst_json_new_object();
    char text[512];

    vsnprintf(text, sizeof(text), format, arguments);
    pst_printable(text);
    if (pst_json_add_text(json, "detail", text) == -EILSEQ)
        pst_json_add_text(json, "detail", "refused"); /* a cut in the middle of a character */
    pst_web_reply_json(answer, status, json);
}
