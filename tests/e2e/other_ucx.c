/* SPDX-License-Identifier: Apache-2.0 */
/*
 * other_ucx.c: a UCX of another mind, preloaded by test_ucx.py: OTHER_UCX_VERSION is its version, it does not
 * know the setting OTHER_UCX_UNKNOWN, and says that OTHER_UCX_DEAF has another value than it was told.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <uct/api/uct.h>

#define REPLACES __attribute__((visibility("default")))

REPLACES void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    const char *text = getenv("OTHER_UCX_VERSION");
    void (*own)(unsigned *, unsigned *, unsigned *);

    *(void **)(void *)&own = dlsym(RTLD_NEXT, "ucp_get_version");
    if (!text || sscanf(text, "%u.%u.%u", major, minor, release) != 3)
        own(major, minor, release);
}

static int is(const char *variable, const char *name)
{
    const char *text = getenv(variable);

    return text && strstr(text, name) != NULL;
}

REPLACES ucs_status_t uct_config_modify(void *config, const char *name, const char *value)
{
    ucs_status_t (*own)(void *, const char *, const char *);

    *(void **)(void *)&own = dlsym(RTLD_NEXT, "uct_config_modify");
    return is("OTHER_UCX_UNKNOWN", name) ? UCS_ERR_NO_ELEM : own(config, name, value);
}

REPLACES ucs_status_t uct_config_get(void *config, const char *name, char *value, size_t room)
{
    ucs_status_t (*own)(void *, const char *, char *, size_t);

    *(void **)(void *)&own = dlsym(RTLD_NEXT, "uct_config_get");
    if (!is("OTHER_UCX_DEAF", name))
        return own(config, name, value, room);
    snprintf(value, room, "7");
    return UCS_OK;
}
