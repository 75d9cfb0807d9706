/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant_file.h: the file that an operator writes grants into. Whoever reads it includes it.
 *
 *   # a comment is a line of its own
 *   [ingest]
 *   rights = read write
 *   prefix = images/
 *   secret-file = ingest.secret
 *   connections = 32
 *
 * Strict: what is not understood is refused, and the reason names file, line and fault. Threads: any.
 */
#ifndef PST_NODE_GRANT_FILE_H
#define PST_NODE_GRANT_FILE_H

#include "base/options.h"
#include "net/handshake.h"
#include "node/grant.h"

enum {
    PST_GRANTS_MAX = 64,
    PST_GRANT_SECRETS_MAX = 2, /* while one replaces the other */
    PST_GRANT_NAME_BYTES_MAX = PST_BOOT_GRANT_BYTES_MAX,
    PST_GRANT_SECRET_BYTES_MIN = 16, /* of one that lies in the file */
    PST_GRANT_FILE_BYTES_MAX = 1 << 20,
};

struct pst_grant_secret {
    struct pst_bytes secret; /* owned; wiped by the end */
    char *path;              /* of the file that has it, as it is written; NULL: it lies here */
    uint32_t line;
};

struct pst_granted {
    char name[PST_GRANT_NAME_BYTES_MAX + 1]; /* letters, digits, '.', '_' and '-' */
    struct pst_grant_terms terms;
    uint32_t secret_count;
    struct pst_grant_secret secrets[PST_GRANT_SECRETS_MAX];
};

struct pst_grant_file {
    bool holds_secrets; /* some lie in it */
    uint32_t count;
    struct pst_granted grants[PST_GRANTS_MAX];
};

/*
 * Reads @text; secrets of files are left empty. @name: of the file, for faults. Return: 0, -EINVAL with the
 * reason in @fault, -ENOMEM.
 */
int pst_grant_file_parse(const char *name, struct pst_bytes text, struct pst_grant_file **out,
                         char fault[PST_FAULT_BYTES]);
/*
 * Reads the file, which no other user may write, nor read if it holds secrets; and the secrets' own files,
 * whose names count from its folder. Return: 0, or -errno with the reason in @fault.
 */
int pst_grant_file_read(const char *path, struct pst_grant_file **out, char fault[PST_FAULT_BYTES]);
/* NULL is fine. Returns NULL. */
struct pst_grant_file *pst_grant_file_free(struct pst_grant_file *file);

#endif
