/* SPDX-License-Identifier: Apache-2.0 */
// Debian 12's re2 takes re2::StringPiece*, TensorStore passes
// std::string_view*.
#ifndef PENSTOCK_RE2_RE2_H_
#define PENSTOCK_RE2_RE2_H_
#include_next <re2/re2.h>

#include <optional>
#include <string_view>
#include <utility>
namespace re2_substitute {
class RE2 : public ::re2::RE2 {
 public:
  using ::re2::RE2::FullMatch;
  using ::re2::RE2::RE2;
  // FullMatch(text, re, &int64, &int64, &optional<int64>) as in
  // http_response.cc
  static bool FullMatch(const ::re2::StringPiece& t, const ::re2::RE2& re,
                        long* a, long* b, std::optional<long>* c) {
    ::re2::StringPiece s;
    if (!::re2::RE2::FullMatch(t, re, a, b, &s)) return false;
    c->reset();
    if (s.empty()) return true;
    long v;
    if (!::re2::RE2::FullMatch(s, "([0-9]+)", &v)) return false;
    *c = v;
    return true;
  }
  template <typename... A>
  static bool Consume(std::string_view* in, const ::re2::RE2& re, A&&... a) {
    ::re2::StringPiece sp(in->data(), in->size());
    const bool r = ::re2::RE2::Consume(&sp, re, std::forward<A>(a)...);
    *in = std::string_view(sp.data(), sp.size());
    return r;
  }
};
}  // namespace re2_substitute
#define RE2 ::re2_substitute::RE2
#endif
