/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3_xml.c: documents that are written, and those of clients, good and bad. */
#include "lib/cm.h"

#include "gateway/s3/wire/xml_priv.h"

#include <stdio.h>
#include <string.h>

static void escapes(void **state)
{
    static const char text[] = "a<b>&\"c\"\t\n\r\x01\xff\xe2\x82\xac\xf0\x9f\x98\x80\xed\xa0\x80";
    struct s3_xml xml = {.text = NULL};

    (void)state;
    s3_xml_text(&xml, "K", text);
    s3_xml_number(&xml, "N", 42);
    assert_false(xml.failed);
    xml.text = realloc(xml.text, xml.bytes + 1);
    xml.text[xml.bytes] = 0;
    assert_string_equal(xml.text,
                        "<K>a&lt;b&gt;&amp;&quot;c&quot;&#9;&#10;&#13;\xef\xbf\xbd\xef\xbf\xbd\xe2\x82\xac"
                        "\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd</K><N>42</N>");
    s3_xml_free(&xml);
}

static void too_large(void **state)
{
    struct s3_xml xml = {.text = NULL};
    char *piece = malloc(1 << 20);

    (void)state;
    memset(piece, 'x', 1 << 20);
    for (int i = 0; i < S3_XML_BYTES_MAX >> 20; i++)
        s3_xml_leaf(&xml, "a", (struct pst_bytes){piece, 1 << 20});
    assert_true(xml.failed);
    assert_in_range(xml.bytes, 1, S3_XML_BYTES_MAX);
    s3_xml_free(&xml);
    free(piece);
}

/* ---- reading ---- */

static char seen[512];

static bool item_came(void *ctx, const struct pst_bytes leaves[S3_XML_LEAVES_MAX])
{
    (void)ctx;
    snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%.*s=%.*s;", (int)leaves[0].len,
             (const char *)leaves[0].data, (int)leaves[1].len, (const char *)leaves[1].data);
    return !pst_bytes_equal(leaves[0], pst_bytes_of("wrong"));
}

static enum s3_code reads(const char *text, bool *flag)
{
    static const struct s3_xml_form form = {.root = "Delete",
                                            .item = "Object",
                                            .leaves = {"Key", "ETag"},
                                            .flag = "Quiet",
                                            .items_max = 3,
                                            .item_came = item_came};

    seen[0] = 0;
    return s3_xml_read(pst_bytes_of(text), &form, NULL, flag);
}

static void sound_documents(void **state)
{
    bool flag = true;

    (void)state;
    assert_int_equal(
        reads("<Delete><Object><Key>a</Key></Object><Object><ETag>&quot;x&quot;</ETag><Key>b&amp;&#99;"
              "</Key><Other><Key>no</Key></Other></Object></Delete>",
              &flag),
        S3_OK);
    assert_string_equal(seen, "a=;b&c=\"x\";");
    assert_false(flag);
    assert_int_equal(reads("<?xml version=\"1.0\"?>\n<s:Delete xmlns:s=\"u\">\n <s:Quiet> true </s:Quiet>\n "
                           "<s:Object>\n  <s:Key> a</s:Key> </s:Object></s:Delete>",
                           &flag),
                     S3_OK);
    assert_string_equal(seen, " a=;");
    assert_true(flag);
    assert_int_equal(reads("<Delete/>", NULL), S3_OK);
    assert_string_equal(seen, "");
}

static void hostile_documents(void **state)
{
    static const char *const hostile[] = {
        "",
        "x",
        "<Delete>",
        "<Other/>",
        "<Delete></Delete><Delete/>",
        "<Delete><Object><Key>wrong</Key></Object></Delete>",
        "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        "<Delete><Object/><Object/><Object/><Object/></Delete>",
        "<Delete><a><b><c><d><e><f><g><h/></g></f></e></d></c></b></a></Delete>",
        "<Delete><Object><Key>&undefined;</Key></Object></Delete>",
        "<!DOCTYPE Delete><Delete/>",
        "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b "
        "\"&a;&a;&a;&a;\">]><Delete><Object><Key>&b;</Key></Object></Delete>",
        "<!DOCTYPE d [<!ENTITY f SYSTEM "
        "\"file:///etc/passwd\">]><Delete><Object><Key>&f;</Key></Object></Delete>",
        "<!DOCTYPE d [<!ENTITY % p SYSTEM \"http://127.0.0.1:1/\"> %p;]><Delete/>",
    };
    static char longest[S3_XML_LEAVES_MAX * S3_XML_LEAF_BYTES_MAX + 100];

    (void)state;
    for (size_t i = 0; i < pst_count_of(hostile); i++)
        assert_int_equal(reads(hostile[i], NULL), S3_MalformedXML);
    snprintf(longest, sizeof(longest), "<Delete><Object><Key>%0*d</Key></Object></Delete>",
             S3_XML_LEAVES_MAX * S3_XML_LEAF_BYTES_MAX + 1, 1);
    assert_int_equal(reads(longest, NULL), S3_MalformedXML);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes),
        cmocka_unit_test(too_large),
        cmocka_unit_test(sound_documents),
        cmocka_unit_test(hostile_documents),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
