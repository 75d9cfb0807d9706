/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c: what UCX is told, and whether it has understood. The environment is read, never written:
 * what the user set stays in force, except where a setting is bound.
 *
 * UCX itself takes a setting that it does not know, and says nothing or warns later. Settings of transports
 * have other names from 1.17 on, with the transport in front, and only 1.20 and later refuse those that they
 * do not know. So each is tried on a table that UCT reads for the purpose, under either name, and its value
 * is read back; those of UCP are read back from the configuration itself.
 *
 * Bound are those on which both ends must agree, since UCX tells nobody and checks nothing: it writes behind
 * its buffers, or reads what is no message, when the other end has another value (seen with 1.13 to 1.22).
 */
#include "net/ucx/ucx_priv.h"

#include <stdio.h>
#include <strings.h>
#include <uct/api/uct.h>

enum { VALUE_BYTES = 64, TEXT_BYTES = 160, USERS_MAX = 2 };

enum when { /* bits; all of them have to hold */
            WHEN_LOOPBACK = 1 << 0,
            WHEN_NETWORK = 1 << 1,
            WHEN_SERVES = 1 << 2,
            BOUND = 1 << 3, /* the environment does not change it */
};

/* By which names UCX_TLS means a transport. */
static const char *const tcp_names[] = {"tcp", NULL};
static const char *const posix_names[] = {"posix", "mm", "sm", "shm", NULL};
static const char *const sysv_names[] = {"sysv", "mm", "sm", "shm", NULL};
static const char *const ud_verbs_names[] = {"ud_verbs", "ud_v", "ud", "rc_v", "rc", "ib", NULL};
static const char *const ud_mlx5_names[] = {"ud_mlx5", "ud_x", "ud", "rc_x", "rc", "dc", "dc_x", "ib", NULL};

/* Where UCT's table of settings is, and the transports that use them. */
struct transport {
    const char *component, *table;
    const char *const *users[USERS_MAX];
};

static const struct transport tcp = {"tcp", "tcp", {tcp_names}};
static const struct transport shared_memory = {"posix", "posix", {posix_names, sysv_names}};
static const struct transport ud = {"ib", "ud_verbs", {ud_verbs_names, ud_mlx5_names}};

struct setting {
    const struct transport *transport; /* NULL: UCP's own */
    const char *name;                  /* UCX_NAME in the environment */
    const char *value;                 /* as UCX prints it */
    uint32_t when;
};

static const struct setting settings[] = {
    /* Which messages make up a transfer. UCX chooses others from 1.16 on, which older versions do not
     * understand, nor each of the newer ones the others (1.16 and 1.19 over TCP). */
    {NULL, "PROTO_ENABLE", "n", BOUND},
    /* Longer packets than UCX's own 64 KiB and 8 KiB: 1.4 times the bandwidth over loopback, for values of 2
     * MiB. A longer packet than the receiver's own overwrites what lies behind its buffer. */
    {&shared_memory, "MM_SEG_SIZE", "32K", BOUND},
    {&tcp, "TCP_RX_SEG_SIZE", "512K", BOUND},
    /* A sender finds its place in the receiver's queue by its own figures. UCX's changed with 1.16. */
    {&shared_memory, "MM_FIFO_SIZE", "64", BOUND},
    {&shared_memory, "MM_FIFO_ELEM_SIZE", "128", BOUND},
    /* Without this UCX drops shared memory silently where endpoints handle errors. */
    {&shared_memory, "MM_ERROR_HANDLING", "y", 0},
    /*
     * Who has ended the session's socket tells. UCX's own messages fill the queue of a peer on this host that
     * does not poll, since it has nothing to ask, in a minute, and from then on keep whoever sends them
     * awake.
     */
    {NULL, "KEEPALIVE_INTERVAL", "inf", 0},
    /* A connect that blocks would stop the whole port for one dead host. */
    {&tcp, "TCP_CONN_NB", "y", 0},
    /*
     * Of two sockets between the same two ports UCX keeps the one from the lower address to the higher. A
     * client that was forked accepts none, for want of UCX's thread, so the node's is to be the higher: above
     * what the kernel gives to clients.
     */
    {&tcp, "TCP_PORT_RANGE", "61000-65535", WHEN_SERVES | WHEN_LOOPBACK},
    /*
     * Remote DMA is set up over UD. A peer that is killed in the middle of that leaves an endpoint of UCX's
     * own with an answer that nobody takes, and UCX 1.13 to 1.19 abort the process when its time is over. So
     * it is ten years: the session's socket tells who is gone.
     */
    {&ud, "UD_TIMEOUT", "315360000000000.00us", WHEN_NETWORK},
    /* Within one host, more would only be read from farther away. */
    {&tcp, "TCP_SNDBUF", "256K", WHEN_LOOPBACK},
    {NULL, "TLS", "tcp,posix", WHEN_LOOPBACK},
    {NULL, "NET_DEVICES", "lo", WHEN_LOOPBACK | BOUND},
    /* Left to itself UCX takes System V segments, which outlive a killed process, before posix ones. */
    {NULL, "TLS", "^sysv", WHEN_NETWORK},
};

