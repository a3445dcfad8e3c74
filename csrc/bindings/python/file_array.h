// An array whose memory is a file, or many: what it looks like, and how its rows are read.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/python/array_view.h"
#include "bindings/python/parallel.h"
#include "bindings/python/part_ends.h"
#include "runtime/row_files.h"

namespace pinfeed::bindings {

// `array` tells dtype, shape and strides. Of one file: where its memory is mapped from byte
// offsets[0] of the file on. Of many: no memory at all; part i holds its rows one right after the
// other, from its byte offsets[i] on.
struct FileArray {
  pybind11::object array;
  std::shared_ptr<runtime::RowFiles> files;
  std::vector<std::int64_t> offsets;
  PartEnds ends;                // of many
  std::int64_t first_size = 0;  // of one: bytes of the file when this was made

  // Null for an object of any other type.
  static const FileArray* in(pybind11::handle object);
};

// What a sample touches: from its lowest byte, relative to the first item, to past the highest.
struct SampleBytes {
  SampleBytes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              std::size_t item_bytes);

  // Whether it is worth reading as a whole; the extent of one that lies in pieces may be the file.
  bool is_dense() const {
    constexpr std::int64_t kMostTimes = 4, kAlways = 64 << 10;
    return end - begin <= std::max(kMostTimes * used, kAlways);
  }

  std::int64_t begin = 0;
  std::int64_t end;
  std::int64_t used;
};

// Bytes that one batch needs of a FileArray, and what gets them.
class FileReads {
 public:
  FileReads(const FileArray& array, const ArrayView& view);

  void reserve(std::size_t samples);

  // The next sample: row `row` of the array (of a ragged one, sequence `row`), whose first item is
  // at `data` if it is mapped.
  void add(std::int64_t row, const std::byte* data, const SampleBytes& bytes);

  // Instead: all samples, which touch the same bytes of their rows.
  void add_rows(std::span<const std::int64_t> rows, const SampleBytes& bytes);

  // Instead of all that follows: asks the system for the samples, which a later batch will read.
  void prefetch();

  // Whether all samples are looked at where they are in memory; then data() says where.
  bool find_mapped();

  // Reads the samples, which must have no gaps, to `out`, one after the other.
  void read_to(std::byte* out, std::size_t threads);

  // Says where each sample will be when its turn comes: in memory, mapped or read. `whole`: all of
  // them are there from now on.
  void plan(bool whole, std::size_t threads);
  const std::byte* data(std::size_t sample) const { return data_[sample]; }

  // Calls write(begin, end) for samples that are there, until all have been.
  template <class Write>
  void run(std::size_t threads, const Write& write) {
    request();
    for (std::size_t i = 0; i + 1 < chunks_.size(); ++i) {
      if (!mapped_ && !is_read_) read(chunks_[i], chunks_[i + 1], threads);
      write(chunks_[i], chunks_[i + 1]);
    }
    if (mapped_) check();
  }

 private:
  struct Staging {
    void operator()(std::byte* memory) const;
  };

  bool find_rows();
  bool are_rows_whole() const;
  void list_reads();
  void stage(bool whole);
  void request();
  void read(std::size_t begin, std::size_t end, std::size_t threads);
  void check();
  [[noreturn]] void fail(const runtime::ReadFailure& failure) const;

  const FileArray& array_;
  const std::byte* memory_;
  std::int64_t row_stride_;
  std::optional<SampleBytes> alike_;     // of all samples, while reads_ isn't needed
  std::vector<runtime::RowRead> reads_;  // one for each sample
  std::vector<std::int64_t> rows_;       // of the array; in reads_, of the file
  std::vector<std::size_t> parts_;       // of the samples that are mapped, if there are many files
  std::vector<std::size_t> heads_;  // from the first byte that is read to where the sample begins
  std::vector<const std::byte*> data_;
  std::vector<std::size_t> chunks_;
  std::unique_ptr<std::byte, Staging> staging_;
  bool mapped_ = false;
  bool is_read_ = false;
};

// run_rows over samples that may have to be read first.
template <class Body>
void run_samples(FileReads* reads, std::size_t count, std::size_t sample_bytes, std::size_t threads,
                 const Body& body) {
  if (reads == nullptr) return run_rows(count, sample_bytes, threads, body);
  reads->run(threads, [&](std::size_t first, std::size_t last) {
    run_rows(last - first, sample_bytes, threads,
             [&](std::size_t begin, std::size_t end) { body(first + begin, first + end); });
  });
}

}  // namespace pinfeed::bindings
