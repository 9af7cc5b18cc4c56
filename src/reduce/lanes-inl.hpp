// The four element types as SIMD lanes: decode widens exactly to the accumulator type, encode rounds once and makes a NaN canonical.
// Included once per SIMD target, hence the toggled guard.
#if defined(GRADSHM_REDUCE_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADSHM_REDUCE_LANES_INL_HPP
#undef GRADSHM_REDUCE_LANES_INL_HPP
#else
#define GRADSHM_REDUCE_LANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "reduce/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradshm::core {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  static constexpr auto kNaNBits = static_cast<hwy::MakeUnsigned<T>>(sizeof(T) == 4 ? kF32NaN : kF64NaN);

  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, const Stored* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void encode(D d, hn::Vec<D> value, Stored* to) {
    const hn::RebindToUnsigned<D> du;
    const auto nan = hn::BitCast(d, hn::Set(du, kNaNBits));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(value), nan, value), d, to);
  }
};

struct Bf16 {
  using Stored = std::uint16_t;
  using Accumulator = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, const Stored* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  }
  // Integers round: DemoteTo to bfloat16_t truncates in Highway 1.0.3.
  template <class D>
  static HWY_INLINE void encode(D, hn::Vec<D> value, Stored* to) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd));
    const auto nan = hn::Gt(hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffff))), hn::Set(di, 0x7f800000));
    hn::StoreU(hn::DemoteTo(d16, hn::IfThenElse(nan, hn::Set(di, kBf16NaN), hn::BitCast(di, rounded))), d16, to);
  }
};

struct F16 {
  using Stored = std::uint16_t;
  using Accumulator = float;

// The instruction of AVX2 and up is exact; what Highway 1.0.3 does without it turns infinity and NaN into numbers.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL) && !defined(HWY_DISABLE_F16C)
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, const Stored* from) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, from)));
  }
#else
  // As if the f16 exponent were that of an f32, then times 2^112, which is exact; infinity and NaN get the exponent they lack.
  template <class D>
  static HWY_INLINE hn::Vec<D> decode(D d, const Stored* from) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto half = hn::PromoteTo(di, hn::LoadU(d16, from));
    const auto magnitude = hn::And(half, hn::Set(di, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000)));
    const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112F));
    const auto special = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(di, 0x7bff)), hn::Set(di, 0x7f800000));
    return hn::BitCast(d, hn::Or(hn::Or(hn::BitCast(di, scaled), special), sign));
  }
#endif

  // DemoteTo to float16_t differs between targets in Highway 1.0.3. A denormal is rounded by the adder: one unit in the last place of
  // 0.5 is the smallest f16 denormal.
  template <class D>
  static HWY_INLINE void encode(D d, hn::Vec<D> value, Stored* to) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
    const auto rebased = hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff - (112 << 23))), odd);
    const auto normal = hn::Min(hn::ShiftRight<13>(rebased), hn::Set(di, 0x7c00));
    const auto shifted = hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F)));
    const auto denormal = hn::Sub(shifted, hn::Set(di, 0x3f000000));
    const auto number = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), denormal, normal);
    const auto nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
    hn::StoreU(hn::DemoteTo(d16, hn::IfThenElse(nan, hn::Set(di, kF16NaN), hn::Or(number, sign))), d16, to);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace gradshm::core
HWY_AFTER_NAMESPACE();
#endif  // GRADSHM_REDUCE_LANES_INL_HPP
