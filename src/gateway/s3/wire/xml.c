/* SPDX-License-Identifier: Apache-2.0 */
/* xml.c: documents of answers. */
#include "gateway/s3/wire/xml_priv.h"

#include <stdio.h>

enum { FIRST_BYTES = 4096 };

static void xml_add(struct s3_xml *xml, const void *data, size_t bytes)
{
    pst_assert(xml->bytes <= xml->room);
    pst_assert(xml->bytes <= S3_XML_BYTES_MAX);
    if (xml->failed || bytes > S3_XML_BYTES_MAX - xml->bytes) {
        xml->failed = true;
        return;
    }
    if (xml->bytes + bytes > xml->room) {
        size_t room = pst_max(pst_max(2 * xml->room, FIRST_BYTES), xml->bytes + bytes);
        char *text = realloc(xml->text, room);

        xml->failed = !text;
        if (!text)
            return;
        xml->text = text;
        xml->room = room;
    }
    memcpy(xml->text + xml->bytes, data, bytes);
    xml->bytes += bytes;
    pst_assert(xml->bytes <= xml->room);
}

static void xml_add_text(struct s3_xml *xml, const char *text)
{
    xml_add(xml, text, strlen(text));
}

void s3_xml_open(struct s3_xml *xml, const char *name)
{
    xml_add_text(xml, "<");
    xml_add_text(xml, name);
    xml_add_text(xml, ">");
}

void s3_xml_close(struct s3_xml *xml, const char *name)
{
    xml_add_text(xml, "</");
    xml_add_text(xml, name);
    xml_add_text(xml, ">");
}

void s3_xml_begin(struct s3_xml *xml, const char *root)
{
    *xml = (struct s3_xml){.text = NULL};
    xml_add_text(xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<");
    xml_add_text(xml, root);
    xml_add_text(xml, " xmlns=\"" S3_XML_NAMESPACE "\">");
}

/* Bytes of the character of UTF-8 at @at that XML can say; 0: there is none. */
static size_t xml_character(const uint8_t *at, size_t bytes)
{
    size_t n = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3 : 4;
    uint32_t code = n == 1 ? at[0] : at[0] & (0xffu >> (n + 1));

    pst_assert(bytes > 0);
    if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || n > bytes)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    if (code < 0x20 || (code >= 0xd800 && code < 0xe000) || code == 0xfffe || code == 0xffff ||
        code > 0x10ffff || (n == 3 && code < 0x800) || (n == 4 && code < 0x10000))
        return 0;
    return n;
}

static void xml_escape(struct s3_xml *xml, struct pst_bytes text)
{
    const uint8_t *at = text.data;
    size_t left = text.len;

    while (left > 0) {
        size_t n = xml_character(at, left);

        pst_assert(n <= left);
        switch (*at) {
        case '&':
            xml_add_text(xml, "&amp;");
            break;
        case '<':
            xml_add_text(xml, "&lt;");
            break;
        case '>':
            xml_add_text(xml, "&gt;");
            break;
        case '"':
            xml_add_text(xml, "&quot;");
            break;
        case '\t':
            xml_add_text(xml, "&#9;");
            break;
        case '\n':
            xml_add_text(xml, "&#10;");
            break;
        case '\r':
            xml_add_text(xml, "&#13;");
            break;
        default:
            if (n)
                xml_add(xml, at, n);
            else
                xml_add_text(xml, "\xef\xbf\xbd");
        }
        n = n ? n : 1;
        at += n;
        left -= n;
    }
}

void s3_xml_leaf(struct s3_xml *xml, const char *name, struct pst_bytes text)
{
    s3_xml_open(xml, name);
    xml_escape(xml, text);
    s3_xml_close(xml, name);
}

void s3_xml_text(struct s3_xml *xml, const char *name, const char *text)
{
    s3_xml_leaf(xml, name, pst_bytes_of(text));
}

void s3_xml_number(struct s3_xml *xml, const char *name, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    s3_xml_text(xml, name, text);
}

void s3_xml_free(struct s3_xml *xml)
{
    pst_assert(xml->text || xml->bytes == 0);
    free(xml->text);
    *xml = (struct s3_xml){.text = NULL};
}
