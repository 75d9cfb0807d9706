/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: ReportMetrics: what clients count themselves. A sample that is no metric is passed over, and
 * counted; the others of its report are taken. */
#include "gateway/umbp/umbp_priv.h"

#include "base/utf8.h"

#include <stdio.h>

static const struct key_fields fields = {.name = 1, .keys = 2};

/* ---- a sample ---- */

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name(struct pst_bytes name)
{
    const uint8_t *at = name.data;

    for (size_t i = 0; i < name.len; i++)
        if (!is_letter(at[i]) && (i == 0 || at[i] < '0' || at[i] > '9'))
            return false;
    return name.len > 0;
}

/* Return: whether it fits, as a text. */
static bool copy_text(char *to, size_t room, struct pst_bytes from)
{
    pst_assert(room > 0);
    if (from.len >= room || !pst_is_utf8(from))
        return false;
    if (from.len > 0)
        memcpy(to, from.data, from.len);
    to[from.len] = '\0';
    for (size_t i = 0; i < from.len; i++)
        if ((uint8_t)to[i] < 0x20 || to[i] == '\\')
            to[i] = ' ';
    return true;
}

/* Prometheus keeps these for itself: a bucket's bound, and what it adds as it scrapes. */
static bool is_reserved(struct pst_bytes name)
{
    const char *text = name.data;

    return name.len >= 2 && (memcmp(text, "__", 2) == 0 || (name.len == 2 && memcmp(text, "le", 2) == 0));
}

/* A label as text, with its comma or without one. Return: its bytes; 0: it does not fit. */
static size_t print_label(struct pst_bytes name, struct pst_bytes value, char to[PST_SAMPLE_LABELS_BYTES])
{
    size_t at;

    if (name.len + 2 * value.len + 5 > PST_SAMPLE_LABELS_BYTES)
        return 0;
    at = (size_t)snprintf(to, PST_SAMPLE_LABELS_BYTES, "%.*s=\"", (int)name.len, (const char *)name.data);
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = ((const uint8_t *)value.data)[i];

        if (c == '"' || c == '\\')
            to[at++] = '\\';
        to[at++] = c < 0x20 ? '?' : (char)c;
    }
    to[at++] = '"';
    pst_assert(at < PST_SAMPLE_LABELS_BYTES);
    return at;
}

static const char *label_end(const char *label)
{
    const char *at = strchr(label, '"') + 1;

    while (*at != '"')
        at += *at == '\\' ? 2 : 1;
    pst_assert(at[1] == ',' || at[1] == '\0');
    return at + 1;
}

/* name="value" among the labels that are there, which stand in the order of their names: so that a series has
 * one text. Return: whether it is a label that they do not have yet. */
static bool add_label(char labels[PST_SAMPLE_LABELS_BYTES], struct pst_bytes name, struct pst_bytes value)
{
    char label[PST_SAMPLE_LABELS_BYTES], *at = labels;
    size_t bytes, all = strlen(labels);

    if (!is_name(name) || is_reserved(name) || !pst_is_utf8(value))
        return false;
    bytes = print_label(name, value, label);
    if (bytes == 0 || all + bytes + 2 > PST_SAMPLE_LABELS_BYTES)
        return false;
    while (*at) {
        int order = pst_bytes_compare((struct pst_bytes){at, (size_t)(strchr(at, '=') - at)}, name);

        if (order == 0)
            return false;
        if (order > 0)
            break;
        at = labels + (label_end(at) - labels);
        at += *at == ',';
    }
    if (*at) {
        label[bytes++] = ',';
    } else if (all > 0) {
        labels[all++] = ',';
        at = labels + all;
        *at = '\0';
    }
    memmove(at + bytes, at, all - (size_t)(at - labels) + 1);
    memcpy(at, label, bytes);
    pst_assert(strlen(labels) == all + bytes);
    return true;
}

/* A MetricLabel. Return: whether it is one. */
static bool take_label(struct pst_bytes message, struct pst_sample *out)
{
    struct pst_bytes name = {NULL, 0}, value = {NULL, 0};
    struct field field;
    int r;

    while ((r = proto_next(&message, &field)) > 0) {
        if (proto_is(&field, 1, WIRE_BYTES))
            name = field.bytes;
        else if (proto_is(&field, 2, WIRE_BYTES))
            value = field.bytes;
    }
    return r == 0 && add_label(out->labels, name, value);
}

static double number_of(const void *bytes)
{
    double number;

    _Static_assert(sizeof(number) == 8, "a double as protobuf has it");
    memcpy(&number, bytes, sizeof(number)); /* little-endian, as this machine */
    return number;
}

static bool take_bounds(struct pst_bytes packed, struct pst_sample *out)
{
    pst_assert(out->bucket_count <= PST_SAMPLE_BUCKETS_MAX);
    if (packed.len % sizeof(double) ||
        packed.len / sizeof(double) > PST_SAMPLE_BUCKETS_MAX - out->bucket_count)
        return false;
    for (size_t at = 0; at < packed.len; at += sizeof(double))
        out->bounds[out->bucket_count++] = number_of((const uint8_t *)packed.data + at);
    return true;
}

