/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c: bodies of requests and of answers. */
#include "agent/store/store_priv.h"

#include "web/reply.h"

void reply_json(struct call *call, int status, struct pst_json *json)
{
    pst_web_reply_json(call->answer, status, json);
}

void reply_detail(struct call *call, int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    pst_web_reply_detail(call->answer, status, format, arguments);
    va_end(arguments);
}

static int status_of(int error)
{
    switch (-error) {
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTEMPTY:
    case ELOOP:
    case EILSEQ:
        return 400;
    case ENOENT:
        return 404;
    case ENOTDIR:
    case EEXIST:
        return 409;
    case E2BIG:
        return 413;
    case ENOSPC:
    case EDQUOT:
        return 507;
    case EAGAIN:
    case EBUSY:
        return 503;
    default:
        return 500;
    }
}

static const char *words_of(int error)
{
    switch (-error) {
    case EINVAL:
        return "the key or a field cannot be";
    case ENAMETOOLONG:
        return "the key is too long, or a part of it";
    case ENOTEMPTY:
        return "the directory is not empty: recursive=true removes it with all that it has";
    case ENOTDIR:
        return "a part of the key is a file";
    case ELOOP:
        return "a part of the key is a symbolic link";
    case ENOSPC:
        return "the data store has no room";
    case EBADMSG:
        return "the catalogue is damaged";
    default:
        return strerror(-error);
    }
}

void reply_error(struct call *call, int error)
{
    pst_assert(error < 0);
    reply_detail(call, status_of(error), "%s", words_of(error));
}

struct pst_json *reply_success(void)
{
    struct pst_json *json = pst_json_new_object();

    return pst_json_add_flag(json, "success", true) == 0 ? json : pst_json_free(json);
}

const char *body_text(struct call *call, const char *name)
{
    const struct pst_json *member = pst_json_get(call->body, name);

    if (!member || pst_json_is_null(member))
        return "";
    if (!pst_json_text(member))
        reply_detail(call, 422, "%s must be a string", name);
    return pst_json_text(member);
}

const char *body_text_needed(struct call *call, const char *name)
{
    const char *text = body_text(call, name);

    if (text && !*text) {
        reply_detail(call, 422, "%s is missing", name);
        return NULL;
    }
    return text;
}

bool query_flag(const struct call *call, const char *name)
{
    char text[8];

    return pst_web_query(call->request->query, name, text, sizeof(text)) > 0 &&
           (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0 || strcasecmp(text, "yes") == 0);
}
