// Threads that make batches of the same samples, and drop them, at the same time: kernels, thread
// pool and buffer pool together, as the bindings call them.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "dispatch/dispatch.h"
#include "kernels/gather.h"
#include "kernels/pack.h"
#include "kernels/pad.h"
#include "runtime/buffer_pool.h"
#include "runtime/thread_pool.h"
#include "tests/check.h"

namespace {

using namespace pinfeed;
using namespace pinfeed::tests;
using runtime::BufferPool;

constexpr std::size_t kSamples = 48, kItems = 3 * 4096;  // bytes of a whole sample: an image's too

// Sample i has the bytes i + 1, and fills its slot except some bytes at the end.
struct Samples {
  Samples() {
    for (std::size_t i = 0; i < kSamples; ++i) {
      bytes[i].assign(kItems, static_cast<std::uint8_t>(i + 1));
      shapes[i] = static_cast<std::int64_t>(kItems - 100 * i);
      const auto* const data = reinterpret_cast<const std::byte*>(bytes[i].data());
      rows[i] = data;
      padded[i] = {data, &shapes[i], &stride, {}, true};
      const auto begin = static_cast<std::int64_t>(kItems * i);
      segments[i] = {begin, shapes[i], begin + static_cast<std::int64_t>(kItems), 0};
      images[i] = {bytes[i].data(), 3 * 64, 3, 1};
    }
  }

  std::array<std::vector<std::uint8_t>, kSamples> bytes;
  std::array<const void*, kSamples> rows{};
  std::array<std::int64_t, kSamples> shapes{};
  std::int64_t stride = 1;
  std::array<kernels::Sample, kSamples> padded{};
  std::array<kernels::Segment, kSamples> segments{};
  std::array<kernels::ImageSource, kSamples> images{};
};

enum class Kind : std::uint8_t { gather, pad, pack, image, kinds };

void write(const Samples& samples, Kind kind, void* out) {
  const dispatch::Isa& isa = dispatch::active_isa();
  const kernels::Fill fill;
  const std::array<float, 3> scale{1, 1, 1}, bias{};
  const auto box = static_cast<std::int64_t>(kItems);
  const kernels::PadBatch pad{
      samples.padded.data(),        kSamples, 1, &box, &samples.stride, false, &fill,
      static_cast<std::byte*>(out), false};
  const kernels::PackBatch pack{samples.padded.data(),
                                samples.segments.data(),
                                kSamples,
                                box * static_cast<std::int64_t>(kSamples),
                                1,
                                &fill,
                                nullptr,
                                static_cast<std::byte*>(out),
                                false};
  const kernels::ImageBatch image{samples.images.data(),
                                  kSamples,
                                  64,
                                  64,
                                  3,
                                  scale.data(),
                                  bias.data(),
                                  out,
                                  kernels::ImageLayout::chw,
                                  kernels::PixelType::float32,
                                  false};
  const std::size_t rows = kind == Kind::image ? 64 * kSamples : kSamples;
  runtime::parallel_for(rows, rows / 8, 3, [&](std::size_t begin, std::size_t end) {
    if (kind == Kind::gather) {
      kernels::gather_rows(samples.rows.data(), kItems, out, begin, end, false);
    } else if (kind == Kind::pad) {
      kernels::pad_samples(pad, *isa.permute, begin, end);
    } else if (kind == Kind::pack) {
      kernels::pack_samples(pack, *isa.permute, begin, end);
    } else {
      isa.normalize_images(image, begin, end);
    }
  });
}

template <class Item>
bool is_right(const Samples& samples, Kind kind, const void* batch) {
  const bool is_cut = kind == Kind::pad || kind == Kind::pack;
  const Item* item = static_cast<const Item*>(batch);
  for (std::size_t i = 0; i < kSamples; ++i) {
    const std::size_t items = is_cut ? static_cast<std::size_t>(samples.shapes[i]) : kItems;
    for (std::size_t j = 0; j < kItems; ++j) {
      if (*item++ != static_cast<Item>(j < items ? i + 1 : 0)) return false;
    }
  }
  return true;
}

void test_batches_of_threads() {
  constexpr std::size_t kThreads = 4, kRounds = PINFEED_UNDER_TSAN ? 10 : 50;
  const Samples samples;
  std::array<std::atomic<void*>, kThreads> last{};
  std::atomic<int> wrong{0};
  const auto make = [&](std::size_t thread) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto kind = static_cast<Kind>((thread + round) % static_cast<std::size_t>(Kind::kinds));
      const bool is_image = kind == Kind::image;
      void* const batch = BufferPool::instance().acquire(kSamples * kItems * (is_image ? 4 : 1));
      write(samples, kind, batch);
      wrong += !(is_image ? is_right<float>(samples, kind, batch)
                          : is_right<std::uint8_t>(samples, kind, batch));
      // Another thread made the batch that is freed here.
      BufferPool::instance().release(last[(thread + 1) % kThreads].exchange(batch));
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(make, i);
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<void*>& batch : last) BufferPool::instance().release(batch);
  CHECK(wrong == 0);
}

}  // namespace

void batches_tests() { run("batches that four threads make and drop", test_batches_of_threads); }
