// SPDX-License-Identifier: Apache-2.0
// Minimal stand-in for half.sourceforge.net's half.hpp (half_float::half).
#ifndef HALF_HALF_HPP
#define HALF_HALF_HPP
#include <stdint.h>
#include <string.h>

#include <cmath>
#include <functional>
#include <istream>
#include <limits>
#include <ostream>
namespace half_float {
class half;
namespace detail {
inline uint16_t from_float(float f) {
  uint32_t x;
  memcpy(&x, &f, 4);
  const uint16_t sign = (x >> 16) & 0x8000;
  x &= 0x7fffffff;
  if (x > 0x7f800000) return sign | 0x7e00 | ((x >> 13) & 0x3ff);
  if (x >= 0x47800000) return sign | 0x7c00;  // overflow / inf
  if (x < 0x38800000) {                       // subnormal / zero
    if (x < 0x33000000) return sign;
    const int shift = 126 - static_cast<int>(x >> 23);  // 14..24
    uint32_t m = (x & 0x7fffff) | 0x800000;
    const uint32_t rem = m & ((1u << shift) - 1);
    m >>= shift;
    const uint32_t half_ulp = 1u << (shift - 1);
    if (rem > half_ulp || (rem == half_ulp && (m & 1))) ++m;
    return sign | static_cast<uint16_t>(m);
  }
  uint32_t r = x - 0x38000000;
  uint32_t h = r >> 13;
  const uint32_t rem = r & 0x1fff;
  if (rem > 0x1000 || (rem == 0x1000 && (h & 1))) ++h;
  return sign | static_cast<uint16_t>(h);
}
inline float to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  uint32_t e = (h >> 10) & 0x1f, m = h & 0x3ff, x;
  if (e == 0x1f) {
    x = sign | 0x7f800000 | (m << 13);
  } else if (e) {
    x = sign | ((e + 112) << 23) | (m << 13);
  } else if (m) {
    int s = 0;
    while (!(m & 0x400)) {
      m <<= 1;
      ++s;
    }
    x = sign | ((113 - s) << 23) | ((m & 0x3ff) << 13);
  } else {
    x = sign;
  }
  float f;
  memcpy(&f, &x, 4);
  return f;
}
struct binary_t {};
inline constexpr binary_t binary{};
}  // namespace detail
class half {
 public:
  constexpr half() noexcept : data_() {}
  explicit half(float f) : data_(detail::from_float(f)) {}
  constexpr half(detail::binary_t, unsigned bits) noexcept
      : data_(static_cast<uint16_t>(bits)) {}
  operator float() const { return detail::to_float(data_); }
  half& operator=(float f) {
    data_ = detail::from_float(f);
    return *this;
  }
  half& operator+=(half o) { return *this = float(*this) + float(o); }
  half& operator-=(half o) { return *this = float(*this) - float(o); }
  half& operator*=(half o) { return *this = float(*this) * float(o); }
  half& operator/=(half o) { return *this = float(*this) / float(o); }
  half& operator+=(float o) { return *this = float(*this) + o; }
  half& operator-=(float o) { return *this = float(*this) - o; }
  half& operator*=(float o) { return *this = float(*this) * o; }
  half& operator/=(float o) { return *this = float(*this) / o; }
  half& operator++() { return *this += 1.0f; }
  half& operator--() { return *this -= 1.0f; }
  uint16_t data_;
};
inline bool operator==(half a, half b) { return float(a) == float(b); }
inline bool operator!=(half a, half b) { return float(a) != float(b); }
inline bool operator<(half a, half b) { return float(a) < float(b); }
inline bool operator>(half a, half b) { return float(a) > float(b); }
inline bool operator<=(half a, half b) { return float(a) <= float(b); }
inline bool operator>=(half a, half b) { return float(a) >= float(b); }
inline half operator+(half a) { return a; }
inline half operator-(half a) {
  return half(detail::binary, a.data_ ^ 0x8000u);
}
inline half operator+(half a, half b) { return half(float(a) + float(b)); }
inline half operator-(half a, half b) { return half(float(a) - float(b)); }
inline half operator*(half a, half b) { return half(float(a) * float(b)); }
inline half operator/(half a, half b) { return half(float(a) / float(b)); }
inline bool isnan(half a) { return (a.data_ & 0x7fff) > 0x7c00; }
inline bool isinf(half a) { return (a.data_ & 0x7fff) == 0x7c00; }
inline bool isfinite(half a) { return (a.data_ & 0x7c00) != 0x7c00; }
inline bool signbit(half a) { return a.data_ & 0x8000; }
inline half abs(half a) { return half(detail::binary, a.data_ & 0x7fffu); }
inline half fabs(half a) { return abs(a); }
template <typename C, typename T>
std::basic_ostream<C, T>& operator<<(std::basic_ostream<C, T>& o, half a) {
  return o << float(a);
}
template <typename C, typename T>
std::basic_istream<C, T>& operator>>(std::basic_istream<C, T>& i, half& a) {
  float f;
  if (i >> f) a = f;
  return i;
}
template <typename T, typename U>
T half_cast(U u) {
  return T(float(u));
}
}  // namespace half_float
namespace std {
template <>
class numeric_limits<half_float::half> {
 public:
  static constexpr bool is_specialized = true, is_signed = true,
                        is_integer = false, is_exact = false, is_modulo = false,
                        is_bounded = true, is_iec559 = true,
                        has_infinity = true, has_quiet_NaN = true,
                        has_signaling_NaN = true, traps = false,
                        tinyness_before = false;
  static constexpr float_denorm_style has_denorm = denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr float_round_style round_style = round_to_nearest;
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5, radix = 2,
                       min_exponent = -13, min_exponent10 = -4,
                       max_exponent = 16, max_exponent10 = 4;
  using H = half_float::half;
  static constexpr H min() noexcept {
    return H(half_float::detail::binary, 0x0400);
  }
  static constexpr H lowest() noexcept {
    return H(half_float::detail::binary, 0xFBFF);
  }
  static constexpr H max() noexcept {
    return H(half_float::detail::binary, 0x7BFF);
  }
  static constexpr H epsilon() noexcept {
    return H(half_float::detail::binary, 0x1400);
  }
  static constexpr H round_error() noexcept {
    return H(half_float::detail::binary, 0x3800);
  }
  static constexpr H infinity() noexcept {
    return H(half_float::detail::binary, 0x7C00);
  }
  static constexpr H quiet_NaN() noexcept {
    return H(half_float::detail::binary, 0x7FFF);
  }
  static constexpr H signaling_NaN() noexcept {
    return H(half_float::detail::binary, 0x7DFF);
  }
  static constexpr H denorm_min() noexcept {
    return H(half_float::detail::binary, 0x0001);
  }
};
template <>
struct hash<half_float::half> {
  size_t operator()(half_float::half a) const {
    return hash<uint16_t>()(a.data_ == 0x8000 ? 0 : a.data_);
  }
};
}  // namespace std
#endif
