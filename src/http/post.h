/* SPDX-License-Identifier: Apache-2.0 */
/*
 * post.h: JSON to one URL by POST, whose answer is a status alone; for those who cannot ask for libcurl
 * where they are installed, since it is found when the first of these is opened. A post blocks its thread,
 * timeout_ms at the most, and keeps its connection for the next. One thread at a time.
 */
#ifndef PST_HTTP_POST_H
#define PST_HTTP_POST_H

#include "base/base.h"
#include "base/options.h"

struct pst_post;

/* @url: http:// or https://; borrowed. Return: 0, or -errno with the reason in @fault: -EINVAL the URL cannot
 * be, -ELIBACC there is no libcurl, -EOPNOTSUPP nor was there when penstock was built, -ENOMEM. */
int pst_post_open(const char *url, uint32_t timeout_ms, struct pst_post **out, char fault[PST_FAULT_BYTES]);
/* Gives every request the header @line, "NAME: VALUE" without a line's end; borrowed. Return: 0, -ENOMEM. */
int pst_post_header(struct pst_post *post, const char *line);
/* Return: the status, or -EIO with the reason in @fault: nobody answered, or not in time. */
int pst_post_send(struct pst_post *post, struct pst_bytes body, char fault[PST_FAULT_BYTES]);
/* Any thread: from then on nothing is waited for, the one underway included, to about a second. */
void pst_post_end_by(struct pst_post *post, uint64_t ns);
/* NULL is fine. Returns NULL. */
struct pst_post *pst_post_close(struct pst_post *post);

#endif