static bool take_counts(struct pst_bytes packed, uint32_t *count, struct pst_sample *out)
{
    pst_assert(*count <= PST_SAMPLE_BUCKETS_MAX);
    for (; packed.len > 0; ++*count)
        if (*count == PST_SAMPLE_BUCKETS_MAX || proto_take_varint(&packed, &out->counts[*count]) < 0)
            return false;
    return true;
}

/* A HistogramAggregate, its numbers packed or one by one. Return: whether it is one. */
static bool take_histogram(struct pst_bytes message, struct pst_sample *out)
{
    struct field field;
    uint32_t counts = 0;
    bool well = true;
    int r;

    out->kind = PST_SAMPLE_HISTOGRAM;
    out->bucket_count = 0;
    while ((r = proto_next(&message, &field)) > 0 && well) {
        if (field.number == 1 && (field.type == WIRE_BYTES || field.type == WIRE_64))
            well = take_bounds(field.bytes, out);
        else if (proto_is(&field, 2, WIRE_BYTES))
            well = take_counts(field.bytes, &counts, out);
        else if (proto_is(&field, 2, WIRE_VARINT) && (well = counts < PST_SAMPLE_BUCKETS_MAX))
            out->counts[counts++] = field.value;
        else if (proto_is(&field, 3, WIRE_VARINT))
            out->count = field.value;
        else if (proto_is(&field, 4, WIRE_64))
            out->value = number_of(field.bytes.data);
    }
    return r == 0 && well && counts == out->bucket_count;
}

/* Return: whether it is well so far. */
static bool take_sample_field(const struct field *field, struct pst_sample *out)
{
    if (proto_is(field, 1, WIRE_BYTES))
        return is_name(field->bytes) && copy_text(out->name, sizeof(out->name), field->bytes);
    if (proto_is(field, 2, WIRE_BYTES)) {
        return field->bytes.len >= sizeof(out->help) || copy_text(out->help, sizeof(out->help), field->bytes);
    }
    if (proto_is(field, 3, WIRE_BYTES))
        return take_label(field->bytes, out);
    if (proto_is(field, 4, WIRE_64) || proto_is(field, 5, WIRE_64)) {
        out->kind = field->number == 4 ? PST_SAMPLE_COUNTER : PST_SAMPLE_GAUGE;
        out->value = number_of(field->bytes.data);
        return true;
    }
    return !proto_is(field, 6, WIRE_BYTES) || take_histogram(field->bytes, out);
}

bool umbp_read_sample(struct pst_bytes message, struct pst_sample *out)
{
    static const char prefix[] = "mori_umbp_";
    struct field field;
    int r;

    pst_assert(memchr(out->labels, '\0', sizeof(out->labels)) != NULL);
    while ((r = proto_next(&message, &field)) > 0)
        if (!take_sample_field(&field, out))
            return false;
    return r == 0 && strncmp(out->name, prefix, sizeof(prefix) - 1) == 0;
}

/* ---- the call ---- */

/* The labels that each of a node's series has: its name, and its tags. */
static void label_node(const struct pst_guest *guest, struct pst_sample *out)
{
    const char *at = guest->tags.data, *end = at + guest->tags.len;

    pst_assert(out->labels[0] == '\0');
    pst_assert(guest->name.len > 0);
    pst_assert(guest->tags.len <= PST_GUEST_TAGS_BYTES_MAX);
    add_label(out->labels, pst_bytes_of("node"), guest->name);
    for (; at < end; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');

        if (equals)
            add_label(out->labels, (struct pst_bytes){at, (size_t)(equals - at)}, pst_bytes_of(equals + 1));
    }
}

/* Who reports. Return: false: nobody of that name is there. */
static bool find_reporter(const struct visit *v, struct pst_bytes name, struct pst_guest *guest,
                          struct pst_sample *labelled)
{
    if (!pst_guests_find(v->desk.guests, name, guest))
        return false;
    *labelled = (struct pst_sample){.kind = PST_SAMPLE_GAUGE};
    label_node(guest, labelled);
    return true;
}

static void metrics_requested(struct stream *st, struct pst_bytes message)
{
    struct key_request request;
    struct answer answer = {0};
    struct pst_bytes one;
    struct pst_sample labelled;
    struct pst_guest guest;
    struct visit v;
    bool known;

    pst_assert(st->state == STREAM_WORKING);
    if (!umbp_decoded(st, umbp_read_keys(message, &fields, &request)) || !visit_begin(&v, st))
        return;
    known = find_reporter(&v, request.name, &guest, &labelled);
    while (known && umbp_next_text(&message, fields.keys, &one)) {
        struct pst_sample sample = labelled;

        if (!visit_step(&v))
            return;
        if (v.steps == PST_GUEST_EVENTS_A_STEP) /* others have been at the desk */
            known = find_reporter(&v, request.name, &guest, &labelled);
        if (!known)
            break;
        if (umbp_read_sample(one, &sample))
            pst_guests_sample(v.desk.guests, guest.number, &sample);
        else
            pst_guests_totals(v.desk.guests)->samples_dropped++;
    }
    visit_end(&v);
    answer_send(st, &answer);
}

const struct method method_report_metrics = {
    .name = "ReportMetrics", .request = metrics_requested, .drop = answer_drop};
