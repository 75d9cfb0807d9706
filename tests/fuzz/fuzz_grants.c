/* SPDX-License-Identifier: Apache-2.0 */
/* A file of grants: any text is refused with its line, or what it says keeps to its bounds. */
#include "fuzz.h"

#include "base/limits.h"
#include "node/grant_file.h"

static void check_grant(const struct pst_granted *grant)
{
    const struct pst_grant_terms *terms = &grant->terms;

    pst_assert(*grant->name && memchr(grant->name, '\0', sizeof(grant->name)));
    pst_assert(terms->rights && !(terms->rights & ~PST_RIGHTS_ALL));
    pst_assert(terms->all_keys == (terms->prefix_count == 0) &&
               terms->prefix_count <= PST_GRANT_PREFIXES_MAX);
    pst_assert(terms->all_keys || !(terms->rights & PST_RIGHT_ADMIN));
    pst_assert(grant->secret_count >= 1 && grant->secret_count <= PST_GRANT_SECRETS_MAX);
    for (uint32_t i = 0; i < terms->prefix_count; i++)
        pst_assert(terms->prefixes[i].len >= 1 && terms->prefixes[i].len <= PST_KEY_BYTES_MAX);
    for (uint32_t i = 0; i < grant->secret_count; i++)
        pst_assert(!grant->secrets[i].path ? grant->secrets[i].secret.len >= PST_GRANT_SECRET_BYTES_MIN
                                           : *grant->secrets[i].path != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pst_grant_file *file = NULL;
    char fault[PST_FAULT_BYTES] = "";
    int r;

    if (size > PST_GRANT_FILE_BYTES_MAX)
        return 0;
    r = pst_grant_file_parse("f", (struct pst_bytes){data, size}, &file, fault);
    if (r < 0) {
        pst_assert(r == -EINVAL && strncmp(fault, "grants f:", 9) == 0 && !file);
        return 0;
    }
    pst_assert(file->count >= 1 && file->count <= PST_GRANTS_MAX);
    for (uint32_t i = 0; i < file->count; i++)
        check_grant(&file->grants[i]);
    pst_grant_file_free(file);
    return 0;
}