static _Thread_local char fault[TEXT_BYTES];

const char *ucx_settings_fault(void)
{
    return fault;
}

static int settings_refuse(const char *name, const char *value)
{
    char version[PST_UCX_TEXT_BYTES];

    pst_assert(name && *name);
    pst_assert(value);
    pst_ucx_print(pst_ucx_version(), version);
    snprintf(fault, sizeof(fault), "UCX %s does not take the setting UCX_%s=%s", version, name, value);
    return -ELIBBAD;
}

/* ---- settings of transports ---- */

static bool names_have(const char *const *names, const char *name, size_t len)
{
    pst_assert(*names);
    pst_assert(name);
    for (; *names; names++)
        if (strlen(*names) == len && !strncmp(name, *names, len))
            return true;
    return false;
}

/* Whether UCX_TLS, as in "rc,ud:aux" or "^tcp", lets UCX use the transport of these names. */
static bool transport_allowed(const char *tls, const char *const *names)
{
    bool excludes = *tls == '^';

    pst_assert(*names);
    for (const char *name = tls + excludes; *name; name += strcspn(name, ","), name += *name == ',') {
        size_t len = strcspn(name, ",:");

        if (names_have(names, name, len) || (!excludes && len == 3 && !strncmp(name, "all", 3)))
            return !excludes;
    }
    return excludes;
}

/* UCX warns of settings that it has no use for. */
static bool any_user_allowed(const struct transport *transport)
{
    const char *tls = getenv("UCX_TLS");
    bool allowed = !tls;

    pst_assert(transport->users[0]);
    for (size_t i = 0; i < USERS_MAX && transport->users[i] && !allowed; i++)
        allowed = transport_allowed(tls, transport->users[i]);
    return allowed;
}

/* Opens what the component has first: of tcp and posix that is all, of ib a device. Return: NULL without. */
static uct_md_h domain_open(uct_component_h component, unsigned resource_count)
{
    pst_cleanup_free uct_md_resource_desc_t *resources = calloc(resource_count, sizeof(*resources));
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES,
                                 .md_resources = resources};
    uct_md_config_t *config;
    uct_md_h domain = NULL;

    pst_assert(resource_count > 0);
    if (!resources || uct_component_query(component, &attr) != UCS_OK ||
        uct_md_config_read(component, NULL, NULL, &config) != UCS_OK)
        return NULL;
    if (uct_md_open(component, resources[0].md_name, config, &domain) != UCS_OK)
        domain = NULL;
    uct_config_release(config);
    return domain;
}

/* The table of settings of @transport, as an endpoint of it would have them. Return: NULL without it. */
static uct_iface_config_t *table_of(uct_component_h component, const struct transport *transport)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME |
                                               UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
    uct_iface_config_t *table = NULL;
    uct_md_h domain;

    if (uct_component_query(component, &attr) != UCS_OK || strcmp(attr.name, transport->component) != 0 ||
        attr.md_resource_count == 0)
        return NULL;
    domain = domain_open(component, attr.md_resource_count);
    if (!domain)
        return NULL;
    if (uct_md_iface_config_read(domain, transport->table, NULL, NULL, &table) != UCS_OK)
        table = NULL;
    uct_md_close(domain);
    return table;
}

static uct_iface_config_t *table_open(const struct transport *transport)
{
    uct_iface_config_t *table = NULL;
    uct_component_h *components;
    unsigned count;

    if (uct_query_components(&components, &count) != UCS_OK)
        return NULL;
    for (unsigned i = 0; i < count && !table; i++)
        table = table_of(components[i], transport);
    uct_release_component_list(components);
    return table;
}

/* Tries @setting on a table of its transport. Return: the name under which this UCX takes it; NULL when it
 * takes none, or has made something else of the value. */
