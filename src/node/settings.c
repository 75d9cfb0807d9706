/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the node's option table, and what its values mean. */
#include "node/node_priv.h"
#include "base/limits.h"

#include <stdio.h>

#define PST_OPTION_SETTINGS struct pst_node_settings
const struct pst_options pst_node_options = PST_OPTION_TABLE(PST_NODE_OPTIONS);

int pst_classes_parse(const struct pst_strings *classes, char *prefixes[PST_STRINGS_MAX], uint32_t *count,
                      char fault[PST_FAULT_BYTES])
{
    *count = 0;
    for (uint32_t i = 0; i < classes->count; i++) {
        const char *text = classes->items[i], *equals = strrchr(text, '=');

        if (equals && strcmp(equals, "=keep") == 0)
            continue; /* what every key is */
        if (!equals || strcmp(equals, "=cache") != 0 || equals - text > PST_KEY_BYTES_MAX) {
            snprintf(fault, PST_FAULT_BYTES, "class '%.200s' is not PREFIX=cache", text);
            pst_classes_free(prefixes, *count);
            return -EINVAL;
        }
        pst_assert(*count < PST_STRINGS_MAX);
        prefixes[*count] = strndup(text, (size_t)(equals - text));
        if (!prefixes[*count]) {
            snprintf(fault, PST_FAULT_BYTES, "out of memory");
            pst_classes_free(prefixes, *count);
            return -ENOMEM;
        }
        ++*count;
    }
    return 0;
}

void pst_classes_free(char *prefixes[PST_STRINGS_MAX], uint32_t count)
{
    pst_assert(count <= PST_STRINGS_MAX);
    for (uint32_t i = 0; i < count; i++)
        free(prefixes[i]);
}
