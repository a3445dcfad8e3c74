#include <algorithm>

#include "bindings/torch/ops.h"

namespace pinfeed::torch_ops {
namespace {

using Letters = std::vector<std::string>;

// The characters of a text, as UTF-8 bytes.
Letters letters_of(const std::string& text) {
  Letters letters;
  for (const char byte : text) {
    const bool continues = (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u;
    if (!continues || letters.empty()) letters.emplace_back();
    letters.back() += byte;
  }
  return letters;
}

bool same_letters_once(Letters input, Letters output) {
  std::ranges::sort(input);
  std::ranges::sort(output);
  return input == output && std::ranges::adjacent_find(input) == input.end();
}

}  // namespace

PermuteCall check_permute(const Tensor& images, const std::string& input,
                          const std::string& output) {
  const Letters from = letters_of(input), to = letters_of(output);
  if (!same_letters_once(from, to)) {
    fail("permute: input and output must have the same letters, each once, got ", input, " and ",
         output);
  }
  if (images.dim() != static_cast<std::int64_t>(from.size())) {
    fail("permute: images must have an axis for each of the letters ", input, ", got shape ",
         shape_text(images));
  }
  const ScalarType type = images.scalar_type();
  PermuteCall call{.images = images,
                   .item_size = item_size(type, "permute: the dtype of images"),
                   .out = images};
  for (const std::string& letter : to) {
    const std::int64_t axis = std::ranges::find(from, letter) - from.begin();
    call.order.push_back(axis);
    call.shape.push_back(images.size(axis));
    call.strides.push_back(images.stride(axis));
  }
  call.bytes = checked_bytes(call.shape, call.item_size, "permute");
  call.out = make_output(call.shape, type, "permute: out", images);
  return call;
}

}  // namespace pinfeed::torch_ops