static const char *name_taken(const struct setting *setting, uct_iface_config_t *table)
{
    const char *names[] = {setting->name, strchr(setting->name, '_') + 1}, *taken = NULL;
    char value[VALUE_BYTES];

    pst_assert(setting->transport);
    pst_assert(strchr(setting->name, '_'));
    for (size_t i = 0; i < pst_count_of(names) && !taken; i++)
        if (uct_config_modify(table, names[i], setting->value) == UCS_OK)
            taken = names[i];
    /* Under which name it tells has not changed with that under which it takes. */
    for (size_t i = 0; i < pst_count_of(names) && taken; i++)
        if (uct_config_get(table, names[i], value, sizeof(value)) == UCS_OK)
            return strcasecmp(value, setting->value) ? NULL : taken;
    return NULL;
}

static int set_of_transport(ucp_config_t *config, const struct setting *setting)
{
    uct_iface_config_t *table = table_open(setting->transport);
    const char *name;

    pst_assert(setting->transport);
    if (!table) /* nothing that it could be set of */
        return 0;
    name = name_taken(setting, table);
    uct_config_release(table);
    if (!name || ucp_config_modify(config, name, setting->value) != UCS_OK)
        return settings_refuse(setting->name, setting->value);
    return 0;
}

/* ---- UCP's own ---- */

static bool reads_back(ucp_config_t *config, const char *name, const char *value)
{
    pst_cleanup_free char *text = NULL;
    char line[TEXT_BYTES];
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    snprintf(line, sizeof(line), "\nUCX_%s=%s\n", name, value);
    if (!f)
        return false;
    fputc('\n', f);
    ucp_config_print(config, f, NULL, UCS_CONFIG_PRINT_CONFIG);
    return fclose(f) == 0 && strstr(text, line);
}

static int set_own(ucp_config_t *config, const char *name, const char *value)
{
    pst_assert(name && *name);
    if (ucp_config_modify(config, name, value) != UCS_OK || !reads_back(config, name, value))
        return settings_refuse(name, value);
    return 0;
}

/* Whether the user has set it: what shared memory's kinds have in common can be set of posix alone, too. */
static bool set_by_user(const struct setting *setting)
{
    bool shared = setting->transport && !strncmp(setting->name, "MM_", 3);
    char variable[VALUE_BYTES], posix[VALUE_BYTES];

    pst_assert(strlen(setting->name) >= 3);
    pst_assert(strlen(setting->name) + sizeof("UCX_POSIX_") <= VALUE_BYTES);
    if (setting->when & BOUND)
        return false;
    snprintf(variable, sizeof(variable), "UCX_%s", setting->name);
    snprintf(posix, sizeof(posix), "UCX_POSIX_%s", setting->name + 3);
    return getenv(variable) || (shared && getenv(posix));
}

static int settings_set_all(const struct pst_net_options *options, ucp_config_t *config)
{
    uint32_t now = options->loopback_only ? WHEN_LOOPBACK : WHEN_NETWORK;
    int r = 0;

    now |= options->serves ? WHEN_SERVES : 0u;
    for (size_t i = 0; i < pst_count_of(settings) && r == 0; i++) {
        const struct setting *setting = &settings[i];

        if ((setting->when & ~(now | BOUND)) || set_by_user(setting))
            continue;
        if (!setting->transport)
            r = set_own(config, setting->name, setting->value);
        else if (any_user_allowed(setting->transport))
            r = set_of_transport(config, setting);
    }
    /* This one UCX may print in other words. */
    if (r == 0 && !options->loopback_only && options->devices &&
        ucp_config_modify(config, "NET_DEVICES", options->devices) != UCS_OK)
        r = settings_refuse("NET_DEVICES", options->devices);
    pst_assert(r == 0 || r == -ELIBBAD);
    return r;
}

int ucx_settings_make(const struct pst_net_options *options, ucp_config_t **out)
{
    ucp_config_t *config = NULL;
    char version[PST_UCX_TEXT_BYTES];
    ucs_status_t status;
    int r;

    if (pst_ucx_version() < PST_UCX_SEEN_FIRST) {
        pst_ucx_print(pst_ucx_version(), version);
        snprintf(fault, sizeof(fault), "UCX %s is older than 1.13", version);
        return -ELIBBAD;
    }
    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return ucx_errno(status);
    r = settings_set_all(options, config);
    if (r < 0)
        ucp_config_release(config);
    else
        *out = config;
    pst_assert(r != -ELIBBAD || fault[0]);
    return r;
}
