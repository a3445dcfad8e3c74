// The file reads of one batch, and where they put the bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/part_ends.h"
#include "runtime/row_files.h"

namespace pinfeed::runtime {

// An array in files: file i holds consecutive rows, from its byte offsets[i] on.
struct FileRows {
  std::shared_ptr<RowFiles> files;
  std::vector<std::int64_t> offsets;
  PartEnds ends;
};

// The bytes of a sample: from its lowest byte, relative to the first item, to past the highest.
struct SampleBytes {
  SampleBytes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
              std::size_t item_bytes);

  // Whether to read the sample as one range; the range of a scattered sample may be the whole file.
  bool is_dense() const {
    constexpr std::int64_t kMaxTimes = 4, kAlways = 64 << 10;
    return end - begin <= std::max(kMaxTimes * used, kAlways);
  }

  std::int64_t begin = 0;
  std::int64_t end;
  std::int64_t used;
};

// An error about rows that can't be read.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& message, int number)
      : std::runtime_error(message), error_number(number) {}

  int error_number;  // errno, or 0 for a file that changed
};

// The samples of one batch in files. Add them first; then call find_mapped() and read_to(), or
// plan() and the chunks. All functions that wait for files throw FileError.
class FileReads {
 public:
  // `memory`: the address of the array's first item, or where it would be if the files were mapped
  // one after the other. `row_stride`: in bytes.
  FileReads(const FileRows& rows, const std::byte* memory, std::int64_t row_stride)
      : file_(rows), memory_(memory), row_stride_(row_stride) {}

  void reserve(std::size_t samples);

  // Adds row `row` of the array (of a ragged one, in one file, sequence `row`), whose first item is
  // at `data`, relative to `memory`.
  void add(std::int64_t row, const std::byte* data, const SampleBytes& bytes);

  // Instead: adds all samples, which use the same bytes of their rows.
  void add_rows(std::span<const std::int64_t> rows, const SampleBytes& bytes);

  // Whether the batch likely takes microseconds, with nothing to wait for.
  bool seems_hot() const { return file_.files->seems_hot(); }

  // Whether all samples are used where they are mapped; then data() has their addresses. Throws if
  // a file opened by its path has changed.
  bool find_mapped();

  // Reads the samples, which must have no gaps, to `out`, concatenated.
  void read_to(std::byte* out, std::size_t threads);

  // Decides where each sample will be for its chunk: in memory, mapped or read. `whole`: all of
  // them stay there.
  void plan(bool whole, std::size_t threads);
  const std::byte* data(std::size_t sample) const { return data_[sample]; }

  // The chunks, as ranges of samples. Chunks that are ready need no read_chunk().
  bool is_ready() const { return is_mapped_ || is_read_; }
  bool is_mapped() const { return is_mapped_; }
  std::size_t chunks() const { return chunks_.size() - 1; }
  std::pair<std::size_t, std::size_t> chunk(std::size_t number) const {
    return {chunks_[number], chunks_[number + 1]};
  }
  void read_chunk(std::size_t number, std::size_t threads);

 private:
  struct Staging {
    void operator()(std::byte* memory) const;
  };

  std::size_t count() const { return rows_.size(); }
  void require_unchanged();
  std::pair<std::size_t, std::int64_t> place_of(std::size_t sample) const;
  std::pair<std::size_t, std::int64_t> place_of(std::int64_t row, std::int64_t distance) const;
  bool look_at_samples();
  void list_reads();
  void stage(bool whole);
  void read(std::size_t begin, std::size_t end, std::size_t threads);
  [[noreturn]] void fail(const ReadFailure& failure) const;

  const FileRows& file_;
  const std::byte* memory_;
  std::int64_t row_stride_;
  std::optional<SampleBytes> common_;  // the common range of all samples, while reads_ isn't needed
  std::vector<RowRead> reads_;         // one per sample
  std::vector<std::int64_t> rows_;     // row numbers in the array; in reads_, in the file
  std::vector<std::size_t> heads_;     // offsets from the first byte read to the sample's beginning
  std::vector<const std::byte*> data_;
  std::vector<std::size_t> chunks_;
  std::unique_ptr<std::byte, Staging> staging_;
  bool is_mapped_ = false;
  bool is_read_ = false;
};

}  // namespace pinfeed::runtime
